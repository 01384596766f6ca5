//! The client's budget for bytes that wait for a receipt. Decides whether a message may enter; knows none of them.

/// Bytes held by unacknowledged messages of all producers.
///
/// Shape: there is room while usage is below the limit, so usage may exceed it by one message, which lets a message larger
/// than the limit through. With a limit of 0 there is always room.
#[derive(Debug)]
pub(crate) struct Memory {
    used: usize,
    limit: usize,
}

impl Memory {
    pub(crate) fn new(limit: usize) -> Self {
        Memory { used: 0, limit }
    }

    /// Counts a message that is held from now on. Whether there is room for it was asked before.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.used = self.used.saturating_add(bytes);
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
        memory.reserve(9);
        assert!(memory.has_room());
        memory.reserve(9);
        assert!(!memory.has_room());
        memory.release(9);
        assert!(memory.has_room());
        memory.release(9);
        assert_eq!(memory.used(), 0);
        assert!(Memory::new(0).has_room());
    }
}
