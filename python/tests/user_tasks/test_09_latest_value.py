"""Task 9: open at the latest message inclusive, read one, or say that there is none."""

import time

import pytest

ONE_BATCH = {"batching_enabled": True, "batching_max_publish_delay_ms": 1000}


def fill(client, topic, values, **options):
    producer = client.create_producer(topic, **options)
    for value in values:
        producer.send_async(value, None, partition_key="k")
    producer.flush()


TOPICS = {
    "empty": (lambda client, topic: client.create_producer(topic), "empty"),
    "one": (lambda client, topic: fill(client, topic, [b"one"]), "one"),
    "single": (lambda client, topic: fill(client, topic, [b"1", b"2", b"3"]), "3"),
    "batched": (lambda client, topic: fill(client, topic, [b"1", b"2", b"3"], **ONE_BATCH), "3"),
    "tombstone": (lambda client, topic: fill(client, topic, [b"1", None]), "deleted"),
    "tombstone in a batch": (lambda client, topic: fill(client, topic, [b"1", None], **ONE_BATCH), "deleted"),
}


@pytest.mark.parametrize("made, expected", TOPICS.values(), ids=TOPICS.keys())
def test_the_latest_value_is_there_in_two_calls(run, client, topic, made, expected):
    made(client, topic)
    done = run("latest.py", topic, within=2)
    assert (done.stdout, done.stderr) == (f"{expected}\n", "")


@pytest.mark.parametrize("batching", [{}, ONE_BATCH], ids=["single", "batched"])
def test_the_latest_value_of_a_compacted_topic(run, client, topic, admin, pulsar_is_real, batching):
    if not pulsar_is_real:
        pytest.skip("the embedded broker does not compact")
    fill(client, topic, [b"1", b"2", b"3"], **batching)
    path = topic.replace("://", "/") + "/compaction"
    admin("PUT", path)
    end = time.monotonic() + 60
    while b"SUCCESS" not in admin("GET", path):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert run("latest.py", topic, "compacted").stdout == "3\n"


def test_chunks_say_that_they_cannot_be_sent_yet(client, topic):
    with pytest.raises(NotImplementedError, match="chunking_enabled"):
        client.create_producer(topic, chunking_enabled=True)
