//! Callbacks of `send_async`. Decides when and in which order they are called: in the order of the sends, once each, a batch
//! at a time on the client's callback thread.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::channel::oneshot;
use geminga::{Error, MessageId as CoreId, SendReceipt};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;

use crate::errors::IntoPython;
use crate::executor::{self, Executor, Job, Task};
use crate::message_id::MessageId;
use crate::operation::{self, Target};

/// Callbacks called in one go before other jobs of the thread have their turn.
const BUNCH: usize = 1000;

/// `geminga.Result`, by code.
static RESULTS: PyOnceLock<Py<PyList>> = PyOnceLock::new();

/// Takes the members of `geminga.Result`, in order of their codes, which start at 0 and have no gap.
#[pyfunction]
pub(crate) fn _set_results(py: Python<'_>, results: Py<PyList>) {
    RESULTS.get_or_init(py, || results);
}

/// The sends of one producer whose callbacks are still to be called.
pub(crate) struct Callbacks {
    task: Arc<Task<Queue>>,
    executor: Arc<Executor>,
    /// Whether there ever was one to call: without, nothing has to be waited for and no thread is needed.
    used: AtomicBool,
}

#[derive(Default)]
struct Queue(Mutex<VecDeque<Waiting>>);

struct Waiting {
    outcome: Outcome,
    whom: Whom,
}

enum Outcome {
    Open(SendReceipt),
    Known(Result<CoreId, Error>),
}

enum Whom {
    Callback(Py<PyAny>),
    /// An asyncio future; those of one loop are completed together.
    Future(Py<Target>),
    /// Somebody who waits until all before it are told.
    Barrier(oneshot::Sender<()>),
}

impl Callbacks {
    pub(crate) fn new(executor: &Arc<Executor>) -> Self {
        Callbacks {
            task: executor.task(Queue::default()),
            executor: executor.clone(),
            used: AtomicBool::new(false),
        }
    }

    /// Calls `callback(result, message_id)` when the receipt is there.
    #[inline]
    pub(crate) fn when_stored(&self, receipt: SendReceipt, callback: Py<PyAny>) {
        self.push(Outcome::Open(receipt), Whom::Callback(callback));
    }

    /// Completes an asyncio future when the receipt is there, or with why there will be none.
    pub(crate) fn complete(&self, enqueued: Result<SendReceipt, Error>, target: Py<Target>) {
        let outcome = match enqueued {
            Ok(receipt) => Outcome::Open(receipt),
            Err(error) => Outcome::Known(Err(error)),
        };
        self.push(outcome, Whom::Future(target));
    }

    /// Calls `callback` with why its message was not sent, in its turn.
    pub(crate) fn refused(&self, error: Error, callback: Py<PyAny>) {
        self.push(Outcome::Known(Err(error)), Whom::Callback(callback));
    }

    /// Ready when the callbacks of all sends so far have returned. On the callback thread itself it is ready at once.
    pub(crate) fn told(&self) -> impl Future<Output = ()> + Send + use<> {
        let barrier = if self.executor.is_current() || !self.used.load(Ordering::Acquire) {
            None
        } else {
            let (sender, receiver) = oneshot::channel();
            self.push(Outcome::Known(Ok(CoreId::EARLIEST)), Whom::Barrier(sender));
            Some(receiver)
        };
        async move {
            if let Some(barrier) = barrier {
                // An error means that the thread is gone, and with it whoever could be told.
                barrier.await.ok();
            }
        }
    }

    fn push(&self, outcome: Outcome, whom: Whom) {
        self.used.store(true, Ordering::Release);
        let mut queue = self.task.job.lock();
        let first = queue.is_empty();
        queue.push_back(Waiting { outcome, whom });
        if first {
            // The others are looked at when the first one is ready, which wakes once for a whole batch.
            let waker = self.task.waker();
            let ready = queue[0].outcome.poll(&mut Context::from_waker(&waker)).is_ready();
            drop(queue);
            if ready {
                waker.wake();
            }
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes those at the front whose outcome is known.
    fn take_ready(&self, waker: &Waker) -> Vec<(Result<CoreId, Error>, Whom)> {
        let mut queue = self.lock();
        let mut ready = Vec::new();
        while let Some(first) = queue.front_mut() {
            if ready.len() == BUNCH {
                waker.wake_by_ref();
                break;
            }
            let Poll::Ready(outcome) = first.outcome.poll(&mut Context::from_waker(waker)) else { break };
            if let Some(first) = queue.pop_front() {
                ready.push((outcome, first.whom));
            }
        }
        ready
    }
}

impl Outcome {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<CoreId, Error>> {
        match self {
            Outcome::Open(receipt) => match receipt.try_result() {
                Some(result) => Poll::Ready(result),
                None => Pin::new(receipt).poll(cx),
            },
            Outcome::Known(result) => Poll::Ready(result.clone()),
        }
    }
}

impl Job for Queue {
    fn run(&self, py: Python<'_>, waker: &Waker) {
        let mut futures = Futures::default();
        for (outcome, whom) in self.take_ready(waker) {
            match whom {
                Whom::Future(target) => futures.add(py, target.get(), outcome),
                Whom::Callback(callback) => call(py, callback.bind(py), outcome),
                // Whoever waited may have given up.
                Whom::Barrier(waiter) => drop(waiter.send(())),
            }
        }
        futures.finish(py);
    }
}

/// Futures to complete, gathered while they are of one loop.
#[derive(Default)]
struct Futures {
    event_loop: Option<Py<PyAny>>,
    outcomes: Vec<(Py<PyAny>, PyResult<Py<PyAny>>)>,
}

impl Futures {
    fn add(&mut self, py: Python<'_>, target: &Target, outcome: Result<CoreId, Error>) {
        if self.event_loop.as_ref().is_some_and(|ours| !ours.is(&target.event_loop)) {
            self.finish(py);
        }
        self.event_loop.get_or_insert_with(|| target.event_loop.clone_ref(py));
        let outcome = outcome.into_python().and_then(|id| Ok(Py::new(py, MessageId(id))?.into_any()));
        self.outcomes.push((target.future.clone_ref(py), outcome));
    }

    fn finish(&mut self, py: Python<'_>) {
        let Some(event_loop) = self.event_loop.take() else { return };
        if let Err(raised) = operation::finish(py, &event_loop, std::mem::take(&mut self.outcomes)) {
            raised.write_unraisable(py, None);
        }
    }
}

/// Calls back. What it raises is reported by `sys.unraisablehook`, with its traceback.
fn call(py: Python<'_>, callback: &Bound<'_, PyAny>, outcome: Result<CoreId, Error>) {
    let (code, id) = match outcome {
        Ok(id) => (0, id),
        // As the existing client has it: an id without any value.
        Err(error) => (error.kind().code(), CoreId::EARLIEST),
    };
    let called = result(py, code)
        .and_then(|result| (result, MessageId(id)).into_pyobject(py))
        .and_then(|arguments| executor::call(callback, &arguments));
    if let Err(raised) = called {
        raised.write_unraisable(py, Some(callback));
    }
}

/// The member of `geminga.Result` for a code of core's table, 0 for a success.
pub(crate) fn result(py: Python<'_>, code: u32) -> PyResult<Bound<'_, PyAny>> {
    let results = RESULTS.get(py).expect("the package sets them before anything can be sent");
    results.bind(py).get_item(code as usize)
}
