//! Consumers and readers against the embedded broker.

mod support;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt as _;
use geminga::{
    Batching, Client, Consumer, ErrorKind, InitialPosition, Message, Position, Producer, SubscriptionType,
    TopicDomain,
};
use geminga_broker::net::EmbeddedBroker;
use support::{broker, until};

const TOPIC: &str = "persistent://public/default/t";
/// Long enough never to be over in a test that works.
const LONG: Duration = Duration::from_secs(60);

async fn open() -> (EmbeddedBroker, Client, Producer, Consumer) {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let consumer = client.consumer(TOPIC, "s").subscribe().await.unwrap();
    let producer = client.producer(TOPIC).create().await.unwrap();
    (broker, client, producer, consumer)
}

fn text(message: &Message) -> String {
    String::from_utf8(message.payload().to_vec()).unwrap()
}

fn backlog(broker: &EmbeddedBroker) -> usize {
    broker.with(|cluster, _| cluster.unacked(TOPIC, "s")).unwrap().len()
}

#[tokio::test]
async fn what_is_sent_is_received_and_what_is_acknowledged_is_done() {
    let (broker, client, producer, consumer) = open().await;
    assert_eq!((consumer.topic(), consumer.subscription()), (TOPIC, "s"));
    for i in 0..100 {
        drop(producer.enqueue(i.to_string()).await.unwrap());
    }
    for i in 0..100 {
        let message = consumer.receive().await.unwrap();
        assert_eq!(text(&message), i.to_string());
        match i % 2 {
            0 => consumer.acknowledge(&message).unwrap(),
            _ => consumer.acknowledge(&message.message_id()).unwrap(),
        }
    }
    consumer.close().await.unwrap();
    assert_eq!(backlog(&broker), 0, "the close waits for the acknowledgements");
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_receive_loses_nothing() {
    let (_broker, _client, producer, consumer) = open().await;
    // Waits, and is dropped before there is anything.
    for _ in 0..3 {
        assert!(consumer.receive_timeout(Duration::from_millis(1)).await.unwrap().is_none());
        let mut waiting = pin!(consumer.receive());
        assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
    }
    // Is woken, and dropped before it looks.
    {
        let mut waiting = pin!(consumer.receive());
        assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
        producer.send("a").await.unwrap();
        until("the message is here", || consumer.queued_messages() == 1).await;
    }
    assert_eq!(text(&consumer.receive().await.unwrap()), "a");
    // Races a timeout again and again while messages come one by one.
    let sender = tokio::spawn(async move {
        for i in 0..50 {
            producer.send(i.to_string()).await.unwrap();
        }
    });
    let mut received = Vec::new();
    while received.len() < 50 {
        if let Ok(message) = tokio::time::timeout(Duration::from_micros(300), consumer.receive()).await {
            received.push(text(&message.unwrap()));
        }
    }
    assert_eq!(received, (0..50).map(|i| i.to_string()).collect::<Vec<_>>());
    sender.await.unwrap();
}

#[tokio::test]
async fn a_woken_receiver_that_goes_passes_its_turn_on() {
    let (_broker, _client, producer, consumer) = open().await;
    let mut first = Box::pin(consumer.receive());
    assert!(poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await);
    let second = tokio::spawn({
        let consumer = consumer.clone();
        async move { consumer.receive().await }
    });
    tokio::task::yield_now().await;
    producer.send("a").await.unwrap();
    until("the message is here", || consumer.queued_messages() == 1).await;
    drop(first);
    assert_eq!(text(&second.await.unwrap().unwrap()), "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_receive_each_message_once() {
    let (_broker, _client, producer, consumer) = open().await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let consumer = consumer.clone();
            tokio::spawn(async move {
                let mut mine = Vec::new();
                while let Some(message) = consumer.receive_timeout(LONG).await.unwrap() {
                    match text(&message).as_str() {
                        "end" => break,
                        number => mine.push(number.parse::<u32>().unwrap()),
                    }
                }
                mine
            })
        })
        .collect();
    for i in 0..1000 {
        drop(producer.enqueue(i.to_string()).await.unwrap());
    }
    for _ in 0..8 {
        drop(producer.enqueue("end").await.unwrap());
    }
    producer.flush().await.unwrap();
    let mut all = BTreeSet::new();
    for task in tasks {
        for number in task.await.unwrap() {
            assert!(all.insert(number), "{number} came twice");
        }
    }
    assert_eq!(all.len(), 1000);
}

#[tokio::test]
async fn with_a_receiver_queue_of_zero_two_waiting_tasks_both_get_their_message() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let consumer = client.consumer(TOPIC, "s").receiver_queue_size(0).subscribe().await.unwrap();
    let producer = client.producer(TOPIC).batching(Batching::off()).create().await.unwrap();
    let receive = || {
        let consumer = consumer.clone();
        tokio::spawn(async move { text(&consumer.receive().await.unwrap()) })
    };
    let (a, b) = (receive(), receive());
    tokio::task::yield_now().await;
    producer.send("a").await.unwrap();
    producer.send("b").await.unwrap();
    let got = BTreeSet::from([a.await.unwrap(), b.await.unwrap()]);
    assert_eq!(got, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
}

