//! The suite of behaviours on the embedded broker.

use anyhow::{Context, Result};
use geminga_broker::net::{Config, EmbeddedBroker};
use geminga_tests::lab::Site;
use geminga_tests::suite::{self, Kind, Place};

geminga_tests::suite!(crate::on_the_embedded_broker);

/// Each behaviour has a broker of its own.
fn on_the_embedded_broker(name: &str, behaviour: impl AsyncFnOnce(&Place) -> Result<()>) -> Result<()> {
    let broker = EmbeddedBroker::start_blocking(Config::default())?;
    let site = Site {
        service_url: broker.service_url().to_owned(),
        service_url_tls: None,
        admin_url: broker.admin_url().context("it listens by default")?.to_owned(),
        token: None,
    };
    let place = Place::new(Kind::Embedded, &site, "public/suite", name);
    place.prepare()?;
    suite::play(&place, behaviour)
}
