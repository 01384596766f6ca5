//! Receipts of sends. Decides how a batch's outcome reaches those who wait for its messages: one allocation a batch.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use geminga_core::{Error, MessageId, Published, SendId};

/// The outcome of one message, once the broker has stored it.
///
/// A future that resolves to the message's id, or to why it was not stored. It may be awaited in any task, on any
/// runtime, before or after the outcome is known. Dropping it costs nothing and changes nothing: the message is sent all the same.
#[must_use = "a failed send is only told to whoever awaits its receipt"]
pub struct SendReceipt {
    batch: Arc<BatchReceipt>,
    index: u32,
    /// Where this receipt's waker is among those of its batch.
    slot: Option<usize>,
}

impl SendReceipt {
    /// The outcome, if it is known.
    pub fn try_result(&self) -> Option<Result<MessageId, Error>> {
        self.batch.outcome.get().map(|outcome| match outcome {
            Ok(published) => Ok(published.message_id(self.index)),
            Err(error) => Err(error.clone()),
        })
    }
}

impl Future for SendReceipt {
    type Output = Result<MessageId, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.try_result() {
            return Poll::Ready(result);
        }
        let slot = {
            let mut waiting = self.batch.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            // Set before the wakers are taken, so that whoever gets the lock later sees it.
            if let Some(result) = self.try_result() {
                return Poll::Ready(result);
            }
            match self.slot.and_then(|slot| waiting.get_mut(slot)) {
                Some(old) => {
                    old.clone_from(cx.waker());
                    self.slot
                }
                None => {
                    waiting.push(cx.waker().clone());
                    Some(waiting.len() - 1)
                }
            }
        };
        self.slot = slot;
        Poll::Pending
    }
}

impl std::fmt::Debug for SendReceipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SendReceipt").field(&self.try_result()).finish()
    }
}

/// What the messages of one SEND share.
#[derive(Default)]
struct BatchReceipt {
    outcome: OnceLock<Result<Published, Error>>,
    waiting: Mutex<Vec<Waker>>,
}

impl BatchReceipt {
    fn complete(&self, outcome: Result<Published, Error>, wakes: &mut Vec<Waker>) {
        // Core settles a SEND exactly once; a second outcome would change nothing.
        if self.outcome.set(outcome).is_ok() {
            wakes.append(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// The SENDs of one producer that have no outcome yet, in order of their numbers.
#[derive(Default)]
pub(crate) struct Receipts {
    open: VecDeque<(u64, Option<Arc<BatchReceipt>>)>,
}

impl Receipts {
    /// The receipt of a message just accepted.
    pub(crate) fn receipt(&mut self, id: SendId) -> SendReceipt {
        let batch = match self.open.back() {
            Some((number, Some(batch))) if *number == id.batch => batch.clone(),
            _ => self.batch(id.batch),
        };
        SendReceipt { batch, index: id.index, slot: None }
    }

    /// A SEND has its outcome.
    pub(crate) fn complete(
        &mut self,
        number: u64,
        outcome: Result<Published, Error>,
        wakes: &mut Vec<Waker>,
    ) {
        let Ok(at) = self.open.binary_search_by_key(&number, |(n, _)| *n) else { return };
        if let Some(batch) = self.open[at].1.take() {
            batch.complete(outcome, wakes);
        }
        // Partitions answer in any order: an entry in the middle stays as a gap until those before it are gone.
        while self.open.front().is_some_and(|(_, batch)| batch.is_none()) {
            self.open.pop_front();
        }
    }

    /// No outcome will ever come.
    pub(crate) fn fail_all(&mut self, error: &Error, wakes: &mut Vec<Waker>) {
        for batch in self.open.drain(..).filter_map(|(_, batch)| batch) {
            batch.complete(Err(error.clone()), wakes);
        }
    }

    /// The batch with this number, made at its first message. Numbers grow, so a new one nearly always goes last.
    fn batch(&mut self, number: u64) -> Arc<BatchReceipt> {
        let at = match self.open.binary_search_by_key(&number, |(n, _)| *n) {
            Ok(at) => at,
            Err(at) => {
                self.open.insert(at, (number, None));
                at
            }
        };
        self.open[at].1.get_or_insert_with(Arc::default).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_core::ErrorKind;

    fn id(batch: u64, index: u32) -> SendId {
        SendId { batch, index }
    }

    fn failed() -> Result<Published, Error> {
        Err(Error::new(ErrorKind::Timeout, "sending", ""))
    }

    #[test]
    fn one_outcome_wakes_every_waiter_of_its_batch_and_no_other() {
        let (mut receipts, mut wakes) = (Receipts::default(), Vec::new());
        let (mut a, mut b, mut c) =
            (receipts.receipt(id(1, 0)), receipts.receipt(id(1, 1)), receipts.receipt(id(2, 0)));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut a).poll(cx).is_pending());
        assert!(Pin::new(&mut a).poll(cx).is_pending(), "one waker however often it is polled");
        assert!(Pin::new(&mut c).poll(cx).is_pending());
        receipts.complete(1, failed(), &mut wakes);
        assert_eq!(wakes.len(), 1);
        assert!(Pin::new(&mut a).poll(cx).is_ready());
        assert!(Pin::new(&mut b).poll(cx).is_ready());
        assert!(Pin::new(&mut c).poll(cx).is_pending());
    }

    #[test]
    fn batches_settled_in_any_order_leave_nothing_behind() {
        let (mut receipts, mut wakes) = (Receipts::default(), Vec::new());
        for (batch, index) in [(1, 0), (2, 0), (3, 0), (2, 1), (1, 1)] {
            drop(receipts.receipt(id(batch, index)));
        }
        for batch in [2, 3, 1] {
            receipts.complete(batch, failed(), &mut wakes);
        }
        assert!(receipts.open.is_empty());
        let late = receipts.receipt(id(4, 0));
        receipts.fail_all(&Error::new(ErrorKind::Interrupted, "sending", ""), &mut wakes);
        assert_eq!(late.try_result().unwrap().unwrap_err().kind(), ErrorKind::Interrupted);
    }
}
