"""Messages that are given back too often: where they go, what is left of them, and what nobody loses."""

import threading
import warnings

import geminga
import pytest


def subscribe(client, topic, policy, **options):
    options = {"consumer_type": geminga.ConsumerType.Shared, "negative_ack_redelivery_delay_ms": 50, **options}
    return client.subscribe(topic, "billing", dead_letter_policy=policy, **options)


def dead_letters(client, topic, count, subscription="dead"):
    """So many dead letters, and no more."""
    dead = client.subscribe(topic, subscription, initial_position=geminga.InitialPosition.Earliest)
    found = [dead.receive(timeout_millis=10000) for _ in range(count)]
    with pytest.raises(geminga.Timeout):
        dead.receive(timeout_millis=500)
    return found


def test_ten_poison_messages_of_a_hundred_are_dead_letters_with_all_that_came_with_them(client, topic, pulsar_url):
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=5)
    policy = geminga.ConsumerDeadLetterPolicy(2, initial_subscription_name="dead")
    good, lock, done = set(), threading.Lock(), threading.Event()
    workers = [geminga.Client(pulsar_url) for _ in range(3)]
    consumers = [subscribe(worker, topic, policy, receiver_queue_size=5) for worker in workers]

    def work(consumer):
        while not done.is_set():
            try:
                message = consumer.receive(timeout_millis=100)
            except geminga.Timeout:
                continue
            if int(message.data()) % 10 == 3:
                consumer.negative_acknowledge(message)
                continue
            consumer.acknowledge(message)
            with lock:
                good.add(int(message.data()))

    threads = [threading.Thread(target=work, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    for i in range(100):
        producer.send_async(
            str(i).encode(),
            None,
            partition_key=f"key-{i}",
            ordering_key=f"order-{i}",
            properties={"number": str(i)},
            event_timestamp=1_700_000_000_000 + i,
        )
    producer.flush()
    found = dead_letters(client, f"{topic}-billing-DLQ", 10)
    done.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert good == {i for i in range(100) if i % 10 != 3}
    assert sorted(int(message.data()) for message in found) == list(range(3, 100, 10))
    for message in found:
        number = int(message.data())
        assert message.partition_key() == f"key-{number}"
        assert message.ordering_key() == f"order-{number}"
        assert message.event_timestamp() == 1_700_000_000_000 + number
        properties = message.properties()
        assert properties.pop("REAL_TOPIC").endswith(topic)
        assert properties.pop("ORIGIN_MESSAGE_ID").count(":") in (2, 3)
        assert properties == {"number": str(number)}
    for worker in workers:
        worker.close()
    again = client.subscribe(topic, "billing", consumer_type=geminga.ConsumerType.Shared)
    with pytest.raises(geminga.Timeout):
        again.receive(timeout_millis=500)


def test_an_acknowledgement_saves_a_message_on_its_last_delivery(client, topic):
    consumer = subscribe(client, topic, geminga.ConsumerDeadLetterPolicy(1, topic + "-dead", "dead"))
    producer = client.create_producer(topic)
    for text in (b"saved", b"poison"):
        producer.send(text)
    for count in range(2):
        for _ in range(2):
            message = consumer.receive(timeout_millis=5000)
            assert message.redelivery_count() == count
            if message.data() == b"saved" and count == 1:
                consumer.acknowledge(message)
            else:
                consumer.negative_acknowledge(message)
    assert [message.data() for message in dead_letters(client, topic + "-dead", 1)] == [b"poison"]


def test_a_policy_has_an_effect_on_shared_and_key_shared_only_and_says_so(client, topic):
    policy = geminga.ConsumerDeadLetterPolicy(3)
    for kind in (geminga.ConsumerType.Exclusive, geminga.ConsumerType.Failover):
        with pytest.warns(RuntimeWarning, match="dead_letter_policy has no effect"):
            subscribe(client, f"{topic}-{kind.name}", policy, consumer_type=kind).close()
    for kind in (geminga.ConsumerType.Shared, geminga.ConsumerType.KeyShared):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            subscribe(client, f"{topic}-{kind.name}", policy, consumer_type=kind).close()
    with pytest.raises(ValueError, match="max_redeliver_count"):
        geminga.ConsumerDeadLetterPolicy(0)
    with pytest.raises(geminga.InvalidConfiguration, match="another than the consumer's"):
        subscribe(client, topic, geminga.ConsumerDeadLetterPolicy(1, topic))


def test_members_of_a_batch_given_back_one_by_one_are_delivered_as_often_as_others(client, topic):
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    consumer = subscribe(client, topic, geminga.ConsumerDeadLetterPolicy(1), negative_ack_redelivery_delay_ms=300)
    for i in range(5):
        producer.send_async(str(i).encode(), None)
    seen = []
    for _ in range(10):
        message = consumer.receive(timeout_millis=10000)
        seen.append(message.data())
        threading.Event().wait(0.1)
        consumer.negative_acknowledge(message)
    assert sorted(seen) == sorted(2 * [b"0", b"1", b"2", b"3", b"4"])
