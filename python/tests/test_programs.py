"""Two programs written for pulsar-client, run without a changed line: only the import and the host name are the test's."""

import json
import threading
import urllib.error
from pathlib import Path

import geminga
import pytest

PROGRAMS = Path(__file__).parent / "programs"


class Order:
    def __init__(self, order_id, amount):
        self.order_id = order_id
        self.amount = amount

    def to_json(self):
        return json.dumps({"order": self.order_id, "amount": self.amount})


class Done(BaseException):
    """Ends the endless loop of a program."""


@pytest.fixture
def payments(admin):
    """The namespace that the programs use."""
    for path, body in (
        ("tenants/payments", '{"allowedClusters": ["standalone"]}'),
        ("namespaces/payments/prod", "{}"),
    ):
        try:
            admin("PUT", path, body)
        except urllib.error.HTTPError as error:
            assert error.code == 409, "it exists"


def run(program, url, **names):
    text = (PROGRAMS / program).read_text()
    text = text.replace("import pulsar\n", "import geminga as pulsar\n")
    text = text.replace("pulsar://broker.internal:6650", url)
    scope = dict(names)
    exec(compile(text, program, "exec"), scope)
    return scope


def test_orders_are_published_and_billed(pulsar_url, payments):
    billed, ready, failures = [], threading.Event(), []

    def bill(data):
        order = json.loads(data)
        if order["order"] == "end":
            raise Done
        if order["order"] == "flaky" and not failures:
            failures.append(order)
            raise RuntimeError("try again")
        billed.append(order)

    def worker():
        scope = {}
        try:
            scope = run("bill.py", pulsar_url, bill=bill, ready=ready)
        except Done:
            pass
        return scope

    thread = threading.Thread(target=worker)
    published = run("publish.py", pulsar_url)
    with geminga.Client(pulsar_url) as client:
        kind = geminga.ConsumerType.KeyShared
        client.subscribe("persistent://payments/prod/orders", "billing", consumer_type=kind).close()
    thread.start()
    for i in range(50):
        published["publish"](Order(f"order-{i % 5}", i))
    published["publish"](Order("flaky", 1))
    # Its redelivery takes ten seconds in the program.
    for _ in range(1500):
        if len(billed) == 51:
            break
        threading.Event().wait(0.01)
    published["publish"](Order("end", 0))
    thread.join(20)
    assert not thread.is_alive()
    for key in {f"order-{i}" for i in range(5)}:
        amounts = [order["amount"] for order in billed if order["order"] == key]
        assert amounts == sorted(amounts) and len(amounts) == 10
    assert [order["order"] for order in billed].count("flaky") == 1
    published["client"].close()


def test_a_poison_message_goes_to_the_dead_letter_topic(client, topic):
    consumer = client.subscribe(
        topic,
        "billing",
        consumer_type=geminga.ConsumerType.KeyShared,
        negative_ack_redelivery_delay_ms=50,
        dead_letter_policy=geminga.ConsumerDeadLetterPolicy(2, topic + "-DLQ", "dead"),
    )
    dead = client.subscribe(topic + "-DLQ", "dead")
    client.create_producer(topic).send(b"poison", partition_key="k")
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(timeout_millis=5000))
    with pytest.raises(geminga.Timeout):
        consumer.receive(timeout_millis=1000)
    assert dead.receive(timeout_millis=1000).data() == b"poison"


