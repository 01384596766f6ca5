//! Moving one partition's position: SEEK, the CLOSE_CONSUMER that it causes, and what happens to everything older.
//!
//! Decides when the new position counts. Until the broker has confirmed it nothing of the old one is given up, and until
//! the subscription is there again nothing is handed out.

use super::last_id::Ends;
use super::part::{Outcome, Part};
use super::position::Reading;
use crate::connection::RequestKind;
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Ticket};
use crate::io::{ConnId, OpId, Position};
use crate::message_id::MessageId;
use crate::time::Timer;
use crate::wire::command::Command;
use crate::wire::{AckSet, proto};

/// A seek under way.
#[derive(Debug)]
pub(crate) struct Seek {
    /// Who is told; nobody when the part finds its own start.
    pub(crate) op: Option<OpId>,
    to: Position,
    stage: Stage,
}

/// How far a seek is. Attempts are those of the part's attachment, so that late answers are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no connection to ask on.
    Waiting,
    /// The last message's id was asked for, because that is where to go.
    Locating(u32),
    /// SEEK is written.
    Asked(u32),
    /// Confirmed; the subscription is not there again yet.
    Done,
}

impl Part {
    /// Starts a seek; its end is an [`Outcome`] with `op`.
    pub(crate) fn begin_seek(&mut self, hub: &mut Hub, op: OpId, to: Position) {
        if self.seek.is_some() {
            // The part is on its way to its own start; this comes after it.
            self.next_seek = Some((op, to));
            return;
        }
        self.seek = Some(Seek { op: Some(op), to, stage: Stage::Waiting });
        if let Some(id) = self.attach.connection() {
            self.write_seek(hub, id);
        }
    }

    /// Whether acknowledgements must wait: after a confirmed seek they would move the cursor back.
    pub(crate) fn holds_acks(&self) -> bool {
        self.seek.as_ref().is_some_and(|s| matches!(s.stage, Stage::Asked(_) | Stage::Done))
    }

    /// Whether a new attachment must wait, because the broker's answer decides about its start.
    pub(crate) fn holds_attachment(&self) -> bool {
        self.seek.as_ref().is_some_and(|s| matches!(s.stage, Stage::Asked(_)))
    }

    /// Whether a CLOSE_CONSUMER is what was asked for.
    pub(crate) fn expects_close(&self) -> bool {
        self.holds_acks()
    }

    /// The subscription is there: goes to the position that it should have, or begins delivery.
    pub(crate) fn position(&mut self, hub: &mut Hub, id: ConnId) -> Outcome {
        let placed = self.placed.take() == Some(id);
        if self.seek.as_ref().is_some_and(|s| s.stage == Stage::Waiting) {
            self.write_seek(hub, id);
            return Outcome::default();
        }
        if placed || self.durable || !self.persistent || self.reading.last.is_some() {
            return self.begin_delivery(hub);
        }
        let op = self.seek.as_ref().and_then(|s| s.op);
        match self.reading.start {
            Some(to @ Position::PublishTime(_)) => {
                self.seek = Some(Seek { op, to, stage: Stage::Waiting });
                self.write_seek(hub, id);
                Outcome::default()
            }
            Some(to @ Position::Latest) if self.reading.inclusive => {
                let stage = Stage::Locating(self.attach.attempt());
                self.seek = Some(Seek { op, to, stage });
                self.request_last_id(hub, id);
                Outcome::default()
            }
            _ => self.begin_delivery(hub),
        }
    }

    fn begin_delivery(&mut self, hub: &mut Hub) -> Outcome {
        let op = self.seek.take().and_then(|s| s.op);
        self.filter = self.first_filter();
        if let Some((op, to)) = self.next_seek.take() {
            self.begin_seek(hub, op, to);
        }
        self.pin(hub);
        self.grant(hub);
        self.ask_last_id(hub);
        Outcome { serving: true, op: op.map(|op| (op, Ok(()))), ..Outcome::default() }
    }

