//! Receives that are given up, slow, disturbed or crowded.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::StreamExt as _;
use futures::executor::block_on;
use geminga::{Client, Consumer, InitialPosition, Message, SubscriptionType};
use geminga_broker::NodeId;
use geminga_broker::net::{Config, EmbeddedBroker};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::support::{broker, until};
use crate::tls_support::{Authority, stallable_tls_broker};

const TOPIC: &str = "persistent://public/default/t";
/// Never over in a test that works.
const LONG: Duration = Duration::from_secs(60);

fn number(message: &Message) -> u32 {
    String::from_utf8_lossy(message.payload()).parse().unwrap()
}

fn cut_links(broker: &EmbeddedBroker) {
    broker.with(|cluster, now| {
        for link in cluster.links_of(NodeId(0)) {
            cluster.cut_link(now, link);
        }
    });
}

async fn send_numbers(client: &Client, topic: &str, numbers: std::ops::Range<u32>) {
    let producer = client.producer(topic).create().await.unwrap();
    for n in numbers {
        drop(producer.enqueue(n.to_string()).await.unwrap());
    }
    producer.flush().await.unwrap();
}

#[tokio::test]
async fn pb066_a_consumer_that_takes_nothing_holds_up_no_other() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let (slow_topic, fast_topic) = (format!("{TOPIC}-slow"), format!("{TOPIC}-fast"));
    let slow = client.consumer(&slow_topic, "s").receiver_queue_size(5).subscribe().await.unwrap();
    let fast = client.consumer(&fast_topic, "s").receiver_queue_size(5).subscribe().await.unwrap();
    send_numbers(&client, &slow_topic, 0..50).await;
    until("the slow one's queue is full", || slow.queued_messages() >= 5).await;
    send_numbers(&client, &fast_topic, 0..500).await;
    for n in 0..500 {
        assert_eq!(number(&fast.receive_timeout(LONG).await.unwrap().unwrap()), n);
    }
    for n in 0..50 {
        assert_eq!(number(&slow.receive_timeout(LONG).await.unwrap().unwrap()), n);
    }
}

