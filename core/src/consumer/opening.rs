//! The beginning of a consumer: how many partitions there are, and a part for each, now and when more are added.

use super::handle::Handle;
use super::part::{Origin, Part};
use super::position::normal;
use super::post::Post;
use super::{Consumers, reader};
use crate::client::topic_name;
use crate::config::{ConsumerConfig, ReaderConfig};
use crate::error::{Error, ErrorKind};
use crate::hub::{Hub, Owner};
use crate::io::{ConsumerId, HandleId, Position};
use crate::lookup::{Found, Lookups};
use crate::time::Timer;

impl Consumers {
    pub(crate) fn subscribe(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        config: ConsumerConfig,
    ) -> Result<ConsumerId, Error> {
        self.open(hub, lookups, config, false)
    }

    pub(crate) fn create_reader(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        config: ReaderConfig,
    ) -> Result<ConsumerId, Error> {
        let config = reader::consumer_config(hub, config);
        self.open(hub, lookups, config, true)
    }

    fn open(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        config: ConsumerConfig,
        is_reader: bool,
    ) -> Result<ConsumerId, Error> {
        config.validate()?;
        let topic = topic_name(&config.topic, "subscribing")?;
        let post = match &config.dead_letter_policy {
            Some(policy) => {
                let dead = policy.topic(&topic, &config.subscription)?;
                Some(Post::new(dead, policy.initial_subscription.clone()))
            }
            None => None,
        };
        let new = |slot| Handle::new(hub, ConsumerId(slot), config, topic, is_reader, post);
        let id = ConsumerId(self.handles.insert_with(new));
        self.ask_partitions(hub, lookups, id);
        Ok(id)
    }

    /// Asks how many partitions there are: at the start, and again from time to time.
    pub(crate) fn ask_partitions(&mut self, hub: &mut Hub, lookups: &mut Lookups, id: ConsumerId) {
        let Some(handle) = self.handles.get_mut(id.0) else { return };
        match lookups.ask_partitions(hub, HandleId::Consumer(id), &handle.topic, &handle.tries) {
            None => {}
            Some(Err(error)) => self.close(hub, id, Some(error)),
            Some(found) => self.partitions_found(hub, lookups, id, found),
        }
    }

    pub(crate) fn partitions_found(
        &mut self,
        hub: &mut Hub,
        lookups: &mut Lookups,
        id: ConsumerId,
        result: Result<Found, Error>,
    ) {
        let Some(handle) = self.handles.get_mut(id.0).filter(|h| !h.is_closing()) else { return };
        let count = match result {
            Ok(Found::Partitions(count)) => count,
            Ok(_) => return,
            Err(error) => match handle.tries.again(hub, &error) {
                Some(delay) => {
                    return hub.set_timer(Timer::Retry(Owner::Handle(HandleId::Consumer(id))), delay);
                }
                // An open consumer lives on with the partitions it has.
                None if !handle.parts.is_empty() => {
                    return hub.plan_partitions_update(HandleId::Consumer(id));
                }
                None => {
                    let error = handle.tries.verdict(error);
                    return self.close(hub, id, Some(error));
                }
            },
        };
        let late = !handle.parts.is_empty();
        handle.tries.success();
        handle.partitioned |= count > 0;
        let start = handle.config.start_position.map(normal);
        if count > 0 && matches!(start, Some(Position::Id(_))) {
            let doing = format!("reading {}", handle.topic.as_str());
            let why = "a message id is a start on one partition only: read that, or start elsewhere and seek";
            return self.close(hub, id, Some(Error::new(ErrorKind::InvalidConfiguration, doing, why)));
        }
        // A smaller count never takes parts away, as in every client: it means that the topic is being recreated.
        let want = if handle.partitioned { count } else { 1 };
        self.add_parts(hub, lookups, id, want, late);
        if count > 0 || late {
            hub.plan_partitions_update(HandleId::Consumer(id));
        }
    }

    /// Adds the parts that are missing up to `count`.
    fn add_parts(&mut self, hub: &mut Hub, lookups: &mut Lookups, id: ConsumerId, count: u32, late: bool) {
        let Consumers { handles, parts, .. } = self;
        let Some(handle) = handles.get_mut(id.0) else { return };
        if handle.parts.len() < count as usize {
            handle.parts.resize(count as usize, None);
        }
        let queue_size = handle.queue_size(handle.parts.len() as u32);
        for slot in handle.slots() {
            if let Some(part) = parts.get_mut(slot) {
                part.resize(queue_size);
            }
        }
        for index in 0..count {
            if handle.parts[index as usize].is_some() {
                continue;
            }
            let origin = Origin {
                parent: id,
                topic: if handle.partitioned { handle.topic.partition(index) } else { handle.topic.clone() },
                config: handle.config.clone(),
                late,
                auto_ack: handle.is_reader,
                queue_size,
            };
            let slot = parts.insert_with(|slot| Part::new(hub, slot, origin));
            handle.parts[index as usize] = Some(slot);
            let part = parts.get_mut(slot).expect("just inserted");
            part.set_paused(hub, handle.paused);
            part.set_wanted(hub, handle.wanted);
            if !late {
                part.attach.tries.end_with(&handle.tries);
            }
            part.attach.start(hub, lookups);
        }
    }
}
