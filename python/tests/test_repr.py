"""`repr` of every object says what one wants to know of it."""

import asyncio
import re

import geminga
import geminga.asyncio
import pytest
from conftest import SOON
from geminga.testing import EmbeddedBroker


def test_a_client_and_what_it_opened_name_where_they_work(pulsar_url, client, topic):
    assert repr(client) == f"<Client of {pulsar_url}>"
    producer = client.create_producer(topic, producer_name="p")
    consumer = client.subscribe(topic, "s", consumer_name="c")
    reader = client.create_reader(topic, geminga.MessageId.earliest, reader_name="r")
    assert repr(producer) == f"<Producer on {topic}, \"p\", 0 pending>"
    assert repr(consumer) == f'<Consumer "c" of s on {topic}, 0 queued>'
    assert repr(reader) == f'<Reader "r" on {topic}, connected>'
    client.close()
    for handle in (producer, consumer, reader):
        assert topic in repr(handle)
        assert "closed" in repr(handle) or "not connected" in repr(handle)


def test_a_message_names_its_id_topic_size_and_key(client, topic):
    consumer = client.subscribe(topic, "s")
    message_id = client.create_producer(topic).send(b"hello", partition_key="k")
    message = consumer.receive(timeout_millis=SOON)
    assert repr(message) == f'<Message {message_id} of {topic}, 5 bytes, key="k">'
    assert re.fullmatch(r"MessageId\(partition=-?\d+, ledger_id=\d+, entry_id=\d+, batch_index=-?\d+\)", repr(message_id))
    assert eval(repr(message_id), {"MessageId": geminga.MessageId}) == message_id


def test_settings_are_shown_as_they_are_written():
    shown = [
        "ConsumerBatchReceivePolicy(max_num_message=1, max_num_bytes=2, timeout_ms=3)",
        "ConsumerDeadLetterPolicy(max_redeliver_count=3, dead_letter_topic='d', initial_subscription_name=None)",
        "ConsoleLogger(LoggerLevel.Warn)",
        "BytesSchema()",
        "StringSchema()",
    ]
    for text in shown:
        assert repr(eval(text, vars(geminga).copy())) == text
    assert "Sticky" in repr(geminga.ConsumerKeySharedPolicy(geminga.KeySharedMode.Sticky, sticky_ranges=[(0, 5)]))
    assert "[(0, 5)]" in repr(geminga.ConsumerKeySharedPolicy(geminga.KeySharedMode.Sticky, sticky_ranges=[(0, 5)]))
    assert repr(geminga.OutgoingMessage("k", {}, b"abc")) == "<OutgoingMessage key='k', 3 bytes>"
    assert repr(geminga.Result.Timeout) == "<Result.Timeout: 3>" and str(geminga.Result.Timeout) == "Result.Timeout"
    assert repr(geminga.Timeout("receiving", "late")) == "Timeout('receiving', 'late')"


def test_secrets_are_not_shown():
    token, tls = geminga.AuthenticationToken("secret"), geminga.AuthenticationTLS("certificate.pem", "key.pem")
    assert (repr(token), repr(tls)) == ("AuthenticationToken(***)", "AuthenticationTLS(***)")


def test_a_file_logger_and_a_broker_show_where_they_are(tmp_path):
    path = str(tmp_path / "pulsar.log")
    assert repr(geminga.FileLogger(geminga.LoggerLevel.Info, path)) == f"FileLogger(LoggerLevel.Info, {path!r})"
    broker = EmbeddedBroker()
    assert repr(broker) == f"<EmbeddedBroker running at {broker.service_url}>"
    broker.stop()
    assert repr(broker) == f"<EmbeddedBroker stopped at {broker.service_url}>"
    with EmbeddedBroker() as taken, pytest.raises(OSError) as raised:
        EmbeddedBroker(port=int(taken.service_url.rpartition(":")[2]))
    assert "cannot listen" in str(raised.value)


def test_asyncio_s_objects_are_told_apart(pulsar_url, topic):
    async def main():
        async with geminga.asyncio.Client(pulsar_url) as client:
            producer = await client.create_producer(topic)
            consumer = await client.subscribe(topic, "s")
            reader = await client.create_reader(topic, geminga.MessageId.latest)
            assert repr(client) == f"<asyncio Client of {pulsar_url}>"
            for handle in (producer, consumer, reader):
                assert repr(handle).startswith(f"<asyncio {type(handle).__name__} ") and topic in repr(handle)

    asyncio.run(main())
