//! The network between clients and brokers: links that carry bytes with a delay, in pieces of any size, and that can be
//! cut, silenced and held. Decides when what arrives; knows no protocol and acts on nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use geminga_broker::{LinkId, NodeId};
use geminga_core::{ConnId, Mono};

/// How links behave as long as nothing is wrong.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// One way, drawn anew for each piece. Links overtake each other; pieces of one link and direction never do.
    pub latency: RangeInclusive<Duration>,
    /// Bytes that one direction of a link holds before its sender has to wait.
    pub window: usize,
    /// Pieces out of 100 that arrive in parts.
    pub fragmented: u8,
    /// Speed of one direction of a link; `None` for no limit.
    pub bytes_per_second: Option<u64>,
}

impl Default for Conditions {
    fn default() -> Self {
        Conditions {
            latency: Duration::from_micros(100)..=Duration::from_micros(900),
            window: 64 << 10,
            fragmented: 20,
            bytes_per_second: None,
        }
    }
}

/// Who is at the other end of a client's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A broker of the cluster.
    Node(NodeId),
    /// The test itself.
    Script,
    /// Nobody listens there: the connection is refused.
    Nobody,
    /// Packets vanish: the connection is neither opened nor refused.
    Blackhole,
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the client to the broker.
    Up,
    /// From the broker to the client.
    Down,
}

/// What arrives at one end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parcel {
    /// The link is open.
    Open,
    /// Some bytes.
    Bytes(Bytes),
    /// Nobody listens.
    Refused,
    /// The other end closed in order.
    Closed,
    /// The link was reset.
    Reset,
}

/// Something that has arrived, and where.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The link.
    pub link: LinkId,
    /// Which way it went: `Up` arrives at the broker.
    pub direction: Direction,
    /// What it is.
    pub parcel: Parcel,
}

/// One link, from the attempt to open it until both ends have let go.
#[derive(Debug)]
pub struct Link {
    /// The client, by its number in the world.
    pub client: usize,
    /// The client's name for the link.
    pub conn: ConnId,
    /// What the client dialled, as `host:port`.
    pub endpoint: String,
    /// Who is there.
    pub peer: Peer,
    up: Pipe,
    down: Pipe,
    /// Nothing arrives any more, and neither end is told.
    silent: bool,
}

#[derive(Debug, Default)]
struct Pipe {
    queue: VecDeque<(Mono, Parcel)>,
    in_flight: usize,
    last: Mono,
    held: bool,
    /// The receiver was told of the end, or let go itself.
    ended: bool,
}

/// All links.
#[derive(Debug)]
pub struct Network {
    /// How new pieces travel; may be changed at any time.
    pub conditions: Conditions,
    rng: Rng,
    links: BTreeMap<LinkId, Link>,
    opened: u64,
    frozen_nodes: BTreeSet<NodeId>,
    frozen_clients: BTreeSet<usize>,
}

impl Network {
    /// A network without links.
    pub fn new(conditions: Conditions, rng: Rng) -> Self {
        Network {
            conditions,
            rng,
            links: BTreeMap::new(),
            opened: 0,
            frozen_nodes: BTreeSet::new(),
            frozen_clients: BTreeSet::new(),
        }
    }

    /// A client dials.
    pub fn connect(
        &mut self,
        now: Mono,
        client: usize,
        conn: ConnId,
        endpoint: String,
        peer: Peer,
    ) -> LinkId {
        self.opened += 1;
        let id = LinkId(self.opened);
        let (up, down) = (Pipe::default(), Pipe::default());
        self.links.insert(id, Link { client, conn, endpoint, peer, up, down, silent: false });
        match peer {
            Peer::Blackhole => {}
            Peer::Nobody => self.put(now, id, Direction::Down, Parcel::Refused),
            Peer::Node(_) | Peer::Script => {
                self.put(now, id, Direction::Up, Parcel::Open);
                let arrived = self.pipe(id, Direction::Up).map_or(now, |p| p.last);
                self.put(arrived, id, Direction::Down, Parcel::Open);
            }
        }
        id
    }

