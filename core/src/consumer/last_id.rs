//! The last message id of one partition: asked for when somebody wants it, one request at a time.
//!
//! Decides when an older answer will do. Refuses to know what the operations make of it.

use super::part::Part;
use crate::connection::RequestKind;
use crate::error::{Error, ErrorKind};
use crate::hub::Hub;
use crate::io::{ConnId, OpId};
use crate::message_id::MessageId;
use crate::wire::command::Command;
use crate::wire::proto;

/// Who waits for the last message id.
///
/// Shape: an answer serves only those who waited before it was asked for; the others get a fresh one.
#[derive(Debug, Default)]
pub(crate) struct LastId {
    asked: Vec<OpId>,
    waiting: Vec<OpId>,
    /// An answer is on its way, perhaps for nobody any more.
    in_flight: bool,
    /// The newest answer. Topics only grow, so what it says is there is there.
    pub(crate) cached: Option<MessageId>,
}

/// What the broker said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Its entry is -1 for an empty topic.
    pub(crate) last: MessageId,
    pub(crate) mark_delete: Option<MessageId>,
}

impl Part {
    pub(crate) fn want_last_id(&mut self, hub: &mut Hub, op: OpId) {
        self.last_id.waiting.push(op);
        self.ask_last_id(hub);
    }

    /// The operation is over.
    pub(crate) fn forget_last_id(&mut self, op: OpId) {
        self.last_id.asked.retain(|o| *o != op);
        self.last_id.waiting.retain(|o| *o != op);
    }

    /// Asks, if somebody waits and it makes sense now.
    pub(crate) fn ask_last_id(&mut self, hub: &mut Hub) {
        let LastId { asked, waiting, in_flight, .. } = &mut self.last_id;
        if waiting.is_empty() || *in_flight || self.seek.is_some() {
            return;
        }
        if let Some(id) = self.attach.connection() {
            *in_flight = true;
            asked.append(waiting);
            self.request_last_id(hub, id);
        }
    }

    pub(crate) fn request_last_id(&mut self, hub: &mut Hub, id: ConnId) {
        let (consumer_id, ticket) = (self.wire_id(), self.attach.ticket());
        hub.request(id, ticket, RequestKind::LastMessageId, hub.config.operation_timeout, |request_id| {
            Command::GetLastMessageId(proto::CommandGetLastMessageId { consumer_id, request_id })
        });
    }

    pub(crate) fn read_last_id(&self, result: Result<Command, Error>) -> Result<Ends, Error> {
        let own = |id: &proto::MessageIdData| MessageId { partition: self.partition, ..MessageId::from(id) };
        match result {
            Ok(Command::GetLastMessageIdResponse(r)) => Ok(Ends {
                last: own(&r.last_message_id),
                mark_delete: r.consumer_mark_delete_position.as_ref().map(own),
            }),
            Ok(other) => {
                let why = format!("the broker answered GET_LAST_MESSAGE_ID with {}", other.name());
                Err(Error::new(ErrorKind::UnknownError, "", why))
            }
            Err(error) => Err(error),
        }
    }

    /// The answer came: who gets it. After a broken link it is asked for again on the next one.
    pub(crate) fn last_id_answered(&mut self, hub: &mut Hub, result: &Result<Ends, Error>) -> Vec<OpId> {
        self.last_id.in_flight = false;
        let mut asked = std::mem::take(&mut self.last_id.asked);
        match result {
            Err(error) if error.is_link() => {
                asked.append(&mut self.last_id.waiting);
                self.last_id.waiting = asked;
                return Vec::new();
            }
            Err(_) => {}
            Ok(ends) => self.last_id.cached = Some(ends.last),
        }
        self.ask_last_id(hub);
        asked
    }
}
