//! Lookups, partition counts, topic lists and schemas: what can be asked without a producer or a consumer.

use std::collections::BTreeSet;

use bytes::Bytes;
use geminga_core::topic_name::{Domain, TopicName};
use geminga_core::wire::{Command, proto};
use proto::ServerError;
use proto::command_get_topics_of_namespace::Mode;
use proto::command_lookup_topic_response::LookupType as Lookup;
use proto::command_partitioned_topic_metadata_response::LookupType as Partitions;

use crate::cluster::Cluster;
use crate::faults::{FaultKind, Place};
use crate::session::Watch;
use crate::store::Found;
use crate::time::Now;
use crate::{LinkId, NodeId};

impl Cluster {
    pub(crate) fn lookup(&mut self, link: LinkId, request: &proto::CommandLookupTopic) {
        let Some(asked) = self.links.get(link).map(|s| s.node) else { return };
        let name = match self.named(&request.topic) {
            Ok(name) => name,
            Err((error, message)) => return self.lookup_failed(link, request.request_id, error, &message),
        };
        if let Some(listener) = request.advertised_listener_name.as_deref().filter(|l| !l.is_empty()) {
            let message = format!("the broker do not have {listener} listener");
            return self.lookup_failed(link, request.request_id, ServerError::ServiceNotReady, &message);
        }
        let up = self.up();
        let place = Place { node: asked, link, topic: name.as_str() };
        let found = if self.faults.take(place, |kind| *kind == FaultKind::RedirectLoop).is_some() {
            Found::Redirect { to: asked, authoritative: request.authoritative() }
        } else {
            self.store.locate(&name, asked, request.authoritative(), &up)
        };
        let (node, response, authoritative) = match found {
            Found::Connect(node) => (node, Lookup::Connect, true),
            Found::Redirect { to, authoritative } => (to, Lookup::Redirect, authoritative),
            Found::Nowhere => {
                let message = "No broker is available";
                return self.lookup_failed(link, request.request_id, ServerError::ServiceNotReady, message);
            }
        };
        let config = &self.nodes[node.0 as usize].config;
        let answer = proto::CommandLookupTopicResponse {
            broker_service_url: Some(config.service_url.clone()),
            broker_service_url_tls: config.service_url_tls.clone(),
            response: Some(response as i32),
            request_id: request.request_id,
            authoritative: Some(authoritative),
            proxy_through_service_url: Some(false),
            ..Default::default()
        };
        self.links.send(link, &Command::LookupResponse(answer));
    }

    pub(crate) fn lookup_failed(&mut self, link: LinkId, request_id: u64, error: ServerError, message: &str) {
        let answer = proto::CommandLookupTopicResponse {
            response: Some(Lookup::Failed as i32),
            request_id,
            error: Some(error as i32),
            message: Some(message.to_owned()),
            ..Default::default()
        };
        self.links.send(link, &Command::LookupResponse(answer));
    }

    pub(crate) fn partitioned_metadata(
        &mut self,
        now: Now,
        link: LinkId,
        request: &proto::CommandPartitionedTopicMetadata,
    ) {
        let name = match self.named(&request.topic) {
            Ok(name) => name,
            Err((error, message)) => {
                return self.partitions_failed(link, request.request_id, error, &message);
            }
        };
        let mut partitions = self.store.partitioned.get(&name).copied().unwrap_or(0);
        if partitions == 0 && self.store.find(&name).is_none() && name.partition_index().is_none() {
            let may_create = self.config.auto_create_topics && request.metadata_auto_creation_enabled();
            if !may_create {
                return self.partitions_failed(link, request.request_id, ServerError::TopicNotFound, "");
            }
            if self.config.auto_create_partitions > 0 {
                partitions = self.config.auto_create_partitions;
                self.store.partition(&name, partitions);
                self.topics_changed(now);
            }
        }
        let answer = proto::CommandPartitionedTopicMetadataResponse {
            partitions: Some(partitions),
            request_id: request.request_id,
            response: Some(Partitions::Success as i32),
            ..Default::default()
        };
        self.links.send(link, &Command::PartitionedMetadataResponse(answer));
    }

    pub(crate) fn partitions_failed(
        &mut self,
        link: LinkId,
        request_id: u64,
        error: ServerError,
        message: &str,
    ) {
        let answer = proto::CommandPartitionedTopicMetadataResponse {
            request_id,
            response: Some(Partitions::Failed as i32),
            error: Some(error as i32),
            message: Some(message.to_owned()),
            ..Default::default()
        };
        self.links.send(link, &Command::PartitionedMetadataResponse(answer));
    }

