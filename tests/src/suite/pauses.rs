//! What a broker may do to an open handle without an error: the application notices a pause at most.

use super::{Place, eventually, next, nothing_more, take, text, texts};
use anyhow::Result;
use futures::future::try_join_all;
use geminga::{Batching, Client, Consumer, InitialPosition, OutgoingMessage, StateChange};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The topic is unloaded again and again while messages flow; nothing is lost, doubled or out of order.
pub async fn an_unload_is_a_pause_without_an_error(place: &Place) -> Result<()> {
    let (client, topic) = (place.client()?, place.topic("t"));
    let consumer = client.consumer(&topic, "s").subscribe().await?;
    let producer = client.producer(&topic).create().await?;
    let mut events = producer.events();
    let sender = {
        let producer = producer.clone();
        tokio::spawn(async move {
            for i in 0..500 {
                drop(producer.enqueue(i.to_string()).await?);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            producer.flush().await?;
            anyhow::Ok(())
        })
    };
    let mut expected = 0;
    for round in 1..=3 {
        // First deliveries in order; what was not acknowledged when the topic went may come again.
        while expected < round * 150 {
            let number: u32 = text(&next(&consumer).await?).parse()?;
            assert!(number <= expected, "{number} came before {expected}");
            expected = expected.max(number + 1);
        }
        let name = topic.clone();
        place.admin(move |admin| admin.unload_topic(&name)).await?;
    }
    while expected < 500 {
        let message = next(&consumer).await?;
        let number: u32 = text(&message).parse()?;
        assert!(number <= expected, "{number} came before {expected}");
        expected = expected.max(number + 1);
        consumer.acknowledge_cumulative(&message)?;
    }
    sender.await??;
    let mut seen = (false, false);
    while seen != (true, true) {
        match events.next().await.map(|event| event.change) {
            Some(StateChange::Reconnecting { .. }) => seen.0 = true,
            Some(StateChange::Connected { .. }) => seen.1 = true,
            _ => {}
        }
    }
    // Acknowledgements wait for the connection; a close would not.
    eventually("the consumer is back", async || Ok(consumer.is_connected())).await?;
    consumer.close().await?;
    assert_eq!(place.admin(move |admin| admin.backlog(&topic, "s")).await?, 0);
    Ok(())
}

/// All partitions at once, keyed.
pub async fn a_partitioned_topic_survives_the_unload_of_its_namespace(place: &Place) -> Result<()> {
    let client = place.client()?;
    // The whole namespace goes, so it must not be one that other behaviours use.
    let namespace = format!("{}-unload", place.namespace);
    let topic = format!("persistent://{namespace}/t");
    let (made, name) = (namespace.clone(), topic.clone());
    place
        .admin(move |admin| {
            admin.create_namespace(&made)?;
            admin.create_partitioned_topic(&name, 4)
        })
        .await?;
    let consumer = client.consumer(&topic, "s").subscribe().await?;
    let producer = client.producer(&topic).create().await?;
    let mut receipts = Vec::new();
    for round in 0..3 {
        for i in 0..100 {
            let message =
                OutgoingMessage::new((round * 100 + i).to_string()).with_key(format!("key-{}", i % 10));
            receipts.push(producer.enqueue(message).await?);
        }
        let name = namespace.clone();
        place.admin(move |admin| admin.unload_namespace(&name)).await?;
    }
    producer.flush().await?;
    try_join_all(receipts).await?;
    let mut latest = BTreeMap::<String, Vec<u32>>::new();
    while latest.values().map(Vec::len).sum::<usize>() < 300 {
        let message = next(&consumer).await?;
        let numbers = latest.entry(message.key().unwrap_or_default().into_owned()).or_default();
        let number: u32 = text(&message).parse()?;
        if !numbers.contains(&number) {
            assert!(numbers.last().is_none_or(|last| *last < number), "{number} after {numbers:?}");
            numbers.push(number);
        }
    }
    Ok(())
}

/// It crashes and comes back while messages flow; what was not acknowledged when it went may come again.
pub async fn a_broker_restart_is_a_pause_without_an_error(place: &Place) -> Result<()> {
    let broker = place.own_broker().await?;
    let client = Client::builder(broker.service_url()).build()?;
    let topic = "persistent://public/default/restart";
    let consumer = client.consumer(topic, "s").subscribe().await?;
    // No send timeout: how long a broker takes to start is not what this is about.
    let producer = client.producer(topic).send_timeout(None).block_if_queue_full(true).create().await?;
    let stop = Arc::new(AtomicBool::new(false));
    let sender = {
        let (producer, stop) = (producer.clone(), stop.clone());
        tokio::spawn(async move {
            let mut receipts = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                receipts.push(producer.enqueue(receipts.len().to_string()).await?);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            producer.flush().await?;
            anyhow::Ok(try_join_all(receipts).await?.len())
        })
    };
    let mut expected = 0;
    receive_until(&consumer, &mut expected, 100).await?;
    let broker = broker.restart().await?;
    receive_until(&consumer, &mut expected, 100).await?;
    stop.store(true, Ordering::Relaxed);
    let sent = sender.await??;
    let left = sent - expected;
    receive_until(&consumer, &mut expected, left).await?;
    nothing_more(&consumer).await?;
    client.close().await?;
    drop(broker);
    Ok(())
}

/// Takes numbers until `more` new ones have come: in order, each after all before it.
async fn receive_until(consumer: &Consumer, expected: &mut usize, more: usize) -> Result<()> {
    let end = *expected + more;
    while *expected < end {
        let message = next(consumer).await?;
        let number: usize = text(&message).parse()?;
        assert!(number <= *expected, "{number} came before {expected}");
        *expected = (number + 1).max(*expected);
        consumer.acknowledge(&message)?;
    }
    Ok(())
}

/// A producer that comes back under its name knows how far it was, and what it repeats is stored once.
pub async fn deduplication_continues_from_the_last_sequence_id(place: &Place) -> Result<()> {
    let topic = format!("persistent://{}/{}", place.deduplicated, place.name);
    let client = place.client()?;
    let reader = client.consumer(&topic, "s").initial_position(InitialPosition::Earliest).subscribe().await?;
    for batching in [Batching::off(), Batching::default()] {
        let create =
            || client.producer(&topic).name(format!("{}", batching.enabled)).batching(batching).create();
        let producer = create().await?;
        assert_eq!(producer.last_sequence_id(), -1);
        for i in 0..10 {
            drop(producer.enqueue(OutgoingMessage::new(i.to_string()).with_sequence_id(i)).await?);
        }
        producer.flush().await?;
        assert_eq!(producer.last_sequence_id(), 9);
        producer.close().await?;

        let producer = create().await?;
        assert_eq!(producer.last_sequence_id(), 9);
        for i in 5..10 {
            let id = producer.send(OutgoingMessage::new("again").with_sequence_id(i)).await?;
            assert!(id.ledger_id < 0, "a duplicate is stored nowhere: {id}");
        }
        producer.send("10").await?;
        assert_eq!(producer.last_sequence_id(), 10);
        let expected: Vec<_> = (0..=10).map(|i| i.to_string()).collect();
        assert_eq!(texts(&take(&reader, 11).await?), expected);
    }
    nothing_more(&reader).await
}
