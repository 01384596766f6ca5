//! The producers of one topic: who may publish, under which name. Decides access modes and epochs; knows no messages.

use std::collections::{BTreeMap, VecDeque};

use geminga_core::wire::proto::{ProducerAccessMode, ServerError};

use crate::LinkId;

/// A producer that is attached to a topic, or waits to be.
#[derive(Clone, Debug)]
pub(crate) struct Producer {
    /// Unique in the cluster.
    pub(crate) key: u64,
    pub(crate) link: LinkId,
    /// The client's number for it.
    pub(crate) id: u64,
    pub(crate) name: String,
    /// The client chose the name.
    pub(crate) user_named: bool,
    pub(crate) epoch: u64,
    pub(crate) mode: ProducerAccessMode,
    /// The topic epoch that the client remembers.
    pub(crate) topic_epoch: Option<u64>,
    /// To be answered when its turn comes.
    pub(crate) request_id: u64,
    pub(crate) connected_ms: u64,
    pub(crate) properties: Vec<(String, String)>,
}

/// The outcome of asking for a place.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It may publish. Those in `removed` no longer may, and are not told.
    Ready {
        topic_epoch: Option<u64>,
        removed: Vec<Producer>,
    },
    /// It waits for exclusive access.
    Queued,
    /// The name is taken by another link: is it still alive?
    Taken(LinkId),
    Refused(ServerError, String),
}

#[derive(Debug, Default)]
pub(crate) struct Producers {
    live: BTreeMap<String, Producer>,
    exclusive: Option<u64>,
    waiting: VecDeque<Producer>,
    topic_epoch: Option<u64>,
}

impl Producers {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Producer> {
        self.live.values()
    }

