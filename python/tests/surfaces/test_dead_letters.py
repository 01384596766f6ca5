"""Messages that are given back again and again: the broker counts, the client gives up."""

import geminga

from .surface import ONE_BATCH


def subscribe(client, topic, maximum=None, kind=geminga.ConsumerType.Shared, **options):
    policy = maximum and geminga.ConsumerDeadLetterPolicy(maximum, initial_subscription_name="keep")
    return client.subscribe(
        topic,
        "s",
        consumer_type=kind,
        initial_position=geminga.InitialPosition.Earliest,
        negative_ack_redelivery_delay_ms=50,
        dead_letter_policy=policy,
        **options,
    )


def acknowledged(surface, topic, partitions=0):
    surface.eventually("everything is acknowledged", lambda: surface.backlog(topic, partitions=partitions) == 0)


def test_what_is_given_back_too_often_ends_in_the_dead_letter_topic(surface, client):
    for kind, partitions in ((geminga.ConsumerType.Shared, 0), (geminga.ConsumerType.KeyShared, 3)):
        topic = surface.partitioned(partitions) if partitions else surface.topic(kind.name)
        consumer = subscribe(client, topic, 2, kind)
        producer = client.create_producer(topic)
        producer.send(b"good", partition_key="other")
        properties = {"b": "2", "имя": "значение"}
        producer.send(
            b"poison",
            partition_key="clé",
            ordering_key="order",
            properties=properties,
            event_timestamp=1_700_000_000_123,
        )
        counts = []
        while len(counts) < 3:
            message = surface.next(consumer)
            if message.data() == b"good":
                consumer.acknowledge(message)
                continue
            origin, place = message.topic_name(), message.message_id()
            counts.append(message.redelivery_count())
            consumer.negative_acknowledge(message)
        assert counts == [0, 1, 2]
        dead = client.subscribe(f"{topic}-s-DLQ", "keep")
        letter = surface.next(dead)
        assert letter.data() == b"poison"
        assert (letter.partition_key(), letter.ordering_key()) == ("clé", "order")
        assert letter.event_timestamp() == 1_700_000_000_123
        written = f"{place.ledger_id()}:{place.entry_id()}:{place.partition()}"
        assert letter.properties() == {**properties, "REAL_TOPIC": origin, "ORIGIN_MESSAGE_ID": written}
        surface.assert_nothing(dead)
        surface.assert_nothing(consumer)
        consumer.close()
        acknowledged(surface, topic, partitions)


def test_of_a_batch_only_what_is_given_back_becomes_dead_letters(surface, client):
    for index_acks in (True, False):
        topic = surface.topic(str(index_acks))
        consumer = subscribe(client, topic, 1, batch_index_ack_enabled=index_acks)
        surface.send(client, topic, 4, **ONE_BATCH)
        for message in surface.take(consumer, 4):
            consumer.negative_acknowledge(message)
        for message in surface.take(consumer, 4):
            assert message.redelivery_count() == 1
            if message.data() in (b"1", b"3"):
                consumer.negative_acknowledge(message)
            else:
                consumer.acknowledge(message)
        dead = client.subscribe(f"{topic}-s-DLQ", "keep")
        assert sorted(surface.take_texts(dead, 2)) == ["1", "3"]
        surface.assert_nothing(dead)
        surface.assert_nothing(consumer)
        consumer.close()
        acknowledged(surface, topic)


def test_what_came_too_often_already_goes_there_undelivered(surface, client):
    topic = surface.topic()
    without = subscribe(client, topic)
    surface.send(client, topic, 1)
    for count in range(3):
        message = surface.next(without)
        assert message.redelivery_count() == count
        if count < 2:
            without.negative_acknowledge(message)
    # The count lives as long as the subscription has a consumer.
    consumer = subscribe(client, topic, 1)
    without.close()
    dead = client.subscribe(f"{topic}-s-DLQ", "keep", initial_position=geminga.InitialPosition.Earliest)
    assert surface.take_texts(dead, 1) == ["0"]
    surface.assert_nothing(consumer)
    consumer.close()
    acknowledged(surface, topic)
