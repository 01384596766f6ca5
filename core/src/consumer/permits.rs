//! Permits: how many messages the broker may send, and the account that proves none is lost.
//!
//! A leaf: decides when a FLOW is due and how large it is; knows no connection, queue or message.

/// The account of one subscription, from one SUBSCRIBE to the next.
///
/// Shape: `granted = settled + queued + at the broker`. With a receiver queue of `size`, what is granted and not settled
/// never exceeds `size`, and a FLOW goes out when half of it is owed, so it is never of 0. With a size of 0 the account
/// holds at most one permit, and only while the application wants a message.
/// Units: messages, so a batch of 40 counts 40, less those that the broker did not charge.
/// Errors: none. Source: `CommandFlow.messagePermits`; `ConsumerImpl.increaseAvailablePermits` in the Java client.
#[derive(Debug)]
pub(crate) struct Permits {
    size: u32,
    /// Written in FLOWs.
    granted: u64,
    /// Charged by the broker for what it sent.
    arrived: u64,
    /// Handed to the application, or discarded on the way to it.
    settled: u64,
    paused: bool,
    wanted: bool,
}

impl Permits {
    pub(crate) fn new(size: u32) -> Self {
        Permits { size, granted: 0, arrived: 0, settled: 0, paused: false, wanted: false }
    }

    /// The subscription was created anew: the broker has no permits and the queue is empty.
    pub(crate) fn reset(&mut self) {
        (self.granted, self.arrived, self.settled) = (0, 0, 0);
    }

    /// A new share of the total; what was granted beyond it is not granted again.
    pub(crate) fn resize(&mut self, size: u32) {
        self.size = size;
    }

    pub(crate) fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Whether the application waits for a message; matters only to a queue of size 0.
    pub(crate) fn set_wanted(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// The broker sent `n` messages.
    #[inline]
    pub(crate) fn arrived(&mut self, n: u32) {
        self.arrived += u64::from(n);
    }

    /// `n` messages that had arrived were handed out or discarded.
    #[inline]
    pub(crate) fn settled(&mut self, n: u64) {
        self.settled += n;
        debug_assert!(self.settled <= self.arrived, "settled {} of {}", self.settled, self.arrived);
    }

    /// Messages that arrived and are not settled.
    pub(crate) fn queued(&self) -> u64 {
        self.arrived - self.settled
    }

    /// The FLOW that is due now, counted as granted. The caller writes it.
    #[inline]
    pub(crate) fn grant(&mut self) -> Option<u32> {
        if self.paused {
            return None;
        }
        let (granted, settled) = (self.granted as i64, self.settled as i64);
        let due = match self.size {
            // A batch may have left the broker below zero: what counts is that it has one permit afterwards.
            0 if self.wanted && self.queued() == 0 => 1 - (granted - self.arrived as i64),
            0 => 0,
            size => {
                let owed = i64::from(size) + settled - granted;
                if owed < i64::from((size / 2).max(1)) { 0 } else { owed }
            }
        };
        if due <= 0 {
            return None;
        }
        let due = u32::try_from(due).unwrap_or(u32::MAX);
        self.granted += u64::from(due);
        Some(due)
    }

    /// Asserts the equation against what the queue really holds.
    ///
    /// # Panics
    /// When it does not hold.
    pub(crate) fn check(&self, in_queue: u64) {
        assert_eq!(self.queued(), in_queue, "messages charged and not settled are messages queued: {self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_flow_is_the_queue_size_and_the_next_comes_at_half() {
        let mut permits = Permits::new(10);
        assert_eq!(permits.grant(), Some(10));
        assert_eq!(permits.grant(), None);
        permits.arrived(10);
        permits.settled(4);
        assert_eq!(permits.grant(), None);
        permits.settled(1);
        assert_eq!(permits.grant(), Some(5));
        permits.reset();
        assert_eq!(permits.grant(), Some(10));
    }

    #[test]
    fn a_queue_of_one_is_refilled_at_each_message() {
        let mut permits = Permits::new(1);
        assert_eq!(permits.grant(), Some(1));
        permits.arrived(1);
        assert_eq!(permits.grant(), None);
        permits.settled(1);
        assert_eq!(permits.grant(), Some(1));
    }

    #[test]
    fn a_pause_grants_nothing_and_what_was_owed_follows_it() {
        let mut permits = Permits::new(4);
        permits.set_paused(true);
        assert_eq!(permits.grant(), None);
        permits.set_paused(false);
        assert_eq!(permits.grant(), Some(4));
    }

    #[test]
    fn a_zero_queue_holds_one_permit_while_a_message_is_wanted_also_after_a_batch() {
        let mut permits = Permits::new(0);
        assert_eq!(permits.grant(), None);
        permits.set_wanted(true);
        assert_eq!(permits.grant(), Some(1));
        assert_eq!(permits.grant(), None);
        permits.arrived(5);
        assert_eq!(permits.grant(), None);
        permits.settled(5);
        assert_eq!(permits.grant(), Some(5), "the broker stood at minus four");
        permits.reset();
        assert_eq!(permits.grant(), Some(1));
    }

    #[test]
    fn a_smaller_share_is_reached_by_granting_less() {
        let mut permits = Permits::new(10);
        assert_eq!(permits.grant(), Some(10));
        permits.resize(4);
        permits.arrived(10);
        permits.settled(7);
        assert_eq!(permits.grant(), None);
        permits.settled(1);
        assert_eq!(permits.grant(), Some(2));
    }

    proptest! {
        #[test]
        fn whatever_happens_the_broker_never_holds_more_than_the_queue_and_never_starves(
            size in 1u32..50,
            steps in proptest::collection::vec((0u8..3, 1u32..20), 1..200),
        ) {
            let mut permits = Permits::new(size);
            let (mut at_broker, mut queued) = (0i64, 0i64);
            for (step, n) in steps {
                match step {
                    0 if at_broker > 0 => {
                        permits.arrived(n);
                        at_broker -= i64::from(n);
                        queued += i64::from(n);
                    }
                    1 => {
                        let n = queued.min(i64::from(n));
                        permits.settled(n as u64);
                        queued -= n;
                    }
                    _ => {}
                }
                while let Some(flow) = permits.grant() {
                    prop_assert!(flow > 0);
                    at_broker += i64::from(flow);
                }
                permits.check(queued as u64);
                prop_assert!(at_broker + queued <= i64::from(size));
                prop_assert!(queued > 0 || at_broker > 0);
            }
        }
    }
}
