//! The receiver queue of one partition: entries as they came, read message by message when they are asked for.
//!
//! Decides what the next message is and what is left out on the way to it. A batch of 1000 is one element here. Refuses to
//! know permits and acknowledgements: what is left out is reported, and its price with it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::EntryId;
use crate::message::{Entry, Message};
use crate::message_id::MessageId;
use crate::wire::batch::{Record, next_record};
use crate::wire::{AckSet, WireError};

/// Entries that wait for the application.
///
/// Shape: after [`prepare`](Self::prepare) returned `None`, the front is a message that can be taken, or the queue is empty.
/// Units: permits, as the broker charged them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    items: VecDeque<Item>,
    permits: u64,
}

#[derive(Debug)]
enum Item {
    Single(Arc<Entry>),
    Batch(Batch),
    /// Something arrived here that is not for the application; reading passes it in its turn.
    Gap(MessageId),
}

#[derive(Debug)]
struct Batch {
    entry: Arc<Entry>,
    /// Where the next record begins.
    at: usize,
    /// The index of `head`, or of the next record to read.
    index: u32,
    /// The record to hand out next.
    head: Option<Record>,
    /// Members that the broker still considers open, when those are not all. It charged no others.
    open: Option<AckSet>,
    /// Members below are of before the start position.
    first: u32,
    /// How many of the entry's `compacted_batch_indexes` were passed.
    listed: usize,
    /// Whether a member went to the application.
    touched: bool,
    /// Whether the entry was asked for again, so that what is left comes once more.
    stale: bool,
    permits: u32,
}

/// What does not reach the application.
#[derive(Debug, PartialEq)]
pub(crate) enum Skipped {
    /// One member of a batch.
    Member { id: MessageId, permits: u32 },
    /// Member `id` and all behind it cannot be read. `untouched`: nothing of the batch was handed out.
    Broken { id: MessageId, permits: u32, untouched: bool, error: WireError },
    /// A whole entry that was refused when it arrived, and paid for then.
    Gap(MessageId),
}

/// A message on its way to the application. It costs one permit.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) message: Message,
    /// No other message of its entry follows.
    pub(crate) ends_entry: bool,
    /// It comes again, because its entry was asked for meanwhile.
    pub(crate) stale: bool,
}

impl Queue {
    /// Permits that the queued messages cost the broker.
    pub(crate) fn permits(&self) -> u64 {
        self.permits
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn push_single(&mut self, entry: Arc<Entry>) {
        self.permits += 1;
        self.items.push_back(Item::Single(entry));
    }

    /// Adds a batch of which only `open` members are to be delivered and none below `first`. `permits` is its price.
    pub(crate) fn push_batch(&mut self, entry: Arc<Entry>, open: Option<AckSet>, first: u32, permits: u32) {
        self.permits += u64::from(permits);
        self.items.push_back(Item::Batch(Batch {
            entry,
            at: 0,
            index: 0,
            head: None,
            open,
            first,
            listed: 0,
            touched: false,
            stale: false,
            permits,
        }));
    }

    pub(crate) fn push_gap(&mut self, id: MessageId) {
        self.items.push_back(Item::Gap(id));
    }

    /// Moves to the next message that can be handed out. Returns what is left out before it, one piece at a time.
    #[inline]
    pub(crate) fn prepare(&mut self) -> Option<Skipped> {
        loop {
            let batch = match self.items.front_mut()? {
                Item::Single(_) => return None,
                Item::Batch(batch) => batch,
                Item::Gap(id) => {
                    let id = *id;
                    self.items.pop_front();
                    return Some(Skipped::Gap(id));
                }
            };
            if batch.head.is_some() {
                return None;
            }
            if batch.index < batch.entry.batch_size {
                match batch.read() {
                    None => return None,
                    Some(skipped) => {
                        let (permits, broken) = match &skipped {
                            Skipped::Member { permits, .. } => (*permits, false),
                            Skipped::Broken { permits, .. } => (*permits, true),
                            Skipped::Gap(_) => (0, false),
                        };
                        self.permits -= u64::from(permits);
                        if broken {
                            self.items.pop_front();
                        }
                        return Some(skipped);
                    }
                }
            }
            debug_assert_eq!(batch.permits, 0, "each member was paid for");
            self.items.pop_front();
        }
    }

    /// The entry and the index of the message at the front.
    pub(crate) fn front(&self) -> Option<(&Entry, i32)> {
        match self.items.front()? {
            Item::Single(entry) => Some((entry, -1)),
            Item::Batch(batch) => batch.head.as_ref().map(|_| (&*batch.entry, batch.index as i32)),
            Item::Gap(_) => None,
        }
    }

    /// Takes the message at the front.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Taken> {
        match self.items.front_mut()? {
            Item::Batch(batch) => {
                let record = batch.head.take()?;
                let message = Message {
                    entry: batch.entry.clone(),
                    record: Some(record),
                    batch_index: batch.index as i32,
                };
                batch.index += 1;
                batch.permits -= 1;
                batch.touched = true;
                self.permits -= 1;
                let ends_entry = batch.index == batch.entry.batch_size;
                Some(Taken { message, ends_entry, stale: batch.stale })
            }
            Item::Single(_) => {
                let Some(Item::Single(entry)) = self.items.pop_front() else { return None };
                self.permits -= 1;
                let message = Message { entry, record: None, batch_index: -1 };
                Some(Taken { message, ends_entry: true, stale: false })
            }
            Item::Gap(_) => None,
        }
    }

