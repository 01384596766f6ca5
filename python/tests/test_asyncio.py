"""asyncio: nothing is lost by cancelling, and the loop never waits."""

import asyncio
import os
import socket
import time

import geminga
import pytest
from conftest import FULL_SIZE
from geminga.asyncio import Client
from geminga.testing import EmbeddedBroker


def run(coroutine, timeout=60):
    """Runs it, failing on whatever reaches the loop's exception handler."""

    async def main():
        trouble = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: trouble.append(context))
        result = await asyncio.wait_for(coroutine, timeout)
        await asyncio.sleep(0.01)
        assert not trouble
        return result

    return asyncio.run(main())


async def heartbeat(gaps):
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.01)
        gaps.append(time.monotonic() - before - 0.01)


def test_what_is_sent_is_received_in_order(pulsar_url, topic):
    async def main():
        async with Client(pulsar_url) as client:
            consumer = await client.subscribe(topic, "s", schema=geminga.StringSchema())
            async with await client.create_producer(topic, schema=geminga.StringSchema()) as producer:
                ids = await asyncio.gather(*(producer.send(str(i), partition_key="k") for i in range(500)))
                assert ids == sorted(set(ids))
                await producer.flush()
                assert producer.last_sequence_id() == 499 and producer.topic() == topic
            messages = [await consumer.receive() for _ in range(500)]
            assert [m.value() for m in messages] == [str(i) for i in range(500)]
            assert [m.message_id() for m in messages] == ids
            await consumer.acknowledge(messages[0])
            await consumer.acknowledge_cumulative(messages[-1])
            assert await consumer.get_last_message_id() == ids[-1]
            await consumer.seek(ids[497])
            assert [m.value() for m in [await consumer.receive() for _ in range(2)]] == ["498", "499"]
            assert await client.get_topic_partitions(topic) == [topic]
            assert "asyncio" in repr(consumer) and "asyncio" in repr(client)

    run(main())


def test_iteration_ends_with_the_consumer(pulsar_url, topic):
    async def main():
        async with Client(pulsar_url) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            got = []

            async def work():
                async for message in consumer:
                    got.append(message.data())
                    await consumer.acknowledge(message)

            task = asyncio.create_task(work())
            for i in range(10):
                await producer.send(b"%d" % i)
            while len(got) < 10:
                await asyncio.sleep(0.01)
            await consumer.close()
            await task
            assert got == [b"%d" % i for i in range(10)]

    run(main())


def test_a_reader_reads_to_the_end(pulsar_url, topic):
    async def main():
        async with Client(pulsar_url) as client:
            producer = await client.create_producer(topic, batching_enabled=True)
            await asyncio.gather(*(producer.send(b"%d" % i) for i in range(50)))
            async with await client.create_reader(topic, geminga.MessageId.earliest) as reader:
                read = []
                while await reader.has_message_available():
                    read.append((await reader.read_next()).data())
                assert read == [b"%d" % i for i in range(50)]

    run(main())


def test_pb199_cancelled_receives_lose_no_message(pulsar_url, topic):
    count = 10_000 if FULL_SIZE else 2000

    async def main():
        async with Client(pulsar_url) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic, block_if_queue_full=True)

            async def produce():
                for i in range(count):
                    await producer.send(b"%d" % i)

            task = asyncio.create_task(produce())
            got, cancelled, calls = [], 0, 0
            while len(got) < count:
                calls += 1
                try:
                    if calls % 3:
                        message = await asyncio.wait_for(consumer.receive(), 0.0005)
                    else:
                        receive = asyncio.ensure_future(consumer.receive())
                        await asyncio.sleep(0)
                        receive.cancel()
                        message = await receive
                except (asyncio.TimeoutError, asyncio.CancelledError):
                    cancelled += 1
                    assert calls < 100 * count
                    continue
                got.append(int(message.data()))
            await task
            assert cancelled > 10
            assert got == list(range(count))

    run(main())


