//! Errors of the core as Python exceptions. Decides which class an error becomes; the classes themselves are made by
//! `geminga.exceptions` from [`table`], one for each kind.

use geminga::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyType};

/// The class of each kind by its code, and that of [`FORKED`].
static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// Where the class for a call in a forked child is kept among the classes; no kind has this code.
const FORKED: u32 = 0;

/// Core's error table: `(name, code, retryable, sentence)` a row.
#[pyfunction]
pub(crate) fn _error_table(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = ErrorKind::ALL.iter().map(|kind| {
        let retryable = Error::new(*kind, "", "").is_retryable();
        (kind.name(), kind.code(), retryable, kind.sentence())
    });
    PyList::new(py, rows.collect::<Vec<_>>())
}

/// Takes the classes that `geminga.exceptions` made, by code.
#[pyfunction]
pub(crate) fn _set_error_classes(py: Python<'_>, classes: Py<PyDict>) {
    // A second import of the package finds the first one's classes.
    CLASSES.get_or_init(py, || classes);
}

/// The exception for an error of the core.
pub(crate) fn to_python(error: &Error) -> PyErr {
    Python::attach(|py| exception(py, error.kind().code(), error.to_string()))
}

/// The exception for a call on an object that was made before this process was forked off.
pub(crate) fn forked() -> PyErr {
    let text = "this object was made before a fork and does not work in the child: \
                create the client in the process that uses it, such as in a post-fork hook";
    Python::attach(|py| exception(py, FORKED, text.to_owned()))
}

/// Turns a result of the core into one for Python.
pub(crate) trait IntoPython<T> {
    /// The value, or the exception for the error.
    fn into_python(self) -> PyResult<T>;
}

impl<T> IntoPython<T> for Result<T, Error> {
    fn into_python(self) -> PyResult<T> {
        self.map_err(|error| to_python(&error))
    }
}

fn exception(py: Python<'_>, code: u32, text: String) -> PyErr {
    let class = CLASSES
        .get(py)
        .and_then(|classes| classes.bind(py).get_item(code).ok().flatten())
        .and_then(|class| class.cast_into::<PyType>().ok());
    match class {
        Some(class) => PyErr::from_type(class, text),
        // Only while the package is being imported.
        None => pyo3::exceptions::PyRuntimeError::new_err(text),
    }
}
