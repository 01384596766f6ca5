//! What an administrator, or a test, does to a cluster from outside: create and delete, unload, stop and start, and
//! plan faults. Each may have outputs: poll afterwards.

use std::fmt;

use geminga_core::topic_name::TopicName;

use crate::cluster::Cluster;
use crate::faults::{Fault, FaultKind};
use crate::log::Position;
use crate::store::Found;
use crate::time::Now;
use crate::{LinkId, NodeId};

/// Why a cluster refused to do something. `Display` is one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlError {
    /// What is named is not there.
    NotFound(String),
    /// What is named is there already.
    Exists(String),
    /// The name or the number makes no sense.
    Invalid(String),
    /// Somebody still uses it.
    InUse(String),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::NotFound(what) => write!(f, "{what} does not exist"),
            ControlError::Exists(what) => write!(f, "{what} already exists"),
            ControlError::Invalid(what) => write!(f, "{what}"),
            ControlError::InUse(what) => write!(f, "{what} is in use"),
        }
    }
}

impl std::error::Error for ControlError {}

/// Tenants, namespaces and topics.
impl Cluster {
    /// Creates a tenant. Errors: it exists.
    pub fn create_tenant(&mut self, tenant: &str) -> Result<(), ControlError> {
        if !self.store.tenants.insert(tenant.to_owned()) {
            return Err(ControlError::Exists(format!("Tenant {tenant}")));
        }
        Ok(())
    }

    /// Creates a namespace `tenant/namespace`. Errors: it exists, its tenant does not, or it is no such name.
    pub fn create_namespace(&mut self, namespace: &str) -> Result<(), ControlError> {
        let Some((tenant, _)) = namespace.split_once('/').filter(|(_, n)| !n.is_empty() && !n.contains('/'))
        else {
            return Err(ControlError::Invalid(format!("{namespace:?} is no tenant/namespace")));
        };
        if !self.store.tenants.contains(tenant) {
            return Err(ControlError::NotFound(format!("Tenant {tenant}")));
        }
        if self.store.namespaces.contains_key(namespace) {
            return Err(ControlError::Exists(format!("Namespace {namespace}")));
        }
        self.store.namespaces.insert(namespace.to_owned(), Default::default());
        Ok(())
    }

    /// Switches deduplication of a namespace on or off; `None` leaves it to the cluster's setting.
    pub fn set_deduplication(&mut self, namespace: &str, on: Option<bool>) -> Result<(), ControlError> {
        if !self.store.namespaces.contains_key(namespace) {
            return Err(ControlError::NotFound(format!("Namespace {namespace}")));
        }
        self.store.set_deduplication(namespace, on);
        Ok(())
    }

    /// A namespace's own setting of deduplication, if it has one.
    pub fn deduplication(&self, namespace: &str) -> Result<Option<bool>, ControlError> {
        match self.store.namespaces.get(namespace) {
            Some(namespace) => Ok(namespace.deduplication),
            None => Err(ControlError::NotFound(format!("Namespace {namespace}"))),
        }
    }

    /// Creates a topic without partitions. Errors: it exists, or its namespace does not.
    pub fn create_topic(&mut self, now: Now, topic: &str) -> Result<(), ControlError> {
        let name = self.vacant(topic)?;
        self.store.find_or_create(&name);
        self.topics_changed(now);
        Ok(())
    }

    /// Creates a partitioned topic and its partitions. Errors: a topic of that name, or no partitions.
    pub fn create_partitioned_topic(
        &mut self,
        now: Now,
        topic: &str,
        partitions: u32,
    ) -> Result<(), ControlError> {
        if partitions == 0 {
            return Err(ControlError::Invalid("Number of partitions should be more than 0".to_owned()));
        }
        let name = self.vacant(topic)?;
        self.store.partition(&name, partitions);
        self.topics_changed(now);
        Ok(())
    }

    /// Adds partitions, so that there are `partitions`. Errors: not partitioned, or it has as many already.
    pub fn grow_partitioned_topic(
        &mut self,
        now: Now,
        topic: &str,
        partitions: u32,
    ) -> Result<(), ControlError> {
        let name = self.checked(topic)?;
        match self.store.partitioned.get(&name) {
            None => return Err(ControlError::NotFound(format!("Partitioned topic {name}"))),
            Some(known) if *known >= partitions => {
                let message = format!("Number of new partitions must be greater than {known}");
                return Err(ControlError::Invalid(message));
            }
            Some(_) => {}
        }
        self.store.partition(&name, partitions);
        self.topics_changed(now);
        Ok(())
    }

    /// Partitions of a topic; 0 for one without. `None` when there is no such topic.
    pub fn partitions(&self, topic: &str) -> Option<u32> {
        let name = TopicName::parse(topic).ok()?;
        let partitions = self.store.partitioned.get(&name).copied();
        partitions.or_else(|| self.store.find(&name).map(|_| 0))
    }

