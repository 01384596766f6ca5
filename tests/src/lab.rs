//! A real Apache Pulsar on this machine: a standalone broker, one that demands credentials, a cluster, a proxy.
//!
//! A [`Lab`] owns a folder (its home) and the processes started in it. It decides which processes make up a layout,
//! with which settings and in which order, and when they are ready. It knows nothing about clients or tests. Brokers
//! listen on 127.0.0.1; all ports are ones that were free, so that several labs can run at once.

pub mod admin;
pub mod credentials;
mod jars;
mod process;
mod settings;

pub use admin::Admin;
pub use jars::{fetch, jars, repository};

use anyhow::{Context, Result, bail, ensure};
use credentials::Credentials;
use process::{Jvm, Process};
use serde::{Deserialize, Serialize};
use settings::Settings;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a layout may take to answer. A busy machine with two cores needs about 30 s for a cluster.
const READY: Duration = Duration::from_secs(150);

/// Where a client reaches one broker, standalone or proxy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Site {
    /// `pulsar://127.0.0.1:PORT`.
    pub service_url: String,
    /// `pulsar+ssl://localhost:PORT`, only of the secured standalone.
    pub service_url_tls: Option<String>,
    /// `http://127.0.0.1:PORT`, also the base of the WebSocket service.
    pub admin_url: String,
    /// A superuser's token, only of the secured standalone.
    pub token: Option<String>,
}

impl Site {
    /// The standalone that `cargo xtask test` or `cargo xtask lab start` named in the environment.
    ///
    /// `None` where `GEMINGA_BROKER_URL` is not set; a test then says so and returns.
    pub fn from_environment() -> Option<Self> {
        Some(Self {
            service_url: std::env::var("GEMINGA_BROKER_URL").ok()?,
            service_url_tls: None,
            admin_url: std::env::var("GEMINGA_ADMIN_URL")
                .unwrap_or_else(|_| "http://127.0.0.1:8080".to_owned()),
            token: None,
        })
    }

    /// The admin REST API of this site.
    pub fn admin(&self) -> Admin {
        Admin::new(&self.admin_url, self.token.as_deref())
    }
}

/// Whether tests may start real brokers (`GEMINGA_REAL=1`). Where not, prints why the test does nothing.
pub fn is_enabled(test: &str) -> bool {
    let enabled = std::env::var("GEMINGA_REAL").is_ok_and(|value| value == "1");
    if !enabled {
        eprintln!(
            "skipped {test}: GEMINGA_REAL=1 is not set (cargo xtask test sets it where Java and Maven are)"
        );
    }
    enabled
}

/// A folder with the processes of a real Pulsar. Dropping it kills them, unless it was [detached](Lab::detach).
#[derive(Debug)]
pub struct Lab {
    home: PathBuf,
    processes: BTreeMap<String, Process>,
    detached: bool,
}

impl Lab {
    /// A lab of its own below `.lab/run` of this repository.
    ///
    /// Errors: the folder cannot be made.
    pub fn scratch(name: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let home = repository().join(format!(".lab/run/{name}-{}-{count}", std::process::id()));
        Self::open(home)
    }

