//! Partitioned topics: where messages go, and partitions that come later.

use super::{Place, eventually, take, text};
use anyhow::Result;
use geminga::{Batching, Consumer, HashingScheme, OutgoingMessage, Producer};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Each key has one partition, and its messages come in the order they were sent.
pub async fn a_key_stays_on_its_partition_and_in_order(place: &Place) -> Result<()> {
    let client = place.client()?;
    let topic = partitioned(place, 4).await?;
    assert_eq!(client.partitions(&topic).await?, 4);
    let consumer = client.consumer(&topic, "s").subscribe().await?;
    for batching in [Batching::default(), Batching::off()] {
        let producer = client.producer(&topic).batching(batching).create().await?;
        assert_eq!(producer.partitions(), 4);
        send_keyed(&producer, 200).await?;
        let mut partitions = BTreeMap::<String, BTreeSet<i32>>::new();
        let mut last = BTreeMap::<String, u32>::new();
        for message in take(&consumer, 200).await? {
            let key = message.key().unwrap_or_default().into_owned();
            let number: u32 = text(&message).parse()?;
            assert!(last.insert(key.clone(), number).is_none_or(|before| before < number), "{key}: {number}");
            let partition = message.message_id().partition;
            assert_eq!(message.topic(), format!("{topic}-partition-{partition}"));
            partitions.entry(key).or_default().insert(partition);
        }
        assert!(partitions.values().all(|found| found.len() == 1), "{partitions:?}");
        let used: BTreeSet<_> = partitions.values().flatten().collect();
        assert!(used.len() > 1, "twenty keys share a partition");
    }
    Ok(())
}

/// As `surfaces/partitions.tsv` says, which was taken from those clients.
pub async fn each_hashing_scheme_picks_the_partition_of_other_clients(place: &Place) -> Result<()> {
    let client = place.client()?;
    let topic = partitioned(place, 5).await?;
    let mut rows = Vec::new();
    for row in include_str!("../../surfaces/partitions.tsv").lines().filter(|row| !row.starts_with('#')) {
        let columns: Vec<&str> = row.split('\t').collect();
        let key: String = serde_json::from_str(columns[0])?;
        let partitions = columns[1..].iter().map(|column| column.parse()).collect::<Result<Vec<i32>, _>>()?;
        rows.push((key, partitions));
    }
    let schemes = [HashingScheme::JavaStringHash, HashingScheme::Murmur3_32Hash, HashingScheme::BoostHash];
    for batching in [Batching::off(), Batching::default()] {
        for (column, scheme) in schemes.into_iter().enumerate() {
            let producer = client.producer(&topic).batching(batching).hashing_scheme(scheme).create().await?;
            let mut receipts = Vec::new();
            for (key, _) in &rows {
                receipts.push(producer.enqueue(OutgoingMessage::new("").with_key(key)).await?);
            }
            for (receipt, (key, partitions)) in receipts.into_iter().zip(&rows) {
                assert_eq!(receipt.await?.partition, partitions[column], "{key:?} by {scheme:?}");
            }
        }
    }
    Ok(())
}

/// Round robin.
pub async fn messages_without_key_reach_every_partition(place: &Place) -> Result<()> {
    let client = place.client()?;
    let topic = partitioned(place, 3).await?;
    let consumer = client.consumer(&topic, "s").subscribe().await?;
    let producer = client.producer(&topic).create().await?;
    let mut sent = BTreeMap::<i32, usize>::new();
    for i in 0..30 {
        // Awaited one by one, each is a batch of its own, so that the partition changes each time.
        *sent.entry(producer.send(i.to_string()).await?.partition).or_default() += 1;
    }
    assert_eq!(sent, BTreeMap::from([(0, 10), (1, 10), (2, 10)]));
    let mut received = BTreeMap::<i32, usize>::new();
    for message in take(&consumer, 30).await? {
        *received.entry(message.message_id().partition).or_default() += 1;
        consumer.acknowledge(&message)?;
    }
    assert_eq!(received, sent);
    consumer.close().await?;
    assert_eq!(place.admin(move |admin| admin.backlog(&topic, "s")).await?, 0);
    Ok(())
}

/// Both sides find new partitions by themselves; nothing that is sent there meanwhile is missed.
pub async fn partitions_added_while_running_are_used(place: &Place) -> Result<()> {
    let client = place.builder().partitions_update_interval(Duration::from_millis(300)).build()?;
    let topic = partitioned(place, 2).await?;
    let consumer = client.consumer(&topic, "s").subscribe().await?;
    let producer = client.producer(&topic).create().await?;
    send_keyed(&producer, 40).await?;
    let grown = topic.clone();
    place.admin(move |admin| admin.update_partitions(&grown, 5)).await?;
    eventually("the producer has five partitions", async || Ok(producer.partitions() == 5)).await?;
    eventually("all are connected", async || Ok(producer.is_connected())).await?;
    send_keyed(&producer, 100).await?;
    let partitions: BTreeSet<i32> = partitions_of(&consumer, 140).await?;
    assert_eq!(partitions, BTreeSet::from([0, 1, 2, 3, 4]));
    Ok(())
}

async fn partitioned(place: &Place, partitions: u32) -> Result<String> {
    let topic = place.topic("t");
    let name = topic.clone();
    place.admin(move |admin| admin.create_partitioned_topic(&name, partitions)).await?;
    Ok(topic)
}

/// Numbers from 0, over twenty keys, all stored.
async fn send_keyed(producer: &Producer, count: u32) -> Result<()> {
    for i in 0..count {
        let message = OutgoingMessage::new(i.to_string()).with_key(format!("ключ-{}", i % 20));
        drop(producer.enqueue(message).await?);
    }
    Ok(producer.flush().await?)
}

async fn partitions_of(consumer: &Consumer, count: usize) -> Result<BTreeSet<i32>> {
    Ok(take(consumer, count).await?.iter().map(|message| message.message_id().partition).collect())
}
