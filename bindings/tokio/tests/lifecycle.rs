//! What handles leave behind when they go, and what becomes of clients whose runtime goes.

mod support;

use std::thread;
use std::time::Duration;

use geminga::{Client, ErrorKind, Runtime, StateChange};
use geminga_broker::NodeId;
use geminga_broker::net::{Config, EmbeddedBroker};
use support::{broker, stored, until};

const TOPIC: &str = "persistent://public/default/t";

fn producers(broker: &EmbeddedBroker) -> usize {
    broker.with(|cluster, _| cluster.topic(TOPIC).map_or(0, |t| t.producers.len()))
}

fn links(broker: &EmbeddedBroker) -> usize {
    broker.with(|cluster, _| cluster.links_of(NodeId(0)).len())
}

#[tokio::test]
async fn dropping_the_last_clone_of_a_producer_closes_it() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let producer = client.producer(TOPIC).create().await.unwrap();
    let other = producer.clone();
    drop(producer);
    other.send("still here").await.unwrap();
    assert_eq!(producers(&broker), 1);
    drop(other);
    until("the producer is gone at the broker", || producers(&broker) == 0).await;
    until("and in the client", || client.stats().producers == 0).await;
}

#[tokio::test]
async fn dropping_a_creation_closes_what_it_began() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    {
        let mut creation = std::pin::pin!(client.producer(TOPIC).create());
        let begun =
            std::future::poll_fn(|cx| std::task::Poll::Ready(creation.as_mut().poll(cx).is_pending()));
        assert!(begun.await);
        assert_eq!(client.stats().producers, 1);
    }
    until("the producer is gone in the client", || client.stats().producers == 0).await;
    until("and at the broker", || producers(&broker) == 0).await;
}

#[tokio::test]
async fn a_dropped_client_leaves_no_connection_and_no_task() {
    let broker = broker().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let client = Client::new(broker.service_url()).unwrap();
    let producer = client.producer(TOPIC).create().await.unwrap();
    producer.send("a").await.unwrap();
    drop(client);
    producer.send("b").await.expect("a producer keeps its client");
    let before = tasks();
    assert_eq!(links(&broker), 1);
    drop(producer);
    until("the connection is closed", || links(&broker) == 0).await;
    // The broker's task of that connection, and the client's own.
    until("its tasks have ended", || tasks() <= before - 2).await;
}

#[tokio::test]
async fn a_handle_works_from_a_thread_without_a_runtime_and_from_another_runtime() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let producer = client.producer(TOPIC).create().await.unwrap();
    let p = producer.clone();
    let bare = move || futures::executor::block_on(p.send("bare")).unwrap();
    tokio::task::spawn_blocking(|| thread::spawn(bare).join().unwrap()).await.unwrap();
    let p = producer.clone();
    let other = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(p.send("other")).unwrap();
    };
    tokio::task::spawn_blocking(|| thread::spawn(other).join().unwrap()).await.unwrap();
    assert_eq!(stored(&broker, TOPIC), ["bare", "other"]);
}

#[test]
fn a_client_outlives_the_runtime_it_was_made_in() {
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let handler = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, producer) = handler.block_on(async {
        let client = Client::new(broker.service_url()).unwrap();
        let producer = client.producer(TOPIC).create().await.unwrap();
        producer.send("before").await.unwrap();
        (client, producer)
    });
    let receipt = producer.try_enqueue("during").unwrap();
    drop(handler);
    futures::executor::block_on(async {
        receipt.await.unwrap();
        producer.send("after").await.unwrap();
        client.close().await.unwrap();
    });
    assert_eq!(stored(&broker, TOPIC), ["before", "during", "after"]);
}

#[test]
fn what_waits_on_a_closing_client_ends_with_an_error_when_its_runtime_goes() {
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let handler = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, consumer) = handler.block_on(async {
        let client = Client::new(broker.service_url()).unwrap();
        let consumer = client.consumer(TOPIC, "s").subscribe().await.unwrap();
        (client, consumer)
    });
    // Nothing drives the client any more, so this can only begin.
    let mut closing = std::pin::pin!(client.close());
    let mut seeking = std::pin::pin!(consumer.seek(geminga::Position::Earliest));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(seeking.as_mut().poll(&mut cx).is_pending());
    assert!(closing.as_mut().poll(&mut cx).is_pending());
    drop(handler);
    let error = futures::executor::block_on(closing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    futures::executor::block_on(seeking).unwrap_err();
    futures::executor::block_on(consumer.receive()).unwrap_err();
}

