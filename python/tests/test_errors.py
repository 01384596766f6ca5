"""Exceptions: a class for each kind of the core's table, and who raises what."""

import time

import geminga
import pytest
from geminga import _geminga, exceptions


def test_each_kind_of_the_table_has_its_class_and_its_result():
    table = _geminga._error_table()
    assert len(table) == 46
    for name, code, retryable, sentence in table:
        kind = getattr(exceptions, name)
        assert getattr(geminga, name) is kind
        assert issubclass(kind, geminga.PulsarException)
        assert (kind.result, kind.retryable) == (geminga.Result(code), retryable)
        assert kind.__doc__ and kind.result.name == name
        assert kind("x").error() is kind.result
    assert geminga.Result.Ok == 0


def test_a_bad_url_is_a_value_error_too():
    with pytest.raises(geminga.InvalidUrl):
        geminga.Client("localhost")
    with pytest.raises(ValueError, match="scheme"):
        geminga.Client("localhost")
    with pytest.raises(ValueError, match="service_url is expected to be of type 'str'"):
        geminga.Client(5)


def test_an_unreachable_broker_is_given_up_after_the_operation_timeout():
    with geminga.Client("pulsar://127.0.0.1:1", operation_timeout_seconds=1) as client:
        start = time.monotonic()
        with pytest.raises(geminga.PulsarException) as raised:
            client.create_producer("t")
        assert 0.5 < time.monotonic() - start < 5
        assert raised.value.retryable
        assert "persistent://public/default/t" in str(raised.value)
        assert "127.0.0.1:1" in str(raised.value)


def test_an_unknown_namespace_is_named(client):
    with pytest.raises(geminga.PulsarException, match="persistent://nobody/nowhere/t"):
        client.create_producer("persistent://nobody/nowhere/t")
    with pytest.raises(geminga.InvalidTopicName):
        client.create_producer("a/b")


def test_what_is_closed_says_so_and_closes_twice(pulsar_url, topic):
    client = geminga.Client(pulsar_url)
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    client.close()
    client.close()
    client.shutdown()
    producer.close()
    consumer.close()
    for call in (
        lambda: producer.send(b"x"),
        lambda: producer.flush(),
        lambda: consumer.receive(timeout_millis=10),
        lambda: consumer.receive(),
        lambda: client.create_producer(topic),
    ):
        with pytest.raises(geminga.AlreadyClosed):
            call()
    assert "closed" in repr(producer)


def test_a_thousand_quiet_timeouts_cost_no_message(client, topic, caplog):
    consumer = client.subscribe(topic, "s")
    for _ in range(1000):
        with pytest.raises(geminga.Timeout):
            consumer.receive(timeout_millis=0)
    client.create_producer(topic).send(b"x")
    assert consumer.receive(timeout_millis=10_000).data() == b"x"
    assert not [record for record in caplog.records if record.name.startswith("geminga")]


FAILING_CREATES = {
    "an unreachable broker": "Client('pulsar://127.0.0.1:1', operation_timeout_seconds=1).create_producer(TOPIC)",
    "a bad topic": "Client(URL).create_producer('a/b')",
    "a namespace that isn't there": "Client(URL).subscribe('persistent://nobody/nowhere/t', 's')",
    "credentials that are refused": "Client(closed.service_url, authentication=geminga.AuthenticationToken('no')).create_producer(TOPIC)",
}


@pytest.mark.parametrize("create", FAILING_CREATES.values(), ids=FAILING_CREATES.keys())
def test_pb190_a_failed_create_is_one_error_told_to_its_caller(script, create):
    done = script(
        f"""
        import asyncio, gc, warnings
        from geminga import Client
        from geminga.testing import EmbeddedBroker
        warnings.simplefilter("error")
        closed = EmbeddedBroker(tokens=["yes"])
        try:
            {create}
        except geminga.PulsarException as error:
            print("told", type(error).__name__)
        async def main():
            from geminga.asyncio import Client
            asyncio.get_running_loop().set_exception_handler(lambda _, context: print("unhandled", context))
            try:
                await {create}
            except geminga.PulsarException as error:
                print("told", type(error).__name__)
            gc.collect()
            await asyncio.sleep(0.05)
        asyncio.run(main())
        """
    )
    first, second = done.stdout.splitlines()
    assert first == second and first.startswith("told "), done.stdout
    assert done.stderr == ""


def test_a_wrong_token_is_an_authentication_error():
    from geminga.testing import EmbeddedBroker

    with EmbeddedBroker(tokens=["right"]) as broker:
        with geminga.Client(broker.service_url, geminga.AuthenticationToken("wrong")) as client:
            with pytest.raises(geminga.AuthenticationError) as raised:
                client.create_producer("t")
            assert "wrong" not in str(raised.value)
        for token in ("right", lambda: "right"):
            with geminga.Client(broker.service_url, geminga.AuthenticationToken(token)) as client:
                client.create_producer("t").send(b"x")
        assert "right" not in repr(geminga.AuthenticationToken("right"))


def test_what_is_not_there_yet_says_so(client, topic):
    calls = [
        lambda: client.create_table_view(topic),
        lambda: client.create_producer(topic, chunking_enabled=True),
        lambda: client.create_producer(topic, encryption_key="k"),
        lambda: client.create_producer(topic, batching_type=geminga.BatchingType.KeyBased),
        lambda: client.subscribe([topic, topic + "2"], "s"),
        lambda: client.subscribe(topic, "s", unacked_messages_timeout_ms=10_000),
        lambda: client.subscribe(topic, "s", replicate_subscription_state_enabled=True),
        lambda: geminga.AuthenticationOauth2("{}"),
        lambda: geminga.AuthenticationAthenz("{}"),
        lambda: geminga.AuthenticationBasic("a", "b"),
        lambda: geminga.CryptoKeyReader("a", "b"),
        lambda: geminga.schema.JsonSchema(object),
        lambda: geminga.schema.AvroSchema(object),
        lambda: geminga.schema.Record(),
        lambda: type("Order", (geminga.schema.Record,), {}),
        lambda: geminga.schema.definition,
        lambda: geminga.functions,
        lambda: geminga.TableView(),
        lambda: geminga.ServiceInfo.wrap(None),
        lambda: type("Exclamation", (geminga.Function,), {}),
        lambda: geminga.Client("http://localhost:8080"),
    ]
    for call in calls:
        with pytest.raises(NotImplementedError, match="not supported by this version of geminga"):
            call()
