//! What the brokers of a cluster share: tenants, namespaces, partitioned topics, topics, schemas, and who owns which
//! bundle. Decides which topics exist; knows no connections.

use std::collections::{BTreeMap, BTreeSet};

use geminga_core::topic_name::{Domain, TopicName};
use geminga_core::wire::proto;

use crate::NodeId;
use crate::config::{ClusterConfig, LookupAnswer};
use crate::topic::Topic;

/// Names a topic in the cluster; never used again after the topic is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TopicKey(u32);

/// Settings of one namespace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Namespace {
    /// Overrules the cluster's setting.
    pub(crate) deduplication: Option<bool>,
}

/// What a broker answers to a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The topic is served there.
    Connect(NodeId),
    /// Ask there.
    Redirect { to: NodeId, authoritative: bool },
    /// No broker is up.
    Nowhere,
}

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) tenants: BTreeSet<String>,
    /// By `tenant/namespace`.
    pub(crate) namespaces: BTreeMap<String, Namespace>,
    /// Partition counts.
    pub(crate) partitioned: BTreeMap<TopicName, u32>,
    topics: Vec<Option<Topic>>,
    names: BTreeMap<TopicName, TopicKey>,
    owners: BTreeMap<(String, u32), NodeId>,
    /// Versions of each topic's schema, oldest first; partitions share those of their topic.
    schemas: BTreeMap<TopicName, Vec<proto::Schema>>,
    next_ledger: i64,
    bundles: u32,
    lookup_answer: LookupAnswer,
    deduplication: bool,
}

impl Store {
    /// An empty cluster with `public/default`. Ledger ids begin above `first_ledger`.
    pub(crate) fn new(config: &ClusterConfig, first_ledger: i64) -> Self {
        let names = ["public/default", "public/functions", "pulsar/system"];
        Store {
            tenants: ["public", "pulsar"].map(str::to_owned).into(),
            namespaces: names.iter().map(|n| ((*n).to_owned(), Namespace::default())).collect(),
            partitioned: BTreeMap::new(),
            topics: Vec::new(),
            names: BTreeMap::new(),
            owners: BTreeMap::new(),
            schemas: BTreeMap::new(),
            next_ledger: first_ledger,
            bundles: config.bundles.max(1),
            lookup_answer: config.lookup_answer,
            deduplication: config.deduplication,
        }
    }

    #[inline]
    pub(crate) fn topic_mut(&mut self, key: TopicKey) -> Option<&mut Topic> {
        self.topics.get_mut(key.0 as usize)?.as_mut()
    }

    pub(crate) fn topic(&self, key: TopicKey) -> Option<&Topic> {
        self.topics.get(key.0 as usize)?.as_ref()
    }

    pub(crate) fn find(&self, name: &TopicName) -> Option<TopicKey> {
        self.names.get(name).copied()
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.names.values().filter_map(|key| self.topic(*key))
    }

    /// The topic of that name, created if there is none.
    pub(crate) fn find_or_create(&mut self, name: &TopicName) -> TopicKey {
        if let Some(key) = self.find(name) {
            return key;
        }
        let key = TopicKey(u32::try_from(self.topics.len()).expect("fewer than 2^32 topics fit in memory"));
        let ledger = self.new_ledger();
        let dedup = self.deduplicates(name.namespace());
        self.topics.push(Some(Topic::new(key, name.clone(), ledger, dedup)));
        self.names.insert(name.clone(), key);
        key
    }

    pub(crate) fn remove(&mut self, name: &TopicName) -> Option<Topic> {
        let key = self.names.remove(name)?;
        self.topics[key.0 as usize].take()
    }

    /// Whether a topic may come into being under this name: a partition must be one of its partitioned topic.
    pub(crate) fn may_create(&self, name: &TopicName) -> bool {
        match (name.partition_index(), self.partitioned.get(&name.base())) {
            (Some(index), Some(partitions)) => index < *partitions,
            _ => true,
        }
    }

