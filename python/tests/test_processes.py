"""Ctrl-C, fork, and the end of the interpreter: each in a process of its own."""

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import FULL_SIZE

BLOCKING = {
    "receive": "client.subscribe(TOPIC, 's').receive()",
    "receive without a queue": "client.subscribe(TOPIC, 's', receiver_queue_size=0).receive()",
    "receive with a timeout": "client.subscribe(TOPIC, 's').receive(timeout_millis=60_000)",
    "batch_receive": "client.subscribe(TOPIC, 's', batch_receive_policy="
    "geminga.ConsumerBatchReceivePolicy(10, -1, 60_000)).batch_receive()",
    "iteration": "next(client.subscribe(TOPIC, 's'))",
    "read_next": "client.create_reader(TOPIC, geminga.MessageId.latest).read_next()",
    "send": "dead.create_producer(TOPIC)",
}


@pytest.mark.parametrize("call", BLOCKING.values(), ids=BLOCKING.keys())
def test_ctrl_c_ends_a_blocking_call_within_a_second(script, call):
    done = script(
        f"""
        import signal
        client = geminga.Client(URL)
        dead = geminga.Client("pulsar://127.0.0.1:1", operation_timeout_seconds=60)
        def interrupt():
            time.sleep(0.7)
            interrupt.at = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            {call}
        except KeyboardInterrupt:
            print(time.monotonic() - interrupt.at)
        """
    )
    assert float(done.stdout) < 1


@pytest.mark.parametrize("queue", [0, 1000])
def test_pb201_ctrl_c_is_heard_while_another_thread_receives(script, queue):
    done = script(
        f"""
        import signal
        consumer = geminga.Client(URL).subscribe(TOPIC, "s", receiver_queue_size={queue})
        threading.Thread(target=consumer.receive, daemon=True).start()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        try:
            time.sleep(10)
        except KeyboardInterrupt:
            print(time.monotonic() - start)
        """
    )
    assert float(done.stdout) < 1.3


def test_pb196_a_forked_child_gets_an_error_and_its_own_client_works(script):
    done = script(
        """
        client = geminga.Client(URL)
        producer, consumer = client.create_producer(TOPIC), client.subscribe(TOPIC, "s")
        reader = client.create_reader(TOPIC, geminga.MessageId.earliest)
        producer.send_async(b"parent", lambda *_: None)
        child = os.fork()
        if child == 0:
            calls = [lambda: producer.send(b"x"), lambda: producer.send_async(b"x", None), producer.flush, producer.close,
                     lambda: consumer.receive(timeout_millis=100), consumer.receive, consumer.close, reader.read_next,
                     lambda: client.create_producer(TOPIC), client.close, lambda: next(consumer)]
            for call in calls:
                start = time.monotonic()
                try:
                    call()
                    print("no error")
                except geminga.exceptions.ForkedProcess as error:
                    assert "fork" in str(error) and time.monotonic() - start < 1
            print(repr(client), repr(producer), repr(consumer))
            del producer, consumer, reader, client
            with geminga.Client(URL) as own:
                own.create_producer(TOPIC).send(b"child")
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        got = sorted(consumer.receive(timeout_millis=10_000).data() for _ in range(2))
        print(got)
        client.close()
        """
    )
    assert "no error" not in done.stdout
    assert "of another process" in done.stdout
    assert "[b'child', b'parent']" in done.stdout


def test_pb196_multiprocessing_workers_get_an_error_not_a_hang(script):
    done = script(
        """
        import multiprocessing
        client = geminga.Client(URL)
        producer = client.create_producer(TOPIC)
        def work(i):
            try:
                producer.send(b"x")
            except geminga.PulsarException as error:
                return type(error).__name__
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map_async(work, range(4)).get(timeout=10))
        """
    )
    assert done.stdout.strip() == str(["ForkedProcess"] * 4)