    /// "After the last message" means that of now: asks the broker which one it is, so that a subscription that it does not
    /// remember is not later started behind what was published meanwhile.
    fn pin(&mut self, hub: &mut Hub) {
        if let Some(id) = self.attach.connection()
            && !self.durable
            && self.persistent
            && self.reading.is_unpinned()
        {
            self.pinning = Some(self.attach.attempt());
            self.request_last_id(hub, id);
        }
    }

    /// Takes the answer to [`pin`](Self::pin). Returns whether it was one.
    pub(crate) fn pinned(&mut self, ticket: Ticket, ends: &Result<Ends, Error>) -> bool {
        if self.pinning.take_if(|attempt| *attempt == ticket.attempt).is_none() {
            return false;
        }
        // Where the cursor stands is where it began: nothing was acknowledged yet.
        if let Ok(Ends { mark_delete: Some(mark), .. }) = ends {
            self.reading.pin_behind(*mark);
        }
        true
    }

    fn write_seek(&mut self, hub: &mut Hub, id: ConnId) {
        // What was acknowledged before the seek counts if the seek fails.
        self.flush_acks(hub);
        let ticket = self.attach.ticket();
        let Some(seek) = &mut self.seek else { return };
        seek.stage = Stage::Asked(ticket.attempt);
        let (message_id, message_publish_time) = match seek.to {
            Position::Earliest => (Some(MessageId::EARLIEST.to_proto()), None),
            Position::Latest => (Some(MessageId::LATEST.to_proto()), None),
            Position::Id(id) => (Some(seek_id(id, self.config.start_message_id_inclusive)), None),
            Position::PublishTime(unix_ms) => (None, Some(unix_ms)),
        };
        let consumer_id = self.wire_id();
        hub.request(id, ticket, RequestKind::Seek, hub.config.operation_timeout, |request_id| {
            Command::Seek(proto::CommandSeek { consumer_id, request_id, message_id, message_publish_time })
        });
    }

    /// SEEK has its answer.
    pub(crate) fn seek_answered(
        &mut self,
        hub: &mut Hub,
        id: ConnId,
        ticket: Ticket,
        result: Result<Command, Error>,
    ) -> Outcome {
        let asked = Stage::Asked(ticket.attempt);
        let Some(seek) = self.seek.as_mut().filter(|s| s.stage == asked) else { return Outcome::default() };
        let outcome = match result {
            Ok(Command::Success(_)) => self.seek_succeeded(hub, id),
            Ok(other) => {
                let why = format!("the broker answered SEEK with {}", other.name());
                self.seek_failed(hub, Error::new(ErrorKind::UnknownError, "", why))
            }
            Err(error) if error.is_link() => {
                seek.stage = Stage::Waiting;
                Outcome::default()
            }
            Err(error) => self.seek_failed(hub, error),
        };
        if std::mem::take(&mut self.held) {
            hub.timers.set(Timer::Retry(self.attach.owner), hub.now.mono);
        }
        outcome
    }

    fn seek_succeeded(&mut self, hub: &mut Hub, on: ConnId) -> Outcome {
        let Some(seek) = &mut self.seek else { return Outcome::default() };
        seek.stage = Stage::Done;
        let to = seek.to;
        let queued = self.queue.clear();
        self.permits.settled(queued);
        self.acks.clear();
        self.nacks.clear();
        if let Some(letters) = &mut self.dead_letters {
            letters.clear();
        }
        self.last_id.cached = None;
        self.newest = None;
        self.reading = Reading::new(Some(to), self.config.start_message_id_inclusive);
        // The last message itself is found only now that nothing older is in the way.
        self.placed = (to != Position::Latest || !self.reading.inclusive || self.durable).then_some(on);
        match self.attach.connection() {
            // This broker did not close the consumer.
            Some(id) => self.position(hub, id),
            None => Outcome::default(),
        }
    }

