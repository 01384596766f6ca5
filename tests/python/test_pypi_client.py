"""PyPI's pulsar-client against the embedded broker, or any other.

With GEMINGA_BROKER_URL and GEMINGA_ADMIN_URL set it uses that broker; otherwise it builds and starts the broker's
`serve` example and stops it at the end. Every test has a topic of its own, so the broker may be shared.
"""

import os
import subprocess
import time
import urllib.request
import uuid
from pathlib import Path

import pulsar
import pytest

ROOT = Path(__file__).resolve().parents[2]
RECEIVE_MILLIS = 10_000
NOTHING_MILLIS = 300


@pytest.fixture(scope="session")
def urls():
    """Addresses of the broker and of its admin API."""
    broker, admin = os.environ.get("GEMINGA_BROKER_URL"), os.environ.get("GEMINGA_ADMIN_URL")
    if broker:
        yield broker, admin
        return
    serve = ["cargo", "run", "--quiet", "-p", "geminga-broker", "--example", "serve", "--", "--port", "0"]
    process = subprocess.Popen(serve, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        found = dict(process.stdout.readline().strip().split("=", 1) for _ in range(2))
        yield found["GEMINGA_BROKER_URL"], found["GEMINGA_ADMIN_URL"]
    finally:
        process.stdin.close()
        process.wait(timeout=10)


@pytest.fixture
def client(urls):
    client = pulsar.Client(urls[0], logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    yield client
    client.close()


@pytest.fixture
def topic():
    return f"persistent://public/default/py-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def partitioned(urls, topic):
    """A topic with three partitions."""
    path = topic.replace("://", "/")
    request = urllib.request.Request(f"{urls[1]}/admin/v2/{path}/partitions", data=b"3", method="PUT")
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request).close()
    return topic


def receive(consumer, count):
    """`count` messages, not acknowledged."""
    return [consumer.receive(timeout_millis=RECEIVE_MILLIS) for _ in range(count)]


def texts(messages):
    return [message.data().decode() for message in messages]


def assert_nothing(consumer):
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=NOTHING_MILLIS)


def test_what_is_sent_is_received_once_in_order(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for i in range(100):
        producer.send(f"m{i}".encode(), properties={"i": str(i)}, partition_key=f"k{i % 3}")
    messages = receive(consumer, 100)
    assert texts(messages) == [f"m{i}" for i in range(100)]
    assert messages[7].properties() == {"i": "7"}
    assert messages[7].partition_key() == "k1"
    consumer.acknowledge_cumulative(messages[-1])
    consumer.close()
    assert_nothing(client.subscribe(topic, "s"))


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_batches_of_every_codec_arrive(client, topic, codec):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic,
        compression_type=getattr(pulsar.CompressionType, codec),
        batching_enabled=True,
        batching_max_publish_delay_ms=20,
    )
    for i in range(50):
        producer.send_async(f"{codec}-{i}".encode() * 20, None)
    producer.flush()
    messages = receive(consumer, 50)
    assert texts(messages) == [f"{codec}-{i}" * 20 for i in range(50)]
    assert messages[-1].message_id().batch_index() == 49


def test_a_message_in_chunks_is_put_together(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, chunking_enabled=True)
    value = os.urandom(12 * 1024 * 1024)
    producer.send(value)
    assert consumer.receive(timeout_millis=RECEIVE_MILLIS).data() == value


def test_shared_consumers_get_each_message_once(client, topic):
    consumers = [client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared) for _ in range(2)]
    producer = client.create_producer(topic)
    for i in range(40):
        producer.send(str(i).encode())
    shares = [[], []]
    end = time.monotonic() + 30
    while sum(map(len, shares)) < 40 and time.monotonic() < end:
        for consumer, share in zip(consumers, shares):
            try:
                message = consumer.receive(timeout_millis=NOTHING_MILLIS)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            share.append(message)
    assert all(shares), "one consumer got everything"
    assert sorted(map(int, texts(shares[0] + shares[1]))) == list(range(40))


def test_failover_goes_to_the_next_consumer(client, topic):
    first = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Failover, consumer_name="a")
    second = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Failover, consumer_name="b")
    producer = client.create_producer(topic)
    producer.send(b"1")
    try:
        message = first.receive(timeout_millis=RECEIVE_MILLIS // 5)
        active, standby = first, second
    except pulsar.Timeout:
        # On a topic without partitions the names decide, through a hash.
        message = second.receive(timeout_millis=RECEIVE_MILLIS)
        active, standby = second, first
    active.acknowledge(message)
    producer.send(b"2")
    assert texts(receive(active, 1)) == ["2"]
    assert_nothing(standby)
    active.close()
    assert texts(receive(standby, 1)) == ["2"]


def test_a_second_exclusive_consumer_is_refused(client, topic):
    client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")


def test_key_shared_keeps_a_key_on_one_consumer_in_order(client, topic):
    consumers = [client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.KeyShared) for _ in range(3)]
    producer = client.create_producer(topic, batching_enabled=False)
    for i in range(300):
        producer.send_async(str(i).encode(), None, partition_key=f"key-{i % 30}")
    producer.flush()
    owner, last, total, deadline = {}, {}, 0, time.monotonic() + 20
    while total < 300 and time.monotonic() < deadline:
        for index, consumer in enumerate(consumers):
            try:
                message = consumer.receive(timeout_millis=20)
            except pulsar.Timeout:
                continue
            key, number = message.partition_key(), int(message.data())
            assert owner.setdefault(key, index) == index
            assert last.get(key, -1) < number
            last[key] = number
            consumer.acknowledge(message)
            total += 1
    assert total == 300
    assert len(set(owner.values())) == 3