    /// One end writes. What is written to a link that is gone is lost.
    pub fn send(&mut self, now: Mono, link: LinkId, direction: Direction, bytes: Bytes) {
        if !bytes.is_empty() {
            self.put(now, link, direction, Parcel::Bytes(bytes));
        }
    }

    /// How many bytes may be written now.
    pub fn room(&self, link: LinkId, direction: Direction) -> usize {
        let Some(link) = self.links.get(&link) else { return 0 };
        self.conditions.window.saturating_sub(link.pipe(direction).in_flight)
    }

    /// An end closes: what it wrote still arrives, what was on its way to it does not.
    pub fn close(&mut self, now: Mono, link: LinkId, writes: Direction) {
        self.put(now, link, writes, Parcel::Closed);
        if let Some(l) = self.links.get_mut(&link) {
            let reads = l.pipe_mut(writes.opposite());
            reads.queue.clear();
            reads.ended = true;
        }
        self.forget_ended(link);
    }

    /// Cuts a link with a reset: some of what was on its way still arrives, then both ends are told.
    pub fn cut(&mut self, now: Mono, link: LinkId) {
        for direction in [Direction::Up, Direction::Down] {
            let Some(l) = self.links.get_mut(&link) else { return };
            let pipe = l.pipe_mut(direction);
            let kept = self.rng.usize(0..=pipe.queue.len());
            pipe.queue.truncate(kept);
            pipe.held = false;
            pipe.in_flight = pipe.queue.iter().map(|(_, parcel)| parcel.len()).sum();
            self.put(now, link, direction, Parcel::Reset);
        }
    }

    /// Cuts a link without a word: whatever either end writes from now on vanishes.
    pub fn silence(&mut self, link: LinkId) {
        if let Some(link) = self.links.get_mut(&link) {
            link.silent = true;
            link.up.queue.clear();
            link.down.queue.clear();
        }
    }

    /// Holds one direction of a link, or lets it go on: what is written waits, nothing is lost.
    pub fn hold(&mut self, link: LinkId, direction: Direction, held: bool) {
        if let Some(pipe) = self.pipe(link, direction) {
            pipe.held = held;
        }
    }

    /// Stops a broker from reading, as SIGSTOP does, or lets it go on. Links to it still open.
    pub fn freeze_node(&mut self, node: NodeId, frozen: bool) {
        match frozen {
            true => self.frozen_nodes.insert(node),
            false => self.frozen_nodes.remove(&node),
        };
    }

    /// Whether a broker is stopped.
    pub fn is_node_frozen(&self, node: NodeId) -> bool {
        self.frozen_nodes.contains(&node)
    }

    /// Stops a client from reading, or lets it go on.
    pub fn freeze_client(&mut self, client: usize, frozen: bool) {
        match frozen {
            true => self.frozen_clients.insert(client),
            false => self.frozen_clients.remove(&client),
        };
    }

