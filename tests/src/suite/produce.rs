//! Sending: each way, each codec, and everything that may go with a message.

use super::{Place, next, nothing_more, take, text, texts};
use anyhow::{Result, ensure};
use futures::future::try_join_all;
use geminga::{
    Batching, Compression, InitialPosition, Message, MessageId, OutgoingMessage, Position, ProducerBuilder,
};
use std::time::{Duration, Instant};

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Lz4, Compression::Zlib, Compression::Zstd, Compression::Snappy];

/// Batches large enough that messages sent together share one.
const TOGETHER: Batching = Batching {
    enabled: true,
    max_messages: 1000,
    max_bytes: 128 << 10,
    max_publish_delay: Duration::from_millis(50),
};

fn batching(on: bool) -> Batching {
    if on { TOGETHER } else { Batching::off() }
}

/// `send`, `enqueue`, `try_enqueue` and `flush` store in the order of the calls, and receipts name the place.
pub async fn every_way_of_sending_stores_in_order(place: &Place) -> Result<()> {
    let client = place.client()?;
    for batched in [true, false] {
        let topic = place.topic(if batched { "batched" } else { "single" });
        let consumer = client.consumer(&topic, "s").subscribe().await?;
        let producer = client.producer(&topic).batching(batching(batched)).create().await?;
        let mut ids = vec![producer.send("0").await?];
        let mut receipts = Vec::new();
        for i in 1..50 {
            receipts.push(producer.enqueue(i.to_string()).await?);
        }
        for i in 50..100 {
            receipts.push(producer.try_enqueue(i.to_string())?);
        }
        producer.flush().await?;
        let known = receipts.iter().filter(|receipt| receipt.try_result().is_some()).count();
        assert_eq!(known, receipts.len(), "a flush waits for every receipt");
        ids.extend(try_join_all(receipts).await?);
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        let batches = ids.iter().filter(|id| id.batch_size > 1).count();
        assert_eq!(batches > 0, batched, "{ids:?}");
        let messages = take(&consumer, 100).await?;
        assert_eq!(texts(&messages), (0..100).map(|i| i.to_string()).collect::<Vec<_>>());
        assert_eq!(messages.iter().map(Message::message_id).collect::<Vec<_>>(), ids);
        nothing_more(&consumer).await?;
    }
    Ok(())
}

/// Its number of messages, its bytes, or its delay.
pub async fn a_batch_goes_when_its_first_limit_is_reached(place: &Place) -> Result<()> {
    // Close to the send timeout, which is the most that is allowed, and far beyond what anything here takes.
    const NEVER: Duration = Duration::from_secs(29);
    let (client, topic) = (place.client()?, place.topic("t"));
    let wide = Batching { enabled: true, max_messages: 1000, max_bytes: 1 << 20, max_publish_delay: NEVER };
    let limits = [
        (Batching { max_messages: 10, ..wide }, 10),
        (Batching { max_bytes: 4096, ..wide }, 50),
        (Batching { max_publish_delay: Duration::from_millis(300), ..wide }, 30),
    ];
    for (limits, count) in limits {
        let producer = client.producer(&topic).batching(limits).create().await?;
        let began = Instant::now();
        let mut receipts = Vec::new();
        for _ in 0..count {
            receipts.push(producer.enqueue(vec![7; 100]).await?);
        }
        let first = receipts.remove(0).await?;
        assert!(began.elapsed() < NEVER / 2, "{limits:?}: it waited for another limit");
        assert!(first.batch_size > 1, "{limits:?}: {first}");
        if limits.max_messages == 10 {
            assert_eq!(first.batch_size, 10);
        } else if limits.max_bytes == 4096 {
            assert!((20..=41).contains(&first.batch_size), "{first}");
        } else {
            assert_eq!(first.batch_size, 30);
            assert!(began.elapsed() >= Duration::from_millis(290), "after {:?}", began.elapsed());
        }
        producer.flush().await?;
    }
    Ok(())
}

/// NONE, LZ4, ZLIB, ZSTD and SNAPPY, batched and not, from no byte to 200 KB.
pub async fn every_codec_is_read_back(place: &Place) -> Result<()> {
    let client = place.client()?;
    let payloads: Vec<Vec<u8>> = [0, 1, 100, 10_000, 200_000]
        .into_iter()
        .map(|size: usize| (0..size).map(|i| (i * i % 251) as u8).collect())
        .collect();
    for codec in CODECS {
        for batched in [true, false] {
            let topic = place.topic(&format!("{codec:?}-{batched}"));
            let producer =
                client.producer(&topic).compression(codec).batching(batching(batched)).create().await?;
            let reader = client.reader(&topic, Position::Earliest).create().await?;
            for payload in &payloads {
                drop(producer.enqueue(payload.clone()).await?);
            }
            producer.flush().await?;
            for (at, message) in take(&reader, payloads.len()).await?.iter().enumerate() {
                assert!(message.payload() == payloads[at], "{codec:?}, batched: {batched}, payload {at}");
            }
        }
    }
    Ok(())
}