def test_a_negative_acknowledgement_brings_the_message_back(client, topic):
    consumer = client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100
    )
    producer = client.create_producer(topic)
    producer.send(b"good")
    producer.send(b"bad")
    for message in receive(consumer, 2):
        if message.data() == b"bad":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    again = consumer.receive(timeout_millis=RECEIVE_MILLIS)
    assert (again.data(), again.redelivery_count()) == (b"bad", 1)
    consumer.acknowledge(again)
    assert_nothing(consumer)


def test_a_message_refused_too_often_goes_to_the_dead_letter_topic(client, topic):
    dead = f"{topic}-dead"
    letters = client.subscribe(dead, "letters")
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(max_redeliver_count=2, dead_letter_topic=dead),
    )
    client.create_producer(topic).send(b"poison")
    for count in range(3):
        message = consumer.receive(timeout_millis=RECEIVE_MILLIS)
        assert message.redelivery_count() == count
        consumer.negative_acknowledge(message)
    assert texts(receive(letters, 1)) == ["poison"]


def test_acknowledged_messages_of_a_batch_do_not_come_back(client, topic):
    consumer = client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
    )
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    for i in range(10):
        producer.send_async(str(i).encode(), None)
    producer.flush()
    for message in receive(consumer, 10):
        if int(message.data()) % 2 == 0:
            consumer.acknowledge(message)
    consumer.close()
    consumer = client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
    )
    assert texts(receive(consumer, 5)) == ["1", "3", "5", "7", "9"]
    assert_nothing(consumer)


def test_a_reader_starts_where_it_is_told(client, topic):
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(str(i).encode()) for i in range(10)]
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    seen = []
    while reader.has_message_available():
        seen.append(reader.read_next(timeout_millis=RECEIVE_MILLIS).data().decode())
    assert seen == [str(i) for i in range(10)]
    after = client.create_reader(topic, ids[5])
    assert after.read_next(timeout_millis=RECEIVE_MILLIS).data() == b"6"
    latest = client.create_reader(topic, pulsar.MessageId.latest)
    assert not latest.has_message_available()
    producer.send(b"new")
    assert latest.read_next(timeout_millis=RECEIVE_MILLIS).data() == b"new"


def test_a_consumer_seeks_by_id_and_by_time(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    ids = []
    for i in range(5):
        ids.append(producer.send(str(i).encode()))
    time.sleep(0.05)
    middle = int(time.time() * 1000)
    time.sleep(0.05)
    for i in range(5, 10):
        ids.append(producer.send(str(i).encode()))
    receive(consumer, 10)
    consumer.seek(ids[2])
    assert texts(receive(consumer, 2)) == ["3", "4"]
    consumer.seek(middle)
    assert texts(receive(consumer, 5)) == ["5", "6", "7", "8", "9"]
    consumer.seek(pulsar.MessageId.earliest)
    assert texts(receive(consumer, 1)) == ["0"]


def test_a_partitioned_topic_keeps_keys_together_and_loses_nothing(client, partitioned):
    assert len(client.get_topic_partitions(partitioned)) == 3
    consumer = client.subscribe(partitioned, "s")
    producer = client.create_producer(partitioned)
    for i in range(90):
        producer.send(str(i).encode(), partition_key=f"key-{i % 9}")
    messages = receive(consumer, 90)
    assert sorted(int(m.data()) for m in messages) == list(range(90))
    partitions = {}
    for message in messages:
        partitions.setdefault(message.partition_key(), set()).add(message.message_id().partition())
    assert all(len(where) == 1 for where in partitions.values())
    assert len(set.union(*partitions.values())) > 1


def test_a_pattern_finds_topics(client, topic):
    for suffix in "ab":
        client.create_producer(f"{topic}-{suffix}").send(suffix.encode())
    import re

    consumer = client.subscribe(
        re.compile(f"{topic}-.*"), "s", initial_position=pulsar.InitialPosition.Earliest
    )
    assert sorted(texts(receive(consumer, 2))) == ["a", "b"]


def test_a_delayed_message_waits_on_a_shared_subscription(client, topic):
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic)
    started = time.monotonic()
    # A broker may be early by its tick of one second.
    producer.send(b"late", deliver_at=int(time.time() * 1000) + 2500)
    producer.send(b"now")
    assert texts(receive(consumer, 2)) == ["now", "late"]
    assert time.monotonic() - started >= 1.5


def test_a_non_persistent_topic_delivers_to_who_is_there(client, topic):
    topic = topic.replace("persistent://", "non-persistent://")
    producer = client.create_producer(topic)
    producer.send(b"nobody hears this")
    consumer = client.subscribe(topic, "s")
    producer.send(b"heard")
    assert texts(receive(consumer, 1)) == ["heard"]


def test_the_last_sequence_id_survives_a_producer(client, topic):
    producer = client.create_producer(topic, producer_name="p")
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="p")
    producer.send(b"x")
    producer.close()
    client.create_producer(topic, producer_name="p").send(b"y")


def test_an_unsubscribed_subscription_begins_anew(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"old")
    consumer.unsubscribe()
    consumer = client.subscribe(topic, "s")
    producer.send(b"new")
    assert texts(receive(consumer, 1)) == ["new"]


def test_a_schema_comes_back(client, topic):
    class Order(pulsar.schema.Record):
        name = pulsar.schema.String()
        count = pulsar.schema.Integer()

    schema = pulsar.schema.JsonSchema(Order)
    consumer = client.subscribe(topic, "s", schema=schema)
    client.create_producer(topic, schema=schema).send(Order(name="n", count=3))
    assert consumer.receive(timeout_millis=RECEIVE_MILLIS).value().count == 3
