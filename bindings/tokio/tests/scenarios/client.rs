//! Panics, and what a client leaves behind.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::StreamExt as _;
use geminga::{Batching, Client, ClientBuilder, ErrorKind, Position};
use geminga_broker::net::{Config, EmbeddedBroker};
use geminga_broker::{Fault, FaultKind, NodeId, Request};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{broker, stored, until};

const TOPIC: &str = "persistent://public/default/t";

/// Begins a future: true when it waits.
async fn begins<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    let mut future = future;
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

fn links(broker: &EmbeddedBroker) -> usize {
    broker.with(|cluster, _| cluster.links_of(NodeId(0)).len())
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a bug of a runtime's");
    }
}

#[tokio::test]
async fn pb020_a_waker_that_panics_costs_nobody_else_a_wake_up() {
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let consumer = client.consumer(TOPIC, "s").subscribe().await.unwrap();
    let producer = client.producer(TOPIC).create().await.unwrap();
    let bad = Waker::from(Arc::new(Panics));
    {
        let mut first = pin!(consumer.receive());
        assert!(first.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
        producer.send("a").await.unwrap();
        until("the message is here", || consumer.queued_messages() == 1).await;
    }
    assert_eq!(consumer.receive().await.unwrap().payload(), b"a");
    // Everybody is woken by the end of the client.
    let mut first = pin!(consumer.receive());
    assert!(first.as_mut().poll(&mut Context::from_waker(&bad)).is_pending());
    let others = [(); 3].map(|()| {
        let consumer = consumer.clone();
        tokio::spawn(async move { consumer.receive().await })
    });
    tokio::task::yield_now().await;
    client.close().await.unwrap();
    for other in others {
        assert_eq!(other.await.unwrap().unwrap_err().kind(), ErrorKind::AlreadyClosed);
    }
}

/// A log that panics at the next thing a link has to say.
#[derive(Default)]
struct PanickingLog {
    armed: Arc<AtomicBool>,
}

impl Subscriber for PanickingLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "geminga::link"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        if self.armed.swap(false, Ordering::SeqCst) {
            panic!("a bug of the log's");
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn pb020_a_panic_in_the_driver_is_a_lost_connection_and_not_silence() {
    let log = PanickingLog::default();
    let armed = log.armed.clone();
    let _log = tracing::subscriber::set_default(log);
    let broker = broker().await;
    let client = Client::new(broker.service_url()).unwrap();
    let producer = client.producer(TOPIC).create().await.unwrap();
    let consumer = client.consumer(TOPIC, "s").subscribe().await.unwrap();
    let waiting = tokio::spawn(async move { consumer.receive().await });
    armed.store(true, Ordering::SeqCst);
    broker.with(|cluster, now| {
        for link in cluster.links_of(NodeId(0)) {
            cluster.cut_link(now, link);
        }
    });
    until("the driver has panicked", || !armed.load(Ordering::SeqCst)).await;
    producer.send("a").await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().payload(), b"a");
    client.close().await.unwrap();
    assert_eq!(stored(&broker, TOPIC), ["a"]);
}

/// Brings a client into a state, drops everything, and waits until no task and no socket is left of it.
async fn leaves_nothing(
    what: &str,
    broker: &EmbeddedBroker,
    set: impl FnOnce(ClientBuilder) -> ClientBuilder,
    state: impl AsyncFnOnce(&Client),
) {
    let builder = Client::builder(broker.service_url()).operation_timeout(Duration::from_secs(3));
    let client = set(builder).build().unwrap();
    state(&client).await;
    assert_eq!(tasks(), 1, "{what}: the driver is all there is");
    drop(client);
    until(what, || tasks() == 0 && links(broker) == 0).await;
    broker.with(|cluster, _| {
        cluster.clear_faults();
        cluster.start_node(NodeId(0));
    });
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[test]
fn pb176_a_client_dropped_in_any_state_leaves_no_task_and_no_socket() {
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let inject = |fault| broker.with(|cluster, _| cluster.inject(Fault::new(fault)));
    let same = |builder| builder;
    runtime.block_on(async {
        leaves_nothing("unused", &broker, same, async |_| tokio::task::yield_now().await).await;
        leaves_nothing("a creation without answer", &broker, same, async |client| {
            inject(FaultKind::Ignore(Request::Producer));
            let mut creation = pin!(client.producer(TOPIC).create());
            assert!(begins(creation.as_mut()).await);
            until("connected", || client.stats().connections == 1).await;
        })
        .await;
        leaves_nothing("a batch that waits", &broker, same, async |client| {
            let delay = Batching { max_publish_delay: Duration::from_secs(3600), ..Batching::default() };
            let producer = client.producer(TOPIC).batching(delay).send_timeout(None).create().await.unwrap();
            drop(producer.try_enqueue("a").unwrap());
        })
        .await;
        leaves_nothing("a send without receipt", &broker, same, async |client| {
            inject(FaultKind::LoseReceipt);
            let producer = client.producer(TOPIC).create().await.unwrap();
            drop(producer.try_enqueue("a").unwrap());
            until("stored", || stored(&broker, TOPIC).len() == 1).await;
        })
        .await;
        leaves_nothing("a close without answer", &broker, same, async |client| {
            inject(FaultKind::Ignore(Request::CloseProducer));
            let producer = client.producer(TOPIC).create().await.unwrap();
            assert!(begins(pin!(producer.close())).await);
        })
        .await;
        leaves_nothing("a stream and an acknowledgement", &broker, same, async |client| {
            let consumer = client.consumer(TOPIC, "s").subscribe().await.unwrap();
            client.producer(TOPIC).create().await.unwrap().send("a").await.unwrap();
            let mut stream = consumer.stream();
            let message = stream.next().await.unwrap().unwrap();
            consumer.acknowledge(&message).unwrap();
            consumer.negative_acknowledge(&message).unwrap();
            assert!(begins(pin!(stream.next())).await);
        })
        .await;
        leaves_nothing("a seek without answer", &broker, same, async |client| {
            inject(FaultKind::Ignore(Request::Seek));
            let consumer = client.consumer(TOPIC, "s").subscribe().await.unwrap();
            assert!(begins(pin!(consumer.seek(Position::Earliest))).await);
        })
        .await;
        leaves_nothing("a reconnection", &broker, same, async |client| {
            let producer = client.producer(TOPIC).create().await.unwrap();
            broker.with(|cluster, now| cluster.stop_node(now, NodeId(0)));
            drop(producer.try_enqueue("b").unwrap());
            until("the loss is noticed", || !producer.is_connected()).await;
        })
        .await;
        let busy = |b: ClientBuilder| b.keep_alive_interval(Duration::from_millis(5));
        leaves_nothing("pings", &broker, busy, async |client| {
            let _producer = client.producer(TOPIC).create().await.unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
        })
        .await;
        leaves_nothing("a close that was given up", &broker, same, async |client| {
            let _producer = client.producer(TOPIC).create().await.unwrap();
            assert!(begins(pin!(client.close())).await);
        })
        .await;
    });
}

#[tokio::test]
async fn pb176_a_client_dropped_while_it_connects_or_asks_for_a_token_leaves_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let asked = Arc::new(AtomicBool::new(false));
    let ask = asked.clone();
    let url = format!("pulsar://{}", silent.local_addr().unwrap());
    let token = move || {
        ask.store(true, Ordering::SeqCst);
        pending()
    };
    for with_token in [false, true] {
        let builder = Client::builder(&url);
        let client =
            if with_token { builder.token_provider(token.clone()) } else { builder }.build().unwrap();
        let mut peer = {
            let mut creation = Box::pin(client.producer(TOPIC).create());
            assert!(begins(creation.as_mut()).await);
            silent.accept().await.unwrap().0
        };
        if with_token {
            until("the token is asked for", || asked.load(Ordering::SeqCst)).await;
        }
        drop(client);
        tokio::io::copy(&mut peer, &mut tokio::io::sink()).await.unwrap();
        until("no task is left", || tasks() == 0).await;
    }
}