    /// Deletes a topic with its partitions. With `force` its clients are closed first. Errors: unknown, or in use.
    pub fn delete_topic(&mut self, now: Now, topic: &str, force: bool) -> Result<(), ControlError> {
        let name = self.checked(topic)?;
        let names = self.with_partitions(&name);
        if names.is_empty() {
            return Err(ControlError::NotFound(format!("Topic {name}")));
        }
        let busy = |n: &TopicName| {
            let topic = self.store.find(n).and_then(|key| self.store.topic(key));
            topic.is_some_and(|t| t.producers.iter().next().is_some() || !t.subscriptions.is_empty())
        };
        if !force && names.iter().any(busy) {
            return Err(ControlError::InUse(format!("Topic {name}")));
        }
        for name in &names {
            if let Some(mut topic) = self.store.remove(name) {
                let (_, mut ctx) = self.parts(now);
                topic.disconnect_all(None, &mut ctx);
            }
        }
        self.store.partitioned.remove(&name);
        self.topics_changed(now);
        Ok(())
    }

    /// Creates a durable subscription on a topic, or on all its partitions: at the earliest message, or at the end.
    pub fn create_subscription(
        &mut self,
        now: Now,
        topic: &str,
        subscription: &str,
        earliest: bool,
    ) -> Result<(), ControlError> {
        let name = self.checked(topic)?;
        if !self.store.partitioned.contains_key(&name) {
            self.store.find_or_create(&name);
            self.topics_changed(now);
        }
        for name in self.with_partitions(&name) {
            let Some(topic) = self.store.find(&name).and_then(|key| self.store.topic_mut(key)) else {
                continue;
            };
            let mark = if earliest { topic.log.base() } else { topic.log.end() };
            if !topic.subscription_or_create(subscription, true, mark).1 {
                return Err(ControlError::Exists(format!("Subscription {subscription}")));
            }
        }
        Ok(())
    }

    /// Deletes a subscription of a topic, or of all its partitions. With `force` its consumers are closed first.
    pub fn delete_subscription(
        &mut self,
        now: Now,
        topic: &str,
        subscription: &str,
        force: bool,
    ) -> Result<(), ControlError> {
        let name = self.checked(topic)?;
        let mut found = false;
        for name in self.with_partitions(&name) {
            let (store, mut ctx) = self.parts(now);
            let Some(topic) = store.find(&name).and_then(|key| store.topic_mut(key)) else { continue };
            let Some(key) = topic.subscription(subscription).map(|s| s.key) else { continue };
            found = true;
            let subscription = topic.subscriptions.get_mut(&key).expect("just found");
            if !force && subscription.consumers().next().is_some() {
                return Err(ControlError::InUse(format!("Subscription {}", subscription.name)));
            }
            subscription.detach_all(None, &topic.info, &mut ctx);
            topic.subscriptions.remove(&key);
        }
        if !found {
            return Err(ControlError::NotFound(format!("Subscription {subscription}")));
        }
        Ok(())
    }

    /// Acknowledges the whole backlog of a subscription.
    pub fn skip_backlog(&mut self, topic: &str, subscription: &str) -> Result<(), ControlError> {
        let name = self.checked(topic)?;
        for name in self.with_partitions(&name) {
            let Some(topic) = self.store.find(&name).and_then(|key| self.store.topic_mut(key)) else {
                continue;
            };
            let Some(key) = topic.subscription(subscription).map(|s| s.key) else {
                return Err(ControlError::NotFound(format!("Subscription {subscription}")));
            };
            topic.subscriptions.get_mut(&key).expect("just found").skip_all(&topic.log);
        }
        Ok(())
    }

    /// Ends a topic for ever; returns the position of its last message, −1 when it is empty.
    pub fn terminate_topic(&mut self, now: Now, topic: &str) -> Result<Position, ControlError> {
        let name = self.checked(topic)?;
        let (store, mut ctx) = self.parts(now);
        match store.find(&name).and_then(|key| store.topic_mut(key)) {
            Some(topic) => Ok(topic.terminate(&mut ctx)),
            None => Err(ControlError::NotFound(format!("Topic {name}"))),
        }
    }
}

/// Brokers, ownership and links.
impl Cluster {
    /// Unloads a topic, or all partitions of one: its clients are closed and look it up again. The broker stays.
    pub fn unload_topic(&mut self, now: Now, topic: &str) -> Result<(), ControlError> {
        let name = self.checked(topic)?;
        let names = self.with_partitions(&name);
        if names.is_empty() {
            return Err(ControlError::NotFound(format!("Topic {name}")));
        }
        for name in names {
            self.unload(now, &name, None);
        }
        Ok(())
    }

    /// Unloads all topics of a namespace; its bundles go to whoever is asked next.
    pub fn unload_namespace(&mut self, now: Now, namespace: &str) -> Result<(), ControlError> {
        if !self.store.namespaces.contains_key(namespace) {
            return Err(ControlError::NotFound(format!("Namespace {namespace}")));
        }
        let names: Vec<TopicName> = self.store.list(namespace, None).into_iter().cloned().collect();
        for name in names {
            self.unload(now, &name, None);
        }
        self.store.disown_namespace(namespace);
        Ok(())
    }