    /// Drops the queued messages of these entries, with `keep_begun` not those of a batch that is being handed out. Returns
    /// their permits.
    pub(crate) fn remove(&mut self, entries: &BTreeSet<EntryId>, keep_begun: bool) -> u64 {
        let before = self.permits;
        let permits = &mut self.permits;
        self.items.retain_mut(|item| {
            let (entry, cost) = match item {
                Item::Single(entry) => (&*entry, 1),
                Item::Batch(batch) if keep_begun && batch.touched => {
                    batch.stale |= entries.contains(&(batch.entry.ledger_id, batch.entry.entry_id));
                    return true;
                }
                Item::Batch(batch) => (&batch.entry, batch.permits),
                Item::Gap(_) => return true,
            };
            let stays = !entries.contains(&(entry.ledger_id, entry.entry_id));
            if !stays {
                *permits -= u64::from(cost);
            }
            stays
        });
        before - self.permits
    }

    /// Drops everything. Returns its permits.
    pub(crate) fn clear(&mut self) -> u64 {
        self.items.clear();
        std::mem::take(&mut self.permits)
    }
}

impl Batch {
    /// Reads the record of `index` into `head`, or says why it is left out.
    #[inline]
    fn read(&mut self) -> Option<Skipped> {
        let listed = &self.entry.metadata.compacted_batch_indexes;
        if !listed.is_empty() {
            // A compacted batch holds the records of the listed members only.
            match listed.get(self.listed) {
                Some(next) if i64::from(*next) == i64::from(self.index) => self.listed += 1,
                Some(next) if i64::from(*next) < i64::from(self.index) => {
                    let what = "the list of its members is out of order";
                    return Some(self.broken(WireError::BadBatch { at: self.at, what }));
                }
                _ => return Some(self.skip()),
            }
        }
        match next_record(&self.entry.body, &mut self.at) {
            Ok(Some(record)) => {
                let wanted = !record.compacted_out && self.index >= self.first && self.is_open();
                if wanted {
                    self.head = Some(record);
                    return None;
                }
                Some(self.skip())
            }
            Ok(None) => {
                let what = "it holds fewer messages than it says";
                Some(self.broken(WireError::BadBatch { at: self.at, what }))
            }
            Err(error) => Some(self.broken(error)),
        }
    }

    #[inline]
    fn is_open(&self) -> bool {
        self.open.as_ref().is_none_or(|set| set.contains(self.index))
    }

    fn id(&self) -> MessageId {
        let Entry { ledger_id, entry_id, partition, batch_size, .. } = *self.entry;
        MessageId::new(ledger_id, entry_id, partition).in_batch(self.index as i32, batch_size as i32)
    }

    fn skip(&mut self) -> Skipped {
        let id = self.id();
        let permits = u32::from(self.is_open());
        self.permits -= permits;
        self.index += 1;
        Skipped::Member { id, permits }
    }