    /// Creates or grows a partitioned topic. New partitions get the subscriptions of the first one.
    pub(crate) fn partition(&mut self, name: &TopicName, partitions: u32) {
        let known = self.partitioned.insert(name.clone(), partitions).unwrap_or(0);
        let subscriptions: Vec<String> = self
            .find(&name.partition(0))
            .and_then(|key| self.topic(key))
            .map(|t| t.subscriptions.values().filter(|s| s.durable).map(|s| s.name.clone()).collect())
            .unwrap_or_default();
        for index in known..partitions {
            let key = self.find_or_create(&name.partition(index));
            let topic = self.topic_mut(key).expect("just created");
            for subscription in &subscriptions {
                topic.subscription_or_create(subscription, true, 0);
            }
        }
    }

    /// Names of a namespace's topics, partitions and partitioned topics alike, in order.
    pub(crate) fn list(&self, namespace: &str, domain: Option<Domain>) -> Vec<&TopicName> {
        let fits = |n: &&TopicName| n.namespace() == namespace && domain.is_none_or(|d| n.domain() == d);
        self.names.keys().filter(fits).collect()
    }

    /// Begins a new ledger on a topic, as loading it does.
    pub(crate) fn roll(&mut self, key: TopicKey) {
        let ledger = self.new_ledger();
        if let Some(topic) = self.topic_mut(key) {
            topic.log.roll(ledger);
        }
    }

    pub(crate) fn set_deduplication(&mut self, namespace: &str, on: Option<bool>) {
        self.namespaces.entry(namespace.to_owned()).or_default().deduplication = on;
        let on = self.deduplicates(namespace);
        for topic in self.topics.iter_mut().flatten().filter(|t| t.info.name.namespace() == namespace) {
            topic.dedup_on = on;
        }
    }

    fn deduplicates(&self, namespace: &str) -> bool {
        self.namespaces.get(namespace).and_then(|n| n.deduplication).unwrap_or(self.deduplication)
    }

    fn new_ledger(&mut self) -> i64 {
        self.next_ledger += 1;
        self.next_ledger
    }
}

/// Ownership: each bundle of a namespace's topics has one broker at a time.
impl Store {
    /// Where a topic is served, from the point of view of the broker that was `asked`. `up` are the brokers that run,
    /// the leader first. A bundle without an owner gets one.
    pub(crate) fn locate(
        &mut self,
        name: &TopicName,
        asked: NodeId,
        authoritative: bool,
        up: &[NodeId],
    ) -> Found {
        let bundle = self.bundle(name);
        if let Some(owner) = self.owners.get(&bundle).copied().filter(|o| up.contains(o)) {
            return match self.lookup_answer {
                LookupAnswer::Redirect if owner != asked => {
                    Found::Redirect { to: owner, authoritative: true }
                }
                _ => Found::Connect(owner),
            };
        }
        let Some(leader) = up.first().copied() else { return Found::Nowhere };
        let load = |node: &NodeId| self.owners.values().filter(|o| *o == node).count();
        let candidate = up.iter().copied().min_by_key(|node| (load(node), *node)).unwrap_or(leader);
        if authoritative || (asked == leader && asked == candidate) {
            self.owners.insert(bundle, asked);
            Found::Connect(asked)
        } else if asked == leader {
            Found::Redirect { to: candidate, authoritative: true }
        } else {
            Found::Redirect { to: leader, authoritative: false }
        }
    }

    pub(crate) fn owner(&self, name: &TopicName) -> Option<NodeId> {
        self.owners.get(&self.bundle(name)).copied()
    }

    pub(crate) fn set_owner(&mut self, name: &TopicName, owner: Option<NodeId>) {
        let bundle = self.bundle(name);
        match owner {
            Some(node) => self.owners.insert(bundle, node),
            None => self.owners.remove(&bundle),
        };
    }

    /// Topics that share a bundle with this one, itself included.
    pub(crate) fn bundle_of(&self, name: &TopicName) -> Vec<TopicKey> {
        let bundle = self.bundle(name);
        self.names.iter().filter(|(n, _)| self.bundle(n) == bundle).map(|(_, key)| *key).collect()
    }

