//! Reads everything that a topic holds, then ends.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use geminga::{Client, Position};
use geminga_examples::Service;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Service::from_args()?;
    let client = Client::new(service.url())?;
    let producer = client.producer("example").create().await?;
    for i in 0..10 {
        producer.send(format!("line {i}")).await?;
    }
    let reader = client.reader("example", Position::Earliest).create().await?;
    while reader.has_message_available().await? {
        let message = reader.next().await?;
        println!("{}: {}", message.message_id(), String::from_utf8_lossy(message.payload()));
    }
    client.close().await?;
    Ok(())
}
