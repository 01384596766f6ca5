"""What is refused, and how that is told."""

import time

import geminga
import pytest

from .surface import numbers

LIMIT = 5 * 1024 * 1024
EARLIEST = geminga.MessageId.earliest


def test_a_full_queue_fails_or_waits(surface, client):
    topic = surface.topic()
    reader = client.create_reader(topic, EARLIEST)
    # A batch that is not full waits, so that the queue fills without depending on speed.
    slow = {"batching_enabled": True, "batching_max_publish_delay_ms": 20_000}
    sends = surface.sends(client.create_producer(topic, max_pending_messages=5, **slow))
    for i in range(6):
        sends.send(b"%d" % i)
    outcomes = sends.outcomes()
    assert outcomes[5] == geminga.Result.ProducerQueueIsFull
    assert [type(outcome) for outcome in outcomes[:5]] == [geminga.MessageId] * 5
    sends.send(b"5")
    assert isinstance(sends.outcomes()[6], geminga.MessageId)
    assert surface.take_texts(reader, 6) == numbers(6)

    sends = surface.sends(client.create_producer(topic, max_pending_messages=5, block_if_queue_full=True))
    for i in range(200):
        sends.send(b"%d" % i)
    sends.settle()
    assert surface.take_texts(reader, 200) == numbers(200)


def test_the_largest_payload_passes_and_a_byte_more_is_refused(surface, client):
    topic = surface.topic()
    reader = client.create_reader(topic, EARLIEST)
    producer = client.create_producer(topic)
    passes, refused = LIMIT - 1024, LIMIT
    while refused - passes > 1:
        size = (passes + refused) // 2
        try:
            producer.send(bytes(size))
            passes = size
        except geminga.MessageTooBig:
            refused = size
    assert passes > LIMIT - 200
    payload = bytes(range(251)) * (passes // 251) + bytes(passes % 251)
    message_id = producer.send(payload)
    with pytest.raises(geminga.MessageTooBig):
        producer.send(bytes(refused))
    producer.send(b"after")
    reader.seek(message_id)
    assert surface.next(reader).data() == b"after"
    inclusive = client.create_reader(topic, message_id, start_message_id_inclusive=True)
    assert surface.next(inclusive).data() == payload, "it arrives whole"


def test_a_message_too_large_is_refused_and_spares_the_others(surface, client):
    topic = surface.topic()
    reader = client.create_reader(topic, EARLIEST)
    for batched in (False, True):
        producer = client.create_producer(topic, batching_enabled=batched)
        producer.send(b"before")
        with pytest.raises(geminga.MessageTooBig):
            producer.send(bytes(LIMIT + 1))
        producer.send(b"after")
        producer.send(b"7" * (LIMIT - 1024))
        codec = geminga.CompressionType.LZ4
        client.create_producer(topic, batching_enabled=batched, compression_type=codec).send(b"7" * (LIMIT + 1))
        assert [len(message.data()) for message in surface.take(reader, 4)] == [6, 5, LIMIT - 1024, LIMIT + 1]


def test_a_producer_name_in_use_is_busy_or_waited_for(surface, client):
    topic = surface.topic()
    first = client.create_producer(topic, producer_name="only")
    with pytest.raises(geminga.ProducerBusy):
        surface.client().create_producer(topic, producer_name="only")
    first.send(b"the first works on")
    first.close()
    surface.client().create_producer(topic, producer_name="only").send(b"the second")


def test_a_namespace_that_does_not_exist_is_a_clear_error(surface, client):
    for namespace in ("public/no-such-namespace", "no-such-tenant/default"):
        topic = surface.topic(namespace=namespace)
        began = time.monotonic()
        for call in calls_that_open(client, topic):
            with pytest.raises(geminga.TopicNotFound) as raised:
                call()
            assert topic in str(raised.value)
        assert time.monotonic() - began < 20


def test_an_unreachable_broker_is_a_clear_error(surface):
    # Nobody listens on this port, which is reserved.
    client = surface.client("pulsar://127.0.0.1:1", operation_timeout_seconds=1)
    topic = surface.topic()
    began = time.monotonic()
    for call in calls_that_open(client, topic):
        with pytest.raises(geminga.PulsarException) as raised:
            call()
        assert raised.value.retryable
        assert topic in str(raised.value) and "127.0.0.1:1" in str(raised.value)
    assert 3 <= time.monotonic() - began < 6


def test_closed_handles_say_so(surface, client):
    topic = surface.topic()
    consumer, reader = client.subscribe(topic, "s"), client.create_reader(topic, EARLIEST)
    producer = client.create_producer(topic)
    producer.send(b"m")
    message = surface.next(consumer)
    for _ in range(2):
        producer.close()
        consumer.close()
        reader.close()
    calls = [
        lambda: producer.send(b"late"),
        lambda: producer.flush(),
        lambda: consumer.receive(),
        lambda: surface.within(consumer, 10),
        lambda: consumer.acknowledge(message),
        lambda: consumer.acknowledge_cumulative(message),
        lambda: consumer.negative_acknowledge(message),
        lambda: consumer.seek(EARLIEST),
        lambda: consumer.get_last_message_id(),
        lambda: reader.read_next(),
        lambda: reader.has_message_available(),
        lambda: reader.seek(EARLIEST),
    ]
    open_producer = client.create_producer(topic)
    other = surface.client()
    for call in calls:
        with pytest.raises(geminga.AlreadyClosed):
            call()
    for _ in range(2):
        client.close()
    for call in (
        lambda: open_producer.send(b"late"),
        *calls_that_open(client, topic),
        lambda: client.get_topic_partitions(topic),
    ):
        with pytest.raises(geminga.AlreadyClosed):
            call()
    assert other.get_topic_partitions(topic) == [topic], "another client is not touched"


def calls_that_open(client, topic):
    return [
        lambda: client.create_producer(topic),
        lambda: client.subscribe(topic, "s"),
        lambda: client.create_reader(topic, EARLIEST),
    ]
