//! The settings of each process, as `broker.conf` has them: what makes a Pulsar small, local and complete enough.

use super::{Site, credentials::Credentials};
use anyhow::{Context, Result};
use std::fmt::{Display, Write as _};
use std::path::Path;

/// The lines of one settings file, `key=value` each.
#[derive(Debug, Default)]
pub(super) struct Settings {
    text: String,
}

impl Settings {
    /// A standalone broker on these ports.
    pub(super) fn broker(cluster: &str, binary: u16, web: u16) -> Self {
        let mut settings = Self::common(cluster);
        settings.set("brokerServicePort", binary);
        settings.set("webServicePort", web);
        settings
    }

    /// ZooKeeper and a bookie without a broker.
    pub(super) fn store() -> Self {
        Self::common("lab")
    }

    /// A broker of the cluster whose metadata is in `store`.
    pub(super) fn cluster_broker(store: &str, site: &Site) -> Result<Self> {
        let mut settings = Self::broker("lab", port(&site.service_url)?, port(&site.admin_url)?);
        settings.metadata(store);
        // A killed broker's topics move after this long.
        settings.set("metadataStoreSessionTimeoutMillis", 6000);
        let manager = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl";
        settings.set("loadManagerClassName", manager);
        Ok(settings)
    }

    /// A proxy that lets clients through to any broker of the cluster.
    pub(super) fn proxy(store: &str, binary: u16, web: u16) -> Self {
        let mut settings = Self::default();
        settings.local("lab");
        settings.metadata(store);
        settings.set("servicePort", binary);
        settings.set("webServicePort", web);
        settings.set("brokerProxyAllowedTargetPorts", "*");
        settings.set("brokerProxyAllowedIPAddresses", "*");
        settings
    }

    /// Demands a token or a client certificate on every port, and opens TLS ports beside the plain ones.
    pub(super) fn secure(&mut self, credentials: &Credentials, binary: u16, web: u16) {
        let provider = "org.apache.pulsar.broker.authentication.AuthenticationProvider";
        let client = "org.apache.pulsar.client.impl.auth.AuthenticationToken";
        self.set("brokerServicePortTls", binary);
        self.set("webServicePortTls", web);
        self.set("tlsCertificateFilePath", credentials.broker_certificate().display());
        self.set("tlsKeyFilePath", credentials.broker_key().display());
        self.set("tlsTrustCertsFilePath", credentials.authority().display());
        self.set("authenticationEnabled", true);
        self.set("authorizationEnabled", true);
        self.set("authenticationProviders", format_args!("{provider}Token,{provider}Tls"));
        self.set("superUserRoles", "admin");
        self.set("authenticationRefreshCheckSeconds", 5);
        self.set("tokenSecretKey", format_args!("data:;base64,{}", credentials.secret_base64()));
        self.set("brokerClientAuthenticationPlugin", client);
        self.set(
            "brokerClientAuthenticationParameters",
            format_args!("token:{}", credentials.token("admin", None)),
        );
    }

    pub(super) fn set(&mut self, key: &str, value: impl Display) {
        writeln!(self.text, "{key}={value}").expect("a String takes everything");
    }

    /// Writes them to `home/name/broker.conf` and returns that path.
    pub(super) fn write(&self, home: &Path, name: &str) -> Result<String> {
        let folder = home.join(name);
        let path = folder.join("broker.conf");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(&path, &self.text).with_context(|| path.display().to_string())?;
        Ok(path.display().to_string())
    }

    fn common(cluster: &str) -> Self {
        let mut settings = Self::default();
        settings.local(cluster);
        for key in ["EnsembleSize", "WriteQuorum", "AckQuorum"] {
            settings.set(&format!("managedLedgerDefault{key}"), 1); // there is one bookie
        }
        settings.set("managedLedgerCacheSizeMB", 64);
        // The bookie's own limit; without it entries close to the largest message cannot be stored.
        settings.set("nettyMaxFrameSizeBytes", 5 * 1024 * 1024 + 10 * 1024);
        for feature in ["transactionCoordinator", "systemTopic", "topicLevelPolicies", "webSocketService"] {
            settings.set(&format!("{feature}Enabled"), true);
        }
        settings.set("acknowledgmentAtBatchIndexLevelEnabled", true);
        settings.set("brokerDeleteInactiveTopicsEnabled", false);
        settings.set("brokerShutdownTimeoutMs", 0);
        settings
    }

    fn local(&mut self, cluster: &str) {
        self.set("clusterName", cluster);
        self.set("bindAddress", "127.0.0.1");
        self.set("advertisedAddress", "127.0.0.1");
    }

    fn metadata(&mut self, store: &str) {
        self.set("metadataStoreUrl", store);
        self.set("configurationMetadataStoreUrl", store);
    }
}

fn port(url: &str) -> Result<u16> {
    let digits = url.rsplit(':').next().unwrap_or_default();
    digits.parse().with_context(|| format!("{url} has no port"))
}