    /// Topics whose bundle this broker owns.
    pub(crate) fn owned_by(&self, node: NodeId) -> Vec<TopicKey> {
        self.names.iter().filter(|(n, _)| self.owner(n) == Some(node)).map(|(_, key)| *key).collect()
    }

    /// The broker gives up all its bundles.
    pub(crate) fn disown(&mut self, node: NodeId) {
        self.owners.retain(|_, owner| *owner != node);
    }

    /// The namespace's bundles have no owner any more.
    pub(crate) fn disown_namespace(&mut self, namespace: &str) {
        self.owners.retain(|(n, _), _| n != namespace);
    }

    fn bundle(&self, name: &TopicName) -> (String, u32) {
        let hash = geminga_core::hash::sticky_slot(name.as_str().as_bytes());
        (name.namespace().to_owned(), hash % self.bundles)
    }
}

/// Schemas: opaque, versioned from 0, never checked for compatibility.
impl Store {
    /// The version of this schema, registered if it is new.
    pub(crate) fn register(&mut self, topic: &TopicName, schema: proto::Schema) -> u64 {
        let versions = self.schemas.entry(topic.base()).or_default();
        let same =
            |known: &proto::Schema| known.r#type == schema.r#type && known.schema_data == schema.schema_data;
        let at = versions.iter().position(same).unwrap_or_else(|| {
            versions.push(schema);
            versions.len() - 1
        });
        at as u64
    }

    /// A version of the topic's schema, the newest by default.
    pub(crate) fn schema(&self, topic: &TopicName, version: Option<u64>) -> Option<(u64, &proto::Schema)> {
        let versions = self.schemas.get(&topic.base())?;
        let version = version.or((versions.len() as u64).checked_sub(1))?;
        Some((version, versions.get(usize::try_from(version).ok()?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        Store::new(&ClusterConfig::default(), 0)
    }

    fn name(text: &str) -> TopicName {
        TopicName::parse(text).unwrap()
    }

    #[test]
    fn new_partitions_get_the_subscriptions_of_the_first() {
        let mut store = store();
        store.partition(&name("t"), 1);
        let first = store.find(&name("t-partition-0")).unwrap();
        store.topic_mut(first).unwrap().subscription_or_create("s", true, 0);
        store.partition(&name("t"), 3);
        let third = store.find(&name("t-partition-2")).unwrap();
        assert!(store.topic(third).unwrap().subscription("s").is_some());
        assert!(!store.may_create(&name("t-partition-3")));
    }

    #[test]
    fn a_bundle_without_owner_is_assigned_by_the_leader() {
        let mut store = store();
        let up = [NodeId(0), NodeId(1)];
        let t = name("t");
        assert_eq!(
            store.locate(&t, NodeId(1), false, &up),
            Found::Redirect { to: NodeId(0), authoritative: false }
        );
        assert_eq!(store.locate(&t, NodeId(0), false, &up), Found::Connect(NodeId(0)));
        assert_eq!(store.locate(&t, NodeId(1), false, &up), Found::Connect(NodeId(0)));
        let other = (0..).map(|i| name(&format!("o{i}"))).find(|o| store.owner(o).is_none()).unwrap();
        let redirect = Found::Redirect { to: NodeId(1), authoritative: true };
        assert_eq!(store.locate(&other, NodeId(0), false, &up), redirect);
        assert_eq!(store.locate(&other, NodeId(1), true, &up), Found::Connect(NodeId(1)));
        assert_eq!(store.locate(&t, NodeId(1), true, &[NodeId(1)]), Found::Connect(NodeId(1)));
    }

    #[test]
    fn an_equal_schema_keeps_its_version() {
        let mut store = store();
        let schema = |data: &'static str| proto::Schema {
            schema_data: bytes::Bytes::from_static(data.as_bytes()),
            ..Default::default()
        };
        assert_eq!(store.register(&name("t-partition-1"), schema("a")), 0);
        assert_eq!(store.register(&name("t"), schema("b")), 1);
        assert_eq!(store.register(&name("t"), schema("a")), 0);
        assert_eq!(store.schema(&name("t"), None).unwrap().0, 1);
        assert!(store.schema(&name("t"), Some(2)).is_none());
    }
}
