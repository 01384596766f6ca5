//! The embedded broker as a program or a test starts it: listeners, the admin API, and an end.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::hub::Hub;
use super::{admin, connection};
use crate::{Cluster, ClusterConfig, NodeConfig, NodeId, Now};

/// How to start an [`EmbeddedBroker`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's settings. Its nodes are taken from `listen`; of those given here only the `service_url_tls` counts,
    /// for a TLS proxy in front.
    pub cluster: ClusterConfig,
    /// Where each broker listens, one broker for each. One at `127.0.0.1:0` by default: any free port.
    pub listen: Vec<SocketAddr>,
    /// Where the admin REST API listens; `None` is nowhere. `127.0.0.1:0` by default.
    pub admin: Option<SocketAddr>,
    /// The host in the addresses that lookups answer; by default that of the listening address, or `localhost` when
    /// that is any address.
    pub advertised_host: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        Config {
            cluster: ClusterConfig::default(),
            listen: vec![any_port],
            admin: Some(any_port),
            advertised_host: None,
        }
    }
}

/// A running broker, or cluster of brokers, in this process. Dropping it stops it.
pub struct EmbeddedBroker {
    hub: Arc<Hub>,
    service_urls: Vec<String>,
    admin_url: Option<String>,
    stop: watch::Sender<bool>,
    /// Of a broker that was not started from async code.
    runtime: Option<Runtime>,
}

impl fmt::Debug for EmbeddedBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedBroker").field("service_urls", &self.service_urls).finish_non_exhaustive()
    }
}

impl EmbeddedBroker {
    /// Starts a broker on the current tokio runtime. Errors: an address that cannot be listened on.
    pub async fn start(config: Config) -> io::Result<Self> {
        let mut listeners = Vec::new();
        for address in &config.listen {
            listeners.push(listen(*address).await?);
        }
        let advertise = |listener: &TcpListener| {
            let address = listener.local_addr()?;
            let host = match &config.advertised_host {
                Some(host) => host.clone(),
                None if address.ip().is_unspecified() => "localhost".to_owned(),
                None if address.is_ipv6() => format!("[{}]", address.ip()),
                None => address.ip().to_string(),
            };
            io::Result::Ok(format!("{host}:{}", address.port()))
        };
        let mut service_urls = Vec::new();
        for listener in &listeners {
            service_urls.push(format!("pulsar://{}", advertise(listener)?));
        }
        let admin = match config.admin {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let admin_url =
            admin.as_ref().map(|listener| advertise(listener).map(|a| format!("http://{a}"))).transpose()?;
        let mut nodes: Vec<_> = service_urls.iter().map(NodeConfig::new).collect();
        for (node, given) in nodes.iter_mut().zip(config.cluster.nodes) {
            node.service_url_tls = given.service_url_tls;
        }
        let hub = Arc::new(Hub::new(Cluster::new(ClusterConfig { nodes, ..config.cluster }, [0; 32])));
        let (stop, stopped) = watch::channel(false);
        for (index, listener) in listeners.into_iter().enumerate() {
            let serve = accept(hub.clone(), NodeId(index as u32), listener, stopped.clone());
            tokio::spawn(until(stopped.clone(), serve));
        }
        if let Some(listener) = admin {
            let serve = admin::accept(hub.clone(), service_urls.clone(), listener, stopped.clone());
            tokio::spawn(until(stopped.clone(), serve));
        }
        let ticking = hub.clone();
        tokio::spawn(until(stopped, async move { ticking.tick().await }));
        Ok(EmbeddedBroker { hub, service_urls, admin_url, stop, runtime: None })
    }

    /// Starts a broker on threads of its own, for programs without async. Errors: as [`start`](Self::start), or no
    /// threads.
    pub fn start_blocking(config: Config) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("geminga-broker")
            .enable_all()
            .build()?;
        let mut broker = runtime.block_on(Self::start(config))?;
        broker.runtime = Some(runtime);
        Ok(broker)
    }

    /// Address of the first broker: `pulsar://127.0.0.1:port`.
    pub fn service_url(&self) -> &str {
        &self.service_urls[0]
    }

    /// Addresses of all brokers, in the order of [`Config::listen`].
    pub fn service_urls(&self) -> &[String] {
        &self.service_urls
    }

    /// Address of the admin API: `http://127.0.0.1:port`. `None` when it was not asked for.
    pub fn admin_url(&self) -> Option<&str> {
        self.admin_url.as_deref()
    }

    /// Looks at the cluster, or does something to it. All of it waits meanwhile, so be short and don't block.
    pub fn with<R>(&self, act: impl FnOnce(&mut Cluster, Now) -> R) -> R {
        self.hub.with(act)
    }

    /// Closes all connections and listeners. What was stored is gone.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for EmbeddedBroker {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(runtime) = self.runtime.take() {
            // Not a plain drop: that would block, and panic on another runtime's thread.
            runtime.shutdown_background();
        }
    }
}

/// Listens on an address, which an error names: there are several.
async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let failed =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    TcpListener::bind(address).await.map_err(failed)
}

async fn accept(hub: Arc<Hub>, node: NodeId, listener: TcpListener, stopped: watch::Receiver<bool>) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let hub = hub.clone();
                tokio::spawn(until(
                    stopped.clone(),
                    async move { connection::serve(&hub, node, socket).await },
                ));
            }
            Err(error) => {
                // Out of descriptors, most likely: others have to go first.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

/// Runs a task until it ends or the broker stops.
pub(super) async fn until(mut stopped: watch::Receiver<bool>, task: impl Future<Output = ()>) {
    tokio::select! {
        () = task => {}
        // An error means that the broker is gone, which is a stop too.
        _ = stopped.wait_for(|stop| *stop) => {}
    }
}
