//! The same without async.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use geminga::blocking::Client;
use geminga::{ConsumerConfig, InitialPosition, ProducerConfig};
use geminga_examples::Service;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Service::from_args()?;
    let client = Client::connect(service.url())?;
    let producer = client.create_producer(ProducerConfig::new("example"))?;
    for i in 0..10 {
        producer.send(format!("hello {i}"))?;
    }
    let config = ConsumerConfig {
        initial_position: InitialPosition::Earliest,
        ..ConsumerConfig::new("example", "printers")
    };
    let consumer = client.subscribe(config)?;
    for message in consumer.iter().take(10) {
        let message = message?;
        println!("{}: {}", message.message_id(), String::from_utf8_lossy(message.payload()));
        consumer.acknowledge(&message)?;
    }
    client.close()?;
    Ok(())
}
