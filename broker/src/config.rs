//! The cluster's settings: one struct with Pulsar's defaults, or the gentler one of a development broker where it says so.

use std::time::Duration;

/// One broker of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// What lookups answer: `pulsar://host:port`.
    pub service_url: String,
    /// What lookups answer to clients that use TLS: `pulsar+ssl://host:port`. The link itself is the adapter's business.
    pub service_url_tls: Option<String>,
}

impl NodeConfig {
    /// A broker without TLS at `service_url`.
    pub fn new(service_url: impl Into<String>) -> Self {
        NodeConfig { service_url: service_url.into(), service_url_tls: None }
    }
}

/// How a broker that does not own a topic answers a lookup when another broker does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LookupAnswer {
    /// Connect, with the owner's address: what Pulsar does once a bundle has an owner.
    #[default]
    Connect,
    /// Redirect to the owner, which is then asked again.
    Redirect,
}

/// Settings of a [`Cluster`](crate::Cluster).
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// First part of generated producer names. `standalone` by default.
    pub name: String,
    /// The brokers. Never empty: an empty list becomes one broker at `pulsar://localhost:6650`.
    pub nodes: Vec<NodeConfig>,
    /// Announced in CONNECTED; a frame may be 10 KiB longer. 5 MiB by default. Units: bytes.
    pub max_message_size: usize,
    /// A link silent for so long is pinged, and closed when silent for as long again. 30 s by default.
    pub keep_alive: Duration,
    /// How long the holder of a producer name or an exclusive subscription may take to answer a PING when somebody
    /// else wants it. 5 s by default.
    pub liveness_timeout: Duration,
    /// Tokens that may connect (method `token`). Empty, the default: everybody may.
    pub tokens: Vec<String>,
    /// PRODUCER and SUBSCRIBE create missing topics. On by default.
    pub auto_create_topics: bool,
    /// Partitions of a topic that PARTITIONED_METADATA creates; 0, the default, creates none and leaves the topic whole.
    pub auto_create_partitions: u32,
    /// Deduplicate by producer name and sequence id, unless a namespace says otherwise. Off by default.
    pub deduplication: bool,
    /// Keep acknowledgements of single messages of a batch. On by default (in Pulsar: off).
    pub batch_index_acks: bool,
    /// Put a BrokerEntryMetadata before each message for clients that can read it. Off by default.
    pub broker_entry_metadata: bool,
    /// Acknowledged messages of a topic are kept up to this many bytes, for readers and seeks. 64 MiB by default.
    /// What a subscription still needs is kept whatever its size.
    pub retention_bytes: usize,
    /// Bundles a namespace's topics are hashed into; each has one owner. 4 by default.
    pub bundles: u32,
    /// How a broker answers for a bundle of another.
    pub lookup_answer: LookupAnswer,
    /// How long a new active consumer of a Failover subscription waits before it gets messages. 0 by default (in
    /// Pulsar: 1 s, so that acknowledgements under way arrive first).
    pub failover_delay: Duration,
    /// Unacknowledged messages that stop dispatch to a Shared or Key_Shared consumer; 0 is no limit. 50,000 by default.
    pub max_unacked_per_consumer: u32,
    /// Entries that Shared dispatch gives to one consumer before it turns to the next. 20 by default.
    pub round_robin_entries: u32,
    /// Entries that Key_Shared dispatch reads past blocked keys, for each consumer. 2000 by default.
    pub look_ahead: usize,
    /// Whether clients are told that they may watch topic lists. On by default.
    pub topic_watchers: bool,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        ClusterConfig {
            name: "standalone".to_owned(),
            nodes: vec![NodeConfig::new("pulsar://localhost:6650")],
            max_message_size: 5 * 1024 * 1024,
            keep_alive: Duration::from_secs(30),
            liveness_timeout: Duration::from_secs(5),
            tokens: Vec::new(),
            auto_create_topics: true,
            auto_create_partitions: 0,
            deduplication: false,
            batch_index_acks: true,
            broker_entry_metadata: false,
            retention_bytes: 64 * 1024 * 1024,
            bundles: 4,
            lookup_answer: LookupAnswer::Connect,
            failover_delay: Duration::ZERO,
            max_unacked_per_consumer: 50_000,
            round_robin_entries: 20,
            look_ahead: 2000,
            topic_watchers: true,
        }
    }
}
