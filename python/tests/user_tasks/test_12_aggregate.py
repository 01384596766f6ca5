"""Task 12: consume from one topic, produce to another, acknowledge when that is stored. Nothing is lost by crashes.

Transactions are not offered yet, so what comes out is at least what went in.
"""

import json
import random
import time

import geminga
from conftest import SOON

CRASHES = 50


def test_fifty_crashes_lose_no_message(start, client, listen):
    totals = listen("totals")
    # From the end of an earlier test on a shared broker.
    earlier = client.subscribe("clicks", "aggregate", consumer_type=geminga.ConsumerType.Shared)
    earlier.seek(geminga.MessageId.latest)
    earlier.close()
    chance = random.Random(12)
    producer = client.create_producer("clicks", batching_enabled=True, block_if_queue_full=True)
    expected = {f"click {i}" for i in range(CRASHES * 40)}
    for click in sorted(expected):
        producer.send_async(click.encode(), None)
    producer.flush()
    seen, most = set(), 0

    def take(millis):
        nonlocal most
        try:
            total = json.loads(totals.receive(timeout_millis=millis).data())
        except geminga.Timeout:
            return False
        seen.add(total["click"])
        most = max(most, total["total"])
        return True

    for _ in range(CRASHES):
        program = start("aggregate.py")
        # It has stored something, and then dies at any point.
        before = len(seen)
        while len(seen) == before and seen != expected:
            take(50)
        time.sleep(chance.uniform(0, 0.05))
        program.kill()
        while take(0):
            pass
    start("aggregate.py")
    while seen != expected:
        assert take(SOON), f"{len(expected - seen)} of {len(expected)} are missing"
    assert most > 1
