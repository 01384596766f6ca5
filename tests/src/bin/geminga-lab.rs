//! `cargo xtask lab`: the lab of real brokers from a terminal, or held open for another program.

#![expect(clippy::print_stdout, reason = "a command line talks on stdout")]

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use geminga_tests::lab::{self, Lab, Site};
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Parser)]
#[command(name = "cargo xtask lab", about = "A real Apache Pulsar on this machine")]
struct Arguments {
    /// Where settings, data and logs are [default: .lab/run/default of this repository]
    #[arg(long, global = true)]
    home: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Resolve the jars once
    Fetch,
    /// Start brokers and leave them running
    Start {
        #[arg(default_value = "standalone")]
        layouts: Vec<Layout>,
    },
    /// Start brokers, print a JSON object of environment variables, and stop them when stdin ends
    Serve {
        #[arg(default_value = "standalone")]
        layouts: Vec<Layout>,
    },
    /// Name the processes and where they listen
    Status,
    /// SIGSTOP a process: its sockets stay open and nobody answers
    Pause { name: String },
    /// SIGCONT it
    Resume { name: String },
    /// SIGKILL it
    Kill { name: String },
    /// Start a killed process again with its data
    Restart { name: String },
    /// Print a token that the secured broker accepts
    Token {
        subject: String,
        /// Seconds until it expires
        #[arg(long)]
        seconds: Option<u64>,
    },
    /// End all processes
    Stop,
}

#[derive(Clone, Copy, ValueEnum)]
enum Layout {
    /// One broker
    Standalone,
    /// One broker that demands a token or a client certificate
    Secure,
    /// ZooKeeper, a bookie and two brokers
    Cluster,
    /// A proxy in front of the cluster
    Proxy,
}

fn main() -> Result<()> {
    let Arguments { home, command } = Arguments::parse();
    if matches!(command, Command::Fetch) {
        return lab::fetch();
    }
    let mut lab = Lab::open(home.unwrap_or_else(|| lab::repository().join(".lab/run/default")))?;
    match command {
        Command::Fetch => {}
        Command::Start { layouts } => {
            let sites = start(&mut lab, &layouts)?;
            for (key, value) in environment(&lab, &sites) {
                println!("export {key}={value}");
            }
            lab.detach();
        }
        Command::Serve { layouts } => {
            let sites = start(&mut lab, &layouts)?;
            println!("{}", serde_json::Value::from_iter(environment(&lab, &sites)));
            // Whoever holds the other end of stdin may end in any way; this notices.
            std::io::stdin().read_to_end(&mut Vec::new())?;
        }
        Command::Status => {
            for (name, site, runs) in lab.processes() {
                let state = if runs { "runs" } else { "ended" };
                println!("{name:12}  {state:6}  {:30}  {}", site.service_url, site.admin_url);
            }
            lab.detach();
        }
        Command::Pause { name } => after(lab, |lab| lab.pause(&name))?,
        Command::Resume { name } => after(lab, |lab| lab.resume(&name))?,
        Command::Kill { name } => after(lab, |lab| lab.kill(&name))?,
        Command::Restart { name } => after(lab, |lab| lab.restart(&name))?,
        Command::Token { subject, seconds } => {
            println!("{}", lab.credentials()?.token(&subject, seconds.map(Duration::from_secs)));
            lab.detach();
        }
        Command::Stop => lab.stop()?,
    }
    Ok(())
}

/// Does one thing to a lab that must go on running, whatever came of it.
fn after(mut lab: Lab, act: impl FnOnce(&mut Lab) -> Result<()>) -> Result<()> {
    let outcome = act(&mut lab);
    lab.detach();
    outcome
}

fn start(lab: &mut Lab, layouts: &[Layout]) -> Result<Vec<(Layout, Site)>> {
    let mut sites = Vec::new();
    for &layout in layouts {
        match layout {
            Layout::Standalone => sites.push((layout, lab.standalone()?)),
            Layout::Secure => sites.push((layout, lab.standalone_secure()?)),
            Layout::Cluster => sites.extend(lab.cluster(2)?.into_iter().take(1).map(|site| (layout, site))),
            Layout::Proxy => sites.push((layout, lab.proxy()?)),
        }
    }
    Ok(sites)
}

/// What tests and programs read to find the brokers; `GEMINGA_BROKER_URL` is the standalone.
fn environment(lab: &Lab, sites: &[(Layout, Site)]) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for (layout, site) in sites {
        let name = match layout {
            Layout::Standalone => "BROKER",
            Layout::Secure => "SECURE",
            Layout::Cluster => "CLUSTER",
            Layout::Proxy => "PROXY",
        };
        let mut add = |key: String, value: &str| variables.push((key, value.to_owned()));
        add(format!("GEMINGA_{name}_URL"), &site.service_url);
        match layout {
            Layout::Standalone => add("GEMINGA_ADMIN_URL".to_owned(), &site.admin_url),
            _ => add(format!("GEMINGA_{name}_ADMIN_URL"), &site.admin_url),
        }
        if let Some(url) = &site.service_url_tls {
            add(format!("GEMINGA_{name}_URL_TLS"), url);
        }
        if let Some(token) = &site.token {
            add(format!("GEMINGA_{name}_TOKEN"), token);
        }
    }
    if let Some(pid) = lab.pid("standalone") {
        variables.push(("GEMINGA_BROKER_PID".to_owned(), pid.to_string()));
    }
    variables
}
