//! Faults on demand: what a test wants to go wrong, where, and how often. Decides whether a planned fault fits what is
//! about to happen; the machine around it does the harm.

use std::time::Duration;

use geminga_core::wire::{Command, proto::ServerError};

use crate::{LinkId, NodeId};

/// The commands of a client that a fault can aim at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is the protocol's command of that name")]
pub enum Request {
    Any,
    Connect,
    AuthResponse,
    Ping,
    Lookup,
    PartitionedMetadata,
    GetTopicsOfNamespace,
    GetSchema,
    Producer,
    Send,
    CloseProducer,
    Subscribe,
    Flow,
    Ack,
    Redeliver,
    Seek,
    GetLastMessageId,
    ConsumerStats,
    Unsubscribe,
    CloseConsumer,
}

impl Request {
    pub(crate) fn of(command: &Command) -> Self {
        match command {
            Command::Connect(_) => Request::Connect,
            Command::AuthResponse(_) => Request::AuthResponse,
            Command::Ping => Request::Ping,
            Command::Lookup(_) => Request::Lookup,
            Command::PartitionedMetadata(_) => Request::PartitionedMetadata,
            Command::GetTopicsOfNamespace(_) => Request::GetTopicsOfNamespace,
            Command::GetSchema(_) | Command::GetOrCreateSchema(_) => Request::GetSchema,
            Command::Producer(_) => Request::Producer,
            Command::Send(_) => Request::Send,
            Command::CloseProducer(_) => Request::CloseProducer,
            Command::Subscribe(_) => Request::Subscribe,
            Command::Flow(_) => Request::Flow,
            Command::Ack(_) => Request::Ack,
            Command::RedeliverUnacknowledgedMessages(_) => Request::Redeliver,
            Command::Seek(_) => Request::Seek,
            Command::GetLastMessageId(_) => Request::GetLastMessageId,
            Command::ConsumerStats(_) => Request::ConsumerStats,
            Command::Unsubscribe(_) => Request::Unsubscribe,
            Command::CloseConsumer(_) => Request::CloseConsumer,
            _ => Request::Any,
        }
    }
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// A message is stored, and its receipt is never written.
    LoseReceipt,
    /// A receipt is written twice.
    RepeatReceipt,
    /// A request is handled so much later; those behind it are not held up. For SEND: it is stored at once, and its
    /// receipt and all later ones of the link wait.
    Delay(Request, Duration),
    /// A request is refused with this error and text. For SEND: SEND_ERROR, and nothing is stored; unless the error is
    /// about this one message (checksum, not allowed), the topic's producers are closed, as after a failed write.
    Refuse(Request, ServerError, String),
    /// A request is read and forgotten.
    Ignore(Request),
    /// A request is handled, and its answer is never written.
    LoseAnswer(Request),
    /// A lookup is answered with a redirect to the broker that was asked.
    RedirectLoop,
    /// A message is delivered with one payload bit flipped, so its checksum does not fit.
    CorruptMessage,
    /// The link is cut when such a request comes, before it is handled; what was queued for writing is lost.
    Cut(Request),
    /// The link is cut after such a request was handled, with its answer and all else that was queued.
    CutAfter(Request),
}

/// A planned fault: a kind, where it applies and how many times.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    kind: FaultKind,
    node: Option<NodeId>,
    link: Option<LinkId>,
    topic: Option<String>,
    skip: u32,
    times: u32,
}

impl Fault {
    /// A fault that happens once, at the first occasion anywhere.
    pub fn new(kind: FaultKind) -> Self {
        Fault { kind, node: None, link: None, topic: None, skip: 0, times: 1 }
    }

    /// Only on this broker.
    #[must_use]
    pub fn on_node(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// Only on this link.
    #[must_use]
    pub fn on_link(mut self, link: LinkId) -> Self {
        self.link = Some(link);
        self
    }

    /// Only for this topic: its full name, or that of the partitioned topic it belongs to.
    #[must_use]
    pub fn on_topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Lets the first `skip` occasions pass.
    #[must_use]
    pub fn after(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    /// Happens so many times; `u32::MAX` is for ever.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }
}

/// Where something is about to happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) node: NodeId,
    pub(crate) link: LinkId,
    /// Full name; empty when no topic is concerned.
    pub(crate) topic: &'a str,
}

/// The faults that are still to come, in the order they were planned.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    planned: Vec<Fault>,
}

impl Faults {
    pub(crate) fn plan(&mut self, fault: Fault) {
        if fault.times > 0 {
            self.planned.push(fault);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.planned.clear();
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.planned.is_empty()
    }

    pub(crate) fn remaining(&self) -> &[Fault] {
        &self.planned
    }

    /// Takes one occurrence of the first planned fault that is of a wanted kind and fits the place.
    pub(crate) fn take(
        &mut self,
        place: Place<'_>,
        wanted: impl Fn(&FaultKind) -> bool,
    ) -> Option<FaultKind> {
        let at = self.planned.iter_mut().position(|fault| {
            let fits = fault.node.is_none_or(|n| n == place.node)
                && fault.link.is_none_or(|l| l == place.link)
                && fault.topic.as_deref().is_none_or(|t| covers(t, place.topic))
                && wanted(&fault.kind);
            if fits && fault.skip > 0 {
                fault.skip -= 1;
                return false;
            }
            fits
        })?;
        let fault = &mut self.planned[at];
        let kind = fault.kind.clone();
        if fault.times != u32::MAX {
            fault.times -= 1;
        }
        if fault.times == 0 {
            self.planned.remove(at);
        }
        Some(kind)
    }
}

impl FaultKind {
    /// Whether the fault is done to a whole request, before it is looked at.
    pub(crate) fn is_for(&self, request: Request) -> bool {
        let unanswered = matches!(request, Request::Flow | Request::Ping | Request::Redeliver);
        let aim = match self {
            FaultKind::Ignore(aim) | FaultKind::Cut(aim) | FaultKind::CutAfter(aim) => *aim,
            // Receipts have a fault of their own.
            FaultKind::LoseAnswer(aim) if request != Request::Send && !unanswered => *aim,
            // A SEND is answered by its topic.
            FaultKind::Refuse(aim, ..) if request != Request::Send && !unanswered => *aim,
            FaultKind::Delay(aim, _) if request != Request::Send => *aim,
            _ => return false,
        };
        aim == request || aim == Request::Any
    }
}

fn covers(aim: &str, topic: &str) -> bool {
    let Some(rest) = topic.strip_prefix(aim) else { return false };
    rest.is_empty() || rest.strip_prefix("-partition-").is_some_and(|n| n.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_fits_its_place_waits_its_turn_and_is_used_up() {
        let mut faults = Faults::default();
        let t = "persistent://public/default/t";
        faults.plan(Fault::new(FaultKind::LoseReceipt).on_topic(t).on_node(NodeId(1)).after(1).times(2));
        let at = |node, topic| Place { node: NodeId(node), link: LinkId(5), topic };
        let partition = format!("{t}-partition-3");
        let mut lost = |node, topic| faults.take(at(node, topic), |k| *k == FaultKind::LoseReceipt).is_some();
        assert!(!lost(2, t));
        assert!(!lost(1, "persistent://public/default/tt"));
        assert!(!lost(1, t), "the first occasion passes");
        assert!(lost(1, &partition));
        assert!(lost(1, t));
        assert!(!lost(1, t));
        assert!(faults.is_empty());
    }
}
