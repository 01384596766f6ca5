"""Callbacks of send_async, and many threads at once."""

import sys
import threading

import geminga
from conftest import FULL_SIZE, receive


def test_callbacks_come_in_order_once_each_and_flush_waits_for_them(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=True, max_pending_messages=0)
    told = []
    for i in range(5000):
        producer.send_async(b"%d" % i, lambda result, message_id, i=i: told.append((i, result, message_id)))
    producer.flush()
    assert [i for i, _, _ in told] == list(range(5000))
    assert {result for _, result, _ in told} == {geminga.Result.Ok}
    ids = [message_id for _, _, message_id in told]
    assert ids == sorted(ids) and len(set(ids)) == 5000
    assert [m.message_id() for m in receive(consumer, 5000)] == ids


def test_a_callback_that_raises_is_reported_and_kills_nothing(client, topic, monkeypatch):
    reports, told = [], []
    monkeypatch.setattr("sys.unraisablehook", reports.append)

    def callback(result, message_id):
        told.append(result)
        if len(told) == 2:
            raise ValueError("the second")
        if len(told) == 3:
            sys.exit(3)

    producer = client.create_producer(topic)
    for _ in range(5):
        producer.send_async(b"x", callback)
    producer.flush()
    assert told == [geminga.Result.Ok] * 5
    assert [type(report.exc_value) for report in reports] == [ValueError, SystemExit]
    assert reports[0].exc_traceback is not None and reports[0].object is callback


def test_a_callback_may_call_back_in(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    done = threading.Event()

    def again(result, message_id):
        producer.send(b"from the callback")
        producer.flush()
        producer.send_async(b"and asynchronously", lambda *_: done.set())

    producer.send_async(b"first", again)
    assert done.wait(10)
    assert len(receive(consumer, 3)) == 3


def test_what_could_not_be_sent_is_told_to_the_callback(client, topic):
    producer = client.create_producer(topic)
    producer.close()
    told = []
    producer.send_async(b"late", lambda result, message_id: told.append((result, message_id)))
    producer.close()
    assert told == [(geminga.Result.AlreadyClosed, geminga.MessageId())]


def test_pb194_threads_send_with_callbacks_and_finish(client, topic):
    producer = client.create_producer(
        topic, batching_enabled=True, block_if_queue_full=True, max_pending_messages=1000
    )
    lock, told = threading.Lock(), [0]
    each = 125_000 if FULL_SIZE else 5000

    def callback(result, message_id):
        assert result == geminga.Result.Ok
        with lock:
            told[0] += 1

    def work():
        for _ in range(each):
            producer.send_async(b"x" * 100, callback)
            with lock:
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
        assert not thread.is_alive()
    producer.flush()
    assert told[0] == 8 * each


def test_threads_share_a_consumer(client, topic):
    consumer = client.subscribe(topic, "s", consumer_type=geminga.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=True, max_pending_messages=0)
    lock, seen = threading.Lock(), []

    def work():
        while True:
            message = consumer.receive()
            consumer.acknowledge(message)
            with lock:
                seen.append(int(message.data()))
                if len(seen) >= 2000:
                    consumer.close()

    def until_closed():
        try:
            work()
        except geminga.AlreadyClosed:
            pass

    threads = [threading.Thread(target=until_closed) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(2000):
        producer.send_async(b"%d" % i, None)
    producer.flush()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert sorted(seen) == list(range(2000))
