"""A program of somebody who checks types: `mypy --strict` accepts it as it is."""

import asyncio
import datetime
import logging

import geminga
import geminga.asyncio
from geminga import schema
from geminga.testing import EmbeddedBroker


def listen(consumer: geminga.Consumer, message: geminga.Message) -> None:
    consumer.acknowledge(message)


def route(message: geminga.OutgoingMessage, partitions: int) -> int:
    return len(message.partition_key()) % partitions


def told(result: geminga.Result, message_id: geminga.MessageId) -> None:
    if result != geminga.Result.Ok:
        raise RuntimeError(f"{result} at {message_id}")


def blocking(url: str) -> list[bytes]:
    logger = logging.getLogger("typed")
    with geminga.Client(url, geminga.AuthenticationToken(lambda: "token"), logger=logger) as client:
        policy = geminga.ConsumerBatchReceivePolicy(10, -1, 1000)
        dead = geminga.ConsumerDeadLetterPolicy(3, dead_letter_topic=None)
        consumer = client.subscribe(
            "t",
            "s",
            consumer_type=geminga.ConsumerType.Shared,
            batch_receive_policy=policy,
            dead_letter_policy=dead,
            schema=schema.StringSchema(),
        )
        client.subscribe("t", "listening", message_listener=listen)
        producer = client.create_producer("t", compression_type=geminga.CompressionType.LZ4)
        routed = client.create_producer(
            "u", message_routing_mode=geminga.PartitionsRoutingMode.CustomPartition, message_router=route
        )
        first: geminga.MessageId = producer.send(b"a", properties={"k": "v"}, deliver_after=datetime.timedelta(0))
        routed.send_async(b"b", told, partition_key="key")
        routed.flush()
        reader = client.create_reader("t", geminga.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=1000)
            assert message.message_id() <= first
        consumer.seek(datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1))
        payloads = [bytes(memoryview(message)) for message in consumer.batch_receive()]
        try:
            consumer.receive(timeout_millis=0)
        except geminga.Timeout as error:
            assert error.result is geminga.Result.Timeout and error.retryable
        return payloads


async def native(url: str) -> bytes:
    async with geminga.asyncio.Client(url) as client:
        consumer = await client.subscribe("v", "s")
        async with await client.create_producer("v") as producer:
            message_id: geminga.MessageId = await producer.send(b"c", partition_key="k")
        async for message in consumer:
            await consumer.acknowledge(message)
            assert message.message_id() == message_id
            return message.data()
    raise AssertionError("the iteration ended")


def main() -> None:
    with EmbeddedBroker(tokens=[]) as broker:
        print(blocking(broker.service_url), asyncio.run(native(broker.service_url)))


if __name__ == "__main__":
    main()
