//! Acknowledgements and their opposite: what comes again is exactly what is not acknowledged.

use super::{Place, next, nothing_more, take, text, texts};
use anyhow::Result;
use geminga::{Batching, Client, ConsumerBuilder, ErrorKind, InitialPosition, Message, SubscriptionType};
use std::time::{Duration, Instant};

/// One batch for all that is sent before a flush.
const ONE_BATCH: Batching = Batching {
    enabled: true,
    max_messages: 1000,
    max_bytes: 128 << 10,
    max_publish_delay: Duration::from_secs(10),
};

/// Single messages, acknowledged one by one.
pub async fn what_is_not_acknowledged_comes_again_after_a_restart(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    for kind in [SubscriptionType::Exclusive, SubscriptionType::Shared] {
        let topic = format!("{topic}-{kind:?}");
        let subscribe = || earliest(&client, &topic).subscription_type(kind).subscribe();
        send(&client, &topic, Batching::off(), 10).await?;
        let consumer = subscribe().await?;
        for message in take(&consumer, 10).await?.iter().step_by(2) {
            consumer.acknowledge(message)?;
        }
        consumer.close().await?;
        let consumer = subscribe().await?;
        let mut again = texts(&take(&consumer, 5).await?);
        again.sort();
        assert_eq!(again, ["1", "3", "5", "7", "9"], "{kind:?}");
        nothing_more(&consumer).await?;
        assert_eq!(backlog(place, &topic).await?, 5);
    }
    Ok(())
}

/// And the next one starts behind it.
pub async fn a_cumulative_acknowledgement_covers_all_before_it(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    for kind in [SubscriptionType::Exclusive, SubscriptionType::Failover] {
        let topic = format!("{topic}-{kind:?}");
        let subscribe = || earliest(&client, &topic).subscription_type(kind).subscribe();
        send(&client, &topic, Batching::off(), 10).await?;
        let consumer = subscribe().await?;
        let messages = take(&consumer, 10).await?;
        consumer.acknowledge_cumulative(&messages[6])?;
        consumer.close().await?;
        let consumer = subscribe().await?;
        assert_eq!(texts(&take(&consumer, 3).await?), ["7", "8", "9"], "{kind:?}");
        nothing_more(&consumer).await?;
    }
    Ok(())
}

/// With `batch_index_ack` the broker remembers which messages of a batch are done.
pub async fn batch_indexes_are_acknowledged_one_by_one(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    for kind in [SubscriptionType::Exclusive, SubscriptionType::Shared] {
        let topic = format!("{topic}-{kind:?}");
        let subscribe =
            || earliest(&client, &topic).subscription_type(kind).batch_index_ack(true).subscribe();
        send(&client, &topic, ONE_BATCH, 10).await?;
        let consumer = subscribe().await?;
        let messages = take(&consumer, 10).await?;
        assert_one_batch(&messages);
        for index in [0, 3, 9] {
            consumer.acknowledge(&messages[index])?;
        }
        consumer.close().await?;
        let consumer = subscribe().await?;
        let rest = take(&consumer, 7).await?;
        assert_eq!(texts(&rest), ["1", "2", "4", "5", "6", "7", "8"], "{kind:?}");
        nothing_more(&consumer).await?;
        for message in &rest {
            consumer.acknowledge(message)?;
        }
        consumer.close().await?;
        assert_eq!(backlog(place, &topic).await?, 0, "{kind:?}: the batch is done with its last message");
    }
    Ok(())
}

/// Without it a batch comes again whole until every message of it is acknowledged.
pub async fn without_batch_indexes_one_acknowledgement_spares_the_batch(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    send(&client, &topic, ONE_BATCH, 5).await?;
    let consumer = earliest(&client, &topic).subscribe().await?;
    let messages = take(&consumer, 5).await?;
    assert_one_batch(&messages);
    consumer.acknowledge(&messages[4])?;
    consumer.close().await?;
    let consumer = earliest(&client, &topic).subscribe().await?;
    let again = take(&consumer, 5).await?;
    assert_eq!(texts(&again), ["0", "1", "2", "3", "4"]);
    for message in &again {
        consumer.acknowledge(message)?;
    }
    consumer.close().await?;
    assert_eq!(backlog(place, &topic).await?, 0);
    Ok(())
}

