"""The same client for asyncio: every call that waits is a coroutine, and the event loop never does.

>>> import asyncio
>>> from geminga.asyncio import Client
>>> from geminga.testing import EmbeddedBroker
>>> async def main(url):
...     async with Client(url) as client:
...         consumer = await client.subscribe("greetings", "readers")
...         producer = await client.create_producer("greetings")
...         await producer.send(b"hello")
...         async for message in consumer:
...             await consumer.acknowledge(message)
...             return message.data()
>>> with EmbeddedBroker() as broker:
...     asyncio.run(main(broker.service_url))
b'hello'

A cancelled call loses nothing: what a cancelled ``receive`` had taken is received by the next one. A cancelled ``send`` may have sent
its message.
"""

import asyncio
import contextlib
import logging

from geminga import _geminga, client
from geminga import exceptions as _exceptions
from geminga.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
    Result,
)
from geminga.exceptions import PulsarException

__all__ = [
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
    "ConsumerCryptoFailureAction",
    "ConsumerType",
    "InitialPosition",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "PulsarException",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
]

#: Messages that are taken without a wait before the event loop has its turn.
_TURN = 64


class _Returnable:
    """A value that goes back to its handle when nobody takes it."""

    __slots__ = ("give_back", "value")

    def __init__(self, value, give_back):
        self.value = value
        self.give_back = give_back


def _finish(outcomes, loop_is_closed=False):
    """Completes futures, in the thread of their loop."""
    for future, value, error in outcomes:
        if isinstance(value, _geminga.Outcome):
            value, error = value.take()
        if loop_is_closed or future.done():
            if isinstance(value, _Returnable):
                value.give_back(value.value)
        elif error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


_geminga._set_finish(_finish)


async def _call(start):
    """Runs ``start(target)``, which returns what can be cancelled, and waits for the target's future."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    operation = start(_geminga.Target(loop, future))
    try:
        value = await future
    except (asyncio.CancelledError, GeneratorExit):
        # The second when the coroutine is closed or collected.
        value, _ = operation.cancel()
        if future.done() and not future.cancelled() and future.exception() is None:
            value = future.result()
        if isinstance(value, _Returnable):
            value.give_back(value.value)
        raise
    return value.value if isinstance(value, _Returnable) else value


async def _settle(core):
    """Waits for messages on their way, for no longer than the operation timeout, as the blocking ``close`` does."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_call(core._settle), core._operation_timeout())


class _Handle:
    """What producers, consumers and readers have in common."""

    def __init__(self, sync):
        self._sync = sync

    async def close(self):
        """Closes it. Closing twice is fine."""
        await _call(self._sync._close)

    def topic(self):
        """The full name of the topic."""
        return self._sync.topic()

    def is_connected(self):
        """Whether every partition has its connection."""
        return self._sync.is_connected()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()

    def __repr__(self):
        return f"<asyncio {repr(self._sync)[1:]}"


class Client:
    """One Pulsar client; the arguments are those of ``geminga.Client``. ``async with`` closes it."""

    def __init__(self, service_url, **kwargs):
        self._client = client.Client(service_url, **kwargs)
        self._core = self._client._core
        self._listeners = []

    async def create_producer(self, topic, **options):
        """Opens a producer; the arguments are those of ``geminga.Client.create_producer``."""
        arguments = _arguments(client.Client.create_producer, topic, **options)
        topic = arguments.pop("topic")
        client._check(str, topic, "topic")
        options = client.Client._producer_options(**arguments)
        return Producer(await _call(lambda to: self._core._create_producer(to, topic, options)))

    async def subscribe(self, topic, subscription_name, **options):
        """Opens a consumer; the arguments are those of ``geminga.Client.subscribe``.

        ``message_listener`` may be a coroutine function: it is awaited for each message, one after another, in this event loop.
        """
        arguments = _arguments(client.Client.subscribe, topic, subscription_name, **options)
        listener = arguments.pop("message_listener")
        topic, name = client._one_topic(arguments.pop("topic")), arguments.pop("subscription_name")
        client._check(str, name, "subscription_name")
        for unused in _UNUSED_BY_SUBSCRIBE:
            arguments.pop(unused)
        options = client.Client._consumer_options(**arguments, message_listener=None)
        consumer = Consumer(await _call(lambda to: self._core._subscribe(to, topic, name, options)))
        self._client._hold(consumer._sync)
        self._listen(consumer, listener)
        return consumer

    async def create_reader(self, topic, start_message_id, **options):
        """Opens a reader; the arguments are those of ``geminga.Client.create_reader``. ``reader_listener`` may be a coroutine function."""
        arguments = _arguments(client.Client.create_reader, topic, start_message_id, **options)
        listener = arguments.pop("reader_listener")
        topic, start = arguments.pop("topic"), arguments.pop("start_message_id")
        client._check(str, topic, "topic")
        client._check(_geminga.MessageId, start, "start_message_id")
        options = client.Client._reader_options(**arguments, reader_listener=None)
        reader = Reader(await _call(lambda to: self._core._create_reader(to, topic, start, options)))
        self._client._hold(reader._sync)
        self._listen(reader, listener)
        return reader

    async def get_topic_partitions(self, topic):
        """The full names of a topic's partitions; the topic itself when it has none."""
        client._check(str, topic, "topic")
        return client._partition_names(topic, await _call(lambda to: self._core._partitions(to, topic)))

    async def close(self):
        """Waits for messages on their way, up to the operation timeout, then closes everything this client opened."""
        for task in self._listeners:
            task.cancel()
        await _settle(self._core)
        await _call(self._core._close)
        self._client._held.clear()

    def shutdown(self):
        """Closes without waiting."""
        for task in self._listeners:
            task.cancel()
        self._core._shut_down()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()

    def __repr__(self):
        return f"<asyncio {repr(self._client)[1:]}"

    def _listen(self, handle, listener):
        if listener is None:
            return
        task = asyncio.get_running_loop().create_task(_listen(handle, listener))
        self._listeners = [task, *(task for task in self._listeners if not task.done())]


