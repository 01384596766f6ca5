//! The client without async.

use std::time::Duration;

use geminga::blocking::Client;
use geminga::{ConsumerConfig, OutgoingMessage, Position, ProducerConfig, ReaderConfig};
use geminga_broker::net::{Config, EmbeddedBroker};

#[test]
fn a_program_without_async_produces_consumes_and_reads() {
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let client = Client::connect(broker.service_url()).unwrap();
    let consumer = client.subscribe(ConsumerConfig::new("t", "s")).unwrap();
    let producer = client.create_producer(ProducerConfig::new("t")).unwrap();
    producer.send("a").unwrap();
    let receipts: Vec<_> = (0..300).map(|i| producer.enqueue(i.to_string()).unwrap()).collect();
    for receipt in receipts {
        receipt.wait().unwrap();
    }
    producer.flush().unwrap();
    for message in consumer.iter().take(301) {
        consumer.acknowledge(&message.unwrap()).unwrap();
    }
    assert!(consumer.receive_timeout(Duration::from_millis(1)).unwrap().is_none());
    let reader = client.create_reader(ReaderConfig::new("t", Position::Earliest)).unwrap();
    let mut read = 0;
    while reader.has_message_available().unwrap() {
        reader.next().unwrap();
        read += 1;
    }
    assert_eq!(read, 301);
    assert_eq!(client.partitions("t").unwrap(), 0);
    client.close().unwrap();
}

#[test]
fn threads_share_a_producer_without_a_lock_of_their_own() {
    let broker = EmbeddedBroker::start_blocking(Config::default()).unwrap();
    let client = Client::connect(broker.service_url()).unwrap();
    let producer = client.create_producer(ProducerConfig::new("t")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let producer = &producer;
            scope.spawn(move || {
                for i in 0..25 {
                    producer.send(OutgoingMessage::new(format!("{thread}-{i}"))).unwrap();
                }
            });
        }
    });
    let topic = "persistent://public/default/t";
    assert_eq!(broker.with(|cluster, _| cluster.stored(topic)).unwrap().len(), 100);
}

#[tokio::test]
async fn inside_async_code_it_works_and_blocks_its_thread_only() {
    let broker =
        std::thread::spawn(|| EmbeddedBroker::start_blocking(Config::default()).unwrap()).join().unwrap();
    let client = Client::connect(broker.service_url()).unwrap();
    let producer = client.create_producer(ProducerConfig::new("t")).unwrap();
    // More than a task's budget.
    for i in 0..500 {
        drop(producer.enqueue(i.to_string()).unwrap());
    }
    producer.flush().unwrap();
    producer.asynchronous().send("and with await").await.unwrap();
    client.close().unwrap();
}
