//! The four subscription types: who gets what.

use super::{Place, eventually, next, nothing_more, take, text, texts};
use anyhow::{Result, ensure};
use geminga::{
    Batching, Client, Consumer, ErrorKind, InitialPosition, OperationRetries, OutgoingMessage,
    SubscriptionType,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// With `retry_busy` a second consumer waits for its turn; without, it learns at once that the subscription is in use.
pub async fn exclusive_refuses_a_second_consumer_or_lets_it_wait(place: &Place) -> Result<()> {
    let topic = place.topic("t");
    let first = place.client()?.consumer(&topic, "s").subscribe().await?;
    let refused = place.impatient_client()?.consumer(&topic, "s").subscribe().await;
    let error = refused.err().map(|error| error.kind());
    assert_eq!(error, Some(ErrorKind::ConsumerBusy));

    let retries = OperationRetries { delay: Some(Duration::from_millis(200)), ..OperationRetries::default() };
    let patient = place.builder().operation_retries(retries).build()?;
    let waiting = tokio::spawn(patient.consumer(&topic, "s").subscribe());
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "it waits");
    first.close().await?;
    let second = waiting.await??;
    place.client()?.producer(&topic).create().await?.send("for the second").await?;
    assert_eq!(text(&next(&second).await?), "for the second");
    Ok(())
}