    pub(crate) fn get_topics(&mut self, link: LinkId, request: &proto::CommandGetTopicsOfNamespace) {
        let pattern = match request.topics_pattern.as_deref().map(whole_match).transpose() {
            Ok(pattern) => pattern,
            Err(error) => {
                let message = error.to_string();
                return self.links.error(link, request.request_id, ServerError::MetadataError, &message);
            }
        };
        let domain = match request.mode() {
            Mode::Persistent => Some(Domain::Persistent),
            Mode::NonPersistent => Some(Domain::NonPersistent),
            Mode::All => None,
        };
        let topics: Vec<String> =
            self.list(&request.namespace, domain, pattern.as_ref()).into_iter().collect();
        let hash = topics_hash(topics.iter());
        let changed = request.topics_hash.as_deref() != Some(&*hash);
        let answer = proto::CommandGetTopicsOfNamespaceResponse {
            request_id: request.request_id,
            topics: if changed { topics } else { Vec::new() },
            filtered: Some(pattern.is_some()),
            topics_hash: Some(hash),
            changed: Some(changed),
        };
        self.links.send(link, &Command::GetTopicsOfNamespaceResponse(answer));
    }

    pub(crate) fn watch_topics(&mut self, link: LinkId, request: &proto::CommandWatchTopicList) {
        let pattern = match whole_match(&request.topics_pattern) {
            Ok(pattern) if self.config.topic_watchers => pattern,
            _ => {
                let message = "Unable to watch topics";
                return self.links.error(link, request.request_id, ServerError::NotAllowedError, message);
            }
        };
        let topics = self.list(&request.namespace, Some(Domain::Persistent), Some(&pattern));
        let topics_hash = topics_hash(topics.iter());
        let known = request.topics_hash.as_deref() == Some(&*topics_hash);
        let answer = proto::CommandWatchTopicListSuccess {
            request_id: request.request_id,
            watcher_id: request.watcher_id,
            topic: if known { Vec::new() } else { topics.iter().cloned().collect() },
            topics_hash,
        };
        self.links.send(link, &Command::WatchTopicListSuccess(answer));
        if let Some(session) = self.links.get_mut(link) {
            let watch = Watch { namespace: request.namespace.clone(), pattern, topics };
            session.watches.insert(request.watcher_id, watch);
        }
    }

    pub(crate) fn unwatch_topics(&mut self, link: LinkId, request: &proto::CommandWatchTopicListClose) {
        if let Some(session) = self.links.get_mut(link) {
            session.watches.remove(&request.watcher_id);
        }
        self.links.success(link, request.request_id);
    }

    /// Topics came or went: tells those who watch.
    pub(crate) fn topics_changed(&mut self, _now: Now) {
        let watched: Vec<_> = self
            .links
            .iter()
            .flat_map(|(link, session)| session.watches.iter().map(move |(id, watch)| (link, *id, watch)))
            .map(|(link, id, watch)| {
                let topics = self.list(&watch.namespace, Some(Domain::Persistent), Some(&watch.pattern));
                (link, id, topics)
            })
            .collect();
        for (link, watcher_id, topics) in watched {
            let Some(watch) = self.links.get_mut(link).and_then(|s| s.watches.get_mut(&watcher_id)) else {
                continue;
            };
            if watch.topics == topics {
                continue;
            }
            let update = proto::CommandWatchTopicUpdate {
                watcher_id,
                new_topics: topics.difference(&watch.topics).cloned().collect(),
                deleted_topics: watch.topics.difference(&topics).cloned().collect(),
                topics_hash: topics_hash(topics.iter()),
            };
            watch.topics = topics;
            self.links.send(link, &Command::WatchTopicUpdate(update));
        }
    }

    pub(crate) fn get_schema(&mut self, link: LinkId, request: &proto::CommandGetSchema) {
        let version =
            request.schema_version.as_ref().and_then(|v| v[..].try_into().ok()).map(u64::from_be_bytes);
        let found = TopicName::parse(&request.topic).ok().and_then(|name| {
            let (version, schema) = self.store.schema(&name, version)?;
            // As observed: the name that comes back is the topic's path.
            let path = format!("{}/{}", name.namespace(), name.base().local_name());
            Some((version, proto::Schema { name: path, ..schema.clone() }))
        });
        let mut answer =
            proto::CommandGetSchemaResponse { request_id: request.request_id, ..Default::default() };
        match found {
            Some((version, schema)) => {
                answer.schema = Some(schema);
                answer.schema_version = Some(version_bytes(version));
            }
            None => {
                answer.error_code = Some(ServerError::TopicNotFound as i32);
                answer.error_message = Some("Topic not found or no-schema".to_owned());
            }
        }
        self.links.send(link, &Command::GetSchemaResponse(Box::new(answer)));
    }

