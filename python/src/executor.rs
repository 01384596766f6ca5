//! Threads that run Python code on behalf of the core: callbacks, listeners, completions of asyncio futures. Decides when
//! they hold the interpreter: once for all that is ready.
//!
//! A [`Job`] is woken like a task and runs with the interpreter held. One thread runs all jobs of an executor, one after
//! another, so callbacks of a client never run beside each other.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::fork;

/// Something that runs Python code whenever it was woken.
pub(crate) trait Job: Send + Sync + 'static {
    /// Does what there is to do. It registers `waker` with what it waits for, or wakes it to run again.
    fn run(&self, py: Python<'_>, waker: &Waker);
}

/// One thread for jobs, started by the first of them. It ends when the last holder of the executor is gone, jobs that wait
/// included.
pub(crate) struct Executor {
    shared: Arc<Shared>,
    started: Once,
    name: &'static str,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    generation: u32,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Arc<dyn Runnable>>,
    stopping: bool,
    running: bool,
    thread: Option<thread::ThreadId>,
}

/// A job with its place in the executor.
pub(crate) struct Task<J> {
    pub(crate) job: J,
    executor: Arc<Executor>,
    /// Whether it is among the ready ones.
    scheduled: AtomicBool,
}

trait Runnable: Send + Sync {
    fn run(self: Arc<Self>, py: Python<'_>);
}

/// Every executor's thread, for the end of the interpreter. Touched only with the interpreter held, so no fork finds it locked.
static THREADS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Executor {
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            generation: fork::generation(),
        });
        let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(Arc::downgrade(&shared));
        Arc::new(Executor { shared, started: Once::new(), name })
    }

    /// Adds a job, which runs when it is woken.
    pub(crate) fn task<J: Job>(self: &Arc<Self>, job: J) -> Arc<Task<J>> {
        Arc::new(Task { job, executor: self.clone(), scheduled: AtomicBool::new(false) })
    }

    /// Whether this is the thread of the executor.
    pub(crate) fn is_current(&self) -> bool {
        self.shared.lock().thread == Some(thread::current().id())
    }

    fn schedule(&self, runnable: Arc<dyn Runnable>) {
        self.started.call_once(|| {
            let shared = self.shared.clone();
            shared.lock().running = true;
            let started = thread::Builder::new().name(self.name.into()).spawn(move || {
                shared.lock().thread = Some(thread::current().id());
                // Without an interpreter there is nobody to call.
                Python::try_attach(|py| shared.run(py));
                shared.lock().running = false;
                shared.changed.notify_all();
            });
            if let Err(error) = started {
                self.shared.lock().running = false;
                tracing::error!(%error, "no thread for callbacks");
            }
        });
        self.shared.lock().ready.push_back(runnable);
        self.shared.changed.notify_one();
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, py: Python<'_>) {
        let mut bunch = VecDeque::new();
        loop {
            py.detach(|| {
                let mut state = self.lock();
                while state.ready.is_empty() && !state.stopping {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                mem::swap(&mut bunch, &mut state.ready);
            });
            if bunch.is_empty() {
                return;
            }
            for runnable in bunch.drain(..) {
                runnable.run(py);
            }
        }
    }
}

impl<J: Job> Task<J> {
    /// The waker that has this job run.
    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(self.clone())
    }
}

impl<J: Job> Runnable for Task<J> {
    fn run(self: Arc<Self>, py: Python<'_>) {
        // Before it runs, so that what wakes it meanwhile has it run again.
        self.scheduled.store(false, Ordering::Release);
        let waker = self.waker();
        self.job.run(py, &waker);
    }
}

impl<J: Job> Wake for Task<J> {
    fn wake(self: Arc<Self>) {
        if !self.scheduled.swap(true, Ordering::AcqRel) {
            let executor = self.executor.clone();
            executor.schedule(self);
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.clone().wake();
    }
}

/// Calls a callback or a listener. The end of the interpreter may overtake it: CPython before 3.14 then unwinds its thread as soon
/// as it wants the interpreter back, and what these frames would drop can't be dropped any more. It stays here instead.
pub(crate) fn call<'py>(
    callable: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let overtaken = Overtaken;
    let called = callable.call1(arguments);
    mem::forget(overtaken);
    called
}

struct Overtaken;

impl Drop for Overtaken {
    fn drop(&mut self) {
        // A panic is no end of the interpreter.
        while !thread::panicking() {
            thread::park();
        }
    }
}

/// Ends every executor of this process, each having run what was ready, and waits for their threads up to `limit`.
pub(crate) fn stop_all(py: Python<'_>, limit: Duration) {
    let threads: Vec<Arc<Shared>> = {
        let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().filter_map(Weak::upgrade).filter(|t| t.generation == fork::generation()).collect()
    };
    py.detach(|| {
        let end = Instant::now() + limit;
        for thread in threads {
            let mut state = thread.lock();
            state.stopping = true;
            thread.changed.notify_all();
            while state.running && Instant::now() < end {
                let left = end.saturating_duration_since(Instant::now());
                let waited = thread.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    });
}
