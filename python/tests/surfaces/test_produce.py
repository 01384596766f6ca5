"""Sending: each way, each codec, and everything that may go with a message."""

import time

import geminga
import pytest

from .surface import entry, numbers, texts

#: Messages sent together share a batch, or each travels alone.
STYLES = {
    "batched": {"batching_enabled": True, "batching_max_publish_delay_ms": 50},
    "single": {"batching_enabled": False},
}


def test_every_way_of_sending_stores_in_order(surface, client):
    for style, options in STYLES.items():
        topic = surface.topic(style)
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, **options)
        ids = [producer.send(b"0")]
        sends = surface.sends(producer)
        for i in range(1, 100):
            sends.send(b"%d" % i)
        ids += sends.settle()
        assert ids == sorted(set(ids))
        assert (len({entry(i) for i in ids}) < 100) == (style == "batched")
        messages = surface.take(consumer, 100)
        assert texts(messages) == numbers(100)
        assert [message.message_id() for message in messages] == ids
        surface.assert_nothing(consumer)


def test_a_batch_goes_when_its_first_limit_is_reached(surface, client):
    topic = surface.topic()
    consumer = client.subscribe(topic, "s")
    never = 29_000
    wide = {
        "batching_enabled": True,
        "batching_max_messages": 1000,
        "batching_max_allowed_size_in_bytes": 1 << 20,
        "batching_max_publish_delay_ms": never,
    }
    limits = [
        ({"batching_max_messages": 10}, 10, 10, 10),
        ({"batching_max_allowed_size_in_bytes": 4096}, 50, 20, 41),
        ({"batching_max_publish_delay_ms": 300}, 30, 30, 30),
    ]
    for limit, count, least, most in limits:
        producer = client.create_producer(topic, **{**wide, **limit})
        began = time.monotonic()
        sends = surface.sends(producer)
        for _ in range(count):
            sends.send(bytes(100))
        first = [surface.next(consumer) for _ in range(least)]
        took = time.monotonic() - began
        assert took < never / 2000, "it waited for another limit"
        assert took >= 0.29 or "batching_max_publish_delay_ms" not in limit
        assert len({entry(message.message_id()) for message in first}) == 1
        sends.settle()
        rest = surface.take(consumer, count - least)
        together = [m for m in first + rest if entry(m.message_id()) == entry(first[0].message_id())]
        assert least <= len(together) <= most


def test_every_codec_is_read_back(surface, client):
    payloads = [bytes(i * i % 251 for i in range(size)) for size in (0, 1, 100, 10_000, 200_000)]
    for codec in geminga.CompressionType:
        for style, options in STYLES.items():
            topic = surface.topic(f"{codec.name}-{style}")
            reader = client.create_reader(topic, geminga.MessageId.earliest)
            sends = surface.sends(client.create_producer(topic, compression_type=codec, **options))
            for payload in payloads:
                sends.send(payload)
            sends.settle()
            assert [message.data() for message in surface.take(reader, len(payloads))] == payloads


def test_what_goes_with_a_message_comes_back(surface, client):
    for style, options in STYLES.items():
        topic = surface.topic(style)
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, producer_name="who", **options)
        before = int(time.time() * 1000)
        properties = {"b": "2", "a": "", "имя": "значение"}
        sends = surface.sends(producer)
        sends.send(
            b"full",
            partition_key="clé",
            ordering_key="порядок",
            properties=properties,
            event_timestamp=1_700_000_000_123,
            sequence_id=40,
        )
        sends.send(b"bare", sequence_id=51)
        ids = sends.settle()
        full, bare = surface.take(consumer, 2)
        assert (full.data(), full.partition_key(), full.ordering_key()) == (b"full", "clé", "порядок")
        assert (full.properties(), full.event_timestamp()) == (properties, 1_700_000_000_123)
        assert (full.producer_name(), full.topic_name()) == ("who", topic)
        assert (full.redelivery_count(), full.message_id()) == (0, ids[0])
        assert before - 60_000 <= full.publish_timestamp() <= before + 60_000
        assert (bare.data(), bare.partition_key(), bare.ordering_key()) == (b"bare", "", "")
        assert (bare.properties(), bare.event_timestamp()) == ({}, 0)
        assert producer.last_sequence_id() == 51


def test_an_empty_payload_is_not_a_tombstone(surface, client):
    for style, options in STYLES.items():
        topic = surface.topic(style)
        consumer = client.subscribe(topic, "s")
        sends = surface.sends(client.create_producer(topic, **options))
        sends.send(b"", partition_key="k")
        sends.send(None, partition_key="k")
        sends.send(b"")
        sends.settle()
        seen = [(m.data(), m.value(), m.has_null_value(), m.partition_key()) for m in surface.take(consumer, 3)]
        assert seen == [(b"", b"", False, "k"), (b"", None, True, "k"), (b"", b"", False, "")]


def test_names_and_texts_may_leave_ascii(surface, client):
    topic = surface.topic("тема ☂")
    consumer = client.subscribe(topic, "подписка ☂", consumer_name="потребитель")
    producer = client.create_producer(topic, producer_name="продюсер ☂")
    assert producer.producer_name() == "продюсер ☂"
    producer.send("ünïcödé 🦀".encode())
    message = surface.next(consumer)
    assert message.data().decode() == "ünïcödé 🦀"
    assert (message.producer_name(), message.topic_name()) == ("продюсер ☂", topic)
    assert (consumer.subscription_name(), consumer.consumer_name()) == ("подписка ☂", "потребитель")
    consumer.acknowledge(message)
    consumer.close()
    assert surface.backlog(topic, "подписка ☂") == 0


@pytest.mark.filterwarnings("error")
def test_a_non_persistent_topic_delivers_to_who_listens(surface, client):
    topic = surface.topic().replace("persistent", "non-persistent", 1)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for i in range(20):
        producer.send(b"%d" % i)
        # One at a time: a broker may drop what a consumer has not asked for yet.
        message = surface.next(consumer)
        assert (message.data(), message.topic_name()) == (b"%d" % i, topic)
        consumer.acknowledge(message)
    surface.assert_nothing(client.subscribe(topic, "late", initial_position=geminga.InitialPosition.Earliest))
