//! The embedded broker for Python tests. Decides nothing but how to start, restart and stop it.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use geminga_broker::net::{Config, EmbeddedBroker};
use geminga_broker::{ClusterConfig, NodeId};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::fork::ProcessBound;

/// A broker in this process, in memory. `geminga.testing.EmbeddedBroker` is its face.
#[pyclass(frozen, module = "geminga._geminga")]
pub(crate) struct Broker {
    running: ProcessBound<Mutex<Option<EmbeddedBroker>>>,
    service_url: String,
    admin_url: String,
}

#[pymethods]
impl Broker {
    #[new]
    fn new(py: Python<'_>, port: u16, admin_port: u16, tokens: Vec<String>) -> PyResult<Self> {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let cluster = ClusterConfig { tokens, ..ClusterConfig::default() };
        let config =
            Config { cluster, listen: vec![at(port)], admin: Some(at(admin_port)), ..Config::default() };
        let broker = py.detach(|| EmbeddedBroker::start_blocking(config))?;
        let service_url = broker.service_url().to_owned();
        let admin_url = broker.admin_url().unwrap_or_default().to_owned();
        Ok(Broker { running: ProcessBound::new(Mutex::new(Some(broker))), service_url, admin_url })
    }

    #[getter]
    fn service_url(&self) -> &str {
        &self.service_url
    }

    #[getter]
    fn admin_url(&self) -> &str {
        &self.admin_url
    }

    fn is_running(&self) -> PyResult<bool> {
        Ok(self.running.get()?.lock().unwrap_or_else(PoisonError::into_inner).is_some())
    }

    /// Cuts all links and starts anew on the same store. Errors: RuntimeError when it was stopped.
    fn restart(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.get()?;
        let restarted = py.detach(|| {
            let running = running.lock().unwrap_or_else(PoisonError::into_inner);
            running.as_ref().map(|broker| broker.with(|cluster, now| cluster.restart_node(now, NodeId(0))))
        });
        restarted.ok_or_else(|| PyRuntimeError::new_err("the broker was stopped"))
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.get()?;
        py.detach(|| drop(running.lock().unwrap_or_else(PoisonError::into_inner).take()));
        Ok(())
    }
}