#[test]
fn a_receive_goes_on_when_the_runtime_of_its_client_has_gone() {
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let handler = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (consumer, producer) = handler.block_on(async {
        let client = Client::new(broker.service_url()).unwrap();
        let consumer = client.consumer(TOPIC, "s").subscribe().await.unwrap();
        (consumer, client.producer(TOPIC).create().await.unwrap())
    });
    let waiting = thread::spawn(move || futures::executor::block_on(consumer.receive()));
    drop(handler);
    futures::executor::block_on(producer.send("a")).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap().payload(), b"a");
}

#[test]
fn a_client_made_outside_any_runtime_has_a_thread_of_its_own() {
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let client = Client::new(broker.service_url()).unwrap();
    futures::executor::block_on(async {
        let producer = client.producer(TOPIC).create().await.unwrap();
        producer.send("a").await.unwrap();
        client.close().await.unwrap();
    });
    assert_eq!(stored(&broker, TOPIC), ["a"]);
}

#[test]
fn a_runtime_without_io_is_no_place_for_a_driver_so_a_thread_takes_over() {
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    bare.block_on(async {
        let client = Client::new(broker.service_url()).unwrap();
        let producer = client.producer(TOPIC).create().await.unwrap();
        producer.send("a").await.unwrap();
    });
    assert_eq!(stored(&broker, TOPIC), ["a"]);
}

#[test]
fn with_a_runtime_of_its_own_a_busy_thread_delays_nothing() {
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let application = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    application.block_on(async {
        let client = Client::builder(broker.service_url()).runtime(Runtime::Own).build().unwrap();
        let producer = client.producer(TOPIC).create().await.unwrap();
        let receipt = producer.try_enqueue("a").unwrap();
        // This thread, the only one of its runtime, doesn't yield.
        let mut result = None;
        for _ in 0..2000 {
            result = receipt.try_result();
            if result.is_some() {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        result.expect("stored meanwhile").unwrap();
    });
}

#[tokio::test]
async fn the_longest_timeouts_are_as_good_as_none() {
    let broker = broker().await;
    let for_ever = Duration::MAX;
    let client = Client::builder(broker.service_url())
        .connection_timeout(for_ever)
        .operation_timeout(for_ever)
        .keep_alive_interval(for_ever)
        .build()
        .unwrap();
    let consumer = client.consumer(TOPIC, "s").subscribe().await.unwrap();
    let producer = client.producer(TOPIC).send_timeout(for_ever).create().await.unwrap();
    producer.send("a").await.unwrap();
    assert_eq!(consumer.receive_timeout(for_ever).await.unwrap().unwrap().payload(), b"a");
    client.close().await.unwrap();
}

#[tokio::test]
async fn an_address_where_nobody_listens_ends_in_a_clear_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("pulsar://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::builder(&url).operation_timeout(Duration::from_millis(300)).build().unwrap();
    let error = client.producer(TOPIC).create().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ConnectError | ErrorKind::Timeout), "{error:?}");
    assert!(error.to_string().contains(TOPIC), "{error}");
    client.close().await.unwrap();
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_named_in_the_error() {
    let client = Client::builder("pulsar://no-such-host.invalid:6650")
        .operation_timeout(Duration::from_millis(300))
        .build()
        .unwrap();
    let error = client.producer(TOPIC).create().await.unwrap_err();
    assert!(error.to_string().contains("no-such-host.invalid"), "{error}");
}

#[tokio::test]
async fn a_lost_connection_is_a_pause_that_events_tell_of() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let producer = client.producer(TOPIC).create().await.unwrap();
    let (mut events, mut all) = (producer.events(), client.events());
    broker.with(|cluster, now| {
        for link in cluster.links_of(NodeId(0)) {
            cluster.cut_link(now, link);
        }
    });
    producer.send("a").await.unwrap();
    let lost = events.next().await.unwrap();
    assert!(matches!(&lost.change, StateChange::Reconnecting { topic, .. } if topic == TOPIC), "{lost:?}");
    let back = events.next().await.unwrap();
    assert!(matches!(back.change, StateChange::Connected { .. }), "{back:?}");
    assert_eq!(all.next().await.unwrap().handle, lost.handle);
    assert_eq!(stored(&broker, TOPIC), ["a"]);
}