/// Knows whether it was woken, and by its count who still holds it.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn pb068_receives_that_are_given_up_leave_nothing_and_take_nothing() {
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let client = Client::new(broker.service_url()).unwrap();
    for queue_size in [1000, 0] {
        let topic = format!("{TOPIC}-{queue_size}");
        let builder = client.consumer(&topic, "s").receiver_queue_size(queue_size);
        let consumer = block_on(builder.subscribe()).unwrap();
        let producer = block_on(client.producer(&topic).create()).unwrap();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let give_up = |future: std::pin::Pin<&mut dyn Future<Output = ()>>| {
            assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
        };
        for _ in 0..2500 {
            give_up(pin!(async { drop(consumer.receive().await) }));
            give_up(pin!(async { drop(consumer.receive_timeout(LONG).await) }));
            give_up(pin!(async { drop(consumer.receive_batch(10, LONG).await) }));
            give_up(pin!(async { drop(consumer.receive_many(10).await) }));
        }
        assert_eq!(Arc::strong_count(&woken), 2, "no table keeps a waker");
        for n in 0..100 {
            woken.0.store(false, Ordering::SeqCst);
            let mut receive = Box::pin(consumer.receive());
            assert!(receive.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            block_on(producer.send(n.to_string())).unwrap();
            // Half of them are given up after they were woken, half about then.
            while n % 2 == 0 && !woken.0.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            drop(receive);
            assert_eq!(number(&block_on(consumer.receive()).unwrap()), n);
        }
        // The driver may just be waking the last of them.
        for _ in 0..2000 {
            if Arc::strong_count(&woken) == 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(Arc::strong_count(&woken), 2);
    }
}

/// Takes from the stream until `end` came and every number before it.
async fn drain(consumer: Consumer, end: u32) -> usize {
    let (mut seen, mut deliveries) = (BTreeSet::new(), 0);
    let mut stream = consumer.stream();
    while seen.len() <= end as usize {
        let message = stream.next().await.unwrap().unwrap();
        deliveries += 1;
        seen.insert(number(&message));
        consumer.acknowledge(&message).unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(seen.last(), Some(&end));
    deliveries
}

#[tokio::test]
async fn pb085_a_stream_whose_queue_is_cleared_again_and_again_goes_on_with_fresh_messages() {
    const MESSAGES: u32 = 1000;
    let broker = broker().await;
    let builder = Client::builder(broker.service_url());
    let client = builder.backoff(Duration::from_millis(1), Duration::from_millis(5)).build().unwrap();
    let consumer = client
        .consumer(TOPIC, "s")
        .subscription_type(SubscriptionType::Shared)
        .initial_position(InitialPosition::Earliest)
        .receiver_queue_size(100)
        .subscribe()
        .await
        .unwrap();
    let worker = tokio::spawn(drain(consumer.clone(), MESSAGES));
    let sender = client.clone();
    let sending = tokio::spawn(async move { send_numbers(&sender, TOPIC, 0..MESSAGES).await });
    for round in 0..60 {
        match round % 3 {
            0 => cut_links(&broker),
            _ => consumer.redeliver_unacknowledged().unwrap(),
        }
        // Moments that fall differently to the work.
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_micros(500 * (round % 5))).await;
    }
    sending.await.unwrap();
    send_numbers(&client, TOPIC, MESSAGES..MESSAGES + 1).await;
    let deliveries = timeout(LONG, worker).await.expect("the stream goes on").unwrap();
    assert!(deliveries > MESSAGES as usize);
}

/// A log that calls the client at each line, as a log of an application may.
#[derive(Default)]
struct CallingLog {
    client: Mutex<Option<Client>>,
    lines: std::sync::atomic::AtomicUsize,
}

/// The log, shared by the threads of a runtime.
struct Shared(Arc<CallingLog>);

impl Subscriber for Shared {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("geminga")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let client = self.0.client.lock().unwrap().clone();
        if let Some(client) = client {
            client.stats();
            self.0.lines.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn pb104_negative_acknowledgements_from_many_threads_with_a_log_that_calls_back_never_stop() {
    const MESSAGES: u32 = 200;
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let log = Arc::new(CallingLog::default());
    let dispatch = Dispatch::new(Shared(log.clone()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        // For as long as the thread lives.
        .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&dispatch)))
        .build()
        .unwrap();
    let builder = Client::builder(broker.service_url());
    let (done, is_done) = mpsc::channel();
    let logged = log.clone();
    runtime.spawn(async move {
        let client = builder.backoff(Duration::from_millis(1), Duration::from_millis(5)).build().unwrap();
        *logged.client.lock().unwrap() = Some(client.clone());
        let mut consumers = Vec::new();
        for _ in 0..2 {
            let builder = client.consumer(TOPIC, "s").subscription_type(SubscriptionType::Shared);
            let builder = builder.negative_ack_redelivery_delay(Duration::from_millis(10));
            consumers.push(builder.subscribe().await.unwrap());
        }
        send_numbers(&client, TOPIC, 0..MESSAGES).await;
        let deliveries: Arc<Mutex<BTreeMap<u32, u32>>> = Arc::default();
        let tasks: Vec<_> = (0..4)
            .map(|task| {
                let (consumer, deliveries) = (consumers[task % 2].clone(), deliveries.clone());
                tokio::spawn(async move {
                    let finished = || {
                        let deliveries = deliveries.lock().unwrap();
                        deliveries.len() == MESSAGES as usize && deliveries.values().all(|n| *n > 2)
                    };
                    while !finished() {
                        let Some(message) =
                            consumer.receive_timeout(Duration::from_millis(50)).await.unwrap()
                        else {
                            continue;
                        };
                        let count = {
                            let mut deliveries = deliveries.lock().unwrap();
                            let count = deliveries.entry(number(&message)).or_default();
                            *count += 1;
                            *count
                        };
                        match count > 2 {
                            true => consumer.acknowledge(&message).unwrap(),
                            false => consumer.negative_acknowledge(&message).unwrap(),
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        client.close().await.unwrap();
        done.send(()).unwrap();
    });
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(20));
        cut_links(&broker);
    }
    let outcome = is_done.recv_timeout(LONG);
    if outcome.is_err() {
        // Its threads may be stuck for good.
        runtime.shutdown_background();
        panic!("no progress");
    }
    assert!(log.lines.load(Ordering::SeqCst) > 0, "the log was called");
    log.client.lock().unwrap().take();
}

#[tokio::test]
async fn pb235_messages_keep_coming_while_acknowledgements_are_stuck_in_the_socket() {
    const MESSAGES: u32 = 4000;
    let (stall, stalled) = watch::channel(false);
    let authority = Authority::new();
    let (broker, url) = stallable_tls_broker(&authority, "localhost", false, stalled).await;
    let client = Client::builder(&url).tls_authorities(authority.pem()).build().unwrap();
    let direct = Client::new(broker.service_url()).unwrap();
    let consumer = client
        .consumer(TOPIC, "s")
        .subscription_type(SubscriptionType::Shared)
        .receiver_queue_size(2 * MESSAGES)
        .ack_grouping(Duration::from_millis(1), 10)
        .subscribe()
        .await
        .unwrap();
    let filler = client.producer(format!("{TOPIC}-filler")).create().await.unwrap();
    stall.send(true).unwrap();
    // More than the buffers of both sockets take, on the connection of the acknowledgements.
    let receipts: Vec<_> = (0..24).map(|_| filler.try_enqueue(vec![0; 1 << 20]).unwrap()).collect();
    send_numbers(&direct, TOPIC, 0..MESSAGES).await;
    let seen: Arc<Mutex<BTreeSet<u32>>> = Arc::default();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (consumer, seen) = (consumer.clone(), seen.clone());
            tokio::spawn(async move {
                while seen.lock().unwrap().len() < MESSAGES as usize {
                    if let Some(message) = consumer.receive_timeout(Duration::from_millis(50)).await.unwrap()
                    {
                        seen.lock().unwrap().insert(number(&message));
                        consumer.acknowledge(&message).unwrap();
                        // What has just been acknowledged and comes again anyhow.
                        consumer.acknowledge(&message).unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        timeout(LONG, task).await.expect("messages keep coming").unwrap();
    }
    assert!(receipts.last().unwrap().try_result().is_none(), "the socket is stuck all the while");
    let unacked = || broker.with(|cluster, _| cluster.unacked(TOPIC, "s")).unwrap().len();
    assert_eq!(unacked(), MESSAGES as usize);
    stall.send(false).unwrap();
    for receipt in receipts {
        receipt.await.unwrap();
    }
    until("the acknowledgements have arrived", || unacked() == 0).await;
}
