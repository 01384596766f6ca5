"""What the tests share. The broker is the one that geminga's pytest plugin starts, or that GEMINGA_BROKER_URL names."""

import os
import subprocess
import sys
import uuid

import pytest


@pytest.fixture
def topic():
    return f"persistent://public/default/compat-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def python(pulsar_url):
    """Runs a program in a process of its own; returns what it was and did."""

    def run(text, path=(), check=True):
        environment = {**os.environ, "URL": pulsar_url, "PYTHONPATH": os.pathsep.join(map(str, path))}
        command = [sys.executable, "-c", text]
        done = subprocess.run(command, env=environment, timeout=60, capture_output=True, text=True)
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run
