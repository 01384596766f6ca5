"""Programs written for pulsar-client, run without a changed line: only the host name is the test's."""

import json
import os
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pulsar
import pytest

PROGRAMS = Path(__file__).parents[2] / "tests" / "programs"


class Order:
    def __init__(self, order_id, amount):
        self.order_id = order_id
        self.amount = amount

    def to_json(self):
        return json.dumps({"order": self.order_id, "amount": self.amount})


class Done(BaseException):
    """Ends the endless loop of a program."""


@pytest.fixture
def payments(request):
    """The namespace that the programs use."""
    base = os.environ.get("GEMINGA_ADMIN_URL") or request.getfixturevalue("pulsar_broker").admin_url
    namespace = ("tenants/payments", b'{"allowedClusters": ["standalone"]}'), ("namespaces/payments/prod", b"{}")
    for path, body in namespace:
        call = urllib.request.Request(f"{base}/admin/v2/{path}", data=body, method="PUT")
        call.add_header("Content-Type", "application/json")
        try:
            urllib.request.urlopen(call).close()
        except urllib.error.HTTPError as error:
            assert error.code == 409, "it exists"


def run(program, url, **names):
    text = (PROGRAMS / program).read_text().replace("pulsar://broker.internal:6650", url)
    scope = dict(names)
    try:
        exec(compile(text, program, "exec"), scope)
    except Done:
        # As the end of the process would: its consumer must not go on taking messages.
        scope["client"].close()
    return scope


def test_both_programs_of_the_article_run_unchanged(pulsar_url, payments):
    billed = []

    def bill(data):
        order = json.loads(data)
        if order["order"] == "end":
            raise Done
        billed.append((order["order"], order["amount"]))

    with pulsar.Client(pulsar_url) as client:
        # The program subscribes at the end of the topic: what it is to bill has to come later.
        orders, kind = "persistent://payments/prod/orders", pulsar.ConsumerType.KeyShared
        client.subscribe(orders, "billing", consumer_type=kind).close()
    thread = threading.Thread(target=run, args=("bill.py", pulsar_url), kwargs={"bill": bill})
    thread.start()
    published = run("publish.py", pulsar_url)
    for i in range(50):
        published["publish"](Order(f"order-{i % 5}", i))
    published["publish"](Order("end", 0))
    thread.join(30)
    assert not thread.is_alive()
    for key in range(5):
        assert [amount for order, amount in billed if order == f"order-{key}"] == list(range(key, 50, 5))
    published["client"].close()


@pytest.mark.skipif(os.environ.get("GEMINGA_FULL_SIZE") != "1", reason="the program waits ten seconds before each of six tries")
def test_what_can_t_be_billed_goes_to_the_dead_letter_topic_of_the_program(pulsar_url, payments):
    tries = []

    def bill(data):
        order = json.loads(data)
        if order["order"] == "end of the poison":
            raise Done
        if order["order"] != "poison":
            return  # of another test
        tries.append(order["order"])
        raise RuntimeError("no such customer")

    topic = "persistent://payments/prod/orders"
    with pulsar.Client(pulsar_url) as client:
        client.subscribe(topic, "billing", consumer_type=pulsar.ConsumerType.KeyShared).close()
        dead = client.subscribe(topic + "-billing-DLQ", "inspection")
        thread = threading.Thread(target=run, args=("bill.py", pulsar_url), kwargs={"bill": bill})
        thread.start()
        published = run("publish.py", pulsar_url)
        published["publish"](Order("poison", 1))
        message = dead.receive(timeout_millis=120_000)
        assert json.loads(message.data()) == {"order": "poison", "amount": 1}
        assert message.partition_key() == "poison"
        assert tries == ["poison"] * 6
        published["publish"](Order("end of the poison", 0))
        thread.join(30)
        assert not thread.is_alive()
        published["client"].close()


def test_a_script_prints_what_it_prints_and_nothing_else(python, topic):
    done = python(
        f"""
import os, pulsar
client = pulsar.Client(os.environ["URL"])
consumer = client.subscribe({topic!r}, "s")
producer = client.create_producer({topic!r})
for i in range(10):
    producer.send_async(b"hello %d" % i, lambda result, message_id: None)
print([consumer.receive(timeout_millis=5000).data() for _ in range(10)] == [b"hello %d" % i for i in range(10)])
"""
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_asyncio_is_there(python, topic):
    done = python(
        f"""
import asyncio, os
import pulsar
from pulsar.asyncio import Client
async def main():
    async with Client(os.environ["URL"]) as client:
        consumer = await client.subscribe({topic!r}, "s", initial_position=pulsar.InitialPosition.Earliest)
        producer = await client.create_producer({topic!r})
        await producer.send(b"hello")
        print((await consumer.receive()).data())
asyncio.run(main())
"""
    )
    assert (done.stdout, done.stderr) == ("b'hello'\n", "")
