//! Hashes of keys: which partition a message goes to, and which slot a Key_Shared broker sees.
//!
//! A leaf: knows strings and numbers, not messages. The murmur is our own thirty lines: the `murmur3` crate reads from
//! an `io::Read` and returns a `Result`, for a function over a slice that cannot fail.

/// How a producer turns a key into a partition. Source: `HashingScheme` of the Java client; the default is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HashingScheme {
    /// `String.hashCode` of Java, over UTF-16 units.
    #[default]
    JavaStringHash,
    /// Murmur3 (x86, 32 bits, seed 0) over UTF-8.
    Murmur3_32Hash,
    /// `boost::hash<std::string>`, the default of the C++ and Python clients.
    ///
    /// It is whatever their Boost says. This is Boost 1.81 and later on 64 bits, as in C++ clients since 3.5; with an
    /// older Boost, or on 32 bits, keys go elsewhere, and no setting here brings them together.
    BoostHash,
}

/// Slots that Key_Shared divides between its consumers.
pub const STICKY_SLOTS: u32 = 65536;

impl HashingScheme {
    /// The hash of a key: 31 bits.
    pub fn hash(self, key: &str) -> u32 {
        let hash = match self {
            Self::JavaStringHash => java_string_hash(key),
            Self::Murmur3_32Hash => murmur3(key.as_bytes()),
            Self::BoostHash => boost_hash(key.as_bytes()) as u32,
        };
        hash & 0x7fff_ffff
    }

    /// The partition of a key out of `partitions`; 0 when there are none.
    pub fn partition(self, key: &str, partitions: u32) -> u32 {
        self.hash(key).checked_rem(partitions).unwrap_or(0)
    }
}

/// The Key_Shared slot of a sticky key, below [`STICKY_SLOTS`]. Source: the broker's `StickyKeyConsumerSelector`.
pub fn sticky_slot(key: &[u8]) -> u32 {
    sticky_hash(key) % STICKY_SLOTS
}

/// The hash behind a slot: 31 bits. Source: the broker's `Murmur3_32Hash`.
pub fn sticky_hash(key: &[u8]) -> u32 {
    murmur3(key) & 0x7fff_ffff
}

fn java_string_hash(key: &str) -> u32 {
    key.encode_utf16().fold(0u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit)))
}

/// `boost::hash<std::string>` of Boost 1.81 and later on 64-bit machines: eight bytes at a time, each multiplied to 128
/// bits and folded.
fn boost_hash(key: &[u8]) -> u64 {
    const Q: u64 = 0x9e37_79b9_7f4a_7c15;
    const K: u64 = Q.wrapping_mul(Q);
    let fold = |x: u64| {
        let product = u128::from(x) * u128::from(K);
        product as u64 ^ (product >> 64) as u64
    };
    let mut step = fold(Q);
    let mut hash = step ^ key.len() as u64;
    let (words, tail) = key.as_chunks::<8>();
    let tail = tail.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    for word in words.iter().map(|word| u64::from_le_bytes(*word)).chain([tail]) {
        step = step.wrapping_add(Q);
        hash ^= fold(word.wrapping_add(step));
    }
    fold(hash.wrapping_add(step))
}

fn murmur3(data: &[u8]) -> u32 {
    const C1: u32 = 0xcc9e_2d51;
    const C2: u32 = 0x1b87_3593;
    let mix = |k: u32| k.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
    let (blocks, tail) = data.as_chunks::<4>();
    let mut hash = blocks.iter().fold(0u32, |hash, block| {
        (hash ^ mix(u32::from_le_bytes(*block))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    if !tail.is_empty() {
        hash ^= mix(tail.iter().rev().fold(0, |k, &byte| k << 8 | u32::from(byte)));
    }
    hash ^= data.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}
