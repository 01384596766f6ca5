//! Listeners of consumers and readers. Decides when a listener is called: for each message in its turn, on the client's
//! listener thread, unless it is paused.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use geminga::Messages;
use pyo3::prelude::*;

use crate::errors;
use crate::executor::{self, Executor, Job, Task};
use crate::message::Message;

/// Messages given to one listener before other jobs of the thread have their turn.
const BUNCH: usize = 100;

/// A listener at work. It ends with the consumer.
pub(crate) struct Listener(Arc<Task<Listening>>);

struct Listening {
    /// None after the end.
    messages: Mutex<Option<Messages>>,
    paused: AtomicBool,
    /// The consumer or the reader, the listener's first argument.
    handle: Py<PyAny>,
    listener: Py<PyAny>,
    schema: Option<Py<PyAny>>,
}

impl Listener {
    /// Calls `listener(handle, message)` for each message from now on.
    pub(crate) fn start(
        executor: &Arc<Executor>,
        messages: Messages,
        handle: Py<PyAny>,
        listener: Py<PyAny>,
        schema: Option<Py<PyAny>>,
    ) -> Self {
        let messages = Mutex::new(Some(messages));
        let paused = AtomicBool::new(false);
        let task = executor.task(Listening { messages, paused, handle, listener, schema });
        task.waker().wake();
        Listener(task)
    }

    pub(crate) fn pause(&self) {
        self.0.job.paused.store(true, Ordering::Release);
    }

    pub(crate) fn resume(&self) {
        self.0.job.paused.store(false, Ordering::Release);
        self.0.waker().wake();
    }
}

impl Listening {
    fn next(&self, waker: &Waker) -> Poll<Option<Result<geminga::Message, geminga::Error>>> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(stream) = messages.as_mut() else { return Poll::Ready(None) };
        let next = Pin::new(stream).poll_next(&mut Context::from_waker(waker));
        if matches!(next, Poll::Ready(None)) {
            *messages = None;
        }
        next
    }
}

impl Job for Listening {
    fn run(&self, py: Python<'_>, waker: &Waker) {
        for _ in 0..BUNCH {
            if self.paused.load(Ordering::Acquire) {
                return;
            }
            let called = match self.next(waker) {
                Poll::Pending | Poll::Ready(None) => return,
                Poll::Ready(Some(Ok(message))) => {
                    let message = Message::new(py, message, self.schema.as_ref());
                    let arguments = (&self.handle, message).into_pyobject(py);
                    arguments
                        .and_then(|arguments| executor::call(self.listener.bind(py), &arguments))
                        .map(drop)
                }
                Poll::Ready(Some(Err(error))) => Err(errors::to_python(&error)),
            };
            if let Err(raised) = called {
                raised.write_unraisable(py, Some(self.listener.bind(py)));
            }
        }
        waker.wake_by_ref();
    }
}