#[tokio::test]
async fn a_batch_is_full_under_load_and_partial_at_its_timeout() {
    let (_broker, _client, producer, consumer) = open().await;
    for i in 0..2500 {
        drop(producer.enqueue(i.to_string()).await.unwrap());
    }
    let mut next = 0;
    for _ in 0..2 {
        // More than the receiver queue holds.
        let batch = consumer.receive_batch(1200, LONG).await.unwrap();
        assert_eq!(batch.len(), 1200);
        for message in &batch {
            assert_eq!(text(message), next.to_string());
            next += 1;
        }
    }
    let batch = consumer.receive_batch(1200, Duration::from_millis(200)).await.unwrap();
    assert_eq!(batch.len(), 100);
    assert!(consumer.receive_batch(10, Duration::from_millis(1)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_cancelled_batch_gives_back_what_it_had_in_order() {
    let (_broker, _client, producer, consumer) = open().await;
    for i in 0..3 {
        producer.send(i.to_string()).await.unwrap();
    }
    until("the messages are here", || consumer.queued_messages() == 3).await;
    {
        let mut batch = pin!(consumer.receive_batch(10, LONG));
        assert!(poll_fn(|cx| Poll::Ready(batch.as_mut().poll(cx).is_pending())).await);
        producer.send("3").await.unwrap();
    }
    assert_eq!(text(&consumer.receive().await.unwrap()), "0");
    let rest = consumer.receive_batch(3, LONG).await.unwrap();
    assert_eq!(rest.iter().map(text).collect::<Vec<_>>(), ["1", "2", "3"]);
}

#[tokio::test]
async fn what_a_batch_had_before_a_seek_does_not_come_after_it() {
    let (_broker, _client, producer, consumer) = open().await;
    for i in 0..3 {
        producer.send(i.to_string()).await.unwrap();
    }
    until("the messages are here", || consumer.queued_messages() == 3).await;
    {
        let mut cancelled = pin!(consumer.receive_batch(10, LONG));
        assert!(poll_fn(|cx| Poll::Ready(cancelled.as_mut().poll(cx).is_pending())).await);
        consumer.seek(Position::Earliest).await.unwrap();
    }
    {
        let mut going_on = pin!(consumer.receive_batch(6, LONG));

        until("the messages are here again", || consumer.queued_messages() == 3).await;
        assert!(poll_fn(|cx| Poll::Ready(going_on.as_mut().poll(cx).is_pending())).await);
        consumer.seek(Position::Earliest).await.unwrap();
        for i in 3..6 {
            producer.send(i.to_string()).await.unwrap();
        }
        let batch = going_on.await.unwrap();
        assert_eq!(batch.iter().map(text).collect::<Vec<_>>(), ["0", "1", "2", "3", "4", "5"]);
    }
    assert_eq!(consumer.queued_messages(), 0);
}

#[tokio::test]
async fn receive_many_takes_what_is_there() {
    let (_broker, _client, producer, consumer) = open().await;
    for i in 0..5 {
        producer.send(i.to_string()).await.unwrap();
    }
    until("the messages are here", || consumer.queued_messages() == 5).await;
    assert_eq!(consumer.receive_many(3).await.unwrap().len(), 3);
    assert_eq!(consumer.receive_many(3).await.unwrap().len(), 2);
    assert!(consumer.try_receive().unwrap().is_none());
}

#[tokio::test]
async fn the_stream_ends_when_the_consumer_is_closed() {
    let (_broker, _client, producer, consumer) = open().await;
    let messages = consumer.stream();
    producer.send("a").await.unwrap();
    producer.send("b").await.unwrap();
    let closer = consumer.clone();
    let all: Vec<String> = messages
        .then(|message| {
            let closer = closer.clone();
            async move {
                let text = text(&message.unwrap());
                if text == "b" {
                    closer.close().await.unwrap();
                }
                text
            }
        })
        .collect()
        .await;
    assert_eq!(all, ["a", "b"]);
    assert_eq!(consumer.receive().await.unwrap_err().kind(), ErrorKind::AlreadyClosed);
}

#[tokio::test]
async fn a_negatively_acknowledged_message_comes_again() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let consumer = client
        .consumer(TOPIC, "s")
        .subscription_type(SubscriptionType::Shared)
        .negative_ack_redelivery_delay(Duration::from_millis(10))
        .subscribe()
        .await
        .unwrap();
    let producer = client.producer(TOPIC).create().await.unwrap();
    producer.send("poison").await.unwrap();
    let first = consumer.receive().await.unwrap();
    assert_eq!(first.redelivery_count(), 0);
    consumer.negative_acknowledge(&first).unwrap();
    let again = consumer.receive().await.unwrap();
    assert_eq!(again.message_id(), first.message_id());
    assert_eq!(again.redelivery_count(), 1);
    let refused = consumer.acknowledge_cumulative(&again).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::CumulativeAcknowledgementNotAllowedError);
    consumer.redeliver_unacknowledged().unwrap();
    assert_eq!(consumer.receive().await.unwrap().redelivery_count(), 2);
}

#[tokio::test]
async fn a_seek_starts_anew_from_its_position() {
    let (_broker, _client, producer, consumer) = open().await;
    let mut ids = Vec::new();
    for i in 0..5 {
        ids.push(producer.send(i.to_string()).await.unwrap());
    }
    for _ in 0..5 {
        consumer.receive().await.unwrap();
    }
    consumer.seek(Position::Earliest).await.unwrap();
    assert_eq!(text(&consumer.receive().await.unwrap()), "0");
    consumer.seek(Position::Id(ids[2])).await.unwrap();
    assert_eq!(text(&consumer.receive().await.unwrap()), "3");
    assert_eq!(consumer.last_message_ids().await.unwrap()[0].entry(), ids[4].entry());
}

#[tokio::test]
async fn dropping_the_last_clone_closes_the_consumer_with_its_acknowledgements() {
    let (broker, client, producer, consumer) = open().await;
    producer.send("a").await.unwrap();
    let message = consumer.receive().await.unwrap();
    let stream = consumer.stream();
    consumer.acknowledge(&message).unwrap();
    drop(consumer);
    let consumers = || broker.with(|cluster, _| cluster.subscription(TOPIC, "s")).unwrap().consumers.len();
    assert_eq!(consumers(), 1, "the stream holds it");
    drop(stream);
    until("the consumer is gone", || consumers() == 0 && client.stats().consumers == 0).await;
    assert_eq!(backlog(&broker), 0);
}

#[tokio::test]
async fn unsubscribing_removes_the_subscription_and_ends_the_consumer() {
    let (broker, _client, _producer, consumer) = open().await;
    consumer.unsubscribe().await.unwrap();
    assert!(broker.with(|cluster, _| cluster.subscription(TOPIC, "s")).is_none());
    assert_eq!(consumer.receive().await.unwrap_err().kind(), ErrorKind::AlreadyClosed);
    consumer.close().await.unwrap();
}

#[tokio::test]
async fn closing_the_client_ends_every_wait() {
    let (_broker, client, producer, consumer) = open().await;
    let waiting = tokio::spawn(async move { consumer.receive().await });
    tokio::task::yield_now().await;
    client.close().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::AlreadyClosed);
    assert_eq!(producer.send("a").await.unwrap_err().kind(), ErrorKind::AlreadyClosed);
    assert_eq!(client.lookup_topic(TOPIC).await.unwrap_err().kind(), ErrorKind::AlreadyClosed);
}

