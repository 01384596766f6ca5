//! Sends a million messages without waiting for each: they share batches, and receipts are awaited later.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::collections::VecDeque;
use std::time::Instant;

use geminga::{Client, SendReceipt};
use geminga_examples::Service;

const MESSAGES: usize = 1_000_000;
/// Receipts that may be open at a time.
const WINDOW: usize = 10_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Service::from_args()?;
    let client = Client::new(service.url())?;
    // A full queue makes `enqueue` wait: memory stays bounded however fast this loop is.
    let producer =
        client.producer("example").max_pending_messages(WINDOW).block_if_queue_full(true).create().await?;
    let start = Instant::now();
    let mut receipts: VecDeque<SendReceipt> = VecDeque::with_capacity(WINDOW);
    for i in 0..MESSAGES {
        if receipts.len() == WINDOW
            && let Some(oldest) = receipts.pop_front()
        {
            oldest.await?;
        }
        receipts.push_back(producer.enqueue(i.to_string()).await?);
    }
    for receipt in receipts {
        receipt.await?;
    }
    println!("{:.0} messages a second", MESSAGES as f64 / start.elapsed().as_secs_f64());
    client.close().await?;
    Ok(())
}
