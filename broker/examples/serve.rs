//! Runs an embedded broker until its standard input ends, and prints its addresses.
//!
//! `cargo run -p geminga-broker --example serve -- --port 0 --admin-port 0 --nodes 1`

use std::io::Read as _;
use std::net::SocketAddr;

use geminga_broker::net::{Config, EmbeddedBroker};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut port, mut admin_port, mut nodes) = (0u16, 0u16, 1u16);
    let mut forever = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number =
            || arguments.next().ok_or("a number is missing")?.parse().map_err(|e| format!("{e}"));
        match argument.as_str() {
            "--port" => port = number()?,
            "--admin-port" => admin_port = number()?,
            "--nodes" => nodes = number()?,
            "--forever" => forever = true,
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let listen = (0..nodes.max(1)).map(|i| at(if port == 0 { 0 } else { port + i })).collect();
    let config = Config { listen, admin: Some(at(admin_port)), ..Config::default() };
    let broker = EmbeddedBroker::start_blocking(config)?;
    #[expect(clippy::print_stdout, reason = "the addresses are this program's output")]
    {
        println!("GEMINGA_BROKER_URL={}", broker.service_url());
        println!("GEMINGA_ADMIN_URL={}", broker.admin_url().unwrap_or_default());
    }
    if forever {
        loop {
            std::thread::park();
        }
    }
    // Whoever started this holds the other end: when it dies, so does the broker.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    broker.stop();
    Ok(())
}
