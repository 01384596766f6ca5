"""Task 10: everything between two times, and then the program ends by itself."""

import time
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

#: Where the programs think they are.
LOCAL = ZoneInfo("Asia/Kathmandu")


@pytest.fixture
def stamps(client, topic):
    """The publish times of 0 to 9, which are sent into the topic with 15 ms between them."""
    consumer = client.subscribe(topic, "test")
    producer = client.create_producer(topic)
    for i in range(10):
        producer.send(b"%d" % i)
        time.sleep(0.015)
    messages = [consumer.receive(timeout_millis=10_000) for _ in range(10)]
    return [datetime.fromtimestamp(message.publish_timestamp() / 1000, timezone.utc) for message in messages]


SECOND = timedelta(seconds=1)
RANGES = {
    "before": (lambda at: (at[0] - 5 * SECOND, at[0] - SECOND), 0, 0),
    "up to the fifth": (lambda at: (at[0] - SECOND, at[5]), 0, 5),
    "inside": (lambda at: (at[2], at[7]), 2, 7),
    "from the sixth on": (lambda at: (at[6], at[9] + SECOND), 6, 10),
    "after": (lambda at: (at[9] + SECOND, at[9] + 5 * SECOND), 0, 0),
    "all": (lambda at: (at[0] - SECOND, at[9] + SECOND), 0, 10),
}


@pytest.mark.parametrize("kind", ["naive", "aware"])
def test_exactly_the_range_is_read_and_the_program_ends(run, topic, stamps, kind):
    for name, (choose, first, end) in RANGES.items():
        times = [time.astimezone(LOCAL) for time in choose(stamps)]
        if kind == "naive":
            times = [time.replace(tzinfo=None) for time in times]
        done = run("between.py", topic, *(time.isoformat() for time in times), within=2)
        assert done.stdout.split() == [str(i) for i in range(first, end)], name