#[tokio::test]
async fn a_reader_reads_until_nothing_is_left() {
    let (broker, client, producer, _consumer) = open().await;
    let mut ids = Vec::new();
    for i in 0..5 {
        ids.push(producer.send(i.to_string()).await.unwrap());
    }
    let reader = client.reader(TOPIC, Position::Earliest).create().await.unwrap();
    let mut read = Vec::new();
    while reader.has_message_available().await.unwrap() {
        read.push(text(&reader.next().await.unwrap()));
    }
    assert_eq!(read, ["0", "1", "2", "3", "4"]);
    assert!(reader.next_timeout(Duration::from_millis(1)).await.unwrap().is_none());
    let from =
        client.reader(TOPIC, Position::Id(ids[3])).start_message_id_inclusive(true).create().await.unwrap();
    assert_eq!(from.stream().next().await.unwrap().map(|m| text(&m)).unwrap(), "3");
    reader.close().await.unwrap();
    assert_eq!(client.lookup_topic(TOPIC).await.unwrap(), broker.service_url());
    let topics = client.topics_of_namespace("public/default", TopicDomain::Persistent).await.unwrap();
    assert_eq!(topics, [TOPIC]);
}

#[tokio::test]
async fn a_partitioned_topic_is_received_whole() {
    let broker = broker().await;
    broker.with(|cluster, now| cluster.create_partitioned_topic(now, TOPIC, 4)).unwrap();
    let client = Client::new(broker.service_url()).unwrap();
    let producer = client.producer(TOPIC).batching(Batching::off()).create().await.unwrap();
    for i in 0..100 {
        producer.send(i.to_string()).await.unwrap();
    }
    let consumer =
        client.consumer(TOPIC, "s").initial_position(InitialPosition::Earliest).subscribe().await.unwrap();
    let mut all: Vec<u32> = Vec::new();
    while all.len() < 100 {
        let message = consumer.receive_timeout(LONG).await.unwrap().expect("more is to come");
        all.push(text(&message).parse().unwrap());
        consumer.acknowledge(&message).unwrap();
    }
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}