    /// Moves a topic and all that share its bundle to another broker. With `announce` the close commands name the new
    /// owner's address. A partitioned topic moves with all its partitions.
    pub fn move_topic(
        &mut self,
        now: Now,
        topic: &str,
        to: NodeId,
        announce: bool,
    ) -> Result<(), ControlError> {
        let name = self.checked(topic)?;
        let Some(url) = self.nodes.get(to.0 as usize).map(|n| n.config.service_url.clone()) else {
            return Err(ControlError::NotFound(format!("Broker {}", to.0)));
        };
        let mut names = self.with_partitions(&name);
        if names.is_empty() {
            names.push(name);
        }
        for name in names {
            for key in self.store.bundle_of(&name) {
                let Some(name) = self.store.topic(key).map(|t| t.info.name.clone()) else { continue };
                if self.store.owner(&name) != Some(to) {
                    self.unload(now, &name, announce.then_some(&*url));
                }
            }
            self.store.set_owner(&name, Some(to));
        }
        Ok(())
    }

    /// The broker that serves a topic; one takes it over if nobody does. Errors: a wrong name, or no broker is up.
    pub fn find_owner(&mut self, topic: &str) -> Result<NodeId, ControlError> {
        let name = self.checked(topic)?;
        let up = self.up();
        let Some(leader) = up.first().copied() else {
            return Err(ControlError::NotFound("A running broker".to_owned()));
        };
        Ok(match self.store.locate(&name, leader, false, &up) {
            Found::Connect(node) => node,
            Found::Redirect { to, .. } => {
                self.store.set_owner(&name, Some(to));
                to
            }
            Found::Nowhere => leader,
        })
    }

    /// The broker that serves a topic; `None` while nobody has looked it up.
    pub fn owner(&self, topic: &str) -> Option<NodeId> {
        self.store.owner(&TopicName::parse(topic).ok()?)
    }

    /// Stops a broker as a crash does: its links are cut, its sessions are gone, its bundles are free. The store stays.
    pub fn stop_node(&mut self, now: Now, node: NodeId) {
        let Some(stopped) = self.nodes.get_mut(node.0 as usize).filter(|n| n.up) else { return };
        stopped.up = false;
        for link in self.links_of(node) {
            self.cut(now, link);
        }
        for key in self.store.owned_by(node) {
            self.store.roll(key);
        }
        self.store.disown(node);
    }

    /// Starts a broker that was stopped.
    pub fn start_node(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(node.0 as usize) {
            node.up = true;
        }
    }

    /// Stops a broker and starts it again.
    pub fn restart_node(&mut self, now: Now, node: NodeId) {
        self.stop_node(now, node);
        self.start_node(node);
    }

    /// Whether a broker runs.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.nodes.get(node.0 as usize).is_some_and(|n| n.up)
    }

    /// The open links of a broker.
    pub fn links_of(&self, node: NodeId) -> Vec<LinkId> {
        self.links.iter().filter(|(_, session)| session.node == node).map(|(link, _)| link).collect()
    }

    /// Cuts a link; what was queued for it is lost.
    pub fn cut_link(&mut self, now: Now, link: LinkId) {
        self.cut(now, link);
    }

    /// Closes a link after what was queued for it is written.
    pub fn close_link(&mut self, now: Now, link: LinkId) {
        self.close(now, link);
    }

    fn unload(&mut self, now: Now, name: &TopicName, assigned: Option<&str>) {
        let (store, mut ctx) = self.parts(now);
        let Some(key) = store.find(name) else { return };
        if let Some(topic) = store.topic_mut(key) {
            topic.disconnect_all(assigned, &mut ctx);
        }
        self.store.roll(key);
    }

    fn checked(&self, topic: &str) -> Result<TopicName, ControlError> {
        let name = TopicName::parse(topic).map_err(|e| ControlError::Invalid(e.to_string()))?;
        if !self.store.namespaces.contains_key(name.namespace()) {
            return Err(ControlError::NotFound(format!("Namespace {}", name.namespace())));
        }
        Ok(name)
    }

    /// The name of a topic that is not there yet, with partitions or without.
    fn vacant(&self, topic: &str) -> Result<TopicName, ControlError> {
        let name = self.checked(topic)?;
        match self.store.find(&name).is_some() || self.store.partitioned.contains_key(&name) {
            true => Err(ControlError::Exists(format!("Topic {name}"))),
            false => Ok(name),
        }
    }

    /// The topics that a name stands for: itself, or its partitions.
    pub(crate) fn with_partitions(&self, name: &TopicName) -> Vec<TopicName> {
        match self.store.partitioned.get(name) {
            Some(partitions) => (0..*partitions).map(|index| name.partition(index)).collect(),
            None => self.store.find(name).map(|_| name.clone()).into_iter().collect(),
        }
    }
}

/// Faults.
impl Cluster {
    /// Plans a fault. Those planned first happen first.
    pub fn inject(&mut self, fault: Fault) {
        self.faults.plan(fault);
    }

    /// The next receipt is never written.
    pub fn lose_next_receipt(&mut self) {
        self.inject(Fault::new(FaultKind::LoseReceipt));
    }

    /// Forgets the faults that did not happen yet.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// The faults that did not happen yet.
    pub fn faults(&self) -> &[Fault] {
        self.faults.remaining()
    }
}
