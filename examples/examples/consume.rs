//! Shares the messages of a topic among workers, by key, and acknowledges what was processed.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::time::Duration;

use geminga::{Client, Consumer, Error, InitialPosition, OutgoingMessage, SubscriptionType};
use geminga_examples::Service;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Service::from_args()?;
    let client = Client::new(service.url())?;
    let mut workers = Vec::new();
    for number in 0..3 {
        let consumer = client
            .consumer("example", "workers")
            .subscription_type(SubscriptionType::KeyShared)
            .initial_position(InitialPosition::Earliest)
            .negative_ack_redelivery_delay(Duration::from_millis(200))
            .subscribe()
            .await?;
        workers.push(tokio::spawn(work(number, consumer)));
    }
    let producer = client.producer("example").create().await?;
    for i in 0..20 {
        producer
            .send(OutgoingMessage::new(format!("order {i}")).with_key(format!("customer-{}", i % 5)))
            .await?;
    }
    for worker in workers {
        worker.await??;
    }
    client.close().await?;
    Ok(())
}

/// Works until there was nothing to do for two seconds.
async fn work(number: u32, consumer: Consumer) -> Result<(), Error> {
    while let Some(message) = consumer.receive_timeout(Duration::from_secs(2)).await? {
        let text = String::from_utf8_lossy(message.payload()).into_owned();
        // The first try of one of them fails: it comes again. Key_Shared counts how often; Exclusive would not.
        if text == "order 7" && message.redelivery_count() == 0 {
            println!("worker {number}: {text} failed");
            consumer.negative_acknowledge(&message)?;
            continue;
        }
        println!("worker {number}: {text} of {}", message.key().as_deref().unwrap_or("nobody"));
        consumer.acknowledge(&message)?;
    }
    Ok(())
}
