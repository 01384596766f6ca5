//! Log records of the crates below, on their way to Python's `logging`. Decides to which logger a record goes, which levels cross,
//! and that nobody waits for Python: records queue up, the oldest are dropped when nobody takes them, and a thread of their own
//! hands them over.
//!
//! A client logs within a span of its own. The span's id is the key under which the client's logger is kept.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::executor::{self, Executor, Job, Task};
use crate::fork;

/// Records kept while Python has no time for them.
const KEPT: usize = 10_000;

/// The span of clients without a logger of their own.
const NOBODY: u64 = 1;

/// The least Python level that crosses, for any logger.
static LEAST: AtomicU8 = AtomicU8::new(u8::MAX);
static LOGS: OnceLock<Logs> = OnceLock::new();

thread_local! {
    /// The logger of the client that this thread is making.
    static MAKING: Cell<Option<Target>> = const { Cell::new(None) };
    /// The spans that this thread is in.
    static WITHIN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The queue and its thread, of the process that first made a client: a forked child logs nothing.
struct Logs {
    task: Arc<Task<Queue>>,
    /// What goes to no client's logger.
    general: Target,
    clients: Mutex<Clients>,
    generation: u32,
}

/// A `logging.Logger` and the least Python level that it takes.
#[derive(Clone)]
struct Target {
    logger: Arc<Py<PyAny>>,
    least: Arc<AtomicU8>,
}

/// The loggers of clients by their spans, with how many hold the span.
#[derive(Default)]
struct Clients {
    targets: BTreeMap<u64, (Target, usize)>,
    made: u64,
}

#[derive(Default)]
struct Queue {
    records: Mutex<VecDeque<Record>>,
}

struct Record {
    level: u8,
    text: String,
    logger: Arc<Py<PyAny>>,
}

/// Has records of `level` and above given to `logger`, a `logging.Logger`, unless their client has its own. Levels only ever widen.
#[pyfunction]
pub(crate) fn _start_logs(logger: Py<PyAny>, level: u8) {
    let logs = LOGS.get_or_init(|| {
        let executor = Executor::new("geminga-logs");
        let task = executor.task(Queue::default());
        // Another extension of this process may have set its own: its records are its business then.
        tracing::subscriber::set_global_default(Forward).ok();
        let general = Target::new(logger, u8::MAX);
        Logs { task, general, clients: Mutex::default(), generation: fork::generation() }
    });
    logs.general.least.fetch_min(level, Ordering::Relaxed);
    widen(level);
}

/// Runs `make`, which makes a client, whose records go to `logger` from a level on, if there is one.
pub(crate) fn of_client<T>(logger: Option<(Py<PyAny>, u8)>, make: impl FnOnce() -> T) -> T {
    if let Some((logger, level)) = logger {
        MAKING.set(Some(Target::new(logger, level)));
        widen(level);
    }
    let made = make();
    MAKING.take();
    made
}

fn widen(level: u8) {
    if level < LEAST.fetch_min(level, Ordering::Relaxed) {
        tracing::callsite::rebuild_interest_cache();
    }
}

impl Target {
    fn new(logger: Py<PyAny>, level: u8) -> Self {
        Target { logger: Arc::new(logger), least: Arc::new(AtomicU8::new(level)) }
    }
}

impl Logs {
    /// Those of this process. A child's copy of a lock may be held by a thread that only its parent has.
    fn ours() -> Option<&'static Logs> {
        LOGS.get().filter(|logs| logs.generation == fork::generation())
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The subscriber of this module's own copy of `tracing`.
struct Forward;

impl Subscriber for Forward {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The span of a client is wanted whatever its level.
        let level = number(metadata.level());
        metadata.target().starts_with("geminga")
            && (metadata.is_span() || level >= LEAST.load(Ordering::Relaxed))
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        let Some((logs, target)) = Logs::ours().zip(MAKING.take()) else { return Id::from_u64(NOBODY) };
        let mut clients = logs.clients();
        clients.made += 1;
        let id = NOBODY + clients.made;
        clients.targets.insert(id, (target, 1));
        Id::from_u64(id)
    }

    fn record(&self, _span: &Id, _values: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(logs) = Logs::ours() else { return };
        let span = match event.parent() {
            Some(parent) => parent.into_u64(),
            None => WITHIN.with_borrow(|within| within.last().copied()).unwrap_or(NOBODY),
        };
        let target = match span {
            NOBODY => None,
            span => logs.clients().targets.get(&span).map(|(target, _)| target.clone()),
        };
        let target = target.unwrap_or_else(|| logs.general.clone());
        let level = number(event.metadata().level());
        if level < target.least.load(Ordering::Relaxed) {
            return;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        let record = Record { level, text: text.0, logger: target.logger };
        {
            let mut records = logs.task.job.records.lock().unwrap_or_else(PoisonError::into_inner);
            if records.len() == KEPT {
                records.pop_front();
            }
            records.push_back(record);
        }
        logs.task.waker().wake();
    }

    fn enter(&self, span: &Id) {
        WITHIN.with_borrow_mut(|within| within.push(span.into_u64()));
    }

    fn exit(&self, _span: &Id) {
        WITHIN.with_borrow_mut(|within| within.pop());
    }

    fn clone_span(&self, span: &Id) -> Id {
        if let Some(logs) = Logs::ours()
            && let Some((_, holders)) = logs.clients().targets.get_mut(&span.into_u64())
        {
            *holders += 1;
        }
        span.clone()
    }

    fn try_close(&self, span: Id) -> bool {
        let Some(logs) = Logs::ours() else { return false };
        let mut clients = logs.clients();
        let Some((_, holders)) = clients.targets.get_mut(&span.into_u64()) else { return false };
        *holders -= 1;
        let closed = *holders == 0;
        if closed {
            clients.targets.remove(&span.into_u64());
        }
        closed
    }
}

/// The level as Python counts.
fn number(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// The message, then each field as `name=value`.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String does not fail.
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            name => write!(self.0, " {name}={value:?}").unwrap_or_default(),
        }
    }
}

impl Job for Queue {
    fn run(&self, py: Python<'_>, _waker: &Waker) {
        let records = std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner));
        for record in records {
            let logger = record.logger.bind(py);
            let logged = (record.level, "%s", record.text)
                .into_pyobject(py)
                .and_then(|arguments| executor::call(&logger.getattr("log")?, &arguments));
            if let Err(raised) = logged {
                raised.write_unraisable(py, Some(logger));
            }
        }
    }
}
