"""Both ways to use the package behind one face, so that a case is written once.

`Blocking` hands out the package's own objects. `Asyncio` hands out objects that run each coroutine to its end on a loop of their own.
What differs more than by an `await` is a method here: receiving with a time limit, and sending without waiting for each message.
"""

import asyncio
import inspect
import json
import time
import urllib.error
import urllib.parse
import uuid

import geminga
import geminga.asyncio

#: How long a fact may take to come true, and how long we listen before we believe that nothing comes. Milliseconds.
LONG = 30_000
QUIET = 400

#: One batch for all that is sent before a flush.
ONE_BATCH = {"batching_enabled": True, "batching_max_publish_delay_ms": 10_000}


class _Surface:
    """A broker, and topics of one case on it."""

    def __init__(self, url, admin, case):
        self.url = url
        self.admin = admin
        self._prefix = f"{case}-{uuid.uuid4().hex[:8]}"
        self._clients = []

    def topic(self, name="t", namespace="public/default"):
        """The full name of a topic of this case."""
        return f"persistent://{namespace}/{self._prefix}-{name}"

    def partitioned(self, partitions, **kwargs):
        """A topic with so many partitions."""
        topic = self.topic(f"of-{partitions}", **kwargs)
        self.admin("PUT", f"{rest(topic)}/partitions", str(partitions))
        return topic

    def namespace(self, name, **policies):
        """A namespace, made if it isn't there, with policies such as `deduplication`."""
        name = f"public/{name}"
        try:
            self.admin("PUT", f"namespaces/{name}")
        except urllib.error.HTTPError as error:
            assert error.code == 409, "it exists"
        for policy, value in policies.items():
            self.admin("POST", f"namespaces/{name}/{policy}", json.dumps(value))
        return name

    def backlog(self, topic, subscription="s", partitions=0):
        """What the broker says is not acknowledged, in entries or messages."""
        stats = "partitioned-stats" if partitions else "stats"
        answer = json.loads(self.admin("GET", f"{rest(topic)}/{stats}?getPreciseBacklog=true"))
        return answer["subscriptions"][subscription]["msgBacklog"]

    def client(self, url=None, **options):
        """A client, closed at the end of the case."""
        client = self._open(url or self.url, options)
        self._clients.append(client)
        return client

    def close(self):
        for client in self._clients:
            client.close()

    def send(self, client, topic, count, start=0, **options):
        """Sends numbers; returns their ids once all are stored."""
        producer = client.create_producer(topic, **options)
        sends = self.sends(producer)
        for i in range(start, start + count):
            sends.send(b"%d" % i)
        ids = sends.settle()
        producer.close()
        return ids

    def next(self, handle):
        """The next message, which has to come."""
        message = self.within(handle, LONG)
        assert message is not None, f"no message came within {LONG} ms"
        return message

    def take(self, handle, count):
        """The next messages, which have to come."""
        return [self.next(handle) for _ in range(count)]

    def take_texts(self, handle, count):
        return texts(self.take(handle, count))

    def assert_nothing(self, handle):
        message = self.within(handle, QUIET)
        assert message is None, f"unexpected: {message.data()}"

    def eventually(self, what, holds):
        """Waits until a fact holds, and lets the client's own tasks run meanwhile."""
        end = time.monotonic() + LONG / 1000
        while not holds():
            assert time.monotonic() < end, f"{LONG} ms later it still does not hold that {what}"
            self.pause(0.02)


class Blocking(_Surface):
    """`geminga`."""

    name = "python"

    def _open(self, url, options):
        return geminga.Client(url, **options)

    def within(self, handle, millis):
        """The next message within a time, or None."""
        receive = handle.read_next if isinstance(handle, geminga.Reader) else handle.receive
        try:
            return receive(timeout_millis=millis)
        except geminga.Timeout:
            return None

    def pause(self, seconds):
        time.sleep(seconds)

    def sends(self, producer):
        return _Callbacks(producer)


class _Callbacks:
    """Sends without waiting, by callbacks."""

    def __init__(self, producer):
        self._producer = producer
        self._sent = 0
        self.told = []

    def send(self, content, **extras):
        self._sent += 1
        self._producer.send_async(content, lambda result, message_id: self.told.append((result, message_id)), **extras)

    def settle(self):
        """Flushes; the ids of all messages, in the order they were sent."""
        self._producer.flush()
        assert len(self.told) == self._sent, "a flush waits for every callback"
        for result, _ in self.told:
            assert result == geminga.Result.Ok
        return [message_id for _, message_id in self.told]

    def outcomes(self):
        """The same, with a Result in place of an id where there is none."""
        self._producer.flush()
        return [message_id if result == geminga.Result.Ok else result for result, message_id in self.told]


class Asyncio(_Surface):
    """`geminga.asyncio`."""

    name = "python"

    def __init__(self, *args):
        super().__init__(*args)
        self._loop = asyncio.new_event_loop()
        self._trouble = []
        self._loop.set_exception_handler(lambda _, context: self._trouble.append(context))

    def _open(self, url, options):
        return _Waiting(geminga.asyncio.Client(url, **options), self._run)

    def close(self):
        super().close()
        self.pause(0)
        self._loop.close()
        assert not self._trouble

    def _run(self, coroutine):
        return self._loop.run_until_complete(coroutine)

    def within(self, handle, millis):
        async def receive():
            raw = handle.raw
            call = raw.read_next() if isinstance(raw, geminga.asyncio.Reader) else raw.receive()
            try:
                return await asyncio.wait_for(call, millis / 1000)
            except asyncio.TimeoutError:
                return None

        return self._run(receive())

    def pause(self, seconds):
        self._run(asyncio.sleep(seconds))

    def sends(self, producer):
        return _Tasks(producer, self._loop)


class _Tasks:
    """Sends without waiting, each a task."""

    def __init__(self, producer, loop):
        self._producer = producer.raw
        self._loop = loop
        self._tasks = []

    def send(self, content, **extras):
        self._tasks.append(self._loop.create_task(self._producer.send(content, **extras)))
        # The task starts, as it would in a program that goes on to something else.
        self._loop.run_until_complete(asyncio.sleep(0))

    def settle(self):
        self._loop.run_until_complete(self._producer.flush())
        return self._loop.run_until_complete(asyncio.gather(*self._tasks))

    def outcomes(self):
        self._loop.run_until_complete(self._producer.flush())
        told = self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        return [outcome.error() if isinstance(outcome, geminga.PulsarException) else outcome for outcome in told]


class _Waiting:
    """An object of `geminga.asyncio` whose coroutines are run to their end."""

    _HANDLES = (geminga.asyncio.Producer, geminga.asyncio.Consumer, geminga.asyncio.Reader)

    def __init__(self, raw, run):
        self.raw = raw
        self._run = run

    def __getattr__(self, name):
        method = getattr(self.raw, name)

        def call(*args, **kwargs):
            value = method(*args, **kwargs)
            if inspect.isawaitable(value):
                value = self._run(value)
            return _Waiting(value, self._run) if isinstance(value, self._HANDLES) else value

        return call


def rest(topic):
    """A topic's path in the admin API."""
    return urllib.parse.quote(topic.replace("://", "/"))


def texts(messages):
    return [message.data().decode() for message in messages]


def numbers(*args):
    return [str(i) for i in range(*args)]


def entry(message_id):
    """Where an entry is stored: the messages of a batch share it."""
    return message_id.partition(), message_id.ledger_id(), message_id.entry_id()