def test_pb199_cancelled_sends_reach_no_loop_exception(pulsar_url, topic):
    count = 2000

    async def main():
        async with Client(pulsar_url) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic, block_if_queue_full=True, max_pending_messages=100)
            sends = [asyncio.ensure_future(producer.send(b"%d" % i)) for i in range(count)]
            await asyncio.sleep(0)
            for send in sends[::2]:
                send.cancel()
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes[1::2]} == {geminga.MessageId}
            await producer.flush()
            # A cancelled send may have sent its message; all others have, in order.
            got = []
            while not got or got[-1] != count - 1:
                got.append(int((await consumer.receive()).data()))
            assert got == sorted(set(got)) and set(got) >= set(range(1, count, 2))

    run(main())


def test_pb199_a_loop_that_is_closed_before_the_outcome_is_left_alone(script, client, topic):
    consumer = client.subscribe(topic, "s")
    done = script(
        """
        import asyncio
        from geminga.asyncio import Client
        async def main():
            client = Client(URL)
            producer = await client.create_producer(TOPIC, batching_enabled=True, batching_max_publish_delay_ms=300)
            consumer = await client.subscribe(TOPIC, "other")
            asyncio.ensure_future(producer.send(b"x"))
            asyncio.ensure_future(consumer.receive())
            await asyncio.sleep(0.01)
            return client, producer, consumer
        kept = asyncio.run(main())
        time.sleep(0.6)
        print(kept[2]._sync.receive(timeout_millis=5000).data())
        """
    )
    assert (done.stdout, done.stderr) == ("b'x'\n", "")
    assert consumer.receive(timeout_millis=5000).data() == b"x"


def test_pb200_the_loop_runs_while_calls_wait(pulsar_url, topic):
    async def main():
        gaps = []
        beat = asyncio.create_task(heartbeat(gaps))
        # It accepts connections and never says a word; the other accepts none.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            for port in (silent.getsockname()[1], 1):
                async with Client(f"pulsar://127.0.0.1:{port}", operation_timeout_seconds=1) as dead:
                    with pytest.raises(geminga.PulsarException) as raised:
                        await dead.create_producer(topic)
                    assert raised.value.error() == raised.value.result
                    with pytest.raises(geminga.PulsarException):
                        await dead.get_topic_partitions(topic)
        async with Client(pulsar_url) as client:
            producer = await client.create_producer(topic)
            consumer = await client.subscribe(topic, "s")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(consumer.receive(), 0.3)
            await producer.send(b"x")
        beat.cancel()
        assert len(gaps) > 50
        assert max(gaps) < 0.5, "generous: other programs share this machine"

    run(main())


def test_a_full_queue_is_waited_for_in_order(pulsar_url, topic):
    async def main():
        async with Client(pulsar_url) as client:
            options = dict(batching_enabled=True, batching_max_publish_delay_ms=50, max_pending_messages=10)
            producer = await client.create_producer(topic, block_if_queue_full=True, **options)
            ids = await asyncio.gather(*(producer.send(b"%d" % i) for i in range(100)))
            assert ids == sorted(set(ids))
            impatient = await client.create_producer(topic, **options)
            sends = [asyncio.ensure_future(impatient.send(b"x")) for _ in range(11)]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert [type(o) for o in outcomes] == [geminga.MessageId] * 10 + [geminga.ProducerQueueIsFull]

    run(main())


def test_a_router_is_obeyed_by_sends_that_wait_for_room(pulsar_url, partitioned):
    async def main():
        async with Client(pulsar_url) as client:
            producer = await client.create_producer(
                partitioned,
                max_pending_messages=2,
                block_if_queue_full=True,
                message_routing_mode=geminga.PartitionsRoutingMode.CustomPartition,
                message_router=lambda message, _: int(message.partition_key()),
            )
            keys = [i * 7 % 3 for i in range(60)]
            ids = await asyncio.gather(*(producer.send(b"", partition_key=str(key)) for key in keys))
            assert [id.partition() for id in ids] == keys

    run(main())


def test_a_close_waits_for_messages_no_longer_than_the_operation_timeout(topic):
    async def main():
        client = Client(broker.service_url, operation_timeout_seconds=1)
        producer = await client.create_producer(topic, send_timeout_millis=0)
        broker.stop()
        sends = [asyncio.ensure_future(producer.send(b"never stored")) for _ in range(3)]
        await asyncio.sleep(0)
        await producer.close()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [geminga.AlreadyClosed] * 3
        await client.close()

    with EmbeddedBroker() as broker:
        run(main())


