"""Task 13: up to so many messages or so much time, into a database, then all of them acknowledged."""

import random
import sqlite3
from contextlib import closing

import geminga
import pytest


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "measurements.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE measurements (value INTEGER)")
    return path


@pytest.fixture
def send(client):
    # From the end of an earlier test on a shared broker.
    consumer = client.subscribe("measurements", "database", consumer_type=geminga.ConsumerType.Shared)
    consumer.seek(geminga.MessageId.latest)
    consumer.close()

    def send(values, **options):
        producer = client.create_producer("measurements", block_if_queue_full=True, **options)
        for value in values:
            producer.send_async(b"%d" % value, None)
        producer.flush()
        producer.close()

    return send


def stored(database):
    with closing(sqlite3.connect(database)) as db:
        return [value for (value,) in db.execute("SELECT value FROM measurements ORDER BY value")]


def test_the_database_has_every_message_once(run, send, database):
    chance, sent = random.Random(13), 0
    for _ in range(4):
        count, limit, millis = chance.randint(1, 3000), chance.randint(1, 700), chance.randint(50, 500)
        send(range(sent, sent + count), batching_enabled=chance.random() < 0.5)
        sent += count
        done = run("drain.py", database, limit, millis)
        sizes = [int(size) for size in done.stdout.split()]
        assert sum(sizes) == count
        assert max(sizes) <= limit
        assert sum(size == limit for size in sizes) >= count // limit * 0.8, f"full batches under load: {sizes}"
    assert stored(database) == list(range(sent))


def test_a_program_that_dies_in_a_batch_gets_only_that_batch_again(start, run, send, database):
    send(range(1000))
    with closing(sqlite3.connect(database)) as db:
        db.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON measurements WHEN NEW.value = 750 BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    died = start("drain.py", database, 100, 2000).wait()
    assert died.returncode == 1 and "IntegrityError: full" in died.stderr
    assert died.stdout.split() == ["100"] * 7
    assert stored(database) == list(range(700))
    with closing(sqlite3.connect(database)) as db:
        db.execute("DROP TRIGGER refuse")
    done = run("drain.py", database, 100, 1000)
    assert sum(map(int, done.stdout.split())) == 300
    assert stored(database) == list(range(1000))