    fn broken(&mut self, error: WireError) -> Skipped {
        let permits = std::mem::take(&mut self.permits);
        Skipped::Broken { id: self.id(), permits, untouched: !self.touched, error }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::topic_name::TopicName;
    use crate::wire::batch::{BatchWriter, SingleMetadata};
    use crate::wire::proto::MessageMetadata;
    use bytes::Bytes;

    pub(crate) fn batch_body(payloads: &[&str]) -> Bytes {
        let mut writer = BatchWriter::new();
        for payload in payloads {
            writer.append(&SingleMetadata::default(), payload.as_bytes());
        }
        writer.take()
    }

    fn entry(entry_id: i64, batch_size: u32, body: Bytes, compacted: Vec<i32>) -> Arc<Entry> {
        Arc::new(Entry {
            topic: TopicName::parse("t").unwrap(),
            ledger_id: 1,
            entry_id,
            partition: -1,
            redelivery_count: 0,
            metadata: MessageMetadata { compacted_batch_indexes: compacted, ..MessageMetadata::default() },
            body,
            batch_size,
            last_index: None,
        })
    }

    /// Payloads of what can be taken, and the skipped in between as text.
    fn drain(queue: &mut Queue) -> Vec<String> {
        let mut out = Vec::new();
        loop {
            while let Some(skipped) = queue.prepare() {
                out.push(match skipped {
                    Skipped::Member { id, permits } => format!("skip {} for {permits}", id.batch_index),
                    Skipped::Broken { id, permits, untouched, .. } => {
                        format!("broken from {} for {permits}, untouched {untouched}", id.batch_index)
                    }
                    Skipped::Gap(id) => format!("gap {}", id.entry_id),
                });
            }
            let Some(taken) = queue.take() else { break };
            let end = if taken.ends_entry { "." } else { "" };
            out.push(format!("{}{end}", String::from_utf8_lossy(taken.message.payload())));
        }
        assert!(queue.is_empty());
        assert_eq!(queue.permits(), 0);
        out
    }

    #[test]
    fn a_batch_is_read_member_by_member_between_single_messages() {
        let mut queue = Queue::default();
        queue.push_single(entry(1, 0, Bytes::from("a"), vec![]));
        queue.push_batch(entry(2, 3, batch_body(&["b", "c", "d"]), vec![]), None, 0, 3);
        queue.push_gap(MessageId::new(1, 3, -1));
        queue.push_single(entry(4, 0, Bytes::from("e"), vec![]));
        assert_eq!(queue.permits(), 5);
        assert_eq!(drain(&mut queue), ["a.", "b", "c", "d.", "gap 3", "e."]);
    }

    #[test]
    fn closed_members_cost_nothing_and_members_before_the_start_cost_one() {
        let mut queue = Queue::default();
        let open = AckSet::from_words(&[0b11101]);
        queue.push_batch(entry(2, 5, batch_body(&["a", "b", "c", "d", "e"]), vec![]), Some(open), 3, 4);
        assert_eq!(drain(&mut queue), ["skip 0 for 1", "skip 1 for 0", "skip 2 for 1", "d", "e."]);
    }

    #[test]
    fn members_that_were_compacted_away_cost_one_each() {
        let mut queue = Queue::default();
        queue.push_batch(entry(2, 4, batch_body(&["b", "d"]), vec![1, 3]), None, 0, 4);
        assert_eq!(drain(&mut queue), ["skip 0 for 1", "b", "skip 2 for 1", "d."]);
        queue.push_batch(entry(2, 4, batch_body(&["b", "d"]), vec![3, 1]), None, 0, 4);
        assert_eq!(drain(&mut queue), ["skip 0 for 1", "skip 1 for 1", "skip 2 for 1", "b."],);
    }

    #[test]
    fn a_broken_rest_gives_back_all_its_permits() {
        let whole = batch_body(&["a", "b"]);
        let mut queue = Queue::default();
        queue.push_batch(entry(2, 5, whole.clone(), vec![]), None, 0, 5);
        queue.push_batch(entry(3, 2, whole.slice(..whole.len() - 1), vec![]), None, 0, 2);
        queue.push_batch(entry(4, 3, Bytes::from("nonsense"), vec![]), None, 0, 3);
        assert_eq!(
            drain(&mut queue),
            [
                "a",
                "b",
                "broken from 2 for 3, untouched false",
                "a",
                "broken from 1 for 1, untouched false",
                "broken from 0 for 3, untouched true"
            ]
        );
    }

    #[test]
    fn removing_entries_gives_back_what_is_left_of_them() {
        let mut queue = Queue::default();
        queue.push_batch(entry(2, 3, batch_body(&["a", "b", "c"]), vec![]), None, 0, 3);
        queue.push_single(entry(3, 0, Bytes::from("d"), vec![]));
        assert_eq!(queue.prepare(), None);
        assert!(queue.take().is_some());
        assert_eq!(queue.remove(&BTreeSet::from([(1, 2)]), true), 0, "it is being handed out");
        assert_eq!(queue.remove(&BTreeSet::from([(1, 2), (9, 9)]), false), 2);
        assert_eq!(drain(&mut queue), ["d."]);
        queue.push_single(entry(3, 0, Bytes::from("d"), vec![]));
        assert_eq!(queue.clear(), 1);
        assert!(queue.is_empty());
    }
}
