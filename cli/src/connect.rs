//! From flags to a client.

use std::time::Duration;

use anyhow::{Context, Result};
use geminga::{Batching, Client, Compression, InitialPosition, OperationRetries, Pem, SubscriptionType};

use crate::args::{AccessArgs, BatchArgs, Codec, ConnectionArgs, Start, TypeOfSubscription};
use crate::pauses;

/// A client for the cluster that the flags name.
pub(crate) fn connect(args: &ConnectionArgs, quiet: bool) -> Result<Client> {
    connect_to(&args.url(), &args.access, quiet)
}

/// A client for the cluster at `url`, with the credentials and trust of the flags.
pub(crate) fn connect_to(url: &str, access: &AccessArgs, quiet: bool) -> Result<Client> {
    let mut client = Client::builder(url)
        .operation_timeout(access.operation_timeout)
        // Somebody sits before a command line: "in use by another" is an answer, not a reason to wait.
        .operation_retries(OperationRetries::within_operation_timeout());
    if let Some(token) = access.token() {
        client = client.token(token);
    }
    if let Some(file) = &access.token_file {
        client = client.token_file(file);
    }
    if let Some(file) = &access.tls_ca {
        client = client.tls_authorities(Pem::File(file.clone()));
    }
    if let (Some(cert), Some(key)) = (&access.tls_cert, &access.tls_key) {
        client = client.tls_certificate(Pem::File(cert.clone()), Pem::File(key.clone()));
    }
    if access.tls_no_verify_hostname {
        client = client.tls_verify_hostname(false);
    }
    if access.tls_insecure {
        client = client.tls_allow_insecure(true);
    }
    let client = client.build()?;
    if !quiet {
        pauses::tell(&client);
    }
    Ok(client)
}

impl AccessArgs {
    /// The token, from wherever the flags say it is.
    pub(crate) fn read_token(&self) -> Result<Option<String>> {
        match (self.token(), &self.token_file) {
            (Some(token), _) => Ok(Some(token)),
            (None, Some(file)) => {
                let text = std::fs::read_to_string(file);
                Ok(Some(text.with_context(|| format!("cannot read {}", file.display()))?.trim().to_owned()))
            }
            (None, None) => Ok(None),
        }
    }
}

impl BatchArgs {
    /// The batching that the flags ask for; what they leave open is as in `defaults`.
    pub(crate) fn batching(&self, defaults: Batching) -> Batching {
        if self.no_batching {
            return Batching::off();
        }
        Batching {
            enabled: defaults.enabled,
            max_messages: self.batch_messages.map_or(defaults.max_messages, |n| n as usize),
            max_bytes: self.batch_bytes.map_or(defaults.max_bytes, |n| n as usize),
            max_publish_delay: self
                .batch_delay_ms
                .map_or(defaults.max_publish_delay, |ms| Duration::from_millis(ms.into())),
        }
    }
}

impl From<Codec> for Compression {
    fn from(codec: Codec) -> Self {
        match codec {
            Codec::None => Compression::None,
            Codec::Lz4 => Compression::Lz4,
            Codec::Zlib => Compression::Zlib,
            Codec::Zstd => Compression::Zstd,
            Codec::Snappy => Compression::Snappy,
        }
    }
}

impl From<TypeOfSubscription> for SubscriptionType {
    fn from(name: TypeOfSubscription) -> Self {
        match name {
            TypeOfSubscription::Exclusive => SubscriptionType::Exclusive,
            TypeOfSubscription::Shared => SubscriptionType::Shared,
            TypeOfSubscription::Failover => SubscriptionType::Failover,
            TypeOfSubscription::KeyShared => SubscriptionType::KeyShared,
        }
    }
}

impl From<Start> for InitialPosition {
    fn from(start: Start) -> Self {
        match start {
            Start::Earliest => InitialPosition::Earliest,
            Start::Latest => InitialPosition::Latest,
        }
    }
}
