//! Sends ten messages, each stored before the next is sent.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use geminga::{Client, OutgoingMessage};
use geminga_examples::Service;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Service::from_args()?;
    let client = Client::new(service.url())?;
    let producer = client.producer("example").create().await?;
    for i in 0..10 {
        let message = OutgoingMessage::new(format!("hello {i}")).with_key(format!("key-{}", i % 3));
        println!("stored as {}", producer.send(message).await?);
    }
    client.close().await?;
    Ok(())
}
