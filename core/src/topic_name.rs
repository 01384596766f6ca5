//! Topic names: short or whole in, whole out.
//!
//! Knows how a name is built, not whether such a topic exists.
use std::{fmt, str::FromStr, sync::Arc};

const PARTITION: &str = "-partition-";
const ILLEGAL: &str = "a tenant or namespace may have letters, digits and - = : . _ only";

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
    /// Errors: an unknown domain, too few or empty parts, control characters, a tenant or namespace that can't exist.
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

    /// The N of a name that ends in `-partition-N`, at most 2^31-1.
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
        let index: i32 = digits.parse().ok()?;
        // As in Java: "+1", "01" and "-0" are not how a partition is written, and neither is a topic without a name.
        (base.len() > self.local && index >= 0 && index.to_string() == digits).then_some((base, index as u32))
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
    if parts > 2 && !path.split('/').take(parts - 1).all(|part| part.chars().all(legal)) {
        return Err(ILLEGAL);
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

/// Whether `tenant/namespace`, or `tenant/cluster/namespace`, can exist.
///
/// Errors: what to write instead.
pub(crate) fn check_namespace(name: &str) -> Result<(), &'static str> {
    if !(2..=3).contains(&name.split('/').count()) || name.split('/').any(str::is_empty) {
        return Err("a namespace is tenant/namespace, such as public/default");
    }
    match name.chars().all(|c| legal(c) || c == '/') {
        true => Ok(()),
        false => Err(ILLEGAL),
    }
}

/// Whether a tenant or namespace may have this letter.
fn legal(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-=:._".contains(c)
}

/// Where the local name of a whole name begins: behind two parts, or three for a V1 name.
fn local_start(whole: &str) -> usize {
    let path = whole.find("://").map_or(0, |at| at + 3);
    let slashes: Vec<usize> = whole[path..].match_indices('/').map(|(at, _)| path + at).take(3).collect();
    slashes.last().map_or(path, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(name: &str) -> TopicName {
        TopicName::parse(name).expect("a valid name")
    }

    #[test]
    fn short_names_are_completed() {
        assert_eq!(parse("t").as_str(), "persistent://public/default/t");
        assert_eq!(parse("a/b/t").as_str(), "persistent://a/b/t");
        assert_eq!(parse("persistent://a/b/t").as_str(), "persistent://a/b/t");
        assert_eq!(parse("non-persistent://a/b/t").as_str(), "non-persistent://a/b/t");
    }

    #[test]
    fn a_name_has_its_parts() {
        let topic = parse("non-persistent://a/b/t");
        assert_eq!(topic.domain(), Domain::NonPersistent);
        assert_eq!((topic.tenant(), topic.namespace(), topic.local_name()), ("a", "a/b", "t"));
        let v1 = parse("persistent://a/cluster/b/t/with/slashes");
        assert_eq!((v1.tenant(), v1.namespace(), v1.local_name()), ("a", "a/cluster/b", "t/with/slashes"));
        let odd = parse("a/b/spaces and :");
        assert_eq!(odd.local_name(), "spaces and :");
    }

    #[test]
    fn what_is_no_name_is_refused_with_what_to_write() {
        for (name, hint) in [
            ("", "empty"),
            ("a/t", "tenant/namespace/topic"),
            ("a/b/c/t", "tenant/namespace/topic"),
            ("a//t", "empty"),
            ("/t", "empty"),
            ("persistent://", "empty"),
            ("persistent://a/b", "too few parts"),
            ("persistent://a/b/", "empty"),
            ("kafka://a/b/t", "persistent://"),
            ("a/b/t\n", "control"),
            ("a/b c/t", "letters"),
            ("persistent://a/b/ü/t", "letters"),
        ] {
            let error = TopicName::parse(name).expect_err(name).to_string();
            assert!(error.contains(hint), "{name:?}: {error}");
        }
    }

    #[test]
    fn a_partition_is_a_number_as_the_broker_writes_it() {
        let topic = parse("t");
        let partition = topic.partition(12);
        assert_eq!(partition.as_str(), "persistent://public/default/t-partition-12");
        assert_eq!(partition.partition_index(), Some(12));
        assert_eq!(partition.base(), topic);
        assert_eq!(partition.partition(3), topic.partition(3));
        assert_eq!(topic.partition_index(), None);
        assert_eq!(topic.base(), topic);
        for name in ["t-partition-", "t-partition-x", "t-partition-+1", "t-partition-01", "t-partition--1"] {
            assert_eq!(parse(name).partition_index(), None, "{name}");
        }
        assert_eq!(parse("t-partition-2147483647").partition_index(), Some(i32::MAX as u32));
        assert_eq!(parse("t-partition-2147483648").partition_index(), None);
        assert_eq!(parse("-partition-1").partition_index(), None);
        assert_eq!(parse("t-partition-1-partition-2").base(), parse("t-partition-1"));
    }

    proptest! {
        #[test]
        fn a_whole_name_is_its_own_whole_name(name in "(persistent://|non-persistent://)?[-a-z/:.é\n]{0,20}") {
            if let Ok(topic) = TopicName::parse(&name) {
                prop_assert_eq!(&parse(topic.as_str()), &topic);
                let parts = [topic.domain().as_str(), "://", topic.namespace(), "/", topic.local_name()];
                prop_assert_eq!(parts.concat(), topic.as_str());
                prop_assert_eq!(topic.partition(7).base(), topic.base());
            }
        }
    }

    #[test]
    fn a_namespace_is_a_tenant_and_a_name() {
        for good in ["public/default", "a/cluster/b", "a-=:._1/b"] {
            assert_eq!(check_namespace(good), Ok(()), "{good}");
        }
        for bad in ["", "a", "a/", "/b", "a/b/c/d", "a/b c", "a/\u{e9}", "persistent://a/b", "a/b\n"] {
            assert!(check_namespace(bad).is_err(), "{bad}");
        }
    }
}