def test_batches_and_listeners(pulsar_url, topic):
    async def main():
        async with Client(pulsar_url) as client:
            policy = geminga.ConsumerBatchReceivePolicy(10, -1, 2000)
            consumer = await client.subscribe(topic, "s", batch_receive_policy=policy)
            got, done = [], asyncio.Event()

            async def listener(handle, message):
                await asyncio.sleep(0)
                got.append(message.data())
                if len(got) == 3:
                    raise ValueError("the third")
                await handle.acknowledge(message)
                if len(got) == 20:
                    done.set()

            await client.subscribe(topic, "l", message_listener=listener)
            producer = await client.create_producer(topic)
            for i in range(20):
                await producer.send(b"%d" % i)
            await done.wait()
            assert got == [b"%d" % i for i in range(20)]
            first = await consumer.batch_receive()
            assert [m.data() for m in first] == got[:10]
            batch = asyncio.ensure_future(client.subscribe(topic, "s"))
            with pytest.raises(geminga.ConsumerBusy):
                await batch

    run(main())


def test_pb206_a_listener_that_raises_is_logged_and_goes_on(pulsar_url, topic, caplog):
    async def main():
        got, done = [], asyncio.Event()

        async def listener(consumer, message):
            number = int(message.data())
            got.append(number)
            if number == 99:
                done.set()
            if number in (3, 7):
                raise ValueError(f"message {number}")
            await consumer.acknowledge(message)

        async with Client(pulsar_url) as client:
            consumer = await client.subscribe(topic, "s", message_listener=listener, receiver_queue_size=5)
            producer = await client.create_producer(topic)
            for i in range(100):
                await producer.send(b"%d" % i)
            await asyncio.wait_for(done.wait(), 10)
            await consumer.close()
            assert got == list(range(100))
            consumer = await client.subscribe(topic, "s")
            assert [(await consumer.receive()).data() for _ in range(2)] == [b"3", b"7"], "they stay unacknowledged"

    run(main())
    raised = [record for record in caplog.records if record.exc_info]
    assert [str(record.exc_info[1]) for record in raised] == ["message 3", "message 7"]
    assert all(record.exc_info[2] is not None and record.name == "geminga" for record in raised)


def test_errors_are_those_of_the_blocking_client(pulsar_url, topic):
    async def main():
        client = Client(pulsar_url)
        producer = await client.create_producer(topic)
        with pytest.raises(TypeError, match="content must be bytes"):
            await producer.send("text")
        with pytest.raises(TypeError, match="unexpected keyword"):
            await client.create_producer(topic, unknown=1)
        with pytest.raises(NotImplementedError):
            await client.create_producer(topic, chunking_enabled=True)
        await client.close()
        with pytest.raises(geminga.AlreadyClosed):
            await producer.send(b"x")
        client.shutdown()
        assert geminga.asyncio.PulsarException is geminga.PulsarException

    run(main())


def test_a_hundred_thousand_messages_leave_the_loop_free(pulsar_url, topic):
    count = int(os.environ.get("GEMINGA_ASYNC_MESSAGES", 20_000))

    async def main():
        async with Client(pulsar_url) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
            gaps = []
            beat = asyncio.create_task(heartbeat(gaps))

            async def produce():
                for start in range(0, count, 500):
                    await asyncio.gather(*(producer.send(b"%d" % i) for i in range(start, start + 500)))

            task = asyncio.create_task(produce())
            for i in range(count):
                message = await consumer.receive()
                assert int(message.data()) == i
                await consumer.acknowledge(message)
            await task
            beat.cancel()
            assert max(gaps) < 0.5, "generous: other programs share this machine"

    run(main())


@pytest.mark.parametrize("call", ["receive", "batch_receive"])
def test_a_receive_whose_coroutine_is_closed_loses_nothing(pulsar_url, topic, call):
    async def main():
        async with Client(pulsar_url) as client:
            consumer = await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            waiting = getattr(consumer, call)()
            waiting.send(None)
            waiting.close()
            await producer.send(b"x")
            assert (await consumer.receive()).data() == b"x"

    run(main(), timeout=20)
