//! The table of pending requests of one connection: each has an owner, a deadline and one ending.

use std::collections::BTreeMap;

use crate::hub::Ticket;

/// What was asked, so that an answer of the wrong kind is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named after the commands")]
pub(crate) enum RequestKind {
    Producer,
    CloseProducer,
    Subscribe,
    CloseConsumer,
    Unsubscribe,
    Seek,
    LastMessageId,
    Lookup,
    Partitions,
    Topics,
}

/// One request without answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) ticket: Ticket,
    pub(crate) kind: RequestKind,
    /// The broker said that the answer takes as long as it takes.
    pub(crate) open_ended: bool,
}

/// Pending requests by request id.
#[derive(Debug, Default)]
pub(crate) struct Requests(BTreeMap<u64, Request>);

impl Requests {
    pub(crate) fn insert(&mut self, id: u64, request: Request) {
        self.0.insert(id, request);
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Request> {
        self.0.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Request> {
        self.0.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Request> {
        self.0.remove(&id)
    }

    /// Whether one of them should be answered by now or soon.
    pub(crate) fn waits(&self) -> bool {
        self.0.values().any(|r| !r.open_ended)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn take(&mut self) -> BTreeMap<u64, Request> {
        std::mem::take(&mut self.0)
    }
}
