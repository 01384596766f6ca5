"""What the tests share: a client on the embedded broker, or on the one that GEMINGA_BROKER_URL names, and a topic of its own."""

import os
import signal
import subprocess
import sys
import textwrap
import urllib.request
import uuid

import geminga
import pytest
from geminga.testing import EmbeddedBroker

# A shell that starts the tests in the background has them ignore Ctrl-C, and the processes that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Scenarios in their full size, which take minutes: GEMINGA_FULL_SIZE=1. Otherwise in one that takes seconds.
FULL_SIZE = os.environ.get("GEMINGA_FULL_SIZE") == "1"

#: How long a message may take to come, and how long none must come. Milliseconds.
SOON = 10_000
NOTHING = 300


@pytest.fixture
def client(pulsar_url):
    with geminga.Client(pulsar_url) as client:
        yield client


@pytest.fixture
def topic():
    return f"persistent://public/default/py-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def admin(request):
    """`admin(method, path, body)` on the broker's REST API."""
    base = os.environ.get("GEMINGA_ADMIN_URL") or request.getfixturevalue("pulsar_broker").admin_url

    def call(method, path, body=None):
        http = urllib.request.Request(f"{base}/admin/v2/{path}", data=body and body.encode(), method=method)
        http.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(http) as answer:
            return answer.read()

    return call


@pytest.fixture
def partitioned(admin, topic):
    """A topic with three partitions."""
    admin("PUT", topic.replace("://", "/") + "/partitions", "3")
    return topic


@pytest.fixture(scope="session")
def pulsar_is_real():
    """Whether the broker is a real Pulsar."""
    return bool(os.environ.get("GEMINGA_BROKER_URL"))


class LabBroker:
    """A standalone Pulsar, by the lab's executable that GEMINGA_LAB names."""

    def __init__(self, home):
        self._command = [os.environ["GEMINGA_LAB"], "--home", str(home)]
        exports = self._run("start", "standalone").split()
        variables = dict(word.split("=", 1) for word in exports if "=" in word)
        self.service_url, self.admin_url = variables["GEMINGA_BROKER_URL"], variables["GEMINGA_ADMIN_URL"]

    def restart(self):
        """Kills it and starts it again with its data."""
        self._run("restart", "standalone")

    def stop(self):
        self._run("stop")

    def _run(self, *arguments):
        return subprocess.run([*self._command, *arguments], check=True, text=True, stdout=subprocess.PIPE).stdout


@pytest.fixture(scope="session")
def own_broker(tmp_path_factory, pulsar_is_real):
    """A broker that a test may restart: embedded, or a real one where the others use a real one."""
    if not pulsar_is_real:
        with EmbeddedBroker() as broker:
            yield broker
    elif not os.environ.get("GEMINGA_LAB"):
        pytest.skip("GEMINGA_LAB names no program that starts a real broker")
    else:
        broker = LabBroker(tmp_path_factory.mktemp("lab"))
        try:
            yield broker
        finally:
            broker.stop()


@pytest.fixture
def script(pulsar_url, topic):
    """Runs a program in a process of its own, which finds URL and TOPIC; returns what it was and did."""

    def run(text, timeout=20, check=True, **kwargs):
        environment = {**os.environ, "URL": pulsar_url, "TOPIC": topic}
        head = "import os, sys, threading, time\nimport geminga\nURL, TOPIC = os.environ['URL'], os.environ['TOPIC']\n"
        done = subprocess.run(
            [sys.executable, "-c", head + textwrap.dedent(text)],
            env=environment,
            timeout=timeout,
            capture_output=True,
            text=True,
            **kwargs,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run


def receive(consumer, count):
    """`count` messages, not acknowledged."""
    return [consumer.receive(timeout_millis=SOON) for _ in range(count)]


def texts(messages):
    return [message.data().decode() for message in messages]


def assert_nothing(consumer):
    with pytest.raises(geminga.Timeout):
        consumer.receive(timeout_millis=NOTHING)