/// Key, ordering key, properties, event time, sequence id, producer name: batched and not.
pub async fn what_goes_with_a_message_comes_back(place: &Place) -> Result<()> {
    let client = place.client()?;
    for batched in [true, false] {
        let topic = place.topic(if batched { "batched" } else { "single" });
        let consumer = client.consumer(&topic, "s").subscribe().await?;
        let producer = client.producer(&topic).name("who").batching(batching(batched)).create().await?;
        let full = OutgoingMessage::new("full")
            .with_key("clé")
            .with_ordering_key(vec![0, 255, 7])
            .with_property("b", "2")
            .with_property("a", "")
            .with_property("имя", "значение")
            .with_event_time(1_700_000_000_123)
            .with_sequence_id(40);
        let bytes = OutgoingMessage::new("bytes").with_key_bytes([0, 255, 128]).with_sequence_id(50);
        let mut receipts = Vec::new();
        for message in [full, bytes, OutgoingMessage::new("bare").with_sequence_id(51)] {
            receipts.push(producer.enqueue(message).await?);
        }
        producer.flush().await?;
        try_join_all(receipts).await?;

        let full = next(&consumer).await?;
        assert_eq!((text(&full).as_str(), full.key().as_deref()), ("full", Some("clé")));
        assert!(!full.has_base64_key());
        assert_eq!(full.ordering_key(), Some(&[0, 255, 7][..]));
        let properties = [("b", "2"), ("a", ""), ("имя", "значение")];
        assert_eq!(full.properties(), properties.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!((full.event_time(), full.sequence_id()), (Some(1_700_000_000_123), 40));
        assert_eq!((full.producer_name(), full.topic()), ("who", topic.as_str()));
        assert_eq!(full.redelivery_count(), 0);
        assert!(full.publish_time() > 1_700_000_000_000, "{}", full.publish_time());

        let bytes = next(&consumer).await?;
        assert!(bytes.has_base64_key());
        assert_eq!((bytes.key_bytes(), bytes.sequence_id()), (Some(vec![0, 255, 128]), 50));

        let bare = next(&consumer).await?;
        assert_eq!((bare.key(), bare.ordering_key(), bare.event_time()), (None, None, None));
        assert_eq!((bare.properties(), bare.sequence_id()), (vec![], 51));
        assert_eq!(producer.last_sequence_id(), 51);
    }
    Ok(())
}

/// A value of no bytes is a value; a null value is none, and keeps its key.
pub async fn an_empty_payload_is_not_a_tombstone(place: &Place) -> Result<()> {
    let client = place.client()?;
    for batched in [true, false] {
        let topic = place.topic(if batched { "batched" } else { "single" });
        let consumer = client.consumer(&topic, "s").subscribe().await?;
        let producer = client.producer(&topic).batching(batching(batched)).create().await?;
        for message in
            [OutgoingMessage::new("").with_key("k"), OutgoingMessage::null("k"), OutgoingMessage::new("")]
        {
            drop(producer.enqueue(message).await?);
        }
        producer.flush().await?;
        let seen: Vec<_> = take(&consumer, 3)
            .await?
            .iter()
            .map(|message| (message.payload().len(), message.is_null(), message.key().is_some()))
            .collect();
        assert_eq!(seen, [(0, false, true), (0, true, true), (0, false, false)], "batched: {batched}");
    }
    Ok(())
}

/// Names of topic, subscription and producer, and payloads, in any script.
pub async fn names_and_texts_may_leave_ascii(place: &Place) -> Result<()> {
    let client = place.client()?;
    let topic = place.topic("тема ☂");
    let consumer = client.consumer(&topic, "подписка ☂").consumer_name("потребитель").subscribe().await?;
    let producer = named(client.producer(&topic)).create().await?;
    assert_eq!(producer.name().as_deref(), Some("продюсер ☂"));
    producer.send("ünïcödé 🦀").await?;
    let message = next(&consumer).await?;
    assert_eq!((text(&message).as_str(), message.producer_name()), ("ünïcödé 🦀", "продюсер ☂"));
    assert_eq!(message.topic(), topic);
    consumer.acknowledge(&message)?;
    consumer.close().await?;
    let backlog = place.admin(move |admin| admin.backlog(&topic, "подписка ☂")).await?;
    assert_eq!(backlog, 0);
    Ok(())
}

fn named(producer: ProducerBuilder) -> ProducerBuilder {
    producer.name("продюсер ☂")
}

/// Nothing is stored: who listens gets the messages, who comes later does not.
pub async fn a_non_persistent_topic_delivers_to_who_listens(place: &Place) -> Result<()> {
    let client = place.client()?;
    let topic = place.topic("t").replacen("persistent", "non-persistent", 1);
    let consumer = client.consumer(&topic, "s").subscribe().await?;
    let producer = client.producer(&topic).create().await?;
    for i in 0..20 {
        let id: MessageId = producer.send(i.to_string()).await?;
        ensure!(id.partition == -1, "{id}");
        // One at a time: a broker may drop what a consumer has not asked for yet.
        let message = next(&consumer).await?;
        assert_eq!((text(&message), message.topic()), (i.to_string(), topic.as_str()));
        consumer.acknowledge(&message)?;
    }
    let late =
        client.consumer(&topic, "late").initial_position(InitialPosition::Earliest).subscribe().await?;
    nothing_more(&late).await
}
