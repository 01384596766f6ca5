"""Message ids: one type from every source, ordered, hashable, and the bytes of other clients."""

import pickle

import geminga
import pytest
from conftest import SOON
from geminga import MessageId


def test_pb205_ids_from_every_source_are_one_type(client, topic):
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=20)
    sent = []
    for i in range(3):
        producer.send_async(str(i).encode(), lambda result, message_id: sent.append(message_id))
    producer.flush()
    received = [consumer.receive(timeout_millis=SOON).message_id() for _ in range(3)]
    assert received == sent
    for message_id in received:
        for again in (MessageId.deserialize(message_id.serialize()), pickle.loads(pickle.dumps(message_id))):
            assert again == message_id and hash(again) == hash(message_id) and type(again) is MessageId
            assert again.batch_index() == message_id.batch_index()
    assert sorted([MessageId.latest, *reversed(sent), MessageId.earliest]) == [
        MessageId.earliest,
        *sent,
        MessageId.latest,
    ]
    assert len({*received, *sent}) == 3
    consumer.acknowledge(MessageId.deserialize(sent[2].serialize()))
    consumer.seek(pickle.loads(pickle.dumps(sent[0])))
    assert consumer.receive(timeout_millis=SOON).data() == b"1"


def test_pb205_ids_of_partitions_keep_their_partition(client, partitioned):
    consumer, producer = client.subscribe(partitioned, "s"), client.create_producer(partitioned)
    sent = [producer.send(b"%d" % i) for i in range(6)]
    assert {message_id.partition() for message_id in sent} == {0, 1, 2}
    received = [consumer.receive(timeout_millis=SOON).message_id() for _ in range(6)]
    assert sorted(received) == sorted(sent) and set(received) == set(sent)
    for message_id in sent:
        again = pickle.loads(pickle.dumps(message_id))
        assert again == message_id and again.partition() == message_id.partition()
        consumer.acknowledge(MessageId.deserialize(message_id.serialize()))
    assert client.create_reader(partitioned, MessageId.earliest).read_next(timeout_millis=SOON).message_id() in sent


def test_an_id_shows_what_it_is():
    message_id = MessageId(1, 2, 3, 4)
    assert str(message_id) == "(2,3,1,4)"
    assert repr(message_id) == "MessageId(partition=1, ledger_id=2, entry_id=3, batch_index=4)"
    parts = (message_id.partition(), message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())
    assert parts == (1, 2, 3, 4)
    assert (str(MessageId.earliest), repr(MessageId.latest)) == ("(-1,-1,-1,-1)", "MessageId.latest")
    assert MessageId() == MessageId.earliest
    assert MessageId.wrap(message_id) is not None and MessageId.wrap(message_id) == message_id


def test_the_bytes_are_those_of_other_clients():
    assert MessageId.deserialize(b"\x08\x02\x10\x03") == MessageId(-1, 2, 3)
    # As pulsar-client 3.13.0 writes the earliest.
    earliest = b"\x08" + b"\xff" * 9 + b"\x01\x10" + b"\xff" * 9 + b"\x01"
    assert MessageId.deserialize(earliest, topic="any") == MessageId.earliest
    with pytest.raises(ValueError, match="MessageIdData"):
        MessageId.deserialize(b"\xff\xff")


def test_an_id_is_equal_to_ids_only():
    assert MessageId(0, 1, 2) != (1, 2, 0)
    with pytest.raises(TypeError):
        _ = MessageId(0, 1, 2) < 5
    with pytest.raises(AttributeError):
        geminga.MessageId().x = 1
