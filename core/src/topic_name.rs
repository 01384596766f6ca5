//! Topic names: short or whole in, whole out.
//!
//! Knows how a name is built, not whether such a topic exists.
use std::{fmt, str::FromStr, sync::Arc};

const PARTITION: &str = "-partition-";

/// A valid, whole topic name; cloning shares the text.
///
/// Shape: `persistent://tenant/namespace/topic`, or with a cluster before the namespace for names of the first kind
/// (V1). `topic` means `persistent://public/default/topic`, and `tenant/namespace/topic` the same with `persistent`.
/// Source: `TopicName` of the Java client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName {
    whole: Arc<str>,
    /// Where the local name begins.
    local: usize,
}

/// The two kinds of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// Messages are stored.
    Persistent,
    /// Messages live in memory only.
    NonPersistent,
}

impl Domain {
    /// The text in front of `://`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Persistent => "persistent",
            Self::NonPersistent => "non-persistent",
        }
    }
}

/// Why a text is no topic name. `Display` says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicNameError {
    name: String,
    what: &'static str,
}

impl fmt::Display for TopicNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid topic name {:?}: {}", self.name, self.what)
    }
}

impl std::error::Error for TopicNameError {}

impl TopicName {
    /// Parses a short or whole name.
    ///
    /// Errors: an unknown domain, too few or empty parts, control characters.
    pub fn parse(name: &str) -> Result<Self, TopicNameError> {
        let whole = complete(name).map_err(|what| TopicNameError { name: name.to_owned(), what })?;
        let local = local_start(&whole);
        Ok(Self { whole: whole.into(), local })
    }

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.whole
    }

    /// Persistent or not.
    pub fn domain(&self) -> Domain {
        if self.whole.starts_with("non-") { Domain::NonPersistent } else { Domain::Persistent }
    }

    /// `tenant/namespace`, or `tenant/cluster/namespace`.
    pub fn namespace(&self) -> &str {
        &self.whole[self.domain().as_str().len() + 3..self.local - 1]
    }

    /// The tenant.
    pub fn tenant(&self) -> &str {
        self.namespace().split('/').next().unwrap_or_default()
    }

    /// The last part of the name, `-partition-N` included.
    pub fn local_name(&self) -> &str {
        &self.whole[self.local..]
    }

    /// The N of a name that ends in `-partition-N`.
    pub fn partition_index(&self) -> Option<u32> {
        self.split_partition().map(|(_, index)| index)
    }

    /// The partitioned topic that this is a partition of, or the topic itself.
    pub fn base(&self) -> Self {
        match self.split_partition() {
            Some((base, _)) => Self { whole: base.into(), local: self.local },
            None => self.clone(),
        }
    }

    /// Partition `index` of this topic; of a partition, its sibling.
    pub fn partition(&self, index: u32) -> Self {
        let base = self.split_partition().map_or(&*self.whole, |(base, _)| base);
        Self { whole: format!("{base}{PARTITION}{index}").into(), local: self.local }
    }

    fn split_partition(&self) -> Option<(&str, u32)> {
        let (base, digits) = self.whole.rsplit_once(PARTITION)?;
        // "+1" parses as a number too, and is none here.
        let index = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
        (base.len() > self.local).then_some((base, index))
    }
}

impl FromStr for TopicName {
    type Err = TopicNameError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::parse(name)
    }
}

impl AsRef<str> for TopicName {
    fn as_ref(&self) -> &str {
        &self.whole
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.whole)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.whole, f)
    }
}

/// The whole form of a name, checked.
fn complete(name: &str) -> Result<String, &'static str> {
    if name.chars().any(char::is_control) {
        return Err("it has control characters; remove them");
    }
    let (domain, path) = match name.split_once("://") {
        Some(("persistent", path)) => (Domain::Persistent, path),
        Some(("non-persistent", path)) => (Domain::NonPersistent, path),
        Some(_) => return Err("its domain is unknown; write persistent:// or non-persistent://"),
        None => (Domain::Persistent, name),
    };
    let short = path.len() == name.len();
    let parts = if short { path.split('/').count() } else { path.splitn(4, '/').count() };
    if path.split('/').any(str::is_empty) {
        return Err("a part of it is empty; write persistent://tenant/namespace/topic");
    }
    match (short, parts) {
        (true, 1) => Ok(format!("{}://public/default/{path}", domain.as_str())),
        (true, 3) | (false, 3 | 4) => Ok(format!("{}://{path}", domain.as_str())),
        (true, _) => {
            Err("a short name is topic or tenant/namespace/topic; write one of them, or the whole name")
        }
        (false, _) => Err("it has too few parts; write persistent://tenant/namespace/topic"),
    }
}

/// Where the local name of a whole name begins: behind two parts, or three for a V1 name.
fn local_start(whole: &str) -> usize {
    let path = whole.find("://").map_or(0, |at| at + 3);
    let slashes: Vec<usize> = whole[path..].match_indices('/').map(|(at, _)| path + at).take(3).collect();
    slashes.last().map_or(path, |at| at + 1)
}
