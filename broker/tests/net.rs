//! The listener and the admin API over real sockets on 127.0.0.1.
#![cfg(feature = "net")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::BytesMut;
use geminga_broker::NodeId;
use geminga_broker::net::{Config, EmbeddedBroker};
use geminga_core::wire::{Command, frame, proto};

struct Client {
    socket: TcpStream,
    read: BytesMut,
}

impl Client {
    fn connect(url: &str) -> Self {
        let socket = TcpStream::connect(url.trim_start_matches("pulsar://")).expect("the broker listens");
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut client = Client { socket, read: BytesMut::new() };
        client.send(&Command::Connect(Box::default()));
        assert!(matches!(client.next(), Some(Command::Connected(_))));
        client
    }

    fn send(&mut self, command: &Command) {
        let mut bytes = BytesMut::new();
        command.encode(&mut bytes);
        self.socket.write_all(&bytes).unwrap();
    }

    /// The next command; `None` when the broker has closed the connection.
    fn next(&mut self) -> Option<Command> {
        loop {
            if let Some(whole) = frame::split(&mut self.read, usize::MAX).unwrap() {
                return Some(frame::decode(whole).unwrap().command);
            }
            let mut bytes = [0; 4096];
            match self.socket.read(&mut bytes) {
                Ok(0) => return None,
                Ok(read) => self.read.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    fn lookup(&mut self, topic: &str) -> String {
        let topic = topic.to_owned();
        self.send(&Command::Lookup(proto::CommandLookupTopic { topic, ..Default::default() }));
        match self.next() {
            Some(Command::LookupResponse(response)) => response.broker_service_url().to_owned(),
            other => panic!("no answer but {other:?}"),
        }
    }
}

fn http(url: &str, method: &str, path: &str, body: &str) -> String {
    let address = url.trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).expect("the admin API listens");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    write!(socket, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn clients_and_admins_of_a_blocking_start_are_served_until_it_stops() {
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let mut client = Client::connect(broker.service_url());
    assert_eq!(client.lookup("t"), broker.service_url());
    let producer =
        proto::CommandProducer { topic: "persistent://public/default/t".to_owned(), ..Default::default() };
    client.send(&Command::Producer(Box::new(producer)));
    assert!(matches!(client.next(), Some(Command::ProducerSuccess(_))));
    let admin = broker.admin_url().unwrap().to_owned();
    let health = http(&admin, "GET", "/admin/v2/brokers/health", "");
    assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("\r\n\r\nok"), "{health}");
    let stats = http(&admin, "GET", "/admin/v2/persistent/public/default/t/stats", "");
    assert!(stats.contains("\"producerName\":\"standalone-0-"), "{stats}");
    let created = http(&admin, "PUT", "/admin/v2/persistent/public/default/p/partitions", "3");
    assert!(created.starts_with("HTTP/1.1 204"), "{created}");
    assert_eq!(broker.with(|cluster, _| cluster.partitions("p")), Some(3));
    let unloaded = http(&admin, "PUT", "/admin/v2/persistent/public/default/t/unload", "");
    assert!(unloaded.starts_with("HTTP/1.1 204"), "{unloaded}");
    assert!(matches!(client.next(), Some(Command::CloseProducer(_))));
    broker.stop();
    assert_eq!(client.next(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn several_brokers_share_the_topics_and_can_be_stopped() {
    let any = "127.0.0.1:0".parse().unwrap();
    let config = Config { listen: vec![any, any], admin: None, ..Config::default() };
    let broker = EmbeddedBroker::start(config).await.unwrap();
    let urls = broker.service_urls().to_vec();
    tokio::task::spawn_blocking(move || {
        let (mut a, mut b) = (Client::connect(&urls[0]), Client::connect(&urls[1]));
        let mut owners: Vec<_> = (0..16).map(|i| a.lookup(&format!("t{i}"))).collect();
        owners.sort();
        owners.dedup();
        assert_eq!(owners.len(), 2);
        broker.with(|cluster, now| cluster.stop_node(now, NodeId(0)));
        assert_eq!(a.next(), None);
        assert_eq!(b.lookup("t0"), urls[1]);
        // A refused connection is closed, not left hanging.
        let mut refused = TcpStream::connect(urls[0].trim_start_matches("pulsar://")).unwrap();
        assert!(matches!(refused.read(&mut [0; 1]), Ok(0) | Err(_)));
    })
    .await
    .unwrap();
}
