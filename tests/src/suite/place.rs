//! Where behaviours are played, and what they have in common: names, clients, waiting for messages.

use crate::lab::{Admin, Lab, Site};
use anyhow::{Context, Result, ensure};
use geminga::{Client, ClientBuilder, Consumer, Message, OperationRetries, Reader};
use geminga_broker::NodeId;
use geminga_broker::net::{Config, EmbeddedBroker};
use std::time::{Duration, Instant};

/// How long a fact may take to come true. Nothing takes that long unless it is broken.
const LONG: Duration = Duration::from_secs(30);
/// How long we listen before we believe that nothing comes.
const QUIET: Duration = Duration::from_millis(400);
/// How long a whole behaviour may take. A real broker that starts twice takes a minute of it on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

/// Which broker a behaviour is played on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Ours, in this process.
    Embedded,
    /// Apache Pulsar.
    Real,
}

/// A broker, and a part of it that belongs to one behaviour.
#[derive(Clone, Debug)]
pub struct Place {
    /// Which broker it is.
    pub kind: Kind,
    /// Where the broker is.
    pub site: Site,
    /// `TENANT/NAMESPACE` for this behaviour's topics; others may use it too.
    pub namespace: String,
    /// The same with deduplication switched on.
    pub deduplicated: String,
    /// The behaviour, the first part of its topics' names.
    pub name: String,
}

impl Place {
    /// A place at `site` in the namespaces `PREFIX` and `PREFIX-dedup`, which [`Place::prepare`] makes.
    pub fn new(kind: Kind, site: &Site, prefix: &str, name: &str) -> Self {
        Self {
            kind,
            site: site.clone(),
            namespace: prefix.to_owned(),
            deduplicated: format!("{prefix}-dedup"),
            name: name.to_owned(),
        }
    }

    /// Makes the namespaces. Errors: the admin API's.
    pub fn prepare(&self) -> Result<()> {
        let admin = self.site.admin();
        for namespace in [&self.namespace, &self.deduplicated] {
            admin.create_namespace(namespace)?;
        }
        admin.set_policy(&self.deduplicated, "deduplication", &true.into())
    }

    /// The full name of a topic of this behaviour.
    pub fn topic(&self, name: &str) -> String {
        format!("persistent://{}/{}-{name}", self.namespace, self.name)
    }

    /// A client with the defaults.
    pub fn client(&self) -> Result<Client> {
        Ok(self.builder().build()?)
    }

    /// A client that says at once that a name or a subscription is in use.
    pub fn impatient_client(&self) -> Result<Client> {
        Ok(self.builder().operation_retries(OperationRetries::within_operation_timeout()).build()?)
    }

    /// A client to be set up.
    pub fn builder(&self) -> ClientBuilder {
        Client::builder(&self.site.service_url)
    }

    /// Another broker of the same kind, for this behaviour alone.
    pub async fn own_broker(&self) -> Result<OwnBroker> {
        if self.kind == Kind::Embedded {
            return Ok(OwnBroker::Embedded(EmbeddedBroker::start(Config::default()).await?));
        }
        let start = || {
            let mut lab = Lab::scratch("restart")?;
            let site = lab.standalone()?;
            Ok(OwnBroker::Real(lab, site))
        };
        tokio::task::spawn_blocking(start).await.context("starting the lab panicked")?
    }

    /// Calls the admin API, which blocks, without keeping the client's tasks from running.
    pub async fn admin<R: Send + 'static>(
        &self,
        call: impl FnOnce(Admin) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let admin = self.site.admin();
        tokio::task::spawn_blocking(move || call(admin)).await.context("the admin call panicked")?
    }
}

/// A broker that may be restarted, since nobody else uses it.
pub enum OwnBroker {
    /// Ours.
    Embedded(EmbeddedBroker),
    /// A standalone Pulsar.
    Real(Lab, Site),
}

impl OwnBroker {
    /// Where it is, before and after a restart.
    pub fn service_url(&self) -> &str {
        match self {
            Self::Embedded(broker) => broker.service_url(),
            Self::Real(_, site) => &site.service_url,
        }
    }

    /// Crashes and comes back with what was stored. Errors: it does not.
    pub async fn restart(self) -> Result<Self> {
        match self {
            Self::Embedded(broker) => {
                broker.with(|cluster, now| cluster.restart_node(now, NodeId(0)));
                Ok(Self::Embedded(broker))
            }
            Self::Real(mut lab, site) => {
                let restart = move || {
                    lab.restart("standalone")?;
                    Ok(Self::Real(lab, site))
                };
                tokio::task::spawn_blocking(restart).await.context("restarting the lab panicked")?
            }
        }
    }
}

/// Plays a behaviour on a runtime of its own. Errors: its own, or that it did not end within two minutes.
pub fn play(place: &Place, behaviour: impl AsyncFnOnce(&Place) -> Result<()>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let ended = tokio::time::timeout(LIMIT, behaviour(place)).await;
        ended.with_context(|| format!("{} did not end within {} s", place.name, LIMIT.as_secs()))?
    })
}

/// A consumer or a reader.
pub trait Receives {
    /// The next message within a time.
    fn within(&self, time: Duration) -> impl Future<Output = Result<Option<Message>>>;
}

impl Receives for Consumer {
    async fn within(&self, time: Duration) -> Result<Option<Message>> {
        Ok(self.receive_timeout(time).await?)
    }
}

impl Receives for Reader {
    async fn within(&self, time: Duration) -> Result<Option<Message>> {
        Ok(self.next_timeout(time).await?)
    }
}

/// The next message, which has to come.
pub async fn next(from: &impl Receives) -> Result<Message> {
    from.within(LONG).await?.with_context(|| format!("no message came within {} s", LONG.as_secs()))
}

/// The next `count` messages, which have to come.
pub async fn take(from: &impl Receives, count: usize) -> Result<Vec<Message>> {
    let mut messages = Vec::with_capacity(count);
    while messages.len() < count {
        let got = texts(&messages);
        messages.push(next(from).await.with_context(|| format!("after {} of {count}: {got:?}", got.len()))?);
    }
    Ok(messages)
}

/// That no message comes for a while.
pub async fn nothing_more(from: &impl Receives) -> Result<()> {
    let more = from.within(QUIET).await?;
    ensure!(more.is_none(), "unexpected: {}", more.as_ref().map(text).unwrap_or_default());
    Ok(())
}

/// Waits until a fact holds. Errors: it does not within 30 s.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + LONG;
    while !holds().await? {
        ensure!(Instant::now() < end, "{} s later it still does not hold that {what}", LONG.as_secs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A message's payload as text.
pub fn text(message: &Message) -> String {
    String::from_utf8_lossy(message.payload()).into_owned()
}

/// The payloads as texts, in order.
pub fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(text).collect()
}
