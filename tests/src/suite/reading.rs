//! Places in a topic: where readers start, what is left to read, seeks, the last message.

use super::{Place, eventually, next, nothing_more, take, text, texts};
use anyhow::{Context, Result};
use geminga::{Batching, Client, InitialPosition, MessageId, OutgoingMessage, Position, Producer, Reader};
use std::time::{Duration, Instant};

/// One batch for all that is sent before a flush.
const ONE_BATCH: Batching = Batching {
    enabled: true,
    max_messages: 1000,
    max_bytes: 128 << 10,
    max_publish_delay: Duration::from_secs(10),
};

/// It ends near its limit, and the next message is received all the same.
pub async fn a_receive_that_times_out_loses_nothing(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    let consumer = client.consumer(&topic, "s").subscribe().await?;
    let reader = client.reader(&topic, Position::Earliest).create().await?;
    let producer = client.producer(&topic).create().await?;
    let time = Duration::from_millis(200);
    for i in 0..5 {
        let began = Instant::now();
        assert!(consumer.receive_timeout(time).await?.is_none());
        assert!(reader.next_timeout(time).await?.is_none());
        assert!(began.elapsed() >= 2 * time, "after {:?}", began.elapsed());
        for _ in 0..20 {
            assert!(consumer.receive_timeout(Duration::ZERO).await?.is_none());
        }
        producer.send(i.to_string()).await?;
        assert_eq!(text(&next(&consumer).await?), i.to_string());
        assert_eq!(text(&next(&reader).await?), i.to_string());
    }
    Ok(())
}

/// From the earliest on: everything. From the latest on: what is sent from now on.
pub async fn a_reader_starts_at_either_end(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    let producer = client.producer(&topic).batching(Batching::off()).create().await?;
    send(&producer, 0..5).await?;
    let earliest = client.reader(&topic, Position::Earliest).create().await?;
    let latest = client.reader(&topic, Position::Latest).create().await?;
    assert_eq!(texts(&take(&earliest, 5).await?), ["0", "1", "2", "3", "4"]);
    nothing_more(&latest).await?;
    send(&producer, 5..7).await?;
    assert_eq!(texts(&take(&earliest, 2).await?), ["5", "6"]);
    assert_eq!(texts(&take(&latest, 2).await?), ["5", "6"]);
    Ok(())
}

/// Exclusive is the default.
pub async fn a_reader_starts_at_an_id_or_behind_it(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    let producer = client.producer(&topic).batching(Batching::off()).create().await?;
    let ids = send(&producer, 0..5).await?;
    let open = |at: usize, inclusive: bool| start(&client, &topic, ids[at], inclusive);
    assert_eq!(texts(&take(&open(2, false).await?, 2).await?), ["3", "4"]);
    assert_eq!(texts(&take(&open(2, true).await?, 3).await?), ["2", "3", "4"]);
    assert_eq!(texts(&take(&open(4, true).await?, 1).await?), ["4"]);
    nothing_more(&open(4, false).await?).await
}

/// The messages of the batch before the start are left out.
pub async fn a_reader_starts_inside_a_batch(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    let producer = client.producer(&topic).batching(ONE_BATCH).create().await?;
    let ids = send(&producer, 0..5).await?;
    send(&producer, 5..7).await?;
    assert_eq!(ids[0].entry(), ids[4].entry());
    let open = |at: usize, inclusive: bool| start(&client, &topic, ids[at], inclusive);
    assert_eq!(texts(&take(&open(2, false).await?, 4).await?), ["3", "4", "5", "6"]);
    assert_eq!(texts(&take(&open(2, true).await?, 5).await?), ["2", "3", "4", "5", "6"]);
    assert_eq!(texts(&take(&open(4, false).await?, 2).await?), ["5", "6"]);
    assert_eq!(texts(&take(&open(0, true).await?, 1).await?), ["0"]);
    // A seek into the batch does the same.
    let reader = open(0, false).await?;
    reader.seek(Position::Id(ids[3])).await?;
    assert_eq!(texts(&take(&reader, 3).await?), ["4", "5", "6"]);
    Ok(())
}

/// On an empty topic, with messages, at the end, and after seeks.
pub async fn whether_a_message_is_available_is_known_everywhere(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    let earliest = client.reader(&topic, Position::Earliest).create().await?;
    let latest = client.reader(&topic, Position::Latest).create().await?;
    assert!(!earliest.has_message_available().await?, "the topic is empty");
    assert!(!latest.has_message_available().await?, "the topic is empty");
    let producer = client.producer(&topic).batching(ONE_BATCH).create().await?;
    let ids = send(&producer, 0..3).await?;
    for reader in [&earliest, &latest] {
        for expected in ["0", "1", "2"] {
            assert!(reader.has_message_available().await?, "before {expected}");
            assert_eq!(text(&next(reader).await?), expected);
        }
        assert!(!reader.has_message_available().await?, "all was read");
        reader.seek(Position::Earliest).await?;
        assert!(reader.has_message_available().await?, "sought the beginning");
        reader.seek(Position::Latest).await?;
        assert!(!reader.has_message_available().await?, "sought the end");
    }
    let at_end = client.reader(&topic, Position::Latest).create().await?;
    assert!(!at_end.has_message_available().await?, "started at the end");
    for (inclusive, expected) in [(true, true), (false, false)] {
        let reader = start(&client, &topic, ids[2], inclusive).await?;
        assert_eq!(reader.has_message_available().await?, expected, "at the last, inclusive: {inclusive}");
    }
    let reader = start(&client, &topic, ids[1], false).await?;
    assert!(reader.has_message_available().await?, "before the last of a batch");
    send(&producer, 3..4).await?;
    assert!(at_end.has_message_available().await?, "one was sent since");
    assert_eq!(text(&next(&at_end).await?), "3");
    Ok(())
}