async def _listen(handle, listener):
    async for message in handle:
        try:
            called = listener(handle, message)
            if asyncio.iscoroutine(called):
                await called
        except Exception:
            logging.getLogger("geminga").exception("the listener of %r raised; its message stays unacknowledged", handle)


class Producer(_Handle):
    """Sends messages to one topic; made by ``Client.create_producer``. ``async with`` closes it."""

    async def send(self, content, **extras):
        """Sends a message and waits until the broker has stored it; returns its MessageId.

        The arguments are those of ``geminga.Producer.send``. Calls send in the order in which they are begun. With ``block_if_queue_full`` a
        full queue is waited for. Cancelled, it may have sent its message.
        """
        future = (loop := asyncio.get_running_loop()).create_future()
        self._sync.send_async(content, _geminga.Target(loop, future), **extras)
        return await future

    async def flush(self):
        """Sends what waits for its batch, and waits until everything sent before is settled. Raises the first failure among it."""
        await _call(self._sync._flush)

    async def close(self):
        """Waits for messages on their way, up to the operation timeout, then closes the producer."""
        await _settle(self._sync)
        await super().close()

    def producer_name(self):
        """The producer's name, generated by the broker unless given."""
        return self._sync.producer_name()

    def last_sequence_id(self):
        """The highest sequence id that the broker has confirmed, -1 for none."""
        return self._sync.last_sequence_id()


class _Receiving(_Handle):
    """What consumers and readers have in common."""

    def __init__(self, sync):
        super().__init__(sync)
        self._taken = 0

    async def _next(self):
        self._taken += 1
        if self._taken % _TURN == 0:
            # Before anything is taken, so that it is a place to be cancelled.
            await asyncio.sleep(0)
        message = self._sync._try_receive()
        if message is None:
            message = await _call(lambda to: self._sync._receive(to, self._returnable))
        return message

    def _returnable(self, message):
        return _Returnable(message, self._sync._put_back)

    async def seek(self, messageid):
        """Moves: to a MessageId, to milliseconds since 1970-01-01 UTC, or to a datetime."""
        await _call(lambda to: self._sync._seek(to, messageid))

    async def close(self):
        """Closes it; a waiting receive raises AlreadyClosed, and an iteration ends."""
        await _call(self._sync._close)

    def __aiter__(self):
        return self

    async def __anext__(self):
        try:
            return await self._next()
        except _exceptions.AlreadyClosed:
            raise StopAsyncIteration from None


class Consumer(_Receiving):
    """Receives the messages of a topic in one subscription; made by ``Client.subscribe``.

    ``async with`` closes it; ``async for message in consumer`` ends when it is closed.
    """

    async def receive(self):
        """The next message. Cancelled, as by ``asyncio.wait_for``, it loses none."""
        return await self._next()

    async def batch_receive(self):
        """Several messages in a list, by the consumer's ``batch_receive_policy``. Cancelled, it gives back what it had."""
        return await _call(lambda to: self._sync._batch_receive(to, self._returnable_batch))

    async def acknowledge(self, message):
        """Acknowledges a Message or MessageId: it will not come again."""
        self._sync.acknowledge(message)

    async def acknowledge_cumulative(self, message):
        """Acknowledges a Message or MessageId and all before it in its partition."""
        self._sync.acknowledge_cumulative(message)

    async def negative_acknowledge(self, message):
        """Says that a message was not processed: it comes again after the consumer's redelivery delay."""
        self._sync.negative_acknowledge(message)

    def redeliver_unacknowledged_messages(self):
        """Has everything that is not acknowledged delivered again, at once."""
        self._sync.redeliver_unacknowledged_messages()

    async def unsubscribe(self):
        """Removes the subscription at the broker and closes the consumer."""
        await _call(self._sync._unsubscribe)

    async def get_last_message_id(self):
        """The id of the last message of the topic."""
        return await _call(self._sync._last_message_id)

    def subscription_name(self):
        """The name of the subscription."""
        return self._sync.subscription_name()

    def consumer_name(self):
        """The consumer's name, drawn if none was given."""
        return self._sync.consumer_name()

    def _returnable_batch(self, messages):
        def give_back(messages):
            for message in reversed(messages):
                self._sync._put_back(message)

        return _Returnable(messages, give_back)


class Reader(_Receiving):
    """Reads a topic from a place of its own choice; made by ``Client.create_reader``.

    ``async with`` closes it; ``async for message in reader`` waits for new messages and ends when it is closed.
    """

    async def read_next(self):
        """The next message. Cancelled, as by ``asyncio.wait_for``, it loses none."""
        return await self._next()

    async def has_message_available(self):
        """Whether there is a message that this reader has not returned yet."""
        return await _call(self._sync._has_message_available)


#: Arguments of ``subscribe`` that have no effect.
_UNUSED_BY_SUBSCRIBE = (
    "broker_consumer_stats_cache_time_ms",
    "pattern_auto_discovery_period",
    "max_pending_chunked_message",
    "auto_ack_oldest_chunked_message_on_queue_full",
    "regex_subscription_mode",
)


def _arguments(function, *args, **kwargs):
    """The arguments of a call to a method of ``geminga.Client``, its defaults filled in."""
    import inspect

    bound = inspect.signature(function).bind(None, *args, **kwargs)
    bound.apply_defaults()
    del bound.arguments["self"]
    return bound.arguments
