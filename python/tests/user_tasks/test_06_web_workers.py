"""Task 6: an endpoint publishes through a client of its module, under gunicorn with four workers."""

import re
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from conftest import receive
from geminga.testing import EmbeddedBroker

pytest.importorskip("gunicorn")


@pytest.fixture
def serve(start):
    """Starts gunicorn with the program; returns what asks it for a path: the status, the text and the seconds it took."""

    def serve(*options, **where):
        command = (sys.executable, "-m", "gunicorn", "--workers", "4", "--threads", "4", "--bind", "127.0.0.1:0")
        server = start("web.py", command=(*command, *options, "web:application"), **where)
        end = time.monotonic() + 20
        while not (found := re.search(r"Listening at: (http://\S+)", server.stderr)):
            assert server.is_running() and time.monotonic() < end, server.stderr
            time.sleep(0.02)

        def ask(path):
            began = time.monotonic()
            try:
                with urllib.request.urlopen(found[1] + path, timeout=30) as answer:
                    status, text = answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                status, text = error.code, error.read().decode()
            return status, text, time.monotonic() - began

        return ask

    return serve


def test_every_worker_publishes_through_its_own_client(serve, listen):
    consumer = listen("events")
    ask = serve()
    answers = []
    threads = [
        threading.Thread(target=lambda n=n: answers.extend(ask(f"/{n}/{i}") for i in range(10))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [(status, text) for status, text, _ in answers] == [(200, "stored")] * 80
    got = {message.data().decode() for message in receive(consumer, 80)}
    assert got == {f"/{n}/{i}" for n in range(8) for i in range(10)}


def test_a_client_from_before_the_fork_says_so_at_once(serve):
    ask = serve("--preload")
    for _ in range(8):
        status, text, seconds = ask("/event")
        assert status == 500
        assert "fork" in text
        assert seconds < 1


def test_a_request_ends_at_its_own_deadline_while_the_broker_is_gone(serve):
    with EmbeddedBroker() as broker:
        # One worker: another could be starting when the broker goes.
        ask = serve("--workers", "1", url=broker.service_url)
        assert ask("/event")[0] == 200
        broker.stop()
        for _ in range(2):
            status, text, seconds = ask("/event")
            assert status == 500
            # The program gives a message a second.
            assert seconds < 3, text