    /// The links there are.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.links.iter().map(|(id, link)| (*id, link))
    }

    /// A link.
    pub fn link(&self, id: LinkId) -> Option<&Link> {
        self.links.get(&id)
    }

    /// When the next parcel arrives.
    pub fn next(&self) -> Option<Mono> {
        self.first().map(|(at, ..)| at)
    }

    /// Takes the next parcel that has arrived by `now`.
    pub fn deliver(&mut self, now: Mono) -> Option<Delivery> {
        let (_, link, direction) = self.first().filter(|(at, ..)| *at <= now)?;
        let fragment = self.rng.u8(0..100) < self.conditions.fragmented;
        let pipe = self.pipe(link, direction).expect("it has a parcel");
        let (at, parcel) = pipe.queue.pop_front().expect("it has a parcel");
        let parcel = match parcel {
            Parcel::Bytes(mut bytes) => {
                if fragment && bytes.len() > 1 {
                    // Mostly anywhere, sometimes within the first few bytes, where sizes and commands are.
                    let most = if at.as_nanos() % 3 == 0 { bytes.len().min(12) } else { bytes.len() };
                    let part = self.rng.usize(1..most);
                    let rest = bytes.split_off(part);
                    let pipe = self.pipe(link, direction).expect("it had a parcel");
                    pipe.queue.push_front((at + Duration::from_micros(5), Parcel::Bytes(rest)));
                }
                let pipe = self.pipe(link, direction).expect("it had a parcel");
                pipe.in_flight -= bytes.len();
                Parcel::Bytes(bytes)
            }
            end @ (Parcel::Closed | Parcel::Reset | Parcel::Refused) => {
                pipe.ended = true;
                end
            }
            Parcel::Open => Parcel::Open,
        };
        let delivery = Delivery { link, direction, parcel };
        if matches!(delivery.parcel, Parcel::Closed | Parcel::Refused) {
            // The end that hears of it stops writing, too.
            if let Some(l) = self.links.get_mut(&link) {
                let other = l.pipe_mut(direction.opposite());
                other.queue.clear();
                other.ended = true;
            }
        }
        Some(delivery)
    }

    /// Forgets a link whose ends were both told, once the receiver has been.
    pub fn forget_ended(&mut self, link: LinkId) {
        if self.links.get(&link).is_some_and(|l| l.up.ended && l.down.ended) {
            self.links.remove(&link);
        }
    }

    fn first(&self) -> Option<(Mono, LinkId, Direction)> {
        let mut first: Option<(Mono, LinkId, Direction)> = None;
        for (id, link) in &self.links {
            let up_stopped = matches!(link.peer, Peer::Node(n) if self.frozen_nodes.contains(&n));
            let down_stopped = self.frozen_clients.contains(&link.client);
            for (direction, pipe, stopped) in
                [(Direction::Up, &link.up, up_stopped), (Direction::Down, &link.down, down_stopped)]
            {
                if !pipe.held
                    && !stopped
                    && let Some((at, _)) = pipe.queue.front()
                    && first.is_none_or(|(earliest, ..)| *at < earliest)
                {
                    first = Some((*at, *id, direction));
                }
            }
        }
        first
    }

    fn put(&mut self, now: Mono, link: LinkId, direction: Direction, parcel: Parcel) {
        let (low, high) = (*self.conditions.latency.start(), *self.conditions.latency.end());
        let latency = self.rng.u64(low.as_nanos() as u64..=high.as_nanos() as u64);
        let speed = self.conditions.bytes_per_second;
        let Some(l) = self.links.get_mut(&link).filter(|l| !l.silent) else { return };
        let pipe = l.pipe_mut(direction);
        if pipe.ended {
            return;
        }
        let mut at = (now + Duration::from_nanos(latency)).max(pipe.last);
        if let Some(speed) = speed {
            at = at + Duration::from_nanos(parcel.len() as u64 * 1_000_000_000 / speed.max(1));
        }
        pipe.last = at;
        pipe.in_flight += parcel.len();
        pipe.queue.push_back((at, parcel));
    }

    fn pipe(&mut self, link: LinkId, direction: Direction) -> Option<&mut Pipe> {
        self.links.get_mut(&link).map(|l| l.pipe_mut(direction))
    }
}

impl Parcel {
    fn len(&self) -> usize {
        match self {
            Parcel::Bytes(bytes) => bytes.len(),
            _ => 0,
        }
    }
}

impl Link {
    fn pipe(&self, direction: Direction) -> &Pipe {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    fn pipe_mut(&mut self, direction: Direction) -> &mut Pipe {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }
}

impl Direction {
    /// The other way.
    pub const fn opposite(self) -> Self {
        match self {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        }
    }
}
