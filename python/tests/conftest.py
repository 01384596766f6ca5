"""What the tests share: a client on the embedded broker, or on the one that GEMINGA_BROKER_URL names, and a topic of its own."""

import os
import subprocess
import sys
import textwrap
import urllib.request
import uuid

import geminga
import pytest

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
