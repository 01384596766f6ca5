//! Calls of `geminga.asyncio`. Decides how the outcome of a future of the core reaches a future of an event loop: from the
//! callback thread, through `call_soon_threadsafe`.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use geminga::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::errors::IntoPython;
use crate::executor::{Executor, Job, Task};

/// `geminga.asyncio._finish`, which completes a list of futures in the thread of their loop.
static FINISH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Takes the function that completes futures.
#[pyfunction]
pub(crate) fn _set_finish(py: Python<'_>, finish: Py<PyAny>) {
    FINISH.get_or_init(py, || finish);
}

/// An asyncio future and the loop that it belongs to.
#[pyclass(frozen, module = "geminga._geminga")]
pub(crate) struct Target {
    pub(crate) event_loop: Py<PyAny>,
    pub(crate) future: Py<PyAny>,
}

#[pymethods]
impl Target {
    #[new]
    fn new(event_loop: Py<PyAny>, future: Py<PyAny>) -> Self {
        Target { event_loop, future }
    }
}

/// Completes futures of one loop: each with its value or exception.
pub(crate) fn finish(
    py: Python<'_>,
    event_loop: &Py<PyAny>,
    outcomes: Vec<(Py<PyAny>, PyResult<Py<PyAny>>)>,
) -> PyResult<()> {
    let list = PyList::empty(py);
    for (future, outcome) in outcomes {
        match outcome {
            Ok(value) => list.append((future, value, py.None()))?,
            Err(raised) => list.append((future, py.None(), raised.into_value(py)))?,
        }
    }
    let finish = FINISH.get(py).expect("geminga.asyncio sets it before it starts anything");
    let called = event_loop.bind(py).call_method1("call_soon_threadsafe", (finish, &list));
    match called {
        Ok(_) => Ok(()),
        // The loop is closed: nobody waits any more, but what was received must not be lost.
        Err(_) => finish.bind(py).call1((list, true)).map(drop),
    }
}

/// Makes the result a Python object, once the interpreter is held.
type Convert = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
type Running = Pin<Box<dyn Future<Output = Convert> + Send>>;

struct Call {
    /// None when it is done or cancelled.
    running: Mutex<Option<Running>>,
    target: Py<Target>,
    outcome: Py<Outcome>,
}

/// The outcome of a call on its way to the loop. Whoever takes it first has it: the loop, or the caller who was cancelled, so
/// that a message is never with neither of them, and comes back before the next one is taken.
#[pyclass(frozen, module = "geminga._geminga")]
#[derive(Default)]
pub(crate) struct Outcome(Mutex<Option<PyResult<Py<PyAny>>>>);

#[pymethods]
impl Outcome {
    /// The value and the exception, one of them None; both when it was taken before, or is not there.
    fn take(&self, py: Python<'_>) -> (Option<Py<PyAny>>, Option<Py<PyAny>>) {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(Ok(value)) => (Some(value), None),
            Some(Err(raised)) => (None, Some(raised.into_value(py).into_any())),
            None => (None, None),
        }
    }
}

/// A call under way, to be cancelled.
#[pyclass(frozen, module = "geminga._geminga")]
pub(crate) struct Operation(Arc<Task<Call>>);

#[pymethods]
impl Operation {
    /// Drops the call; what it had taken stays where it was. Returns the outcome when that is on its way, as `Outcome.take`.
    fn cancel(&self, py: Python<'_>) -> (Option<Py<PyAny>>, Option<Py<PyAny>>) {
        let call = &self.0.job;
        let running = call.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(running);
        call.outcome.get().take(py)
    }
}

/// Starts a call whose outcome completes `target`.
pub(crate) fn start<T: Send + 'static>(
    py: Python<'_>,
    executor: &Arc<Executor>,
    target: Py<Target>,
    future: impl Future<Output = Result<T, Error>> + Send + 'static,
    into_python: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Operation> {
    let running: Running = Box::pin(async move {
        let result = future.await;
        Box::new(move |py: Python<'_>| into_python(py, result.into_python()?)) as Convert
    });
    let outcome = Py::new(py, Outcome::default())?;
    let task = executor.task(Call { running: Mutex::new(Some(running)), target, outcome });
    // The first poll is ours: many calls are ready at once, and all are under way in the order of their making.
    let waker = task.waker();
    task.job.run(py, &waker);
    Ok(Operation(task))
}

/// The value of a call that only ends.
pub(crate) fn none(py: Python<'_>, (): ()) -> PyResult<Py<PyAny>> {
    Ok(py.None())
}

impl Job for Call {
    fn run(&self, py: Python<'_>, waker: &Waker) {
        let convert = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(call) = running.as_mut() else { return };
            let Poll::Ready(convert) = call.as_mut().poll(&mut Context::from_waker(waker)) else { return };
            *running = None;
            convert
        };
        let converted = convert(py);
        *self.outcome.get().0.lock().unwrap_or_else(PoisonError::into_inner) = Some(converted);
        let target = self.target.get();
        let outcome = vec![(target.future.clone_ref(py), Ok(self.outcome.clone_ref(py).into_any()))];
        if let Err(raised) = finish(py, &target.event_loop, outcome) {
            raised.write_unraisable(py, None);
        }
    }
}

/// Runs a future that has nothing to tell Python.
pub(crate) fn spawn(
    py: Python<'_>,
    executor: &Arc<Executor>,
    future: impl Future<Output = ()> + Send + 'static,
) {
    let task = executor.task(Background(Mutex::new(Some(Box::pin(future)))));
    let waker = task.waker();
    task.job.run(py, &waker);
}

struct Background(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Job for Background {
    fn run(&self, _py: Python<'_>, waker: &Waker) {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(future) = running.as_mut()
            && future.as_mut().poll(&mut Context::from_waker(waker)).is_ready()
        {
            *running = None;
        }
    }
}
