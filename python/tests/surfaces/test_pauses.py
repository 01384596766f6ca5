"""What a broker may do to an open handle without an error: the application notices a pause at most."""

import uuid

import geminga

from .surface import numbers, rest


def test_an_unload_is_a_pause_without_an_error(surface, client):
    topic = surface.topic()
    consumer = client.subscribe(topic, "s")
    sends = surface.sends(client.create_producer(topic, batching_enabled=True))
    expected = 0
    for round in range(1, 5):
        for i in range((round - 1) * 150, round * 150):
            sends.send(b"%d" % i)
            if i % 150 == 75 and round < 4:
                surface.admin("PUT", f"{rest(topic)}/unload")
            if i % 10 == 0:
                surface.pause(0.01)
        expected = receive_until(surface, consumer, expected, round * 150 - 75)
    ids = sends.settle()
    assert ids == sorted(set(ids)), "none was doubled, and the order is that of the calls"
    receive_until(surface, consumer, expected, 600)
    # Acknowledgements wait for the connection; a close would not.
    surface.eventually("the consumer is back", consumer.is_connected)
    consumer.close()
    assert surface.backlog(topic) == 0


def test_a_partitioned_topic_survives_the_unload_of_its_namespace(surface, client):
    # The whole namespace goes, so it must not be one that other cases use.
    namespace = surface.namespace(f"unload-{uuid.uuid4().hex[:8]}")
    topic = surface.partitioned(4, namespace=namespace)
    consumer = client.subscribe(topic, "s")
    sends = surface.sends(client.create_producer(topic, batching_enabled=True))
    for round in range(3):
        for i in range(round * 100, (round + 1) * 100):
            sends.send(b"%d" % i, partition_key=f"key-{i % 10}")
        surface.admin("PUT", f"namespaces/{namespace}/unload")
    sends.settle()
    order = {}
    while sum(map(len, order.values())) < 300:
        message = surface.next(consumer)
        found = order.setdefault(message.partition_key(), [])
        if int(message.data()) not in found:
            found.append(int(message.data()))
    assert all(found == sorted(found) for found in order.values())


def test_a_broker_restart_is_a_pause_without_an_error(surface, own_broker):
    client = surface.client(own_broker.service_url)
    topic = "persistent://public/default/" + uuid.uuid4().hex
    consumer = client.subscribe(topic, "s")
    # No send timeout: how long a broker takes to start is not what this is about.
    producer = client.create_producer(topic, send_timeout_millis=0, max_pending_messages=0)
    sends = surface.sends(producer)
    for i in range(100):
        sends.send(b"%d" % i)
    expected = receive_until(surface, consumer, 0, 50)
    own_broker.restart()
    for i in range(100, 200):
        sends.send(b"%d" % i)
    receive_until(surface, consumer, expected, 200)
    ids = sends.settle()
    assert ids == sorted(set(ids)), "the order is that of the calls"
    surface.assert_nothing(consumer)


def test_deduplication_continues_from_the_last_sequence_id(surface, client):
    topic = surface.topic(namespace=surface.namespace("surface-dedup", deduplication=True))
    consumer = client.subscribe(topic, "s", initial_position=geminga.InitialPosition.Earliest)
    for batched in (False, True):
        options = {"producer_name": str(batched), "batching_enabled": batched}
        producer = client.create_producer(topic, **options)
        assert producer.last_sequence_id() == -1
        sends = surface.sends(producer)
        for i in range(10):
            sends.send(b"%d" % i, sequence_id=i)
        sends.settle()
        assert producer.last_sequence_id() == 9
        producer.close()

        producer = client.create_producer(topic, **options)
        assert producer.last_sequence_id() == 9
        for i in range(5, 10):
            assert producer.send(b"again", sequence_id=i).ledger_id() < 0, "a duplicate is stored nowhere"
        producer.send(b"10")
        assert producer.last_sequence_id() == 10
        assert surface.take_texts(consumer, 11) == numbers(11)
    surface.assert_nothing(consumer)


def receive_until(surface, consumer, expected, end):
    """Takes numbers up to `end`: in order, each after all before it. What was not acknowledged may come again."""
    while expected < end:
        message = surface.next(consumer)
        assert int(message.data()) <= expected
        expected = max(expected, int(message.data()) + 1)
        consumer.acknowledge(message)
    return expected