    /// The lab in `home`, with the processes that an earlier, detached lab left running there.
    ///
    /// Errors: the folder cannot be made, or its `processes.json` is not ours.
    pub fn open(home: impl Into<PathBuf>) -> Result<Self> {
        let home = home.into();
        std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
        let registry = home.join("processes.json");
        let processes: BTreeMap<String, Process> = match std::fs::read(&registry) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| registry.display().to_string())?,
            Err(_) => BTreeMap::new(),
        };
        Ok(Self { home, processes, detached: false })
    }

    /// The folder with settings, data and logs: `NAME/log.txt` for each process.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Name and site of each process, and whether it runs.
    pub fn processes(&self) -> impl Iterator<Item = (&str, &Site, bool)> {
        self.processes.iter().map(|(name, process)| (name.as_str(), &process.site, process.is_running()))
    }

    /// One broker, ready for clients; named `standalone`. Errors: not ready in time, with the end of its log.
    pub fn standalone(&mut self) -> Result<Site> {
        if let Some(site) = self.site("standalone") {
            return Ok(site);
        }
        let ports = Ports::free()?;
        let mut settings = Settings::broker("standalone", ports.binary, ports.web);
        settings.set("loadBalancerEnabled", false);
        self.start_standalone("standalone", &settings, &ports, Site::plain(&ports))
    }

    /// One broker that demands a token or a client certificate on every port; named `secure`.
    ///
    /// Errors: as [`Lab::standalone`].
    pub fn standalone_secure(&mut self) -> Result<Site> {
        if let Some(site) = self.site("secure") {
            return Ok(site);
        }
        let credentials = self.credentials()?;
        let (ports, tls) = (Ports::free()?, Ports::free()?);
        let mut settings = Settings::broker("standalone", ports.binary, ports.web);
        settings.set("loadBalancerEnabled", false);
        settings.secure(&credentials, tls.binary, tls.web);
        let site = Site {
            service_url_tls: Some(format!("pulsar+ssl://localhost:{}", tls.binary)),
            token: Some(credentials.token("admin", None)),
            ..Site::plain(&ports)
        };
        self.start_standalone("secure", &settings, &ports, site)
    }

    /// ZooKeeper with a bookie (named `store`), and brokers named `broker1`, `broker2`, … Returns a site per broker.
    ///
    /// Errors: as [`Lab::standalone`].
    pub fn cluster(&mut self, brokers: usize) -> Result<Vec<Site>> {
        let names: Vec<String> = (1..=brokers).map(|index| format!("broker{index}")).collect();
        if let Some(sites) = names.iter().map(|name| self.site(name)).collect() {
            return Ok(sites);
        }
        ensure!(self.site("store").is_none(), "another cluster runs in {}", self.home.display());
        let store = self.start_store()?;
        let sites = names.iter().map(|_| Ok(Site::plain(&Ports::free()?))).collect::<Result<Vec<Site>>>()?;
        let Some(first) = sites.first() else { bail!("a cluster has at least one broker") };
        self.write_cluster_metadata(&store, first)?;
        for (name, site) in names.iter().zip(&sites) {
            let settings = Settings::cluster_broker(&store, site)?;
            let conf = settings.write(&self.home, name)?;
            let jvm = Jvm::new("org.apache.pulsar.PulsarBrokerStarter").args(["-c", &conf]).heap("700m");
            self.start(name, jvm, site.clone())?;
        }
        for (name, site) in names.iter().zip(&sites) {
            let ready = || site.admin().brokers("lab").is_ok_and(|found| found.len() == brokers);
            self.wait(name, ready)?;
        }
        let admin = first.admin();
        self.wait("broker1", || {
            admin.namespaces("public").is_ok_and(|found| found.contains(&"public/default".into()))
        })?;
        Ok(sites)
    }

    /// A Pulsar proxy in front of this lab's cluster; named `proxy`.
    ///
    /// Errors: no cluster runs here; and as [`Lab::standalone`].
    pub fn proxy(&mut self) -> Result<Site> {
        if let Some(site) = self.site("proxy") {
            return Ok(site);
        }
        let Some(store) = self.site("store") else { bail!("no cluster runs in {}", self.home.display()) };
        let ports = Ports::free()?;
        let conf = Settings::proxy(&store.service_url, ports.binary, ports.web).write(&self.home, "proxy")?;
        let jvm =
            Jvm::new("org.apache.pulsar.proxy.server.ProxyServiceStarter").args(["-c", &conf]).heap("300m");
        let site = Site::plain(&ports);
        self.start("proxy", jvm, site.clone())?;
        self.wait("proxy", || site.admin().clusters().is_ok())?;
        Ok(site)
    }

    /// The operating system's id of a process; `None` while it does not run.
    pub fn pid(&self, name: &str) -> Option<u32> {
        self.processes.get(name).filter(|process| process.is_running()).map(|process| process.pid)
    }

    /// Stops a process from running (SIGSTOP): its sockets stay open and nobody answers.
    pub fn pause(&mut self, name: &str) -> Result<()> {
        self.process(name)?.pause()
    }

    /// Lets a paused process go on (SIGCONT).
    pub fn resume(&mut self, name: &str) -> Result<()> {
        self.process(name)?.resume()
    }

    /// Ends a process as a power cut would (SIGKILL). It can be [restarted](Lab::restart).
    pub fn kill(&mut self, name: &str) -> Result<()> {
        self.process(name)?.kill()?;
        self.save()
    }

    /// Starts a process again after [`Lab::kill`], with its settings, ports and data, and waits until it serves.
    ///
    /// Errors: as [`Lab::standalone`].
    pub fn restart(&mut self, name: &str) -> Result<()> {
        let home = self.home.clone();
        let process = self.process(name)?;
        process.kill()?;
        process.start(&home.join(name))?;
        let site = process.site.clone();
        self.save()?;
        if name == "store" {
            return Ok(()); // it has no admin API
        }
        self.wait(name, || site.admin().is_serving())
    }

    /// Ends all processes and throws their data away. Settings and logs stay.
    pub fn stop(&mut self) -> Result<()> {
        for (name, process) in &mut self.processes {
            process.kill()?;
            remove(&self.home.join(name).join("data"))?;
        }
        self.processes.clear();
        self.save()
    }

    /// Lets the processes outlive this value; [`Lab::open`] finds them again.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// The certificates, keys and the token secret of this lab's secured broker, made on first use.
    ///
    /// Errors: the files cannot be written.
    pub fn credentials(&self) -> Result<Credentials> {
        Credentials::in_folder(&self.home.join("credentials"))
    }

    fn start_standalone(
        &mut self,
        name: &str,
        settings: &Settings,
        ports: &Ports,
        site: Site,
    ) -> Result<Site> {
        let conf = settings.write(&self.home, name)?;
        let bookie = ports.bookie.to_string();
        let jvm = Jvm::new("org.apache.pulsar.PulsarStandaloneStarter")
            .args(["-c", &conf, "-nfw", "-nss", "--bookkeeper-port", &bookie])
            .env("PULSAR_STANDALONE_USE_ZOOKEEPER", "0");
        self.start(name, jvm, site.clone())?;
        let admin = site.admin();
        self.wait(name, || {
            admin.namespaces("public").is_ok_and(|found| found.contains(&"public/default".into()))
        })?;
        Ok(site)
    }

    /// Starts ZooKeeper and a bookie. Returns the address of the metadata store, `zk:127.0.0.1:PORT`.
    fn start_store(&mut self) -> Result<String> {
        let ports = Ports::free()?;
        let conf = Settings::store().write(&self.home, "store")?;
        let (zookeeper, bookie) = (ports.web.to_string(), ports.bookie.to_string());
        let arguments = [
            "-c",
            &conf,
            "--no-broker",
            "-nss",
            "-nfw",
            "--zookeeper-port",
            &zookeeper,
            "--bookkeeper-port",
            &bookie,
        ];
        let jvm = Jvm::new("org.apache.pulsar.PulsarStandaloneStarter")
            .args(arguments)
            .env("PULSAR_STANDALONE_USE_ZOOKEEPER", "1")
            .heap("512m");
        let address = format!("zk:127.0.0.1:{zookeeper}");
        let site = Site { service_url: address.clone(), ..Site::plain(&ports) };
        self.start("store", jvm, site)?;
        let log = self.home.join("store/log.txt");
        // The bookie registers itself last.
        self.wait("store", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("Local BK[0] started"))
        })?;
        Ok(address)
    }

    fn write_cluster_metadata(&mut self, store: &str, first: &Site) -> Result<()> {
        let arguments = [
            ["--cluster", "lab"],
            ["--metadata-store", store],
            ["--configuration-metadata-store", store],
            ["--web-service-url", &first.admin_url],
            ["--broker-service-url", &first.service_url],
            ["--initial-num-transaction-coordinators", "2"],
            ["--default-namespace-bundle-number", "8"],
        ];
        let jvm =
            Jvm::new("org.apache.pulsar.PulsarClusterMetadataSetup").args(arguments.concat()).heap("256m");
        jvm.run_to_end(&self.home.join("metadata"))
    }

    fn start(&mut self, name: &str, jvm: Jvm, site: Site) -> Result<()> {
        fetch()?;
        let folder = self.home.join(name);
        // What an earlier lab left here; the log too, since readiness is partly read from it.
        remove(&folder.join("data"))?;
        remove(&folder.join("log.txt"))?;
        let mut process = Process::new(jvm, site);
        process.start(&folder)?;
        self.processes.insert(name.to_owned(), process);
        self.save()
    }

    fn wait(&mut self, name: &str, ready: impl Fn() -> bool) -> Result<()> {
        let folder = self.home.join(name);
        self.process(name)?.wait(READY, &folder, ready).with_context(|| format!("{name} of the lab"))
    }

    fn process(&mut self, name: &str) -> Result<&mut Process> {
        let known = self.processes.keys().cloned().collect::<Vec<_>>().join(", ");
        self.processes.get_mut(name).with_context(|| format!("the lab runs no {name}, only: {known}"))
    }

    fn site(&self, name: &str) -> Option<Site> {
        self.processes.get(name).filter(|process| process.is_running()).map(|process| process.site.clone())
    }

    fn save(&self) -> Result<()> {
        let text = serde_json::to_vec_pretty(&self.processes)?;
        std::fs::write(self.home.join("processes.json"), text).context("cannot note the lab's processes")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.detached {
            return;
        }
        if let Err(error) = self.stop() {
            eprintln!("processes of the lab in {} may still run: {error:#}", self.home.display());
        }
    }
}

impl Site {
    fn plain(ports: &Ports) -> Self {
        Self {
            service_url: format!("pulsar://127.0.0.1:{}", ports.binary),
            service_url_tls: None,
            admin_url: format!("http://127.0.0.1:{}", ports.web),
            token: None,
        }
    }
}

/// Removes a file or folder that may be absent.
fn remove(path: &Path) -> Result<()> {
    let outcome = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match outcome {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Three TCP ports that nothing listened on a moment ago.
struct Ports {
    binary: u16,
    web: u16,
    bookie: u16,
}

impl Ports {
    fn free() -> Result<Self> {
        // All three listeners live at once, so that the ports differ.
        let listeners = [(); 3].map(|()| TcpListener::bind(("127.0.0.1", 0)));
        let mut ports = [0; 3];
        for (port, listener) in ports.iter_mut().zip(listeners) {
            *port = listener?.local_addr()?.port();
        }
        let [binary, web, bookie] = ports;
        Ok(Self { binary, web, bookie })
    }
}
