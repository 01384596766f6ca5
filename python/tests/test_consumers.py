"""Subscriptions: acknowledging, redelivery, seeking, reading, listeners."""

import datetime
import threading
import time

import geminga
import pytest
from conftest import SOON, assert_nothing, receive, texts


def test_a_negatively_acknowledged_message_comes_again(client, topic):
    consumer = client.subscribe(
        topic, "s", consumer_type=geminga.ConsumerType.Shared, negative_ack_redelivery_delay_ms=500
    )
    client.create_producer(topic).send(b"again")
    start = time.monotonic()
    consumer.negative_acknowledge(consumer.receive(timeout_millis=SOON))
    message = consumer.receive(timeout_millis=SOON)
    assert (message.data(), message.redelivery_count()) == (b"again", 1)
    assert time.monotonic() - start >= 0.4


def test_an_acknowledgement_takes_a_message_or_its_id(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"1")
    producer.send(b"2")
    first, second = receive(consumer, 2)
    consumer.acknowledge(first)
    consumer.acknowledge(second.message_id())
    with pytest.raises(TypeError, match="a Message or a MessageId, not bytes"):
        consumer.acknowledge(b"x")
    consumer.close()
    assert_nothing(client.subscribe(topic, "s"))


def test_a_cumulative_acknowledgement_needs_an_order(client, topic):
    consumer = client.subscribe(topic, "s", consumer_type=geminga.ConsumerType.Shared)
    client.create_producer(topic).send(b"1")
    with pytest.raises(geminga.CumulativeAcknowledgementNotAllowedError):
        consumer.acknowledge_cumulative(consumer.receive(timeout_millis=SOON))


def test_unacknowledged_messages_are_delivered_again_on_request(client, topic):
    consumer = client.subscribe(topic, "s", consumer_type=geminga.ConsumerType.Shared)
    producer = client.create_producer(topic)
    for i in range(5):
        producer.send(str(i).encode())
    receive(consumer, 5)
    consumer.redeliver_unacknowledged_messages()
    assert sorted(texts(receive(consumer, 5))) == ["0", "1", "2", "3", "4"]


