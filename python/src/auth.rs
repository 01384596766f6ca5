//! Authentication. Decides where credentials come from: given once, or asked of a Python function for each connection.

use std::sync::Arc;

use geminga::{ClientBuilder, Pem, TokenError};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// What an `Authentication` object stands for: `("token", text or function)` or `("tls", (certificate, key))`.
pub(crate) enum Credentials {
    Token(String),
    TokenFunction(Arc<Py<PyAny>>),
    Tls(String, String),
}

impl Credentials {
    pub(crate) fn apply(self, builder: ClientBuilder) -> ClientBuilder {
        match self {
            Credentials::Token(token) => builder.token(token),
            Credentials::TokenFunction(function) => {
                builder.token_provider_blocking(move || token_from(&function))
            }
            Credentials::Tls(certificate, key) => {
                builder.tls_certificate(Pem::File(certificate.into()), Pem::File(key.into()))
            }
        }
    }
}

/// Asks the function, on a thread of the driver's that may block.
fn token_from(function: &Py<PyAny>) -> Result<String, TokenError> {
    let asked = Python::try_attach(|py| function.bind(py).call0()?.extract::<String>());
    match asked {
        Some(token) => token.map_err(|raised| format!("the token function raised {raised}").into()),
        None => Err("the Python interpreter is ending".into()),
    }
}

impl<'py> FromPyObject<'_, 'py> for Credentials {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (kind, value): (String, Bound<'py, PyAny>) = object.extract()?;
        if kind == "tls" {
            let (certificate, key) = value.extract()?;
            return Ok(Credentials::Tls(certificate, key));
        }
        match value.cast::<PyString>() {
            Ok(token) => Ok(Credentials::Token(token.to_str()?.to_owned())),
            Err(_) => Ok(Credentials::TokenFunction(Arc::new(value.unbind()))),
        }
    }
}
