//! Where reading began and how far it got: what to ask the broker for after a reconnection, what it sends that is not
//! wanted, and whether there is more.
//!
//! A leaf: ids in, answers out. Knows no queue and no request.

use std::cmp::Ordering;

use super::EntryId;
use crate::io::Position;
use crate::message_id::MessageId;

/// One partition's reading position.
///
/// Shape: `start` is where the subscription or the last seek put it, `None` where the subscription's cursor stood; `last`
/// is the last message that was handed out, or skipped, since then. The ids of one partition are ordered.
/// Source: `ConsumerImpl.startMessageId`, `lastDequeuedMessageId` and `hasMessageAvailableAsync` in the Java client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reading {
    pub(crate) start: Option<Position>,
    pub(crate) inclusive: bool,
    pub(crate) last: Option<MessageId>,
}

/// What the broker sends first after a SUBSCRIBE or a seek, and how much of it is old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    id: MessageId,
    inclusive: bool,
    /// Entries before it are old as well: they were asked for, and handed out while the answer was on its way.
    whole_entries: bool,
}

/// The position with the two ends as what they are, not as ids.
pub(crate) fn normal(position: Position) -> Position {
    match position {
        Position::Id(id) if id.ledger_id < 0 => Position::Earliest,
        Position::Id(id) if id.ledger_id == i64::MAX => Position::Latest,
        other => other,
    }
}

impl Filter {
    /// How many messages at the front of an entry are dropped; `None` for the first entry that is not concerned, which ends
    /// the filter: an older message that comes later was asked for by somebody.
    pub(crate) fn dropped(&self, entry: EntryId, is_batch: bool) -> Option<u32> {
        match entry.cmp(&(self.id.ledger_id, self.id.entry_id)) {
            Ordering::Less if self.whole_entries => Some(u32::MAX),
            Ordering::Equal if is_batch => Some(self.dropped_members()),
            Ordering::Equal => Some(u32::from(!self.inclusive)),
            _ => None,
        }
    }

    /// An id without index drops none of a batch, as in the Java client.
    fn dropped_members(&self) -> u32 {
        let index = self.id.batch_index.max(-1);
        let first = if self.inclusive { index.max(0) } else { index.saturating_add(1) };
        u32::try_from(first).unwrap_or(0)
    }
}

impl Reading {
    pub(crate) fn new(start: Option<Position>, inclusive: bool) -> Self {
        Reading { start: start.map(normal), inclusive, last: None }
    }

    /// A message was handed out or skipped. A redelivered one does not move the position back.
    #[inline]
    pub(crate) fn advance(&mut self, id: MessageId) {
        if self.last.is_none_or(|last| last < id) {
            self.last = Some(id);
        }
    }

    /// Whether reading starts at the end of the topic, and nobody knows yet behind which message that is.
    pub(crate) fn is_unpinned(&self) -> bool {
        self.last.is_none() && self.start == Some(Position::Latest)
    }

    /// The end of the topic was behind this entry.
    pub(crate) fn pin_behind(&mut self, entry: MessageId) {
        if self.is_unpinned() {
            let batch_index = if entry.entry_id < 0 { -1 } else { i32::MAX };
            self.start = Some(Position::Id(MessageId { batch_index, batch_size: 0, ..entry }));
            self.inclusive = false;
        }
    }

    /// The first entry behind the end of the topic arrived before that was known.
    pub(crate) fn pin_at(&mut self, entry: MessageId) {
        if self.is_unpinned() {
            self.start = Some(Position::Id(entry.entry()));
            self.inclusive = true;
        }
    }

    /// The `start_message_id` of a subscription that the broker does not remember.
    pub(crate) fn start_message_id(&self) -> MessageId {
        match (self.last, self.start) {
            (Some(last), _) => last,
            (None, Some(Position::Id(id))) => id,
            (None, Some(Position::Latest)) => MessageId::LATEST,
            // A time is found by a seek from there.
            (None, Some(Position::Earliest | Position::PublishTime(_)) | None) => MessageId::EARLIEST,
        }
    }

    /// What to drop of the first entry after a SUBSCRIBE.
    ///
    /// The broker sends the whole entry of a start or seek id. A durable subscription continues where its
    /// acknowledgements ended, so only a seek leaves something to drop, until reading has left that entry.
    pub(crate) fn filter(&self, durable: bool) -> Option<Filter> {
        let start = match self.start {
            Some(Position::Id(id)) => Some(Filter { id, inclusive: self.inclusive, whole_entries: false }),
            _ => None,
        };
        match self.last {
            None => start,
            Some(last) if durable => start.filter(|f| f.id.entry() == last.entry()),
            Some(last) => Some(Filter { id: last, inclusive: false, whole_entries: true }),
        }
    }