    /// The position is the old one.
    fn seek_failed(&mut self, hub: &mut Hub, error: Error) -> Outcome {
        let Some(seek) = self.seek.take() else { return Outcome::default() };
        let error = error.while_doing(format!("seeking on {}", self.topic.as_str()));
        let Some(op) = seek.op else {
            // It cannot start where it should: as if the subscription had failed.
            return match self.attach.connection() {
                Some(id) => {
                    self.undo(hub, id);
                    Outcome { step: self.attach.failed(hub, error), ..Outcome::default() }
                }
                None => Outcome::default(),
            };
        };
        self.thaw(hub);
        Outcome { op: Some((op, Err(error))), ..Outcome::default() }
    }

    /// Goes on at the old position after a seek that did not happen.
    fn thaw(&mut self, hub: &mut Hub) {
        self.flush_acks(hub);
        self.arm_nacks(hub);
        self.grant(hub);
        self.ask_last_id(hub);
    }

    /// The application's deadline for a seek passed: whether it happens is not known any more.
    pub(crate) fn cancel_seek(&mut self, hub: &mut Hub, op: OpId) {
        if self.next_seek.as_ref().is_some_and(|(next, _)| *next == op) {
            self.next_seek = None;
        }
        if self.seek.as_ref().is_some_and(|s| s.op == Some(op)) {
            self.seek = None;
            if std::mem::take(&mut self.held) {
                hub.timers.set(Timer::Retry(self.attach.owner), hub.now.mono);
            }
            self.thaw(hub);
        }
    }

    /// The last message's id, when it was asked for to go there.
    pub(crate) fn located(
        &mut self,
        hub: &mut Hub,
        ticket: Ticket,
        ends: &Result<Ends, Error>,
    ) -> Option<Outcome> {
        let locating = Stage::Locating(ticket.attempt);
        let seek = self.seek.as_mut().filter(|s| s.stage == locating)?;
        Some(match (ends, self.attach.connection()) {
            (Ok(ends), Some(id)) if ends.last.entry_id >= 0 => {
                seek.to = Position::Id(ends.last);
                self.write_seek(hub, id);
                Outcome::default()
            }
            // Nothing is there: what comes next is the first.
            (Ok(ends), Some(_)) => {
                if let Some(mark) = ends.mark_delete {
                    self.reading.pin_behind(mark);
                }
                self.begin_delivery(hub)
            }
            (Err(error), Some(_)) if !error.is_link() => self.seek_failed(hub, error.clone()),
            _ => {
                // Asked again on the next connection.
                match seek.op {
                    Some(_) => seek.stage = Stage::Waiting,
                    None => self.seek = None,
                }
                Outcome::default()
            }
        })
    }
}

/// The id in a SEEK: for a batch member with the members marked as acknowledged that are not to be delivered. One at least
/// stays, as a set without any would mean a whole batch.
fn seek_id(id: MessageId, inclusive: bool) -> proto::MessageIdData {
    let mut data = id.to_proto();
    let next = id.batch_index.saturating_add(1);
    let first = if inclusive || next == id.batch_size { id.batch_index } else { next };
    if first > 0 && first < id.batch_size {
        let mut set = AckSet::full(id.batch_size as u32);
        set.clear_through(first as u32 - 1);
        data.ack_set = set.into_words();
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seek_into_a_batch_marks_the_members_before_it() {
        let id = MessageId::new(1, 2, -1);
        let rows: [(i32, i32, bool, &[i64]); 9] = [
            (3, 5, true, &[0b11000]),
            (3, 5, false, &[0b10000]),
            (4, 5, true, &[0b10000]),
            (4, 5, false, &[0b10000]),
            (0, 5, true, &[]),
            (0, 5, false, &[0b11110]),
            (0, 1, false, &[]),
            (3, 0, false, &[]),
            (i32::MAX, 0, false, &[]),
        ];
        for (index, size, inclusive, set) in rows {
            let id = id.in_batch(index, size);
            assert_eq!(seek_id(id, inclusive).ack_set, set, "{id} {inclusive}");
        }
        assert!(seek_id(id, false).ack_set.is_empty());
    }
}