/// `has_message_available` ends the loop when every partition is read.
pub async fn a_reader_reads_a_partitioned_topic_to_its_end(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    let name = topic.clone();
    place.admin(move |admin| admin.create_partitioned_topic(&name, 3)).await?;
    let producer = client.producer(&topic).create().await?;
    for i in 0..50 {
        let message = OutgoingMessage::new(i.to_string()).with_key(i.to_string());
        drop(producer.enqueue(message).await?);
    }
    producer.flush().await?;
    let reader = client.reader(&topic, Position::Earliest).create().await?;
    let mut read = Vec::new();
    while reader.has_message_available().await? {
        read.push(text(&next(&reader).await?).parse::<u32>()?);
    }
    read.sort_unstable();
    assert_eq!(read, (0..50).collect::<Vec<_>>());
    Ok(())
}

/// Consumers and readers, forward and back.
pub async fn a_seek_by_id_or_time_starts_there(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    let producer = client.producer(&topic).batching(Batching::off()).create().await?;
    let ids = send(&producer, 0..4).await?;
    // Publish times are whole milliseconds: the gap makes them differ.
    tokio::time::sleep(Duration::from_millis(20)).await;
    send(&producer, 4..8).await?;

    let builder = client.consumer(&topic, "s").initial_position(InitialPosition::Earliest);
    let consumer = builder.subscribe().await?;
    let messages = take(&consumer, 8).await?;
    let time = messages[4].publish_time();
    for message in &messages {
        consumer.acknowledge(message)?;
    }
    consumer.seek(Position::Id(ids[1])).await?;
    assert_eq!(texts(&take(&consumer, 6).await?), ["2", "3", "4", "5", "6", "7"]);
    consumer.seek(Position::PublishTime(time)).await?;
    assert_eq!(texts(&take(&consumer, 4).await?), ["4", "5", "6", "7"]);
    consumer.seek(Position::Latest).await?;
    nothing_more(&consumer).await?;
    consumer.seek(Position::Earliest).await?;
    assert_eq!(text(&next(&consumer).await?), "0");
    consumer.close().await?;

    let builder = client.consumer(&topic, "inclusive").start_message_id_inclusive(true);
    let inclusive = builder.subscribe().await?;
    inclusive.seek(Position::Id(ids[1])).await?;
    assert_eq!(text(&next(&inclusive).await?), "1");

    let reader = client.reader(&topic, Position::Latest).create().await?;
    reader.seek(Position::PublishTime(time)).await?;
    assert_eq!(texts(&take(&reader, 4).await?), ["4", "5", "6", "7"]);
    reader.seek(Position::Id(ids[2])).await?;
    assert_eq!(text(&next(&reader).await?), "3");
    Ok(())
}

/// And an empty topic has none: entry -1.
pub async fn last_message_ids_name_the_end_of_each_partition(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    let consumer = client.consumer(&topic, "s").subscribe().await?;
    let last = consumer.last_message_ids().await?;
    assert_eq!(last.iter().map(|id| id.entry_id).collect::<Vec<_>>(), [-1], "{last:?}");
    let producer = client.producer(&topic).batching(ONE_BATCH).create().await?;
    let ids = send(&producer, 0..5).await?;
    eventually("the batch's last message is the last", async || {
        Ok(consumer.last_message_ids().await? == ids[4..])
    })
    .await?;

    let partitioned = place.topic("partitioned");
    let name = partitioned.clone();
    place.admin(move |admin| admin.create_partitioned_topic(&name, 3)).await?;
    let consumer = client.consumer(&partitioned, "s").subscribe().await?;
    let producer = client.producer(&partitioned).create().await?;
    let mut expected = Vec::new();
    for i in 0..3 {
        expected.push(producer.send(i.to_string()).await?);
    }
    expected.sort_by_key(|id| id.partition);
    let mut last = consumer.last_message_ids().await?;
    last.sort_by_key(|id| id.partition);
    let places = |ids: &[MessageId]| {
        ids.iter().map(|id| (id.partition, id.ledger_id, id.entry_id)).collect::<Vec<_>>()
    };
    assert_eq!(places(&last), places(&expected));
    Ok(())
}

async fn start(client: &Client, topic: &str, id: MessageId, inclusive: bool) -> Result<Reader> {
    let reader = client.reader(topic, Position::Id(id)).start_message_id_inclusive(inclusive);
    reader.create().await.with_context(|| format!("a reader from {id}"))
}

/// Numbers, and where they are stored.
async fn send(producer: &Producer, range: std::ops::Range<u32>) -> Result<Vec<MessageId>> {
    let mut receipts = Vec::new();
    for i in range {
        receipts.push(producer.enqueue(i.to_string()).await?);
    }
    producer.flush().await?;
    Ok(futures::future::try_join_all(receipts).await?)
}