/// One consumer at a time gets everything; when it goes, the other gets what was not acknowledged, and what follows.
pub async fn failover_serves_one_consumer_and_then_the_other(place: &Place) -> Result<()> {
    let topic = place.topic("t");
    let (first, second) = (place.client()?, place.client()?);
    let subscribe = async |client: &Client, name: &str| {
        let builder = client.consumer(&topic, "s").subscription_type(SubscriptionType::Failover);
        builder.consumer_name(name).subscribe().await
    };
    let (a, b) = (subscribe(&first, "a").await?, subscribe(&second, "b").await?);
    let producer = first.producer(&topic).batching(Batching::off()).create().await?;
    send(&producer, 0..20).await?;
    let (active, standby) = loop {
        if let Some(message) = a.try_receive()? {
            break ((a, message), b);
        }
        if let Some(message) = b.try_receive()? {
            break ((b, message), a);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let (active, message) = active;
    let mut served = vec![message];
    served.extend(take(&active, 19).await?);
    assert_eq!(texts(&served), numbers(0..20));
    nothing_more(&standby).await?;
    for message in &served[..5] {
        active.acknowledge(message)?;
    }
    active.close().await?;
    assert_eq!(texts(&take(&standby, 15).await?), numbers(5..20));
    send(&producer, 20..30).await?;
    assert_eq!(texts(&take(&standby, 10).await?), numbers(20..30));
    nothing_more(&standby).await
}

/// Every message goes to exactly one, and every consumer gets some.
pub async fn shared_gives_each_message_to_one_consumer(place: &Place) -> Result<()> {
    let topic = place.topic("t");
    let client = place.client()?;
    let mut consumers = Vec::new();
    for _ in 0..3 {
        let builder = client.consumer(&topic, "s").subscription_type(SubscriptionType::Shared);
        consumers.push(builder.receiver_queue_size(10).subscribe().await?);
    }
    let producer = client.producer(&topic).batching(Batching::off()).create().await?;
    send(&producer, 0..300).await?;
    let shares = shares(&consumers, 300).await?;
    assert!(
        shares.iter().all(|share| !share.is_empty()),
        "{:?}",
        shares.iter().map(Vec::len).collect::<Vec<_>>()
    );
    let mut all: Vec<u32> = shares.concat().iter().map(|(_, number)| *number).collect();
    all.sort_unstable();
    assert_eq!(all, (0..300).collect::<Vec<_>>());
    Ok(())
}

/// The keys are divided among the consumers, and each key's messages come in order.
pub async fn key_shared_gives_each_key_to_one_consumer_in_order(place: &Place) -> Result<()> {
    let topic = place.topic("t");
    let client = place.client()?;
    let mut consumers = Vec::new();
    for _ in 0..2 {
        let builder = client.consumer(&topic, "s").subscription_type(SubscriptionType::KeyShared);
        consumers.push(builder.receiver_queue_size(10).subscribe().await?);
    }
    let producer = client.producer(&topic).batching(Batching::off()).create().await?;
    for i in 0..300 {
        let message = OutgoingMessage::new(i.to_string()).with_key(format!("key-{}", i % 30));
        // The ordering key counts where there is one; two of three have none.
        let message =
            if i % 3 == 0 { message.with_ordering_key(format!("order-{}", i % 30)) } else { message };
        drop(producer.enqueue(message).await?);
    }
    producer.flush().await?;
    let shares = shares(&consumers, 300).await?;
    let keys: Vec<BTreeSet<&String>> =
        shares.iter().map(|share| share.iter().map(|(key, _)| key).collect()).collect();
    assert!(keys.iter().all(|keys| !keys.is_empty()), "{keys:?}");
    assert!(keys[0].is_disjoint(&keys[1]), "{keys:?}");
    let mut all = BTreeMap::<&String, Vec<u32>>::new();
    for (key, number) in shares.iter().flatten() {
        all.entry(key).or_default().push(*number);
    }
    assert!(all.values().all(|numbers| numbers.is_sorted_by(|a, b| a < b)), "{all:?}");
    assert_eq!(all.values().map(Vec::len).sum::<usize>(), 300);
    Ok(())
}

/// A subscription of the same name begins anew.
pub async fn unsubscribing_forgets_the_position(place: &Place) -> Result<()> {
    let topic = place.topic("t");
    let client = place.client()?;
    let subscribe = || {
        let builder = client.consumer(&topic, "s").subscription_type(SubscriptionType::Shared);
        builder.initial_position(InitialPosition::Earliest).subscribe()
    };
    let consumer = subscribe().await?;
    let other = subscribe().await?;
    let producer = client.producer(&topic).create().await?;
    let error = consumer.unsubscribe().await.err();
    ensure!(error.is_some(), "unsubscribed although another consumer is connected");
    other.close().await?;
    send(&producer, 0..10).await?;
    for message in take(&consumer, 10).await? {
        consumer.acknowledge(&message)?;
    }
    consumer.unsubscribe().await?;
    let error = consumer.receive().await.err().map(|error| error.kind());
    assert_eq!(error, Some(ErrorKind::AlreadyClosed));
    let name = topic.clone();
    assert!(place.admin(move |admin| admin.backlog(&name, "s")).await.is_err(), "the subscription is gone");
    assert_eq!(texts(&take(&subscribe().await?, 10).await?), numbers(0..10));
    Ok(())
}

async fn send(producer: &geminga::Producer, range: std::ops::Range<u32>) -> Result<()> {
    for i in range {
        drop(producer.enqueue(i.to_string()).await?);
    }
    Ok(producer.flush().await?)
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|i| i.to_string()).collect()
}

/// What each consumer gets of `count` messages, as sticky key and number; all are acknowledged.
async fn shares(consumers: &[Consumer], count: usize) -> Result<Vec<Vec<(String, u32)>>> {
    let mut shares = vec![Vec::new(); consumers.len()];
    eventually("every message has come", async || {
        for (share, consumer) in shares.iter_mut().zip(consumers) {
            while let Some(message) = consumer.try_receive()? {
                let key = match message.ordering_key() {
                    Some(key) => String::from_utf8_lossy(key).into_owned(),
                    None => message.key().unwrap_or_default().into_owned(),
                };
                share.push((key, text(&message).parse()?));
                consumer.acknowledge(&message)?;
            }
        }
        Ok(shares.iter().map(Vec::len).sum::<usize>() >= count)
    })
    .await?;
    for consumer in consumers {
        nothing_more(consumer).await?;
    }
    Ok(shares)
}
