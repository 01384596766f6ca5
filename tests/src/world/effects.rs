//! What the machines want done, done to the network, and what the network delivers, given to the machines.

use bytes::Bytes;
use geminga_broker::{Input as BrokerInput, LinkId, NodeId, Output as BrokerOutput};
use geminga_core::{Answer, ConnId, Input, LinkError, LinkErrorKind, Mono, Now, Output};

use super::{Ends, World};
use crate::network::{Delivery, Direction, Parcel, Peer};

impl World {
    pub(super) fn client_output(&mut self, client: usize, output: Output) {
        let now = self.now();
        match output {
            Output::Connect(conn, endpoint) => {
                let name = format!("{}:{}", endpoint.host, endpoint.port);
                let peer = self.peer(&name);
                let link = self.network.connect(now.mono, client, conn, name.clone(), peer);
                self.trace.note(now.mono, || format!("client {client} dials {name}, link {}", link.0));
                self.sites[client].links.insert(conn, link);
                self.ends.insert(link, Ends::default());
            }
            Output::Transmit(conn) => {
                if let Some(ends) = self.sites[client].links.get(&conn).and_then(|l| self.ends.get_mut(l)) {
                    ends.client_has_bytes = true;
                }
            }
            Output::Disconnect(conn) => {
                if let Some(link) = self.sites[client].links.remove(&conn) {
                    self.trace.note(now.mono, || format!("client {client} closes link {}", link.0));
                    self.network.close(now.mono, link, Direction::Up);
                    self.forget(link);
                }
            }
            Output::Ask(ask, geminga_core::Ask::Credentials) => {
                let answer = match &self.setup.credentials {
                    Some(data) => Ok(Answer::Credentials(data.clone())),
                    None => Err("the world has no credentials".to_owned()),
                };
                self.sites[client].answers.push((ask, answer));
            }
            Output::Event(event) => {
                self.trace.note(now.mono, || format!("client {client} says {event:?}"));
                if let Err(wrong) = self.book.enter(now.mono, client, event) {
                    self.fail(&wrong);
                }
            }
        }
    }

    pub(super) fn broker_output(&mut self, output: BrokerOutput) {
        match output {
            BrokerOutput::Transmit(link) => {
                if let Some(ends) = self.ends.get_mut(&link) {
                    ends.broker_has_bytes = true;
                }
            }
            BrokerOutput::Close(link) => {
                if let Some(ends) = self.ends.get_mut(&link) {
                    ends.broker_has_bytes = true;
                    ends.broker_closes = true;
                }
            }
        }
    }

    /// Moves bytes from the machines into the network, as far as there is room. Returns whether anything moved.
    pub(super) fn pump(&mut self) -> bool {
        let now = self.now().mono;
        let mut moved = false;
        let links: Vec<(LinkId, usize, ConnId, Peer)> =
            self.network.links().map(|(id, l)| (id, l.client, l.conn, l.peer)).collect();
        for (link, client, conn, peer) in links {
            if self.sites[client].links.contains_key(&conn) {
                moved |= self.pump_up(now, link, client, conn);
            }
            if let Peer::Node(node) = peer
                && !self.network.is_node_frozen(node)
            {
                moved |= self.pump_down(now, link);
            }
        }
        moved
    }

    fn pump_up(&mut self, now: Mono, link: LinkId, client: usize, conn: ConnId) -> bool {
        let mut moved = false;
        while self.ends.get(&link).is_some_and(|e| e.client_has_bytes) {
            let room = self.network.room(link, Direction::Up);
            if room == 0 {
                break;
            }
            let site = &mut self.sites[client];
            let taken = site.machine.transmit(conn, room, &mut self.outgoing);
            site.machine.check_invariants();
            if taken < room {
                self.ends.get_mut(&link).expect("seen above").client_has_bytes = false;
            }
            moved = true;
            for bytes in self.outgoing.drain(..) {
                self.trace.tap(now, client, link, Direction::Up, &bytes);
                self.network.send(now, link, Direction::Up, bytes);
            }
        }
        moved
    }

    fn pump_down(&mut self, now: Mono, link: LinkId) -> bool {
        let mut moved = false;
        while self.ends.get(&link).is_some_and(|e| e.broker_has_bytes) {
            let room = self.network.room(link, Direction::Down);
            if room == 0 {
                break;
            }
            moved = true;
            let taken = self.broker.transmit(link, room, &mut self.outgoing);
            for bytes in self.outgoing.drain(..) {
                self.network.send(now, link, Direction::Down, bytes);
            }
            if taken == 0 {
                let ends = self.ends.get_mut(&link).expect("seen above");
                ends.broker_has_bytes = false;
                if ends.broker_closes {
                    self.network.close(now, link, Direction::Down);
                    self.forget(link);
                }
            }
        }
        moved
    }

