//! Sends and the end of producers.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use geminga::{Batching, Client, Compression, ErrorKind, MessageRouter, Routing};
use geminga_broker::NodeId;
use geminga_broker::net::EmbeddedBroker;
use tokio::time::timeout;

use crate::support::{broker, stored, until};

const TOPIC: &str = "persistent://public/default/t";

fn publishers(broker: &EmbeddedBroker) -> usize {
    broker.with(|cluster, _| cluster.topic(TOPIC).map_or(0, |t| t.producers.len()))
}

/// Batches that leave only when they are full.
fn patient() -> Batching {
    Batching { max_publish_delay: Duration::from_secs(3600), ..Batching::default() }
}

#[tokio::test]
async fn pb020_a_routing_function_that_panics_fails_its_send_and_no_other() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let route = |message: &geminga::OutgoingMessage, _| match message.payload.is_empty() {
        true => panic!("a bug of the application's"),
        false => 0,
    };
    let routing = Routing::Custom(MessageRouter(Arc::new(route)));
    let producer = client.producer(TOPIC).routing(routing).create().await.unwrap();
    producer.send("a").await.unwrap();
    for _ in 0..3 {
        let error = producer.send("").await.unwrap_err();
        assert!(error.to_string().contains("routing function"), "{error}");
    }
    producer.send("b").await.unwrap();
    assert_eq!(client.stats().memory_used, 0);
    client.close().await.unwrap();
    assert_eq!(stored(&broker, TOPIC), ["a", "b"]);
}

#[tokio::test]
async fn pb046_a_producer_closed_or_dropped_is_no_publisher_any_more() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let open = async || client.producer(TOPIC).batching(patient()).send_timeout(None).create().await.unwrap();
    let send_three =
        |producer: &geminga::Producer| [0, 1, 2].map(|i: u8| producer.try_enqueue(vec![b'0' + i]).unwrap());
    let producer = open().await;
    let receipts = send_three(&producer);
    assert_eq!(publishers(&broker), 1);
    producer.flush().await.unwrap();
    producer.close().await.unwrap();
    assert_eq!(publishers(&broker), 0, "as soon as the close returns");
    for receipt in receipts {
        receipt.await.unwrap();
    }
    let producer = open().await;
    let receipts = send_three(&producer);
    drop(producer);
    for receipt in receipts {
        assert_eq!(receipt.await.unwrap_err().kind(), ErrorKind::AlreadyClosed);
    }
    until("the dropped producer is gone at the broker", || publishers(&broker) == 0).await;
    assert_eq!(stored(&broker, TOPIC), ["0", "1", "2"]);
}

#[tokio::test]
async fn pb047_a_waiting_send_ends_at_its_own_deadline_and_the_one_before_stays() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let builder = client.producer(TOPIC).max_pending_messages(1).block_if_queue_full(true);
    let producer = builder.create().await.unwrap();
    broker.with(|cluster, now| cluster.stop_node(now, NodeId(0)));
    let first = producer.enqueue("first").await.unwrap();
    let second = timeout(Duration::from_millis(100), producer.send("second")).await;
    second.expect_err("there is no room before the broker is back");
    assert_eq!((first.try_result(), producer.pending_messages()), (None, 1));
    broker.with(|cluster, _| cluster.start_node(NodeId(0)));
    first.await.unwrap();
    producer.send("third").await.unwrap();
    assert_eq!(stored(&broker, TOPIC), ["first", "third"]);
}

#[tokio::test]
async fn pb047_the_send_that_stays_ends_with_the_send_timeout() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let builder = client.producer(TOPIC).max_pending_messages(1).block_if_queue_full(true);
    let producer = builder.send_timeout(Duration::from_millis(300)).create().await.unwrap();
    broker.with(|cluster, now| cluster.stop_node(now, NodeId(0)));
    let first = producer.enqueue("first").await.unwrap();
    timeout(Duration::from_millis(50), producer.enqueue("second")).await.ok();
    assert_eq!(first.await.unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn pb054_what_was_in_the_buffer_at_the_call_is_what_is_sent() {
    const MESSAGES: u32 = 2500;
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let single = Batching { enabled: false, ..Batching::default() };
    for (i, batching) in [Batching::default(), single].into_iter().enumerate() {
        for compression in [Compression::None, Compression::Lz4] {
            let topic = format!("{TOPIC}-{i}-{compression:?}");
            let builder = client.producer(&topic).batching(batching).compression(compression);
            let producer = builder.create().await.unwrap();
            let mut receipts = Vec::new();
            // The ways to reuse memory: one's own buffer, copied at the call, and a pool that is cut in pieces.
            let (mut own, mut pool) = (Vec::new(), BytesMut::new());
            for n in 0..MESSAGES {
                let text = format!("{n:08}");
                let receipt = if n % 2 == 0 {
                    own.clear();
                    own.extend_from_slice(text.as_bytes());
                    let receipt = producer.enqueue(own.clone()).await.unwrap();
                    own.fill(b'x');
                    receipt
                } else {
                    pool.put_slice(text.as_bytes());
                    let receipt = producer.enqueue(pool.split().freeze()).await.unwrap();
                    pool.put_bytes(b'x', 16);
                    pool.clear();
                    receipt
                };
                receipts.push(receipt);
            }
            for receipt in receipts {
                receipt.await.unwrap();
            }
            let expected: Vec<String> = (0..MESSAGES).map(|n| format!("{n:08}")).collect();
            assert!(stored(&broker, &topic) == expected, "{topic}");
        }
    }
}
