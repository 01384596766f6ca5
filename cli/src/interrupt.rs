//! Ctrl-C and a polite kill: the first asks the command to end cleanly, the second ends the process.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};
use tokio::runtime::Builder;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// Whether somebody asked the command to end. Clones share the answer.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<Shared>);

#[derive(Default)]
struct Shared {
    asked: AtomicBool,
    notify: Notify,
}

impl Interrupt {
    /// Listens from now on, on a thread of its own: the command's may stand still in a write that nobody reads.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = Interrupt::default();
        let shared = interrupt.0.clone();
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot listen for Ctrl-C")?;
        let mut signals = {
            let _entered = runtime.enter();
            Signals::new().context("cannot listen for Ctrl-C")?
        };
        let wait = async move {
            signals.next().await;
            shared.asked.store(true, Ordering::Relaxed);
            shared.notify.notify_waiters();
            signals.next().await;
            std::process::exit(130);
        };
        let thread = thread::Builder::new().name("interrupt".to_owned());
        thread.spawn(move || runtime.block_on(wait)).context("cannot listen for Ctrl-C")?;
        Ok(interrupt)
    }

    /// Whether it has been asked for.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// Returns once it is asked for. Cancel safe.
    pub(crate) async fn asked(&self) {
        let notified = self.0.notify.notified();
        if !self.is_asked() {
            notified.await;
        }
    }

    /// What comes of this work; an error when it is asked for before.
    pub(crate) async fn or<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            outcome = work => outcome,
            () = self.asked() => bail!("interrupted"),
        }
    }
}

/// What asks a program to end.
#[cfg(unix)]
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

#[cfg(unix)]
impl Signals {
    /// Those from now on. To be called on a runtime.
    fn new() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Signals)
    }

    async fn next(&mut self) {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::warn!(%error, "Ctrl-C will end the program at once");
            std::future::pending::<()>().await;
        }
    }
}
