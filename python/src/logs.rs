//! Log records of the crates below, on their way to Python's `logging`. Decides which levels cross and that nobody waits for
//! Python: records queue up, the oldest are dropped when nobody takes them, and a thread of their own hands them over.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::executor::{Executor, Job, Task};
use crate::fork;

/// Records kept while Python has no time for them.
const KEPT: usize = 10_000;

/// The least Python level that crosses.
static LEAST: AtomicU8 = AtomicU8::new(u8::MAX);
static LOGS: OnceLock<Logs> = OnceLock::new();

/// The queue and its thread, of the process that first made a client: a forked child logs nothing.
struct Logs {
    task: Arc<Task<Queue>>,
    generation: u32,
}

struct Queue {
    records: Mutex<VecDeque<Record>>,
    logger: Py<PyAny>,
}

struct Record {
    level: u8,
    text: String,
}

/// Has records of `level` and above given to `logger`, a `logging.Logger`. Levels only ever widen.
#[pyfunction]
pub(crate) fn _start_logs(logger: Py<PyAny>, level: u8) {
    if level < LEAST.fetch_min(level, Ordering::Relaxed) {
        tracing::callsite::rebuild_interest_cache();
    }
    LOGS.get_or_init(|| {
        let executor = Executor::new("geminga-logs");
        let task = executor.task(Queue { records: Mutex::default(), logger });
        // Another extension of this process may have set its own: its records are its business then.
        tracing::subscriber::set_global_default(Forward).ok();
        Logs { task, generation: fork::generation() }
    });
}

/// The subscriber of this module's own copy of `tracing`.
struct Forward;

impl Subscriber for Forward {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("geminga") && number(metadata.level()) >= LEAST.load(Ordering::Relaxed)
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(logs) = LOGS.get().filter(|logs| logs.generation == fork::generation()) else { return };
        let mut text = Text(String::new());
        event.record(&mut text);
        let record = Record { level: number(event.metadata().level()), text: text.0 };
        {
            let mut records = logs.task.job.records.lock().unwrap_or_else(PoisonError::into_inner);
            if records.len() == KEPT {
                records.pop_front();
            }
            records.push_back(record);
        }
        logs.task.waker().wake();
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
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
            let logged = self.logger.bind(py).call_method1("log", (record.level, "%s", record.text));
            if let Err(raised) = logged {
                raised.write_unraisable(py, Some(self.logger.bind(py)));
            }
        }
    }
}
