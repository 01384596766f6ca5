//! Producers against the embedded broker.

mod support;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use geminga::{Batching, Client, ErrorKind, OutgoingMessage};
use support::{broker, stored};
use tokio::time::timeout;

/// Polls once, and says whether it has to be polled again.
async fn pending<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[tokio::test]
async fn a_sent_message_is_stored_when_its_send_returns() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let producer = client.producer("t").create().await.unwrap();
    assert_eq!(producer.topic(), "persistent://public/default/t");
    let a = producer.send("a").await.unwrap();
    assert_eq!(stored(&broker, producer.topic()), ["a"]);
    let b = producer.send(OutgoingMessage::new("b").with_key("k")).await.unwrap();
    assert!(a < b);
    assert_eq!(stored(&broker, producer.topic()), ["a", "b"]);
    assert_eq!(producer.last_sequence_id(), 1);
    client.close().await.unwrap();
}

#[tokio::test]
async fn pipelined_messages_are_stored_in_order_and_share_batches() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let producer = client.producer("t").create().await.unwrap();
    let mut receipts = Vec::new();
    for i in 0..2500 {
        receipts.push(producer.enqueue(i.to_string()).await.unwrap());
    }
    let mut ids = Vec::new();
    for receipt in receipts {
        ids.push(receipt.await.unwrap());
    }
    assert!(ids.is_sorted(), "ids grow");
    assert_eq!(ids[1].batch_index, 1, "the second message of the first batch");
    let expected: Vec<String> = (0..2500).map(|i| i.to_string()).collect();
    assert_eq!(stored(&broker, producer.topic()), expected);
}

#[tokio::test]
async fn a_receipt_dropped_unawaited_sends_all_the_same_and_flush_waits_for_it() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let slow = Batching { max_publish_delay: Duration::from_secs(3600), ..Batching::default() };
    let producer = client.producer("t").batching(slow).send_timeout(None).create().await.unwrap();
    for i in 0..10 {
        drop(producer.try_enqueue(i.to_string()).unwrap());
    }
    assert_eq!(producer.pending_messages(), 10);
    producer.flush().await.unwrap();
    assert_eq!(stored(&broker, producer.topic()).len(), 10);
    assert_eq!(producer.pending_messages(), 0);
}

#[tokio::test]
async fn a_full_queue_hands_the_message_back() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let producer = client.producer("t").max_pending_messages(1).create().await.unwrap();
    let first = producer.try_enqueue("a").unwrap();
    let refused = producer.try_enqueue("b").unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::ProducerQueueIsFull);
    assert_eq!(refused.message.payload, "b");
    first.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_block_if_queue_full_many_senders_wait_for_room_and_all_get_it() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let producer =
        client.producer("t").max_pending_messages(3).block_if_queue_full(true).create().await.unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|task| {
            let producer = producer.clone();
            tokio::spawn(async move {
                for i in 0..20 {
                    producer.send(format!("{task}-{i}")).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut all = stored(&broker, producer.topic());
    assert_eq!(all.len(), 400);
    let of_seven: Vec<&String> = all.iter().filter(|m| m.starts_with("7-")).collect();
    assert!(of_seven.iter().zip(0..).all(|(m, i)| **m == format!("7-{i}")), "each sender's order holds");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 400);
}

#[tokio::test]
async fn who_waits_for_room_goes_before_whoever_comes_later() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let builder = client.producer("t").max_pending_messages(1).block_if_queue_full(true);
    let producer = builder.create().await.unwrap();
    let first = producer.enqueue("0").await.unwrap();
    let mut waiting: Vec<_> = (1..=20).map(|i| Box::pin(producer.enqueue(i.to_string()))).collect();
    for enqueue in &mut waiting {
        assert!(pending(enqueue.as_mut()).await, "no room");
    }
    first.await.unwrap();
    // There is room now, but it is another's.
    let refused = producer.try_enqueue("too early").unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::ProducerQueueIsFull);
    waiting.push(Box::pin(producer.enqueue("21".to_owned())));
    // However they are polled: the last ones first, and each only once more by itself.
    for enqueue in waiting[1..].iter_mut().rev() {
        assert!(pending(enqueue.as_mut()).await, "not before the first");
    }
    // One that gives up is no hindrance to those behind it.
    drop(waiting.remove(4));
    let receipts = timeout(Duration::from_secs(10), futures::future::join_all(waiting)).await.unwrap();
    receipts.into_iter().for_each(|receipt| drop(receipt.unwrap()));
    producer.flush().await.unwrap();
    let order: Vec<String> = (0..=21).filter(|i| *i != 5).map(|i| i.to_string()).collect();
    assert_eq!(stored(&broker, producer.topic()), order);
}

#[tokio::test]
async fn an_enqueue_dropped_while_it_waits_for_room_sends_nothing() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let slow = Batching { max_publish_delay: Duration::from_secs(3600), ..Batching::default() };
    let builder = client
        .producer("t")
        .max_pending_messages(1)
        .block_if_queue_full(true)
        .batching(slow)
        .send_timeout(None);
    let producer = builder.create().await.unwrap();
    let first = producer.enqueue("a").await.unwrap();
    {
        let waiting = std::pin::pin!(producer.enqueue("lost"));
        assert!(pending(waiting).await, "no room");
    }
    first.await.unwrap();
    drop(producer.enqueue("c").await.unwrap());
    producer.flush().await.unwrap();
    assert_eq!(stored(&broker, producer.topic()), ["a", "c"]);
}

#[tokio::test]
async fn a_closed_producer_fails_what_has_no_receipt_and_closing_twice_is_fine() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let slow = Batching { max_publish_delay: Duration::from_secs(3600), ..Batching::default() };
    let producer = client.producer("t").batching(slow).send_timeout(None).create().await.unwrap();
    let receipt = producer.enqueue("a").await.unwrap();
    producer.close().await.unwrap();
    assert_eq!(receipt.await.unwrap_err().kind(), ErrorKind::AlreadyClosed);
    assert_eq!(producer.send("b").await.unwrap_err().kind(), ErrorKind::AlreadyClosed);
    producer.close().await.unwrap();
    client.close().await.unwrap();
    client.close().await.unwrap();
    assert_eq!(client.producer("t").create().await.unwrap_err().kind(), ErrorKind::AlreadyClosed);
}

#[tokio::test]
async fn a_partitioned_topic_gets_messages_on_every_partition() {
    let broker = broker().await;
    let topic = "persistent://public/default/p";
    broker.with(|cluster, now| cluster.create_partitioned_topic(now, topic, 3)).unwrap();
    let client = Client::new(broker.service_url()).unwrap();
    assert_eq!(client.partitions(topic).await.unwrap(), 3);
    let producer = client.producer(topic).batching(Batching::off()).create().await.unwrap();
    assert_eq!(producer.partitions(), 3);
    for i in 0..9 {
        producer.send(i.to_string()).await.unwrap();
    }
    for partition in 0..3 {
        assert_eq!(stored(&broker, &format!("{topic}-partition-{partition}")).len(), 3);
    }
}