ENDS = {
    "dropped in a function": "def f():\n    geminga.Client(URL).create_producer(TOPIC).send(b'x')\nf()",
    "never closed": "p = geminga.Client(URL).create_producer(TOPIC)\np.send(b'x')",
    "pending sends": "p = geminga.Client(URL).create_producer(TOPIC, batching_enabled=True)\n"
    "[p.send_async(b'x', lambda *_: None) for _ in range(1000)]",
    "exit in a callback": "p = geminga.Client(URL).create_producer(TOPIC)\n"
    "p.send_async(b'x', lambda *_: sys.exit(3))\ntime.sleep(0.2)",
    "a listener at work": "c = geminga.Client(URL)\nk = c.subscribe(TOPIC, 's', message_listener=lambda c, m: time.sleep(0.05))\n"
    "p = c.create_producer(TOPIC)\n[p.send_async(b'x', None) for _ in range(100)]",
    "a broker that is gone": "p = geminga.Client('pulsar://127.0.0.1:1')\n"
    "threading.Thread(target=lambda: p.create_producer(TOPIC), daemon=True).start()\ntime.sleep(0.3)",
    "a thread in receive": "c = geminga.Client(URL).subscribe(TOPIC, 's')\n"
    "threading.Thread(target=c.receive, daemon=True).start()\ntime.sleep(0.3)",
    "ctrl-c in a receive": "import signal\nc = geminga.Client(URL).subscribe(TOPIC, 's')\n"
    "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
    "try:\n    c.receive()\nexcept KeyboardInterrupt:\n    pass",
    "a logger": "import logging\nc = geminga.Client(URL, logger=logging.getLogger('mine'))\nc.create_producer(TOPIC)",
}


@pytest.mark.parametrize("program", ENDS.values(), ids=ENDS.keys())
def test_pb197_the_process_ends_by_itself_with_its_own_status(script, program):
    # With a logger in all of them: they used to hang in it.
    logger = "import logging\nlogging.basicConfig(level=logging.DEBUG, filename=os.devnull)\n"
    for _ in range(200 if FULL_SIZE else 1):
        start = time.monotonic()
        done = script(logger + program + "\nsys.exit(7)\n", check=False, timeout=15)
        assert done.returncode == 7, done.stderr
        assert time.monotonic() - start < 8
        assert done.stdout == ""
        assert "panicked" not in done.stderr and "Fatal" not in done.stderr, done.stderr


def test_ten_messages_without_a_flush_or_a_close_arrive(script, client, topic):
    consumer = client.subscribe(topic, "s")
    start = time.monotonic()
    done = script(
        """
        producer = geminga.Client(URL).create_producer(TOPIC, batching_enabled=True, batching_max_publish_delay_ms=500)
        for i in range(10):
            producer.send_async(b"hello %d" % i, lambda result, message_id: None)
        """
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert time.monotonic() - start < 5
    got = [consumer.receive(timeout_millis=5000).data() for _ in range(10)]
    assert got == [b"hello %d" % i for i in range(10)]


def test_an_endless_worker_ends_on_sigint_with_pythons_status(pulsar_url, topic):
    text = (
        "import geminga, sys\n"
        f"consumer = geminga.Client({pulsar_url!r}).subscribe({topic!r}, 's')\n"
        "sys.stderr.write('ready'); sys.stderr.flush()\n"
        "while True:\n    consumer.acknowledge(consumer.receive())\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.PIPE, text=True)
    assert worker.stderr.read(5) == "ready"
    time.sleep(0.3)
    start = time.monotonic()
    os.kill(worker.pid, signal.SIGINT)
    _, error = worker.communicate(timeout=10)
    assert time.monotonic() - start < 3
    assert worker.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in error


def test_the_end_of_the_interpreter_may_overtake_slow_callbacks(script):
    done = script(
        """
        producer = geminga.Client(URL).create_producer(TOPIC)
        for _ in range(500):
            producer.send_async(b"", lambda result, message_id: time.sleep(0.01))
        """
    )
    assert done.stderr == ""
