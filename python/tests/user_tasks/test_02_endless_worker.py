"""Task 2: receive, parse, acknowledge; negative-acknowledge in the `except`; Ctrl-C ends it."""

import json
import signal
import time


def test_a_worker_survives_its_broker_and_ends_on_ctrl_c(start, own_broker, own_client):
    worker = start("worker.py", url=own_broker.service_url)
    assert worker.line() == "started"
    # No send timeout: how long a broker takes to start is not what this is about.
    producer = own_client.create_producer("orders", send_timeout_millis=0, block_if_queue_full=True)
    orders, refusals, sent = set(), [], 0

    def follow(until):
        while not until():
            kind, what = worker.line().split(" ", 1)
            if kind == "bad":
                assert what == "no JSON"
                refusals.append(time.monotonic())
            else:
                orders.add(int(what))

    def send(count):
        nonlocal sent
        for _ in range(count):
            producer.send_async(json.dumps({"id": sent}).encode(), None)
            sent += 1

    for _ in range(2):
        send(100)
        follow(lambda: len(orders) > sent - 50)
        own_broker.restart()
        send(100)
        follow(lambda: len(orders) == sent)
    producer.flush()
    producer.send(b"no JSON")
    follow(lambda: len(refusals) == 3)
    gaps = [later - earlier for earlier, later in zip(refusals, refusals[1:])]
    # The lines reach us a little after they are printed, the earlier one maybe more so.
    assert all(gap > 0.9 for gap in gaps), gaps
    assert orders == set(range(sent))
    interrupted = time.monotonic()
    worker.interrupt()
    worker.wait()
    assert time.monotonic() - interrupted < 1
    assert worker.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in worker.stderr