    /// Producers that wait for exclusive access, in order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Producer> {
        self.waiting.iter()
    }

    pub(crate) fn topic_epoch(&self) -> Option<u64> {
        self.topic_epoch
    }

    /// Asks for a place. `taken_is_alive` says that the holder of the name has just proved to be alive.
    pub(crate) fn admit(&mut self, producer: Producer, taken_is_alive: bool) -> Admission {
        let mut removed = Vec::new();
        if let Some(holder) = self.live.get(&producer.name) {
            let same_client = holder.link == producer.link && holder.id == producer.id;
            if same_client && holder.epoch < producer.epoch && !holder.user_named && !producer.user_named {
                let name = producer.name.clone();
                removed.extend(self.take(&name));
            } else if holder.link == producer.link || taken_is_alive {
                let message = format!("Producer with name '{}' is already connected to topic", producer.name);
                return Admission::Refused(ServerError::ProducerBusy, message);
            } else if producer.mode != ProducerAccessMode::ExclusiveWithFencing {
                return Admission::Taken(holder.link);
            }
        }
        let epoch_is_old =
            matches!((producer.topic_epoch, self.topic_epoch), (Some(known), Some(now)) if known < now);
        let refuse = |error, message: &str| Admission::Refused(error, message.to_owned());
        match producer.mode {
            ProducerAccessMode::Shared => {
                if self.exclusive.is_some() || !self.waiting.is_empty() {
                    return refuse(ServerError::ProducerBusy, "Topic has an existing exclusive producer");
                }
                self.live.insert(producer.name.clone(), producer);
                return Admission::Ready { topic_epoch: None, removed };
            }
            ProducerAccessMode::Exclusive => {
                if self.exclusive.is_some() || !self.waiting.is_empty() {
                    return refuse(ServerError::ProducerFenced, "Topic has an existing exclusive producer");
                } else if !self.live.is_empty() {
                    return refuse(ServerError::ProducerFenced, "Topic has existing shared producers");
                } else if epoch_is_old {
                    return refuse(ServerError::ProducerFenced, "Topic epoch has already moved");
                }
            }
            ProducerAccessMode::WaitForExclusive => {
                if epoch_is_old {
                    return refuse(ServerError::ProducerFenced, "Topic epoch has already moved");
                } else if self.exclusive.is_some() || !self.live.is_empty() {
                    self.waiting.push_back(producer);
                    return Admission::Queued;
                }
            }
            ProducerAccessMode::ExclusiveWithFencing => {
                if epoch_is_old {
                    return refuse(ServerError::ProducerFenced, "Topic epoch has already moved");
                }
                removed.extend(std::mem::take(&mut self.live).into_values());
                removed.extend(self.waiting.drain(..));
            }
        }
        let topic_epoch = Some(self.make_exclusive(producer));
        Admission::Ready { topic_epoch, removed }
    }

    /// Removes a producer; returns one that now has exclusive access and its topic epoch.
    pub(crate) fn remove(&mut self, key: u64) -> Option<(Producer, u64)> {
        self.waiting.retain(|p| p.key != key);
        if let Some(name) = self.live.values().find(|p| p.key == key).map(|p| p.name.clone()) {
            self.take(&name);
        }
        if !self.live.is_empty() {
            return None;
        }
        let next = self.waiting.pop_front()?;
        let epoch = self.make_exclusive(next.clone());
        Some((next, epoch))
    }

    /// Removes all, those that wait included.
    pub(crate) fn clear(&mut self) -> Vec<Producer> {
        self.exclusive = None;
        let live = std::mem::take(&mut self.live).into_values();
        live.chain(self.waiting.drain(..)).collect()
    }

    fn take(&mut self, name: &str) -> Option<Producer> {
        let producer = self.live.remove(name)?;
        if self.exclusive == Some(producer.key) {
            self.exclusive = None;
        }
        Some(producer)
    }

    fn make_exclusive(&mut self, producer: Producer) -> u64 {
        // A client that was the last to hold the topic comes back under the same epoch, so its writes stay one term.
        let epoch = match (producer.topic_epoch, self.topic_epoch) {
            (Some(known), Some(now)) if known == now => now,
            (_, now) => now.map_or(0, |e| e + 1),
        };
        self.topic_epoch = Some(epoch);
        self.exclusive = Some(producer.key);
        self.live.insert(producer.name.clone(), producer);
        epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProducerAccessMode::{Exclusive, ExclusiveWithFencing, Shared, WaitForExclusive};

    fn producer(key: u64, link: u64, name: &str, mode: ProducerAccessMode) -> Producer {
        Producer {
            key,
            link: LinkId(link),
            id: 0,
            name: name.to_owned(),
            user_named: false,
            epoch: 0,
            mode,
            topic_epoch: None,
            request_id: 0,
            connected_ms: 0,
            properties: Vec::new(),
        }
    }

    fn epoch_of(admission: Admission) -> Option<u64> {
        match admission {
            Admission::Ready { topic_epoch, .. } => topic_epoch,
            other => panic!("not admitted: {other:?}"),
        }
    }

    fn refusal(admission: Admission) -> ServerError {
        match admission {
            Admission::Refused(error, _) => error,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn a_higher_epoch_replaces_only_a_generated_name_of_the_same_link_and_id() {
        let mut producers = Producers::default();
        assert_eq!(epoch_of(producers.admit(producer(1, 1, "a", Shared), false)), None);
        let again = Producer { epoch: 1, ..producer(2, 1, "a", Shared) };
        assert!(
            matches!(producers.admit(again, false), Admission::Ready { removed, .. } if removed[0].key == 1)
        );
        let elsewhere = Producer { epoch: 9, ..producer(3, 2, "a", Shared) };
        assert!(matches!(producers.admit(elsewhere.clone(), false), Admission::Taken(LinkId(1))));
        assert_eq!(refusal(producers.admit(elsewhere, true)), ServerError::ProducerBusy);
        let user_named = Producer { epoch: 9, user_named: true, ..producer(4, 1, "a", Shared) };
        assert_eq!(refusal(producers.admit(user_named, false)), ServerError::ProducerBusy);
    }

    #[test]
    fn exclusive_access_excludes_and_is_excluded() {
        let mut producers = Producers::default();
        producers.admit(producer(1, 1, "a", Shared), false);
        assert_eq!(
            refusal(producers.admit(producer(2, 2, "b", Exclusive), false)),
            ServerError::ProducerFenced
        );
        assert!(producers.remove(1).is_none());
        assert_eq!(epoch_of(producers.admit(producer(2, 2, "b", Exclusive), false)), Some(0));
        assert_eq!(refusal(producers.admit(producer(1, 1, "a", Shared), false)), ServerError::ProducerBusy);
        assert_eq!(
            refusal(producers.admit(producer(3, 3, "c", Exclusive), false)),
            ServerError::ProducerFenced
        );
    }

    #[test]
    fn a_waiting_producer_follows_the_holder_with_the_next_topic_epoch() {
        let mut producers = Producers::default();
        producers.admit(producer(1, 1, "a", Exclusive), false);
        assert!(matches!(producers.admit(producer(2, 2, "b", WaitForExclusive), false), Admission::Queued));
        let (next, epoch) = producers.remove(1).expect("the waiting one");
        assert_eq!((next.key, epoch), (2, 1));
    }

    #[test]
    fn fencing_removes_everybody_and_locks_out_the_old_epoch() {
        let mut producers = Producers::default();
        producers.admit(producer(1, 1, "a", Exclusive), false);
        let admission = producers.admit(producer(2, 2, "b", ExclusiveWithFencing), false);
        assert!(
            matches!(admission, Admission::Ready { topic_epoch: Some(1), removed } if removed.len() == 1)
        );
        producers.remove(2);
        let late = Producer { topic_epoch: Some(0), ..producer(1, 1, "a", Exclusive) };
        assert_eq!(refusal(producers.admit(late, false)), ServerError::ProducerFenced);
        let holder = Producer { topic_epoch: Some(1), ..producer(2, 2, "b", Exclusive) };
        assert_eq!(epoch_of(producers.admit(holder, false)), Some(1));
    }
}
