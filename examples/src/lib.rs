//! What the example programs in `examples/examples/` share: a broker to talk to.
//!
//! Run one with `cargo run -p geminga-examples --example produce -- pulsar://localhost:6650`; without a URL it starts a broker
//! of its own.

use geminga_broker::net::{Config, EmbeddedBroker};

/// Where to connect: the program's first argument, or a broker in this process that ends with the value.
pub struct Service {
    url: String,
    _broker: Option<EmbeddedBroker>,
}

impl Service {
    /// Reads the argument. Errors: no free port for a broker.
    pub fn from_args() -> std::io::Result<Service> {
        match std::env::args().nth(1) {
            Some(url) => Ok(Service { url, _broker: None }),
            None => {
                let broker = std::thread::spawn(|| EmbeddedBroker::start_blocking(Config::default()));
                let broker = broker.join().expect("starting a broker does not panic")?;
                Ok(Service { url: broker.service_url().to_owned(), _broker: Some(broker) })
            }
        }
    }

    /// The service URL.
    pub fn url(&self) -> &str {
        &self.url
    }
}
