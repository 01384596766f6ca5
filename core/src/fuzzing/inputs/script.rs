//! The script: bytes that name steps and their details.

/// The rest of the script; behind its end everything is zero.
pub(super) struct Script<'a>(pub(super) &'a [u8]);

impl Script<'_> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn number(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    pub(super) fn bytes(&mut self) -> Vec<u8> {
        let len = usize::from(self.number()).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken.to_vec()
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let n = usize::from(self.number());
        from.get(n % from.len().max(1)).copied()
    }
}
