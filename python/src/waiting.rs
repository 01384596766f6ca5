//! Blocking calls. Decides how a Python thread waits for a future: without the interpreter, woken by the future's waker
//! alone, and looking for Ctrl-C a few times a second.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long a signal may wait for its handler. The thread wakes so often while it waits, and polls nothing then.
const SIGNAL_SLICE: Duration = Duration::from_millis(200);

/// Waits for `future`. Errors: what a signal handler raised, such as KeyboardInterrupt; the future is dropped then.
#[inline]
pub(crate) fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let mut future = pin!(future);
    let parker = Parker::take();
    let waker = Waker::from(parker.clone());
    // What is there already is taken without giving the interpreter away.
    let first = future.as_mut().poll(&mut Context::from_waker(&waker));
    let result = match first {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => wait_on(py, future, &parker, &waker),
    };
    parker.put_back();
    result
}

/// The same with an end: `None` when the future isn't ready by then.
pub(crate) fn wait_within<F>(py: Python<'_>, future: F, limit: Duration) -> PyResult<Option<F::Output>>
where
    F: Future + Send,
    F::Output: Send,
{
    let end = Instant::now() + limit;
    let mut future = pin!(future);
    let parker = Parker::take();
    let waker = Waker::from(parker.clone());
    let result = loop {
        let slice = SIGNAL_SLICE.min(end.saturating_duration_since(Instant::now()));
        let output = py.detach(|| park(future.as_mut(), &parker, &waker, slice));
        match output {
            Some(output) => break Ok(Some(output)),
            None if Instant::now() >= end => break Ok(None),
            None => {}
        }
        if let Err(raised) = py.check_signals() {
            break Err(raised);
        }
    };
    parker.put_back();
    result
}

fn wait_on<F>(
    py: Python<'_>,
    mut future: Pin<&mut F>,
    parker: &Arc<Parker>,
    waker: &Waker,
) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    loop {
        let slice = py.detach(|| park(future.as_mut(), parker, waker, SIGNAL_SLICE));
        if let Some(output) = slice {
            return Ok(output);
        }
        py.check_signals()?;
    }
}

/// Sleeps until the future is ready or the time is up.
fn park<F: Future>(
    mut future: Pin<&mut F>,
    parker: &Parker,
    waker: &Waker,
    limit: Duration,
) -> Option<F::Output> {
    let end = Instant::now() + limit;
    loop {
        if parker.woken.swap(false, Ordering::AcqRel) {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(waker)) {
                return Some(output);
            }
            continue;
        }
        match end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return None,
            left => thread::park_timeout(left),
        }
    }
}

/// Wakes one thread. Each thread keeps one; a call within a call, from a signal handler, makes its own.
struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

thread_local! {
    static KEPT: Cell<Option<Arc<Parker>>> = const { Cell::new(None) };
}

impl Parker {
    fn take() -> Arc<Self> {
        let kept = KEPT.with(Cell::take);
        // Set, so that the first look polls: an earlier call's late wake-up costs a poll and no more.
        kept.inspect(|parker| parker.woken.store(true, Ordering::Release))
            .unwrap_or_else(|| Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(true) }))
    }

    fn put_back(self: Arc<Self>) {
        KEPT.with(|kept| kept.set(Some(self)));
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}
