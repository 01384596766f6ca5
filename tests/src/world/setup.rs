//! What can be set about a world before it begins.

use std::collections::BTreeSet;

use geminga_broker::{ClusterConfig, NodeConfig};
use geminga_core::ClientConfig;

use super::trace::Lines;
use crate::network::Conditions;

/// The settings of a world. The default is one healthy broker at `pulsar://broker-0:6650`.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The brokers. Change their number with [`Setup::brokers`].
    pub cluster: ClusterConfig,
    /// What clients are made of, unless a test gives them another.
    pub client: ClientConfig,
    /// How the links behave.
    pub conditions: Conditions,
    /// Every address is answered by the test.
    pub scripted: bool,
    /// Addresses, as `host:port`, where packets vanish.
    pub blackholes: BTreeSet<String>,
    /// Addresses that refuse connections.
    pub refusing: BTreeSet<String>,
    /// What the adapter answers when it is asked for credentials.
    pub credentials: Option<Vec<u8>>,
    /// How many lines of history are kept.
    pub trace: usize,
    /// Where they are kept, for who reads them himself; otherwise a panic prints them.
    pub lines: Option<Lines>,
}

impl Setup {
    /// So many brokers, `broker-0` and on; the client's service URL names the first.
    pub fn brokers(&mut self, brokers: u32) {
        self.cluster.nodes =
            (0..brokers).map(|n| NodeConfig::new(format!("pulsar://broker-{n}:6650"))).collect();
    }
}

impl Default for Setup {
    fn default() -> Self {
        let mut setup = Setup {
            cluster: ClusterConfig::default(),
            client: ClientConfig::new("pulsar://broker-0:6650").expect("a service URL"),
            conditions: Conditions::default(),
            scripted: false,
            blackholes: BTreeSet::new(),
            refusing: BTreeSet::new(),
            credentials: None,
            trace: 400,
            lines: None,
        };
        setup.brokers(1);
        setup
    }
}