/// What is before the message in its batch is done, what is behind it is not.
pub async fn a_cumulative_acknowledgement_may_end_inside_a_batch(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    for index_acks in [true, false] {
        let topic = format!("{topic}-{index_acks}");
        let subscribe = || earliest(&client, &topic).batch_index_ack(index_acks).subscribe();
        send(&client, &topic, Batching::off(), 2).await?;
        send(&client, &topic, ONE_BATCH, 6).await?;
        let consumer = subscribe().await?;
        let messages = take(&consumer, 8).await?;
        assert_one_batch(&messages[2..]);
        consumer.acknowledge_cumulative(&messages[4])?;
        consumer.close().await?;
        let expected: &[&str] = if index_acks { &["3", "4", "5"] } else { &["0", "1", "2", "3", "4", "5"] };
        let consumer = subscribe().await?;
        assert_eq!(texts(&take(&consumer, expected.len()).await?), expected, "index acks: {index_acks}");
        nothing_more(&consumer).await?;
    }
    Ok(())
}

/// On Shared and Key_Shared, with an error that says so; the consumer goes on.
pub async fn cumulative_is_refused_where_messages_are_shared(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    send(&client, &topic, Batching::off(), 2).await?;
    for kind in [SubscriptionType::Shared, SubscriptionType::KeyShared] {
        let builder = client.consumer(&topic, format!("{kind:?}")).subscription_type(kind);
        let consumer = builder.initial_position(InitialPosition::Earliest).subscribe().await?;
        let message = next(&consumer).await?;
        let error = consumer.acknowledge_cumulative(&message).err().map(|error| error.kind());
        assert_eq!(error, Some(ErrorKind::CumulativeAcknowledgementNotAllowedError));
        consumer.acknowledge(&message)?;
        assert_eq!(text(&next(&consumer).await?), "1");
    }
    Ok(())
}

/// Not before its delay, counted, and without the others.
pub async fn a_negative_acknowledgement_brings_only_that_message_back_after_its_delay(
    place: &Place,
) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    let delay = Duration::from_millis(700);
    for (name, batching) in [("single", Batching::off()), ("batch", ONE_BATCH)] {
        let topic = format!("{topic}-{name}");
        let consumer = earliest(&client, &topic)
            .subscription_type(SubscriptionType::Shared)
            .batch_index_ack(true)
            .negative_ack_redelivery_delay(delay)
            .subscribe()
            .await?;
        send(&client, &topic, batching, 5).await?;
        let mut bad = None;
        for message in take(&consumer, 5).await? {
            assert_eq!(message.redelivery_count(), 0);
            match text(&message).as_str() {
                "2" => bad = Some(message),
                _ => consumer.acknowledge(&message)?,
            }
        }
        let mut bad = bad.expect("2 is among 0 to 4");
        for count in 1..=2 {
            let refused = Instant::now();
            consumer.negative_acknowledge(&bad)?;
            bad = next(&consumer).await?;
            let waited = refused.elapsed();
            assert!(waited >= delay, "{name}: back after {waited:?}");
            assert_eq!((text(&bad).as_str(), bad.redelivery_count()), ("2", count), "{name}");
            nothing_more(&consumer).await?;
        }
        consumer.acknowledge(&bad)?;
        consumer.close().await?;
        assert_eq!(backlog(place, &topic).await?, 0, "{name}");
    }
    Ok(())
}

fn earliest(client: &Client, topic: &str) -> ConsumerBuilder {
    client.consumer(topic, "s").initial_position(InitialPosition::Earliest)
}

/// Numbers from 0, all stored.
async fn send(client: &Client, topic: &str, batching: Batching, count: u32) -> Result<()> {
    let producer = client.producer(topic).batching(batching).create().await?;
    for i in 0..count {
        drop(producer.enqueue(i.to_string()).await?);
    }
    producer.flush().await?;
    Ok(producer.close().await?)
}

fn assert_one_batch(messages: &[Message]) {
    let entries: Vec<_> = messages.iter().map(|message| message.message_id().entry()).collect();
    assert!(entries.windows(2).all(|pair| pair[0] == pair[1]), "one batch: {entries:?}");
}

/// What the broker says is not acknowledged, in entries or messages.
async fn backlog(place: &Place, topic: &str) -> Result<u64> {
    let topic = topic.to_owned();
    place.admin(move |admin| admin.backlog(&topic, "s")).await
}
