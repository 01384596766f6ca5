//! The seeded generator behind jitter, names and first partitions.
//!
//! Own code (xoshiro256++, public domain, a dozen lines) because the core may hold no entropy of its own and every
//! random-number crate drags in one that asks the system for it. Not for secrets.

/// A deterministic generator: the same seed gives the same numbers on every platform.
#[derive(Clone, Debug)]
pub(crate) struct Rng([u64; 4]);

impl Rng {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        let mut state = [0u64; 4];
        for (word, bytes) in state.iter_mut().zip(seed.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
        }
        if state == [0; 4] {
            // The all-zero state is the generator's one fixed point.
            state = [0x9E37_79B9_7F4A_7C15, 1, 2, 3];
        }
        let mut rng = Rng(state);
        // Spread seeds that differ in few bits.
        for _ in 0..16 {
            rng.next();
        }
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// `len` characters of `a-z0-9`, for generated names.
    pub(crate) fn name(&mut self, len: usize) -> String {
        const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        (0..len).map(|_| char::from(ALPHABET[self.below(36) as usize])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_and_others_do_not() {
        let draw = |seed: u8| {
            let mut rng = Rng::new([seed; 32]);
            (0..4).map(|_| rng.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(draw(0), vec![0; 4]);
    }

    #[test]
    fn below_stays_below() {
        let mut rng = Rng::new([7; 32]);
        assert!((0..1000).all(|_| rng.below(10) < 10));
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.name(8).len(), 8);
    }
}
