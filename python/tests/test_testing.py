"""The embedded broker, and programs that go on through its restart."""

import threading

import geminga
from conftest import receive
from geminga.testing import EmbeddedBroker


def test_the_broker_runs_from_with_to_its_end():
    with EmbeddedBroker() as broker:
        assert broker.service_url.startswith("pulsar://127.0.0.1:")
        assert broker.admin_url.startswith("http://127.0.0.1:")
        assert "running" in repr(broker)
        with geminga.Client(broker.service_url) as client:
            assert client.create_producer("t").send(b"x").entry_id() == 0
    assert "stopped" in repr(broker)
    broker.stop()


def test_fixtures_give_a_broker_and_its_url(pulsar_broker, pulsar_url):
    assert pulsar_broker.service_url.startswith("pulsar://")
    assert pulsar_url.startswith("pulsar://")


def test_a_broker_restart_is_a_pause(topic):
    with EmbeddedBroker() as broker, geminga.Client(broker.service_url) as client:
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        stop = threading.Event()

        def restart():
            while not stop.wait(0.3):
                broker.restart()

        thread = threading.Thread(target=restart)
        thread.start()
        sent = [producer.send(b"%d" % i) for i in range(200)]
        got = set()
        while len(got) < 200:
            message = consumer.receive(timeout_millis=10_000)
            got.add(int(message.data()))
            consumer.acknowledge(message)
        stop.set()
        thread.join()
        assert len(sent) == 200
        assert producer.is_connected() or producer.send(b"end")
        receive(client.subscribe(topic, "e", initial_position=geminga.InitialPosition.Earliest), 200)
