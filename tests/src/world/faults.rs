//! What a test does to the network and the brokers.

use geminga_broker::{LinkId, NodeId};

use super::World;
use crate::network::{Direction, Peer};

impl World {
    /// Resets every link; clients dial again as they like.
    pub fn cut_links(&mut self) {
        for link in self.links() {
            self.cut_link(link);
        }
    }

    /// Resets a link.
    pub fn cut_link(&mut self, link: LinkId) {
        self.settle();
        let now = self.now().mono;
        self.trace.note(now, || format!("link {} is cut", link.0));
        self.network.cut(now, link);
    }

    /// Lets every link die without a word: nothing arrives any more, and nobody is told.
    pub fn silence_links(&mut self) {
        for link in self.links() {
            self.silence_link(link);
        }
    }

    /// Lets a link die without a word.
    pub fn silence_link(&mut self, link: LinkId) {
        self.settle();
        let now = self.now().mono;
        self.trace.note(now, || format!("link {} falls silent", link.0));
        self.network.silence(link);
    }

    /// Holds a direction of every link; what is written waits.
    pub fn stall(&mut self, direction: Direction) {
        self.hold_all(direction, true);
    }

    /// Lets a direction of every link go on.
    pub fn unstall(&mut self, direction: Direction) {
        self.hold_all(direction, false);
    }

    /// From now on packets to this address (`host:port`) vanish: its links fall silent, and new ones don't open.
    pub fn blackhole(&mut self, endpoint: &str) {
        self.setup.blackholes.insert(endpoint.to_owned());
        let links: Vec<_> =
            self.network.links().filter(|(_, l)| l.endpoint == endpoint).map(|(id, _)| id).collect();
        for link in links {
            self.silence_link(link);
        }
    }

    /// New links to this address are refused.
    pub fn refuse(&mut self, endpoint: &str) {
        self.setup.refusing.insert(endpoint.to_owned());
    }

    /// Ends [`blackhole`](Self::blackhole) and [`refuse`](Self::refuse) for all addresses; links that fell silent stay so.
    pub fn heal(&mut self) {
        self.setup.blackholes.clear();
        self.setup.refusing.clear();
    }

    /// A broker crashes and starts again at once: its links break, its topics have no owner, what it stored stays.
    pub fn restart_broker(&mut self, node: u32) {
        self.stop_broker(node);
        self.start_broker(node);
    }

    /// A broker crashes.
    pub fn stop_broker(&mut self, node: u32) {
        self.settle();
        let now = self.now();
        self.trace.note(now.mono, || format!("broker {node} stops"));
        self.broker.stop_node(now, NodeId(node));
        self.settle();
    }

    /// A broker that crashed starts.
    pub fn start_broker(&mut self, node: u32) {
        let now = self.now().mono;
        self.trace.note(now, || format!("broker {node} starts"));
        self.broker.start_node(NodeId(node));
    }

    /// A broker stops to read and write without losing its links, as by SIGSTOP.
    pub fn freeze_broker(&mut self, node: u32) {
        let now = self.now().mono;
        self.trace.note(now, || format!("broker {node} freezes"));
        self.network.freeze_node(NodeId(node), true);
    }

    /// A frozen broker goes on.
    pub fn thaw_broker(&mut self, node: u32) {
        let now = self.now().mono;
        self.trace.note(now, || format!("broker {node} thaws"));
        self.network.freeze_node(NodeId(node), false);
    }

    /// A client's program is suspended: it neither reads nor ticks, and time goes on.
    pub fn freeze_client(&mut self, client: usize) {
        let now = self.now().mono;
        self.trace.note(now, || format!("client {client} freezes"));
        self.sites[client].frozen = true;
        self.network.freeze_client(client, true);
    }

    /// A suspended client goes on, with all that has arrived meanwhile.
    pub fn thaw_client(&mut self, client: usize) {
        let now = self.now().mono;
        self.trace.note(now, || format!("client {client} thaws"));
        self.sites[client].frozen = false;
        self.network.freeze_client(client, false);
    }

    /// The links there are, those being opened included.
    pub fn links(&self) -> Vec<LinkId> {
        self.network.links().map(|(id, _)| id).collect()
    }

    /// The links to a broker.
    pub fn links_to(&self, node: u32) -> Vec<LinkId> {
        let peer = Peer::Node(NodeId(node));
        self.network.links().filter(|(_, l)| l.peer == peer).map(|(id, _)| id).collect()
    }

    /// The links of a client.
    pub fn links_of_client(&self, client: usize) -> Vec<LinkId> {
        self.network.links().filter(|(_, l)| l.client == client).map(|(id, _)| id).collect()
    }

    fn hold_all(&mut self, direction: Direction, held: bool) {
        self.settle();
        let now = self.now().mono;
        self.trace.note(now, || format!("{direction:?} of all links: held {held}"));
        for link in self.links() {
            self.network.hold(link, direction, held);
        }
    }
}
