//! The client's budget for bytes that wait for a receipt. Decides whether a message may enter; knows none of them.

/// Bytes held by unacknowledged messages of all producers.
///
/// Shape: a reservation is granted while usage is below the limit, so usage may exceed it by one message, which lets a
/// message larger than the limit through. A limit of 0 grants everything.
#[derive(Debug)]
pub(crate) struct Memory {
    used: usize,
    limit: usize,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Self {
        Memory { used: 0, limit }
    }

    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        let granted = self.has_room();
        if granted {
            self.used += bytes;
        }
        granted
    }

    pub(crate) fn release(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.used, "released more than was reserved");
        self.used = self.used.saturating_sub(bytes);
    }

    pub(crate) fn has_room(&self) -> bool {
        self.limit == 0 || self.used < self.limit
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_may_be_exceeded_by_one_message_and_returns_to_zero() {
        let mut memory = Memory::new(10);
        assert!(memory.reserve(9));
        assert!(memory.reserve(9));
        assert!(!memory.reserve(1));
        memory.release(9);
        assert!(memory.reserve(1));
        memory.release(9);
        memory.release(1);
        assert_eq!(memory.used(), 0);
        assert!(Memory::new(0).reserve(usize::MAX));
    }
}
