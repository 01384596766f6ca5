//! `batch_receive`: messages gathered until a policy says that it is enough. Decides which of three limits ends it.

use std::mem;
use std::time::{Duration, Instant};

use geminga::{Consumer, Error, Message};

use crate::consumer::BatchPolicy;

/// Messages at the most where the policy sets no number, so that a flood does not become one list.
const NO_NUMBER: usize = 100_000;

/// Gathers messages until one of the policy's limits is reached: the number, the bytes, or the time. A limit of zero or less
/// is none; without any, it takes what is there, at least one.
pub(crate) async fn run(consumer: &Consumer, policy: BatchPolicy) -> Result<Vec<Message>, Error> {
    let number = usize::try_from(policy.max_num_message).ok().filter(|n| *n > 0);
    let bytes = usize::try_from(policy.max_num_bytes).ok().filter(|n| *n > 0);
    let time = u64::try_from(policy.timeout_ms).ok().filter(|n| *n > 0).map(Duration::from_millis);
    let max = number.unwrap_or(NO_NUMBER);
    match (bytes, time) {
        (None, None) if number.is_none() => consumer.receive_many(max).await,
        (None, None) => by_size(consumer, max, usize::MAX, None).await,
        (None, Some(time)) => consumer.receive_batch(max, time).await,
        (Some(bytes), time) => by_size(consumer, max, bytes, time).await,
    }
}

/// The same with a limit in bytes. Dropped before its end, it gives back what it had.
async fn by_size(
    consumer: &Consumer,
    max: usize,
    bytes: usize,
    time: Option<Duration>,
) -> Result<Vec<Message>, Error> {
    let end = time.map(|time| Instant::now() + time);
    let mut gathered = Gathered { consumer, messages: Vec::new() };
    let mut size = 0;
    while gathered.messages.len() < max && size < bytes {
        let next = match end.map(|end| end.saturating_duration_since(Instant::now())) {
            None => Some(consumer.receive().await?),
            Some(left) => consumer.receive_timeout(left).await?,
        };
        let Some(message) = next else { break };
        size += message.payload().len();
        gathered.messages.push(message);
    }
    Ok(mem::take(&mut gathered.messages))
}

struct Gathered<'a> {
    consumer: &'a Consumer,
    messages: Vec<Message>,
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        for message in self.messages.drain(..).rev() {
            self.consumer.put_back(message);
        }
    }
}
