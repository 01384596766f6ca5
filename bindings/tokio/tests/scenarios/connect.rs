//! Connections that are refused, cut in the handshake, or not to be had.

use std::env;
use std::fs::File;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use geminga::{Client, ClientBuilder, Error, ErrorKind, Position, Runtime};
use geminga_broker::net::{Config, EmbeddedBroker};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{broker, stored, until};
use crate::tls_support::{Authority, tls_broker};

const TOPIC: &str = "persistent://public/default/t";

/// How a peer hangs up.
#[derive(Clone, Copy)]
enum HangUp {
    BeforeAnyByte,
    WithinServerHello,
    AfterConnect,
    WithinConnected,
}

impl HangUp {
    /// Plays the peer up to its end; true once the client has closed its side as well.
    async fn play(self, mut socket: TcpStream) -> std::io::Result<()> {
        if !matches!(self, HangUp::BeforeAnyByte) {
            socket.read_u8().await?;
        }
        match self {
            HangUp::BeforeAnyByte | HangUp::AfterConnect => {}
            // A handshake record of 122 bytes that has a ServerHello of 118, of which the version comes.
            HangUp::WithinServerHello => {
                socket.write_all(&[0x16, 3, 3, 0, 0x7a, 2, 0, 0, 0x76, 3, 3]).await?;
            }
            // A frame of 30 bytes with a command of 26, of which the type comes: CONNECTED.
            HangUp::WithinConnected => socket.write_all(&[0, 0, 0, 30, 0, 0, 0, 26, 8, 3]).await?,
        }
        socket.shutdown().await?;
        tokio::io::copy(&mut socket, &mut tokio::io::sink()).await.map(drop)
    }
}

/// A listener that hangs up on clients in the ways of its list, one after another, and then passes them on.
struct Front {
    address: SocketAddr,
    /// Connections that were hung up on, and which the client has closed too.
    over: Arc<AtomicUsize>,
}

impl Front {
    async fn new(ways: impl IntoIterator<Item = HangUp, IntoIter: Send + 'static>, target: &str) -> Self {
        let target = target.split_once("://").unwrap().1.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let front = Front { address: listener.local_addr().unwrap(), over: Arc::default() };
        let (over, mut ways) = (front.over.clone(), ways.into_iter());
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (way, over, target) = (ways.next(), over.clone(), target.clone());
                tokio::spawn(async move {
                    if let Some(way) = way {
                        // A reset is an end like any other.
                        way.play(socket).await.ok();
                        over.fetch_add(1, Ordering::SeqCst);
                    } else if let Ok(mut onward) = TcpStream::connect(target).await {
                        tokio::io::copy_bidirectional(&mut socket, &mut onward).await.ok();
                    }
                });
            }
        });
        front
    }

    fn over(&self) -> usize {
        self.over.load(Ordering::SeqCst)
    }
}

fn eager(url: &str) -> ClientBuilder {
    Client::builder(url).backoff(Duration::from_millis(1), Duration::from_millis(5))
}

async fn send_one(client: &Client) -> Result<(), Error> {
    client.producer(TOPIC).create().await?.send("a").await.map(drop)
}

#[tokio::test]
async fn pb002_peers_that_hang_up_in_the_handshake_are_tried_again_and_leave_no_socket() {
    let broker = broker().await;
    let ways = [HangUp::BeforeAnyByte, HangUp::AfterConnect, HangUp::WithinConnected];
    let front = Front::new(ways.into_iter().cycle().take(60), broker.service_url()).await;
    let client = eager(&format!("pulsar://{}", front.address)).build().unwrap();
    send_one(&client).await.unwrap();
    until("the client closes every socket it was hung up on", || front.over() == 60).await;
    assert_eq!(stored(&broker, TOPIC), ["a"]);
}

#[tokio::test]
async fn pb002_a_peer_that_hangs_up_within_the_tls_handshake_is_tried_again() {
    let authority = Authority::new();
    let (broker, tls_url) = tls_broker(&authority, "localhost", false).await;
    let front = Front::new([HangUp::WithinServerHello; 20], &tls_url).await;
    let url = format!("pulsar+ssl://localhost:{}", front.address.port());
    let client = eager(&url).tls_authorities(authority.pem()).build().unwrap();
    send_one(&client).await.unwrap();
    until("the client closes every socket it was hung up on", || front.over() == 20).await;
    assert_eq!(stored(&broker, TOPIC), ["a"]);
}

#[tokio::test]
async fn pb002_a_creation_that_meets_nobody_else_fails_with_why_at_its_deadline() {
    let front = Front::new(std::iter::repeat(HangUp::WithinConnected), "pulsar://127.0.0.1:1").await;
    let client = eager(&format!("pulsar://{}", front.address))
        .operation_timeout(Duration::from_millis(500))
        .build()
        .unwrap();
    let error = send_one(&client).await.unwrap_err();
    assert!(error.to_string().contains("closed the connection"), "{error}");
    assert!(front.over() > 1, "it was tried {} times", front.over());
}

/// Says in a process started by [`run_alone`] which broker to use.
const ALONE: &str = "GEMINGA_TEST_BROKER";

/// Runs a test of this program in a process of its own, where it may use up what a process has.
fn run_alone(test: &str, broker: &EmbeddedBroker) {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(ALONE, broker.service_url());
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

#[test]
fn pb010_without_file_descriptors_calls_fail_and_later_ones_work() {
    let Ok(url) = env::var(ALONE) else {
        let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
        run_alone("connect::pb010_without_file_descriptors_calls_fail_and_later_ones_work", &broker);
        return assert_eq!(stored(&broker, TOPIC), ["a"]);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = eager(&url).operation_timeout(Duration::from_secs(2)).build().unwrap();
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = Some(64);
        setrlimit(Resource::Nofile, limit).unwrap();
        let mut files = Vec::new();
        let refused = loop {
            match File::open("/dev/null") {
                Ok(file) => files.push(file),
                Err(error) => break error,
            }
        };
        let (producer, consumer, reader) = futures::join!(
            client.producer(TOPIC).create(),
            client.consumer(TOPIC, "s").subscribe(),
            client.reader(TOPIC, Position::Earliest).create(),
        );
        for error in [producer.unwrap_err(), consumer.unwrap_err(), reader.unwrap_err()] {
            assert!(error.to_string().contains(&refused.to_string()), "{error}");
        }
        let error = Client::builder(&url).runtime(Runtime::Own).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
        drop(files);
        send_one(&client).await.unwrap();
        client.consumer(TOPIC, "s").subscribe().await.unwrap();
        client.reader(TOPIC, Position::Earliest).create().await.unwrap();
        client.close().await.unwrap();
    });
}
