"""Acknowledgements and their opposite: what comes again is exactly what is not acknowledged."""

import time

import geminga
import pytest

from .surface import ONE_BATCH, entry, numbers

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = (
    geminga.ConsumerType.Exclusive,
    geminga.ConsumerType.Shared,
    geminga.ConsumerType.Failover,
    geminga.ConsumerType.KeyShared,
)


def earliest(client, topic, kind=EXCLUSIVE, name="s", **options):
    """A consumer of a subscription that starts at the beginning."""
    position = geminga.InitialPosition.Earliest
    return client.subscribe(topic, name, consumer_type=kind, initial_position=position, **options)


def test_what_is_not_acknowledged_comes_again_after_a_restart(surface, client):
    for kind in (EXCLUSIVE, SHARED):
        topic = surface.topic(kind.name)
        surface.send(client, topic, 10)
        consumer = earliest(client, topic, kind)
        for message in surface.take(consumer, 10)[::2]:
            consumer.acknowledge(message)
        consumer.close()
        consumer = earliest(client, topic, kind)
        assert sorted(surface.take_texts(consumer, 5)) == ["1", "3", "5", "7", "9"]
        surface.assert_nothing(consumer)
        assert surface.backlog(topic) == 5


def test_a_cumulative_acknowledgement_covers_all_before_it(surface, client):
    for kind in (EXCLUSIVE, FAILOVER):
        topic = surface.topic(kind.name)
        surface.send(client, topic, 10)
        consumer = earliest(client, topic, kind)
        consumer.acknowledge_cumulative(surface.take(consumer, 10)[6])
        consumer.close()
        consumer = earliest(client, topic, kind)
        assert surface.take_texts(consumer, 3) == ["7", "8", "9"]
        surface.assert_nothing(consumer)


def test_batch_indexes_are_acknowledged_one_by_one(surface, client):
    for kind in (EXCLUSIVE, SHARED):
        topic = surface.topic(kind.name)
        surface.send(client, topic, 10, **ONE_BATCH)
        consumer = earliest(client, topic, kind, batch_index_ack_enabled=True)
        messages = surface.take(consumer, 10)
        assert_one_batch(messages)
        for index in (0, 3, 9):
            consumer.acknowledge(messages[index])
        consumer.close()
        consumer = earliest(client, topic, kind, batch_index_ack_enabled=True)
        rest = surface.take(consumer, 7)
        assert [m.data() for m in rest] == [b"1", b"2", b"4", b"5", b"6", b"7", b"8"]
        surface.assert_nothing(consumer)
        for message in rest:
            consumer.acknowledge(message)
        consumer.close()
        assert surface.backlog(topic) == 0, "the batch is done with its last message"


def test_without_batch_indexes_one_acknowledgement_spares_the_batch(surface, client):
    topic = surface.topic()
    surface.send(client, topic, 5, **ONE_BATCH)
    consumer = earliest(client, topic)
    messages = surface.take(consumer, 5)
    assert_one_batch(messages)
    consumer.acknowledge(messages[4])
    consumer.close()
    consumer = earliest(client, topic)
    again = surface.take(consumer, 5)
    assert [m.data().decode() for m in again] == numbers(5)
    for message in again:
        consumer.acknowledge(message)
    consumer.close()
    assert surface.backlog(topic) == 0


def test_a_cumulative_acknowledgement_may_end_inside_a_batch(surface, client):
    for indexes in (True, False):
        topic = surface.topic(str(indexes))
        surface.send(client, topic, 2)
        surface.send(client, topic, 6, **ONE_BATCH)
        consumer = earliest(client, topic, batch_index_ack_enabled=indexes)
        messages = surface.take(consumer, 8)
        assert_one_batch(messages[2:])
        consumer.acknowledge_cumulative(messages[4])
        consumer.close()
        expected = numbers(3, 6) if indexes else numbers(6)
        consumer = earliest(client, topic, batch_index_ack_enabled=indexes)
        assert surface.take_texts(consumer, len(expected)) == expected
        surface.assert_nothing(consumer)


def test_cumulative_is_refused_where_messages_are_shared(surface, client):
    topic = surface.topic()
    surface.send(client, topic, 2)
    for kind in (SHARED, KEY_SHARED):
        consumer = earliest(client, topic, kind, name=kind.name)
        message = surface.next(consumer)
        with pytest.raises(geminga.CumulativeAcknowledgementNotAllowedError):
            consumer.acknowledge_cumulative(message)
        consumer.acknowledge(message)
        assert surface.next(consumer).data() == b"1"


def test_a_negative_acknowledgement_brings_only_that_message_back_after_its_delay(surface, client):
    delay = 700
    for style, batching in (("single", {}), ("batch", ONE_BATCH)):
        topic = surface.topic(style)
        consumer = earliest(
            client, topic, SHARED, batch_index_ack_enabled=True, negative_ack_redelivery_delay_ms=delay
        )
        surface.send(client, topic, 5, **batching)
        for message in surface.take(consumer, 5):
            assert message.redelivery_count() == 0
            if message.data() == b"2":
                bad = message
            else:
                consumer.acknowledge(message)
        for count in (1, 2):
            refused = time.monotonic()
            consumer.negative_acknowledge(bad)
            bad = surface.next(consumer)
            assert time.monotonic() - refused >= delay / 1000
            assert (bad.data(), bad.redelivery_count()) == (b"2", count)
            surface.assert_nothing(consumer)
        consumer.acknowledge(bad)
        consumer.close()
        assert surface.backlog(topic) == 0


def assert_one_batch(messages):
    assert len({entry(message.message_id()) for message in messages}) == 1
