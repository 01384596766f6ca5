"""Sending and receiving."""

import datetime
import time

import geminga
import pytest
from conftest import SOON, assert_nothing, receive, texts
from geminga.testing import EmbeddedBroker

#: Partitions out of three of the keys key-0 to key-19, as pulsar-client 3.13.0 chose them.
PYPI_PARTITIONS = [0, 0, 1, 2, 1, 1, 0, 2, 2, 0, 2, 2, 2, 2, 2, 2, 2, 1, 2, 2]


def test_what_is_sent_is_received_once_in_order(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for i in range(100):
        producer.send(f"m{i}".encode(), properties={"i": str(i)}, partition_key=f"k{i % 3}")
    messages = receive(consumer, 100)
    assert texts(messages) == [f"m{i}" for i in range(100)]
    assert messages[7].properties() == {"i": "7"}
    assert messages[7].partition_key() == "k1"
    consumer.acknowledge_cumulative(messages[-1])
    consumer.close()
    assert_nothing(client.subscribe(topic, "s"))


@pytest.mark.parametrize("codec", list(geminga.CompressionType))
def test_batches_of_every_codec_arrive(client, topic, codec):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, compression_type=codec, batching_enabled=True, batching_max_publish_delay_ms=20
    )
    for i in range(50):
        producer.send_async(f"{codec}-{i}".encode() * 20, None)
    producer.flush()
    messages = receive(consumer, 50)
    assert texts(messages) == [f"{codec}-{i}" * 20 for i in range(50)]
    assert messages[-1].message_id().batch_index() == 49


def test_what_goes_with_a_message_comes_with_it(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name="teller")
    before = int(time.time() * 1000)
    sent = producer.send(
        "grüße".encode(),
        properties={"é": "ü", "empty": ""},
        partition_key="ключ",
        ordering_key="order",
        sequence_id=7,
        event_timestamp=1234,
    )
    message = consumer.receive(timeout_millis=SOON)
    assert message.message_id() == sent
    assert message.properties() == {"é": "ü", "empty": ""}
    assert message.partition_key() == "ключ"
    assert message.ordering_key() == "order"
    assert message.event_timestamp() == 1234
    assert before - 60_000 <= message.publish_timestamp() <= before + 60_000
    assert message.producer_name() == "teller"
    assert message.topic_name() == topic
    assert message.redelivery_count() == 0
    assert (message.length(), message.has_null_value(), message.encryption_context()) == (7, False, None)
    assert producer.last_sequence_id() == 7


def test_the_payload_is_seen_without_a_copy(client, topic):
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"0123456789")
    message = consumer.receive(timeout_millis=SOON)
    view = memoryview(message)
    assert (view.readonly, view.format, len(view)) == (True, "B", 10)
    assert message.view()[3:5] == b"34"
    del message
    assert bytes(view) == b"0123456789", "it outlives the message"
    with pytest.raises(TypeError):
        view[0] = 1


def test_an_empty_payload_is_no_null_value(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"")
    producer.send(None, partition_key="gone")
    empty, null = receive(consumer, 2)
    assert (empty.data(), empty.value(), empty.has_null_value()) == (b"", b"", False)
    assert (null.data(), null.value(), null.has_null_value()) == (b"", None, True)
    assert len(memoryview(empty)) == 0


def test_only_what_the_schema_takes_is_sent(client, topic):
    consumer = client.subscribe(topic, "s", schema=geminga.StringSchema())
    with pytest.raises(TypeError, match="content must be bytes, not str; encode it"):
        client.create_producer(topic).send("text")
    producer = client.create_producer(topic, schema=geminga.schema.StringSchema())
    with pytest.raises(TypeError, match="expected type is <class 'str'>"):
        producer.send(b"bytes")
    producer.send("grüße")
    message = consumer.receive(timeout_millis=SOON)
    assert (message.value(), message.data()) == ("grüße", "grüße".encode())


def test_arguments_of_a_wrong_type_are_refused_before_anything_is_sent(client, topic):
    producer = client.create_producer(topic)
    for wrong in ({"partition_key": 5}, {"ordering_key": b"x"}, {"properties": {"a": 1}}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            producer.send(b"", **wrong)
    assert producer.last_sequence_id() == -1


def test_a_delayed_message_comes_when_it_is_due(client, topic):
    consumer = client.subscribe(topic, "s", consumer_type=geminga.ConsumerType.Shared)
    producer = client.create_producer(topic)
    start = time.monotonic()
    producer.send(b"later", deliver_after=datetime.timedelta(seconds=1.5))
    producer.send(b"now")
    assert texts(receive(consumer, 2)) == ["now", "later"]
    assert time.monotonic() - start >= 1.0


def test_keys_go_where_the_existing_client_sends_them(client, partitioned):
    producer = client.create_producer(partitioned)
    first = [producer.send(b"", partition_key=f"key-{i}").partition() for i in range(20)]
    again = [producer.send(b"", partition_key=f"key-{i}").partition() for i in range(20)]
    assert first == again == PYPI_PARTITIONS


def test_a_router_of_ones_own_picks_the_partition(client, partitioned):
    def router(message, partitions):
        assert partitions == 3
        return int(message.partition_key())

    producer = client.create_producer(
        partitioned,
        message_routing_mode=geminga.PartitionsRoutingMode.CustomPartition,
        message_router=router,
    )
    assert [producer.send(b"", partition_key=str(i)).partition() for i in (2, 0, 1)] == [2, 0, 1]
    with pytest.raises(ValueError, match="invalid literal"):
        producer.send(b"", partition_key="x")


def test_the_partitions_of_a_topic_are_listed(client, partitioned, topic):
    assert client.get_topic_partitions(partitioned) == [f"{topic}-partition-{i}" for i in range(3)]
    short = topic.rsplit("/", 1)[1]
    assert client.get_topic_partitions(short) == client.get_topic_partitions(partitioned)


def test_a_full_queue_refuses(topic):
    told = []
    with EmbeddedBroker() as broker, geminga.Client(broker.service_url) as client:
        producer = client.create_producer(topic, max_pending_messages=10, send_timeout_millis=1000)
        broker.stop()
        # Nothing is stored now, so the queue stays full.
        for _ in range(20):
            producer.send_async(b"x", lambda result, _: told.append(result))
        with pytest.raises(geminga.ProducerQueueIsFull):
            producer.send_async(b"x", None)
        with pytest.raises(geminga.Timeout):
            producer.flush()
    assert told == [geminga.Result.Timeout] * 10 + [geminga.Result.ProducerQueueIsFull] * 10


def test_a_full_queue_is_waited_for(client, topic):
    told = []
    slow = dict(batching_enabled=True, batching_max_publish_delay_ms=200, max_pending_messages=10)
    producer = client.create_producer(topic, block_if_queue_full=True, **slow)
    for _ in range(25):
        producer.send_async(b"x", lambda result, _: told.append(result))
    producer.flush()
    assert told == [geminga.Result.Ok] * 25


def test_a_message_too_big_says_so(client, topic):
    producer = client.create_producer(topic)
    with pytest.raises(geminga.MessageTooBig):
        producer.send(bytes(6 * 1024 * 1024))
    assert producer.send(b"small")


def test_a_schema_may_decode_the_whole_message(client, topic):
    class Keyed(geminga.StringSchema):
        def decode_message(self, msg):
            return msg.partition_key(), self.decode(msg.data())

    consumer = client.subscribe(topic, "s", schema=Keyed())
    client.create_producer(topic).send(b"v", partition_key="k")
    assert consumer.receive(timeout_millis=SOON).value() == ("k", "v")
