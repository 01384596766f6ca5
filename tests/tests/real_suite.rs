//! The suite of behaviours on a real Pulsar.

use anyhow::{Context, Result};
use geminga_tests::lab::{self, Site};
use geminga_tests::suite::{self, Kind, Place};
use std::sync::Mutex;

geminga_tests::suite!(crate::on_a_real_broker);

/// All behaviours share a broker and two namespaces.
fn on_a_real_broker(name: &str, behaviour: impl AsyncFnOnce(&Place) -> Result<()>) -> Result<()> {
    static PREPARED: Mutex<bool> = Mutex::new(false);
    if !lab::is_enabled(name) {
        return Ok(());
    }
    let site = Site::from_environment().context("GEMINGA_BROKER_URL names no broker")?;
    let place = Place::new(Kind::Real, &site, &format!("public/suite-{}", std::process::id()), name);
    {
        let mut prepared = PREPARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !*prepared {
            place.prepare()?;
            *prepared = true;
        }
    }
    suite::play(&place, behaviour)
}