    pub(super) fn deliver(&mut self, delivery: Delivery) {
        let now = self.now();
        let Delivery { link, direction, parcel } = delivery;
        let Some(l) = self.network.link(link) else { return };
        let (client, conn, peer, endpoint) = (l.client, l.conn, l.peer, l.endpoint.clone());
        match direction {
            Direction::Up => self.arrive_at_broker(now, link, peer, endpoint, parcel),
            Direction::Down => {
                if let Parcel::Bytes(bytes) = &parcel {
                    self.trace.tap(now.mono, client, link, Direction::Down, bytes);
                } else if parcel != Parcel::Open {
                    self.trace
                        .note(now.mono, || format!("client {client} learns of link {}: {parcel:?}", link.0));
                }
                self.arrive_at_client(now, link, client, conn, parcel);
            }
        }
        self.network.forget_ended(link);
        self.forget(link);
    }

    fn arrive_at_broker(&mut self, now: Now, link: LinkId, peer: Peer, endpoint: String, parcel: Parcel) {
        match (peer, parcel) {
            (Peer::Node(node), Parcel::Open) => self.broker.handle(now, BrokerInput::Accepted(node, link)),
            (Peer::Node(_), Parcel::Bytes(bytes)) => {
                if let Some(ends) = self.ends.get_mut(&link) {
                    ends.broker_buffer.extend_from_slice(&bytes);
                    self.broker.handle(now, BrokerInput::Received(link, &mut ends.broker_buffer));
                }
            }
            (Peer::Node(_), _) => self.broker.handle(now, BrokerInput::Closed(link)),
            (Peer::Script, Parcel::Open) => self.script.opened(link, endpoint),
            (Peer::Script, Parcel::Bytes(bytes)) => self.script.received(now.mono, link, &bytes),
            (Peer::Script, _) => self.script.closed(link),
            (Peer::Nobody | Peer::Blackhole, _) => {}
        }
    }

    fn arrive_at_client(&mut self, now: Now, link: LinkId, client: usize, conn: ConnId, parcel: Parcel) {
        let machine = &mut self.sites[client].machine;
        let gone = |kind, message: &str| LinkError { kind, message: message.to_owned() };
        match parcel {
            Parcel::Open => machine.handle(now, Input::Connected(conn)),
            Parcel::Bytes(bytes) => {
                if let Some(ends) = self.ends.get_mut(&link) {
                    ends.client_buffer.extend_from_slice(&bytes);
                    machine.handle(now, Input::Received(conn, &mut ends.client_buffer));
                }
            }
            Parcel::Refused => {
                machine.handle(now, Input::Disconnected(conn, gone(LinkErrorKind::Unreachable, "refused")));
            }
            Parcel::Closed => {
                machine.handle(
                    now,
                    Input::Disconnected(conn, gone(LinkErrorKind::Closed, "closed by the peer")),
                );
            }
            Parcel::Reset => {
                machine
                    .handle(now, Input::Disconnected(conn, gone(LinkErrorKind::Closed, "reset by the peer")));
            }
        }
        self.sites[client].machine.check_invariants();
    }

    fn peer(&self, endpoint: &str) -> Peer {
        if self.setup.blackholes.contains(endpoint) {
            return Peer::Blackhole;
        }
        if self.setup.refusing.contains(endpoint) {
            return Peer::Nobody;
        }
        if self.setup.scripted {
            return Peer::Script;
        }
        let url = format!("pulsar://{endpoint}");
        let node = self.setup.cluster.nodes.iter().position(|node| node.service_url == url);
        match node.map(|n| NodeId(n as u32)) {
            Some(node) if self.broker.is_up(node) => Peer::Node(node),
            _ => Peer::Nobody,
        }
    }

    pub(super) fn tap_down(&mut self, link: LinkId, bytes: &Bytes) {
        let now = self.now().mono;
        let count = bytes.len();
        self.trace.note(now, || format!("the test writes {count} bytes to link {}", link.0));
    }

    /// Forgets what was kept for a link that the network has forgotten.
    pub(super) fn forget(&mut self, link: LinkId) {
        if self.network.link(link).is_none() {
            self.ends.remove(&link);
        }
    }
}