def test_a_seek_goes_to_an_id_or_a_time(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    ids = [producer.send(str(i).encode()) for i in range(3)]
    time.sleep(0.05)
    middle = datetime.datetime.now()
    time.sleep(0.05)
    producer.send(b"3")
    receive(consumer, 4)
    consumer.seek(ids[0])
    assert texts(receive(consumer, 3)) == ["1", "2", "3"]
    consumer.seek(geminga.MessageId.earliest)
    assert texts(receive(consumer, 4)) == ["0", "1", "2", "3"]
    consumer.seek(int(middle.timestamp() * 1000))
    assert texts(receive(consumer, 1)) == ["3"]
    consumer.seek(middle)
    assert texts(receive(consumer, 1)) == ["3"]
    for wrong in (-1, "x", True):
        with pytest.raises((TypeError, ValueError)):
            consumer.seek(wrong)
    assert consumer.get_last_message_id() > ids[2]


def test_a_batch_is_received_up_to_its_first_limit(client, topic):
    producer = client.create_producer(topic)
    policies = {
        "number": geminga.ConsumerBatchReceivePolicy(10, -1, 5000),
        "bytes": geminga.ConsumerBatchReceivePolicy(-1, 40, 5000),
        "time": geminga.ConsumerBatchReceivePolicy(1000, -1, 500),
    }
    consumers = {n: client.subscribe(topic, n, batch_receive_policy=p) for n, p in policies.items()}
    for i in range(25):
        producer.send(b"%010d" % i)
    assert len(consumers["number"].batch_receive()) == 10
    assert len(consumers["bytes"].batch_receive()) == 4
    assert len(consumers["time"].batch_receive()) == 25
    assert consumers["time"].batch_receive() == []


def test_a_subscription_without_a_place_starts_where_it_is_told(client, topic):
    client.create_producer(topic).send(b"old")
    earliest = geminga.InitialPosition.Earliest
    assert texts(receive(client.subscribe(topic, "e", initial_position=earliest), 1)) == ["old"]
    assert_nothing(client.subscribe(topic, "l"))


def test_a_second_exclusive_consumer_is_refused_at_once(client, topic):
    client.subscribe(topic, "s")
    start = time.monotonic()
    with pytest.raises(geminga.ConsumerBusy):
        client.subscribe(topic, "s")
    assert time.monotonic() - start < 5


def test_sticky_consumers_get_the_keys_of_their_slots(client, topic):
    def subscribe(low, high):
        policy = geminga.ConsumerKeySharedPolicy(geminga.KeySharedMode.Sticky, False, [(low, high)])
        kind = geminga.ConsumerType.KeyShared
        return client.subscribe(topic, "s", consumer_type=kind, key_shared_policy=policy)

    lower, upper = subscribe(0, 32767), subscribe(32768, 65535)
    producer = client.create_producer(topic)
    for i in range(40):
        producer.send(b"", partition_key=f"key-{i % 10}")
    shares = []
    for consumer in (lower, upper):
        keys = set()
        while True:
            try:
                keys.add(consumer.receive(timeout_millis=500).partition_key())
            except geminga.Timeout:
                break
        shares.append(keys)
    assert not shares[0] & shares[1]
    assert len(shares[0] | shares[1]) == 10


def test_iteration_ends_with_the_consumer(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    got = []

    def work():
        for message in consumer:
            got.append(message.data())
            consumer.acknowledge(message)

    thread = threading.Thread(target=work)
    thread.start()
    for i in range(10):
        producer.send(str(i).encode())
    end = time.monotonic() + 10
    while len(got) < 10 and time.monotonic() < end:
        time.sleep(0.01)
    consumer.close()
    thread.join(10)
    assert not thread.is_alive()
    assert got == [str(i).encode() for i in range(10)]


def test_a_reader_reads_what_is_there_and_says_when_that_is_all(client, topic):
    producer = client.create_producer(topic)
    ids = [producer.send(str(i).encode()) for i in range(10)]
    with client.create_reader(topic, geminga.MessageId.earliest) as reader:
        read = []
        while reader.has_message_available():
            read.append(reader.read_next(timeout_millis=SOON).data())
        assert read == [str(i).encode() for i in range(10)]
        with pytest.raises(geminga.Timeout, match="no message within 50 ms"):
            reader.read_next(timeout_millis=50)
        reader.seek(ids[7])
        assert reader.read_next(timeout_millis=SOON).data() == b"8"
    with client.create_reader(topic, ids[4], start_message_id_inclusive=True) as reader:
        assert next(iter(reader)).data() == b"4"
    assert not client.create_reader(topic, geminga.MessageId.latest).has_message_available()


def test_a_listener_gets_every_message_and_can_be_paused(client, topic):
    got, wanted = [], threading.Event()

    def listener(consumer, message):
        got.append(message.data())
        consumer.acknowledge(message)
        if len(got) % 10 == 0:
            wanted.set()

    consumer = client.subscribe(topic, "s", message_listener=listener)
    with pytest.raises(geminga.InvalidConfiguration, match="listener"):
        consumer.receive(timeout_millis=10)
    producer = client.create_producer(topic)
    for i in range(10):
        producer.send(b"%d" % i)
    assert wanted.wait(10)
    consumer.pause_message_listener()
    time.sleep(0.1)
    wanted.clear()
    for i in range(10, 20):
        producer.send(b"%d" % i)
    time.sleep(0.3)
    assert len(got) == 10
    consumer.resume_message_listener()
    assert wanted.wait(10)
    assert got == [b"%d" % i for i in range(20)]
    with pytest.raises(geminga.InvalidConfiguration, match="no message listener"):
        client.subscribe(topic, "other").pause_message_listener()


def test_a_reader_listener_is_called(client, topic):
    got = threading.Event()
    client.create_reader(topic, geminga.MessageId.earliest, reader_listener=lambda reader, message: got.set())
    client.create_producer(topic).send(b"x")
    assert got.wait(10)


def test_pb206_a_listener_that_raises_is_reported_and_goes_on(client, topic, monkeypatch):
    reports, got, done = [], [], threading.Event()
    monkeypatch.setattr("sys.unraisablehook", lambda report: reports.append(str(report.exc_value)))

    def listener(consumer, message):
        number = int(message.data())
        got.append(number)
        if number == 99:
            done.set()
        if number in (3, 7):
            raise ValueError(f"message {number}")
        consumer.acknowledge(message)

    consumer = client.subscribe(topic, "s", message_listener=listener, receiver_queue_size=5)
    producer = client.create_producer(topic)
    for i in range(100):
        producer.send(b"%d" % i)
    assert done.wait(10)
    consumer.close()
    assert got == list(range(100))
    assert reports == ["message 3", "message 7"]
    assert texts(receive(client.subscribe(topic, "s"), 2)) == ["3", "7"], "they stay unacknowledged"


def test_pb201_a_consumer_without_a_queue_works_as_any_other(client, topic):
    consumer = client.subscribe(topic, "s", receiver_queue_size=0)
    producer = client.create_producer(topic)
    assert_nothing(consumer)
    for i in range(3):
        producer.send(str(i).encode())
    assert consumer.receive().data() == b"0"
    assert texts(receive(consumer, 2)) == ["1", "2"]
    with pytest.raises(geminga.Timeout):
        consumer.receive(timeout_millis=100)
    got = threading.Event()
    client.subscribe(topic, "l", receiver_queue_size=0, message_listener=lambda *_: got.set())
    producer.send(b"x")
    assert got.wait(10)


def test_a_batch_of_a_number_alone_waits_for_it(client, topic):
    policy = geminga.ConsumerBatchReceivePolicy(3, -1, -1)
    consumer = client.subscribe(topic, "s", batch_receive_policy=policy)
    producer = client.create_producer(topic)
    producer.send(b"0")
    threading.Timer(0.3, lambda: [producer.send(b"1"), producer.send(b"2")]).start()
    assert texts(consumer.batch_receive()) == ["0", "1", "2"]


def test_a_deadline_that_has_passed_leaves_no_time(client, topic):
    consumer = client.subscribe(topic, "s")
    with pytest.raises(geminga.Timeout):
        consumer.receive(timeout_millis=-1)
    client.create_producer(topic).send(b"now", deliver_after=datetime.timedelta(seconds=-1))
    assert texts(receive(consumer, 1)) == ["now"]


def test_empty_names_are_none(client, topic):
    assert client.create_producer(topic, producer_name="").producer_name()
    assert client.subscribe(topic, "s", consumer_name="").consumer_name()


def test_numbers_beyond_all_use_are_refused_by_name(client, topic):
    with pytest.raises(ValueError, match="receiver_queue_size"):
        client.subscribe(topic, "s", receiver_queue_size=2**40)
    with pytest.raises(ValueError, match="max_redeliver_count"):
        geminga.ConsumerDeadLetterPolicy(2**31)
    with pytest.raises(TypeError, match="dead_letter_topic"):
        geminga.ConsumerDeadLetterPolicy(1, dead_letter_topic=5)
