//! PRODUCER and CLOSE_PRODUCER. What a SEND does is in `topic`.

use bytes::Bytes;
use geminga_core::topic_name::TopicName;
use geminga_core::wire::{Command, proto};
use proto::{ProducerAccessMode, ServerError};

use crate::LinkId;
use crate::cluster::Cluster;
use crate::lookup::version_bytes;
use crate::producer::{Admission, Producer};
use crate::session::ProducerAt;
use crate::store::TopicKey;
use crate::time::Now;

impl Cluster {
    /// `taken_is_alive`: whoever has the wanted name has just proved to be alive.
    pub(crate) fn create_producer(
        &mut self,
        now: Now,
        link: LinkId,
        request: proto::CommandProducer,
        taken_is_alive: bool,
    ) {
        let Some(session) = self.links.get_mut(link) else { return };
        let (node, request_id, id) = (session.node, request.request_id, request.producer_id);
        session.closed_producers.remove(&id);
        let known = session.producers.get(&id).copied();
        match known {
            // Asking again for what the link already has succeeds again, as observed.
            Some(at) if at.ready => {
                let name = self.producer(at).map(|p| p.name.clone()).unwrap_or_default();
                return self.producer_success(link, request_id, at.topic, &name, None, Bytes::new(), true);
            }
            waiting if waiting.is_some() || self.is_waiting(link, |c| creates(c, id)) => {
                let message = "Producer is already present on the connection";
                return self.links.error(link, request_id, ServerError::ServiceNotReady, message);
            }
            _ => {}
        }
        let key = match self.topic_for(&request.topic, node, true) {
            Ok(key) => key,
            Err((error, message)) => return self.links.error(link, request_id, error, &message),
        };
        let topic = self.store.topic(key).expect("topic_for found it");
        if topic.terminated {
            let message = "Topic was already terminated";
            return self.links.error(link, request_id, ServerError::TopicTerminatedError, message);
        }
        let mode = ProducerAccessMode::try_from(request.producer_access_mode.unwrap_or_default());
        let Ok(mode) = mode else {
            return self.links.error(link, request_id, ServerError::NotAllowedError, "Unknown access mode");
        };
        let name = topic.info.name.clone();
        let schema_version = self.schema_version(&name, request.schema.clone());
        let producer_key = self.next_key();
        let given = request.producer_name.clone().filter(|n| !n.is_empty());
        let producer = Producer {
            key: producer_key,
            link,
            id,
            user_named: given.is_some() && request.user_provided_producer_name(),
            name: given.unwrap_or_else(|| format!("{}-{}-{}", self.config.name, node.0, producer_key)),
            epoch: request.epoch(),
            mode,
            topic_epoch: request.topic_epoch,
            request_id,
            connected_ms: now.unix_ms,
            properties: pairs(&request.metadata),
        };
        let producer_name = producer.name.clone();
        let topic = self.store.topic_mut(key).expect("found above");
        let (ready, topic_epoch) = match topic.producers.admit(producer, taken_is_alive) {
            Admission::Ready { topic_epoch, removed } => {
                for gone in removed {
                    if let Some(session) = self.links.get_mut(gone.link) {
                        session.producers.remove(&gone.id);
                    }
                }
                (true, topic_epoch)
            }
            Admission::Queued => (false, None),
            Admission::Taken(holder) => {
                return self.ask_if_alive(now, holder, link, Command::Producer(Box::new(request)));
            }
            Admission::Refused(error, message) => return self.links.error(link, request_id, error, &message),
        };
        if let Some(subscription) = request.initial_subscription_name.as_deref().filter(|s| !s.is_empty()) {
            let mark = topic.log.end();
            topic.subscription_or_create(subscription, true, mark);
        }
        if let Some(session) = self.links.get_mut(link) {
            session.producers.insert(id, ProducerAt { topic: key, key: producer_key, ready });
        }
        self.producer_success(link, request_id, key, &producer_name, topic_epoch, schema_version, ready);
        self.topics_changed(now);
    }

    pub(crate) fn close_producer(&mut self, now: Now, link: LinkId, request: &proto::CommandCloseProducer) {
        let Some(session) = self.links.get_mut(link) else { return };
        let (id, at) = (request.producer_id, session.producers.remove(&request.producer_id));
        // One that is still being created is not created any more.
        self.forget_waiting(link, |c| creates(c, id));
        self.links.success(link, request.request_id);
        let (store, mut ctx) = self.parts(now);
        if let Some(at) = at
            && let Some(topic) = store.topic_mut(at.topic)
        {
            topic.detach_producer(at.key, &mut ctx);
        }
    }

    /// The topic of that name if it is served by `node`, created if that is allowed.
    pub(crate) fn topic_for(
        &mut self,
        topic: &str,
        node: crate::NodeId,
        create: bool,
    ) -> Result<TopicKey, (ServerError, String)> {
        // As observed: only lookups tell that a namespace is missing; here nobody serves it.
        let name = self.named(topic).map_err(|(error, message)| match error {
            ServerError::TopicNotFound => (ServerError::ServiceNotReady, message),
            _ => (error, message),
        })?;
        if self.store.owner(&name) != Some(node) {
            let message = format!(
                "Namespace bundle for topic ({name}) not served by this instance. \
                                   Please redo the lookup."
            );
            return Err((ServerError::ServiceNotReady, message));
        }
        if let Some(key) = self.store.find(&name) {
            return Ok(key);
        }
        if !create || !self.config.auto_create_topics || !self.store.may_create(&name) {
            return Err((ServerError::TopicNotFound, format!("Topic {name} does not exist")));
        }
        Ok(self.store.find_or_create(&name))
    }

    /// The version of a schema that came with PRODUCER or SUBSCRIBE; empty for none.
    pub(crate) fn schema_version(&mut self, name: &TopicName, schema: Option<proto::Schema>) -> Bytes {
        use proto::schema::Type;
        match schema {
            Some(schema) if !matches!(schema.r#type(), Type::None | Type::AutoConsume) => {
                version_bytes(self.store.register(name, schema))
            }
            _ => Bytes::new(),
        }
    }

    fn producer(&self, at: ProducerAt) -> Option<&Producer> {
        self.store.topic(at.topic)?.producers.iter().find(|p| p.key == at.key)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one command")]
    fn producer_success(
        &mut self,
        link: LinkId,
        request_id: u64,
        topic: TopicKey,
        name: &str,
        topic_epoch: Option<u64>,
        schema_version: Bytes,
        ready: bool,
    ) {
        let last_sequence_id = self.store.topic(topic).map_or(-1, |t| t.dedup.last(name));
        let success = proto::CommandProducerSuccess {
            request_id,
            producer_name: name.to_owned(),
            last_sequence_id: Some(last_sequence_id),
            schema_version: Some(schema_version),
            topic_epoch,
            producer_ready: Some(ready),
        };
        self.links.send(link, &Command::ProducerSuccess(success));
    }
}

fn creates(command: &Command, id: u64) -> bool {
    matches!(command, Command::Producer(request) if request.producer_id == id)
}

pub(crate) fn pairs(properties: &[proto::KeyValue]) -> Vec<(String, String)> {
    properties.iter().map(|kv| (kv.key.clone(), kv.value.clone())).collect()
}