    /// Whether the broker's answers of before still say something: only a position that is an id can be compared again, and
    /// only where nothing comes but what is behind it. What a durable subscription has acknowledged, its cursor knows.
    pub(crate) fn is_comparable(&self, durable: bool) -> bool {
        !durable && (self.last.is_some() || matches!(self.start, Some(Position::Id(_) | Position::Earliest)))
    }

    /// Whether a message follows, given the last one of the topic and the cursor's mark-delete position.
    pub(crate) fn has_more(&self, last_of_topic: MessageId, mark_delete: Option<MessageId>) -> bool {
        if last_of_topic.entry_id < 0 {
            return false;
        }
        let key = |id: MessageId| (id.ledger_id, id.entry_id, id.batch_index);
        let entry = |id: MessageId| (id.ledger_id, id.entry_id);
        if mark_delete.is_some_and(|mark| entry(mark) >= entry(last_of_topic)) {
            return false;
        }
        match (self.last, self.start) {
            (Some(last), _) => key(last_of_topic) > key(last),
            (None, Some(Position::Earliest)) => true,
            (None, Some(Position::Id(id))) if self.inclusive => key(last_of_topic) >= key(id),
            (None, Some(Position::Id(id))) => key(last_of_topic) > key(id),
            // Where the cursor stands is for the broker to say. An inclusive start at the latest message is turned into
            // the id of that message before this is asked.
            (None, Some(Position::Latest | Position::PublishTime(_)) | None) => {
                mark_delete.is_some_and(|mark| entry(mark) < entry(last_of_topic))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: MessageId = MessageId::new(5, 10, -1);
    const EMPTY: MessageId = MessageId::new(-1, -1, -1);

    fn member(index: i32) -> MessageId {
        ENTRY.in_batch(index, 5)
    }

    fn next() -> MessageId {
        MessageId::new(5, 11, -1)
    }

    #[test]
    fn whether_there_is_more_over_all_starts() {
        use Position::{Earliest, Id, Latest, PublishTime};
        let mark = |entry| Some(MessageId::new(5, entry, -1));
        let rows = [
            // start, inclusive, last on topic, mark-delete, answer
            (Some(Earliest), false, EMPTY, mark(-1), false),
            (Some(Earliest), false, ENTRY, mark(-1), true),
            (Some(Earliest), true, member(0), None, true),
            (Some(Latest), false, EMPTY, mark(-1), false),
            (Some(Latest), false, ENTRY, mark(10), false),
            (Some(Latest), false, member(4), mark(10), false),
            (Some(Latest), false, next(), mark(10), true),
            (Some(Latest), false, next(), None, false),
            (Some(Latest), false, ENTRY, Some(MessageId::new(6, -1, -1)), false),
            (Some(PublishTime(1)), false, ENTRY, mark(9), true),
            (Some(PublishTime(1)), true, ENTRY, mark(10), false),
            (Some(PublishTime(1)), false, EMPTY, mark(10), false),
            (Some(Id(ENTRY)), false, ENTRY, mark(10), false),
            (Some(Id(ENTRY)), true, ENTRY, mark(9), true),
            (Some(Id(ENTRY)), false, next(), mark(10), true),
            (Some(Id(ENTRY)), false, member(4), mark(9), true),
            (Some(Id(member(4))), false, member(4), mark(9), false),
            (Some(Id(member(4))), true, member(4), mark(9), true),
            (Some(Id(member(2))), false, member(4), mark(9), true),
            // Everything is acknowledged, after a redelivery to a durable subscription.
            (Some(Earliest), false, ENTRY, mark(10), false),
            (Some(Id(member(2))), false, member(4), mark(10), false),
            (Some(Id(next())), true, ENTRY, mark(10), false),
            (Some(Id(ENTRY)), true, EMPTY, mark(-1), false),
            (None, false, ENTRY, mark(9), true),
            (None, false, ENTRY, mark(10), false),
            (None, true, EMPTY, None, false),
        ];
        for (start, inclusive, last_of_topic, mark, expected) in rows {
            let reading = Reading::new(start, inclusive);
            let row = (start, inclusive, last_of_topic, mark);
            assert_eq!(reading.has_more(last_of_topic, mark), expected, "{row:?}");
        }
    }

    #[test]
    fn once_something_was_read_only_the_last_message_counts() {
        for start in [None, Some(Position::Earliest), Some(Position::Latest), Some(Position::PublishTime(9))]
        {
            for inclusive in [false, true] {
                let mut reading = Reading::new(start, inclusive);
                reading.advance(member(2));
                reading.advance(member(1));
                assert_eq!(reading.last, Some(member(2)), "a redelivery does not move back");
                for (last_of_topic, expected) in
                    [(EMPTY, false), (member(2), false), (member(3), true), (next(), true)]
                {
                    assert_eq!(reading.has_more(last_of_topic, None), expected);
                }
            }
        }
    }

    #[test]
    fn what_is_dropped_of_the_first_entry() {
        let rows = [
            // start id, inclusive, single dropped, members dropped
            (ENTRY, false, true, 0),
            (ENTRY, true, false, 0),
            (member(0), false, true, 1),
            (member(0), true, false, 0),
            (member(3), false, true, 4),
            (member(3), true, false, 3),
            (ENTRY.in_batch(i32::MAX, 5), false, true, i32::MAX as u32),
            (ENTRY.in_batch(i32::MIN, 5), false, true, 0),
        ];
        for (id, inclusive, single, members) in rows {
            let filter = Reading::new(Some(Position::Id(id)), inclusive).filter(false).unwrap();
            assert_eq!((filter.dropped((5, 11), true), filter.dropped((5, 9), true)), (None, None));
            let dropped = (filter.dropped((5, 10), false), filter.dropped((5, 10), true));
            assert_eq!(dropped, (Some(u32::from(single)), Some(members)), "{id} {inclusive}");
        }
        assert_eq!(Reading::new(Some(Position::Earliest), false).filter(false), None);
    }

    #[test]
    fn a_reconnection_continues_behind_the_last_message_and_drops_it() {
        let mut reading = Reading::new(Some(Position::Latest), false);
        assert_eq!(reading.start_message_id(), MessageId::LATEST);
        reading.advance(member(3));
        assert_eq!(reading.start_message_id(), member(3));
        let filter = reading.filter(false).unwrap();
        assert_eq!(filter.dropped((5, 10), true), Some(4));
        assert_eq!(filter.dropped((5, 9), false), Some(u32::MAX), "handed out while SUBSCRIBE was under way");
        assert_eq!(filter.dropped((5, 11), true), None);
        assert_eq!(reading.filter(true), None, "a durable subscription has its acknowledgements");
    }

    #[test]
    fn the_end_of_a_topic_is_pinned_to_what_was_last_or_to_what_came_first() {
        let mut reading = Reading::new(Some(Position::Latest), true);
        reading.pin_behind(ENTRY);
        reading.pin_at(next());
        assert_eq!(
            (
                reading.start_message_id().entry_id,
                reading.filter(false).unwrap().dropped((5, 10), false) == Some(1)
            ),
            (10, true)
        );
        assert!(reading.filter(false).unwrap().dropped_members() > 1000);
        assert!(!reading.has_more(member(4), None) && reading.has_more(next(), None));
        let mut reading = Reading::new(Some(Position::Latest), false);
        reading.pin_at(ENTRY);
        let filter = reading.filter(false).unwrap();
        assert!(filter.dropped((5, 10), false) == Some(0) && filter.dropped((5, 10), true) == Some(0));
        assert!(reading.has_more(member(4), None) && reading.has_more(ENTRY, None));
        let mut reading = Reading::new(Some(Position::Latest), false);
        reading.pin_behind(MessageId::new(6, -1, -1));
        assert_eq!(reading.start_message_id(), MessageId::new(6, -1, -1));
        assert!(!reading.has_more(ENTRY, None) && reading.has_more(MessageId::new(6, 0, -1), None));
    }

    #[test]
    fn a_durable_subscription_filters_a_seek_until_reading_has_left_the_entry() {
        let mut reading = Reading::new(Some(Position::Id(member(1))), false);
        assert_eq!(reading.filter(true).unwrap().dropped_members(), 2);
        reading.advance(member(4));
        assert_eq!(reading.filter(true).unwrap().dropped_members(), 2);
        reading.advance(next());
        assert_eq!(reading.filter(true), None);
    }

    #[test]
    fn the_two_ends_are_no_ids() {
        assert_eq!(
            Reading::new(Some(Position::Id(MessageId::EARLIEST)), false).start,
            Some(Position::Earliest)
        );
        assert_eq!(Reading::new(Some(Position::Id(MessageId::LATEST)), true).start, Some(Position::Latest));
    }
}
