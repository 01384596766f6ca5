"""The four subscription types: who gets what."""

import geminga
import pytest

from .surface import numbers

SHARED, FAILOVER, KEY_SHARED = (
    geminga.ConsumerType.Shared,
    geminga.ConsumerType.Failover,
    geminga.ConsumerType.KeyShared,
)


def test_exclusive_refuses_a_second_consumer_or_lets_it_wait(surface, client):
    topic = surface.topic()
    first = client.subscribe(topic, "s")
    with pytest.raises(geminga.ConsumerBusy):
        surface.client().subscribe(topic, "s")
    first.close()
    second = surface.client().subscribe(topic, "s")
    client.create_producer(topic).send(b"for the second")
    assert surface.next(second).data() == b"for the second"


def test_failover_serves_one_consumer_and_then_the_other(surface, client):
    topic = surface.topic()
    other = surface.client()
    a = client.subscribe(topic, "s", consumer_type=FAILOVER, consumer_name="a")
    b = other.subscribe(topic, "s", consumer_type=FAILOVER, consumer_name="b")
    surface.send(client, topic, 20)
    active, standby, served = a, b, []
    while not served:
        if message := surface.within(active, 50):
            served.append(message)
        else:
            active, standby = standby, active
    served += surface.take(active, 19)
    assert [m.data().decode() for m in served] == numbers(20)
    surface.assert_nothing(standby)
    for message in served[:5]:
        active.acknowledge(message)
    active.close()
    assert surface.take_texts(standby, 15) == numbers(5, 20)
    surface.send(client, topic, 10, start=20)
    assert surface.take_texts(standby, 10) == numbers(20, 30)
    surface.assert_nothing(standby)


def test_shared_gives_each_message_to_one_consumer(surface, client):
    topic = surface.topic()
    consumers = [client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=10) for _ in range(3)]
    surface.send(client, topic, 300)
    shares = take_shares(surface, consumers, 300)
    assert all(shares)
    assert sorted(int(m.data()) for share in shares for m in share) == list(range(300))


def test_key_shared_gives_each_key_to_one_consumer_in_order(surface, client):
    topic = surface.topic()
    consumers = [client.subscribe(topic, "s", consumer_type=KEY_SHARED, receiver_queue_size=10) for _ in range(2)]
    sends = surface.sends(client.create_producer(topic))
    for i in range(300):
        # The ordering key counts where there is one; two of three have none.
        ordering = {"ordering_key": f"order-{i % 30}"} if i % 3 == 0 else {}
        sends.send(b"%d" % i, partition_key=f"key-{i % 30}", **ordering)
    sends.settle()
    shares = take_shares(surface, consumers, 300)
    keys = [{m.ordering_key() or m.partition_key() for m in share} for share in shares]
    assert all(keys) and not keys[0] & keys[1]
    order = {}
    for message in (m for share in shares for m in share):
        order.setdefault(message.ordering_key() or message.partition_key(), []).append(int(message.data()))
    assert all(found == sorted(found) for found in order.values())
    assert sum(map(len, order.values())) == 300


def test_unsubscribing_forgets_the_position(surface, client):
    topic = surface.topic()

    def subscribe():
        earliest = geminga.InitialPosition.Earliest
        return client.subscribe(topic, "s", consumer_type=SHARED, initial_position=earliest)

    consumer, other = subscribe(), subscribe()
    with pytest.raises(geminga.PulsarException):
        consumer.unsubscribe()
    other.close()
    surface.send(client, topic, 10)
    for message in surface.take(consumer, 10):
        consumer.acknowledge(message)
    consumer.unsubscribe()
    with pytest.raises(geminga.AlreadyClosed):
        consumer.receive()
    with pytest.raises(KeyError):
        surface.backlog(topic)
    assert surface.take_texts(subscribe(), 10) == numbers(10)


def take_shares(surface, consumers, count):
    """What each consumer gets of `count` messages; all are acknowledged."""
    shares = [[] for _ in consumers]

    def holds():
        for share, consumer in zip(shares, consumers):
            while message := surface.within(consumer, 10):
                share.append(message)
                consumer.acknowledge(message)
        return sum(map(len, shares)) >= count

    surface.eventually("every message has come", holds)
    for consumer in consumers:
        surface.assert_nothing(consumer)
    return shares
