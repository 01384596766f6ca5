//! `geminga broker`: the embedded broker as a program, for development and tests.

use std::io::Write as _;
use std::net::IpAddr;

use anyhow::Result;
use clap::Args;
use geminga_broker::ClusterConfig;
use geminga_broker::net::{Config, EmbeddedBroker};

use crate::args::{Token, environment};
use crate::exit::Exit;
use crate::interrupt::Interrupt;

/// Runs an in-memory broker: everything is gone when it ends. Production uses a Pulsar cluster.
#[derive(Args, Debug)]
pub(crate) struct BrokerArgs {
    /// Port of the binary protocol; 0 for any free one
    #[arg(short, long, default_value_t = 6650)]
    port: u16,

    /// Port of the admin API; 0 for any free one
    #[arg(long, default_value_t = 8080)]
    admin_port: u16,

    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    listen: IpAddr,

    /// Host name in the addresses that clients are sent to, when they see another than --listen
    #[arg(long, value_name = "HOST")]
    advertised_host: Option<String>,

    /// Partitions of a topic that is created by its first use; 0 for none
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(..=10_000))]
    partitions: u32,

    /// Mebibytes of each topic that are kept when no subscription needs them, for readers and seeks
    #[arg(long, value_name = "N", default_value_t = 64)]
    retention_mib: u32,

    /// Store a message sent again by the same producer once
    #[arg(long)]
    deduplication: bool,

    /// Accept connections with this token only [env: GEMINGA_BROKER_TOKEN]
    #[arg(long)]
    token: Option<Token>,
}

pub(crate) async fn run(args: BrokerArgs, quiet: bool) -> Result<Exit> {
    let interrupt = Interrupt::listen()?;
    let cluster = ClusterConfig {
        auto_create_partitions: args.partitions,
        deduplication: args.deduplication,
        retention_bytes: args.retention_mib as usize * 1024 * 1024,
        tokens: args
            .token
            .map(|token| token.0)
            .or_else(|| environment("GEMINGA_BROKER_TOKEN"))
            .into_iter()
            .collect(),
        ..ClusterConfig::default()
    };
    let config = Config {
        cluster,
        listen: vec![(args.listen, args.port).into()],
        admin: Some((args.listen, args.admin_port).into()),
        advertised_host: args.advertised_host,
    };
    let broker = EmbeddedBroker::start(config).await?;
    if !quiet {
        eprintln!("an in-memory broker for development and tests; production uses a Pulsar cluster");
        eprintln!("Ctrl-C ends it and forgets everything");
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "service_url={}", broker.service_url())?;
    writeln!(out, "admin_url={}", broker.admin_url().unwrap_or_default())?;
    out.flush()?;
    drop(out);
    interrupt.asked().await;
    Ok(Exit::Done)
}
