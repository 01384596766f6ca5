"""Partitioned topics: where messages go."""

import json
from collections import Counter
from pathlib import Path


KEYS = Path(__file__).parents[3] / "tests/surfaces/partitions.tsv"


def test_a_key_stays_on_its_partition_and_in_order(surface, client):
    topic = surface.partitioned(4)
    assert client.get_topic_partitions(topic) == [f"{topic}-partition-{i}" for i in range(4)]
    consumer = client.subscribe(topic, "s")
    for batched in (True, False):
        sends = surface.sends(client.create_producer(topic, batching_enabled=batched))
        for i in range(200):
            sends.send(b"%d" % i, partition_key=f"ключ-{i % 20}")
        sends.settle()
        partitions, last = {}, {}
        for message in surface.take(consumer, 200):
            key, number = message.partition_key(), int(message.data())
            assert last.get(key, -1) < number
            last[key] = number
            partition = message.message_id().partition()
            assert message.topic_name() == f"{topic}-partition-{partition}"
            assert partitions.setdefault(key, partition) == partition
        assert len(set(partitions.values())) > 1


def test_each_hashing_scheme_picks_the_partition_of_other_clients(surface, client):
    topic = surface.partitioned(5)
    rows = [row.split("\t") for row in KEYS.read_text().splitlines() if not row.startswith("#")]
    for batched in (True, False):
        sends = surface.sends(client.create_producer(topic, batching_enabled=batched))
        for key, *_ in rows:
            sends.send(b"", partition_key=json.loads(key))
        assert [message_id.partition() for message_id in sends.settle()] == [int(boost) for *_, boost in rows]


def test_messages_without_key_reach_every_partition(surface, client):
    topic = surface.partitioned(3)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    sent = Counter(producer.send(b"%d" % i).partition() for i in range(30))
    assert sent == {0: 10, 1: 10, 2: 10}
    received = Counter()
    for message in surface.take(consumer, 30):
        received[message.message_id().partition()] += 1
        consumer.acknowledge(message)
    assert received == sent
    consumer.close()
    assert surface.backlog(topic, partitions=3) == 0
