"""Runs programs in processes of their own, and says how they went."""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import geminga
import pytest

HERE = Path(__file__).parent
#: Where `import pulsar` comes from when its distribution is not installed.
COMPAT = HERE.parents[1] / "compat/src"

#: How long a program may run, in seconds. A real broker that starts twice takes a minute of it.
LIMIT = 180


class Program:
    """A running program."""

    def __init__(self, command, cwd):
        path = [os.environ.get("PYTHONPATH", "")]
        if importlib.util.find_spec("pulsar") is None:
            path.append(str(COMPAT))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "TZ": "Asia/Kathmandu"}
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._errors = []
        # Read aside, so that a program that says much there does not wait for us.
        self._reader = threading.Thread(target=lambda: self._errors.extend(self._process.stderr), daemon=True)
        self._reader.start()
        # So that a program that hangs fails its test.
        self._watchdog = threading.Timer(LIMIT, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        #: The most memory that it was seen to have, in bytes; 0 where there is no /proc.
        self.memory = 0
        threading.Thread(target=self._watch_memory, daemon=True).start()

    def _watch_memory(self):
        # Not `ru_maxrss`: a child's begins with what its parent has, and the tests of a whole run have more than a program.
        while True:
            try:
                status = Path(f"/proc/{self._process.pid}/status").read_text()
            except OSError:
                return
            peak = [line for line in status.splitlines() if line.startswith("VmHWM:")]
            if not peak:
                return
            self.memory = int(peak[0].split()[1]) * 1024
            time.sleep(0.02)

    def line(self):
        """The next line it prints."""
        line = self._process.stdout.readline()
        assert line, f"it ended: {self.stderr}"
        return line.rstrip("\n")

    def interrupt(self):
        self._process.send_signal(signal.SIGINT)

    def kill(self):
        self._process.kill()
        self.wait()

    def is_running(self):
        return self._process.poll() is None

    def wait(self):
        """Waits for its end. Then `stdout` is what it printed since the last `line`, `seconds` how long it ran."""
        self.stdout = self._process.stdout.read()
        _, status = os.waitpid(self._process.pid, 0)
        self.seconds = time.monotonic() - self._began
        self._watchdog.cancel()
        self.returncode = self._process.returncode = os.waitstatus_to_exitcode(status)
        self._process.stdout.close()
        self._reader.join(10)
        self._process.stderr.close()
        return self

    @property
    def stderr(self):
        return "".join(self._errors)


@pytest.fixture
def start(pulsar_url, tmp_path):
    """`start(name, *arguments)` starts a program, on the shared broker or the one at `url`, by Python or by `command`."""
    started = []

    def start(name, *arguments, url=pulsar_url, command=(sys.executable,)):
        text = (HERE / "programs" / name).read_text()
        assert "pulsar://localhost:6650" in text
        (tmp_path / name).write_text(text.replace("pulsar://localhost:6650", url))
        target = [name] if command == (sys.executable,) else []
        program = Program([*command, *target, *map(str, arguments)], tmp_path)
        started.append(program)
        return program

    yield start
    for program in started:
        if program.is_running():
            program.kill()


@pytest.fixture
def run(start):
    """The same for a program that ends by itself and without an error; `within` so many seconds, in the best of three runs."""

    def run(*arguments, within=None, **options):
        for _ in range(3):
            program = start(*arguments, **options).wait()
            assert program.returncode == 0, program.stderr
            # A busy machine makes one run slow; a program that waits for something is slow each time.
            if within is None or program.seconds < within:
                return program
        pytest.fail(f"it took {program.seconds:.1f} s, three times")

    return run


@pytest.fixture
def listen(client):
    """`listen(topic)`: a consumer of what comes from now on."""
    count = iter(range(100))

    def listen(topic):
        return client.subscribe(topic, f"test-{os.getpid()}-{time.time_ns()}-{next(count)}")

    return listen


@pytest.fixture
def own_client(own_broker):
    with geminga.Client(own_broker.service_url) as client:
        yield client
