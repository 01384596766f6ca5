"""Places in a topic: where readers start, what is left to read, seeks, the last message."""

import time

import geminga

from .surface import ONE_BATCH, entry, numbers

EARLIEST, LATEST = geminga.MessageId.earliest, geminga.MessageId.latest


def test_a_receive_that_times_out_loses_nothing(surface, client):
    topic = surface.topic()
    consumer = client.subscribe(topic, "s")
    reader = client.create_reader(topic, EARLIEST)
    producer = client.create_producer(topic)
    for i in range(5):
        began = time.monotonic()
        assert surface.within(consumer, 200) is None
        assert surface.within(reader, 200) is None
        assert time.monotonic() - began >= 0.4
        for _ in range(20):
            assert surface.within(consumer, 0) is None
        producer.send(b"%d" % i)
        assert surface.next(consumer).data() == b"%d" % i
        assert surface.next(reader).data() == b"%d" % i


def test_a_reader_starts_at_either_end(surface, client):
    topic = surface.topic()
    surface.send(client, topic, 5)
    earliest, latest = client.create_reader(topic, EARLIEST), client.create_reader(topic, LATEST)
    assert surface.take_texts(earliest, 5) == numbers(5)
    surface.assert_nothing(latest)
    surface.send(client, topic, 2, start=5)
    assert surface.take_texts(earliest, 2) == ["5", "6"]
    assert surface.take_texts(latest, 2) == ["5", "6"]


def test_a_reader_starts_at_an_id_or_behind_it(surface, client):
    topic = surface.topic()
    ids = surface.send(client, topic, 5)
    assert surface.take_texts(start(client, topic, ids[2]), 2) == ["3", "4"]
    assert surface.take_texts(start(client, topic, ids[2], True), 3) == ["2", "3", "4"]
    assert surface.take_texts(start(client, topic, ids[4], True), 1) == ["4"]
    surface.assert_nothing(start(client, topic, ids[4]))


def test_a_reader_starts_inside_a_batch(surface, client):
    topic = surface.topic()
    ids = surface.send(client, topic, 5, **ONE_BATCH)
    surface.send(client, topic, 2, start=5, **ONE_BATCH)
    assert len({entry(i) for i in ids}) == 1
    assert surface.take_texts(start(client, topic, ids[2]), 4) == ["3", "4", "5", "6"]
    assert surface.take_texts(start(client, topic, ids[2], True), 5) == ["2", "3", "4", "5", "6"]
    assert surface.take_texts(start(client, topic, ids[4]), 2) == ["5", "6"]
    assert surface.take_texts(start(client, topic, ids[0], True), 1) == ["0"]
    # A seek into the batch does the same.
    reader = start(client, topic, ids[0])
    reader.seek(ids[3])
    assert surface.take_texts(reader, 3) == ["4", "5", "6"]


def test_whether_a_message_is_available_is_known_everywhere(surface, client):
    topic = surface.topic()
    earliest, latest = client.create_reader(topic, EARLIEST), client.create_reader(topic, LATEST)
    assert not earliest.has_message_available(), "the topic is empty"
    assert not latest.has_message_available(), "the topic is empty"
    ids = surface.send(client, topic, 3, **ONE_BATCH)
    for reader in (earliest, latest):
        for expected in numbers(3):
            assert reader.has_message_available()
            assert surface.next(reader).data().decode() == expected
        assert not reader.has_message_available(), "all was read"
        reader.seek(EARLIEST)
        assert reader.has_message_available(), "sought the beginning"
        reader.seek(LATEST)
        assert not reader.has_message_available(), "sought the end"
    at_end = client.create_reader(topic, LATEST)
    assert not at_end.has_message_available(), "started at the end"
    assert start(client, topic, ids[2], True).has_message_available(), "at the last, inclusive"
    assert not start(client, topic, ids[2]).has_message_available(), "behind the last"
    assert start(client, topic, ids[1]).has_message_available(), "before the last of a batch"
    surface.send(client, topic, 1, start=3)
    assert at_end.has_message_available(), "one was sent since"
    assert surface.next(at_end).data() == b"3"


def test_a_reader_reads_a_partitioned_topic_to_its_end(surface, client):
    topic = surface.partitioned(3)
    sends = surface.sends(client.create_producer(topic))
    for i in range(50):
        sends.send(b"%d" % i, partition_key=str(i))
    sends.settle()
    reader = client.create_reader(topic, EARLIEST)
    read = []
    while reader.has_message_available():
        read.append(int(surface.next(reader).data()))
    assert sorted(read) == list(range(50))


def test_a_seek_by_id_or_time_starts_there(surface, client):
    topic = surface.topic()
    ids = surface.send(client, topic, 4)
    # Publish times are whole milliseconds: the gap makes them differ.
    time.sleep(0.02)
    surface.send(client, topic, 4, start=4)
    earliest = geminga.InitialPosition.Earliest
    consumer = client.subscribe(topic, "s", initial_position=earliest)
    messages = surface.take(consumer, 8)
    published = messages[4].publish_timestamp()
    for message in messages:
        consumer.acknowledge(message)
    consumer.seek(ids[1])
    assert surface.take_texts(consumer, 6) == numbers(2, 8)
    consumer.seek(published)
    assert surface.take_texts(consumer, 4) == numbers(4, 8)
    consumer.seek(LATEST)
    surface.assert_nothing(consumer)
    consumer.seek(EARLIEST)
    assert surface.next(consumer).data() == b"0"
    consumer.close()
    inclusive = client.subscribe(topic, "inclusive", start_message_id_inclusive=True)
    inclusive.seek(ids[1])
    assert surface.next(inclusive).data() == b"1"
    reader = client.create_reader(topic, LATEST)
    reader.seek(published)
    assert surface.take_texts(reader, 4) == numbers(4, 8)
    reader.seek(ids[2])
    assert surface.next(reader).data() == b"3"


def test_last_message_ids_name_the_end_of_each_partition(surface, client):
    topic = surface.topic()
    consumer = client.subscribe(topic, "s")
    assert consumer.get_last_message_id().entry_id() == -1
    ids = surface.send(client, topic, 5, **ONE_BATCH)
    surface.eventually("the batch's last message is the last", lambda: consumer.get_last_message_id() == ids[-1])
    partitioned = surface.partitioned(3)
    consumer = client.subscribe(partitioned, "s")
    producer = client.create_producer(partitioned)
    ends = [producer.send(b"%d" % i) for i in range(3)]
    assert {i.partition() for i in ends} == {0, 1, 2}
    assert entry(consumer.get_last_message_id()) == entry(max(ends))


def start(client, topic, message_id, inclusive=False):
    return client.create_reader(topic, message_id, start_message_id_inclusive=inclusive)