    pub(crate) fn get_or_create_schema(&mut self, link: LinkId, request: proto::CommandGetOrCreateSchema) {
        let mut answer =
            proto::CommandGetOrCreateSchemaResponse { request_id: request.request_id, ..Default::default() };
        match TopicName::parse(&request.topic) {
            Ok(name) => {
                answer.schema_version = Some(version_bytes(self.store.register(&name, request.schema)))
            }
            Err(error) => {
                answer.error_code = Some(ServerError::InvalidTopicName as i32);
                answer.error_message = Some(error.to_string());
            }
        }
        self.links.send(link, &Command::GetOrCreateSchemaResponse(Box::new(answer)));
    }

    /// The brokers that run, the leader first.
    pub(crate) fn up(&self) -> Vec<NodeId> {
        let up = self.nodes.iter().enumerate().filter(|(_, node)| node.up);
        up.map(|(index, _)| NodeId(index as u32)).collect()
    }

    /// The whole topic name, in a namespace that exists.
    pub(crate) fn named(&self, topic: &str) -> Result<TopicName, (ServerError, String)> {
        let name = TopicName::parse(topic).map_err(|e| (ServerError::InvalidTopicName, e.to_string()))?;
        if !self.store.namespaces.contains_key(name.namespace()) {
            return Err((ServerError::TopicNotFound, "Namespace not found".to_owned()));
        }
        Ok(name)
    }

    /// Partitions and partitioned names alike, as observed; the pattern is for the partitioned name.
    fn list(
        &self,
        namespace: &str,
        domain: Option<Domain>,
        pattern: Option<&regex::Regex>,
    ) -> BTreeSet<String> {
        let path = |name: &TopicName| format!("{}/{}", name.namespace(), name.base().local_name());
        let fits = |name: &&TopicName| pattern.is_none_or(|p| p.is_match(&path(name)));
        let partitioned = self
            .store
            .partitioned
            .keys()
            .filter(|n| n.namespace() == namespace && domain.is_none_or(|d| n.domain() == d));
        let topics = self.store.list(namespace, domain);
        topics.into_iter().chain(partitioned).filter(fits).map(TopicName::to_string).collect()
    }
}

/// Eight bytes, as Pulsar's own registry has them.
pub(crate) fn version_bytes(version: u64) -> Bytes {
    Bytes::copy_from_slice(&version.to_be_bytes())
}

/// A pattern of `tenant/namespace/topic` as a whole. Clients may put the domain in front.
fn whole_match(pattern: &str) -> Result<regex::Regex, regex::Error> {
    let pattern = pattern.split_once("://").map_or(pattern, |(_, path)| path);
    regex::Regex::new(&format!("^(?:{pattern})$"))
}

/// CRC-32C of the sorted names joined with commas, its bytes printed in little-endian order.
fn topics_hash<'a>(topics: impl Iterator<Item = &'a String>) -> String {
    let joined = topics.map(String::as_str).collect::<Vec<_>>().join(",");
    crc32c::crc32c(joined.as_bytes()).to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_topic_list_is_that_of_the_java_broker() {
        let topics = |suffixes: &[&str]| {
            suffixes
                .iter()
                .map(|s| format!("persistent://public/default/vectors-topic-{s}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(topics_hash([].iter()), "00000000");
        // From the vector cmd-get-topics-response.
        assert_eq!(topics_hash(topics(&["b717", "c1c4"]).iter()), "26e5d823");
    }

    #[test]
    fn a_pattern_matches_the_whole_path_with_or_without_domain() {
        for pattern in ["public/default/a.*", "persistent://public/default/a.*"] {
            let regex = whole_match(pattern).unwrap();
            assert!(regex.is_match("public/default/abc"));
            assert!(!regex.is_match("xpublic/default/abc"));
        }
        assert!(!whole_match("public/default/a|public/default/b").unwrap().is_match("public/default/ac"));
    }
}
