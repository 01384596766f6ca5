//! Ctrl-C and a polite kill: the first asks the command to end cleanly, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// Listens from now on. To be called on a runtime.
    pub(crate) fn listen() -> Self {
        let interrupt = Interrupt::default();
        let shared = interrupt.0.clone();
        tokio::spawn(async move {
            signal().await;
            shared.asked.store(true, Ordering::Relaxed);
            shared.notify.notify_waiters();
            signal().await;
            std::process::exit(130);
        });
        interrupt
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
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};

    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => {}
            () = ctrl_c() => {}
        },
        Err(error) => {
            tracing::warn!(%error, "a polite kill will end the program at once");
            ctrl_c().await;
        }
    }
}

#[cfg(not(unix))]
async fn signal() {
    ctrl_c().await;
}

async fn ctrl_c() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::warn!(%error, "Ctrl-C will end the program at once");
        std::future::pending::<()>().await;
    }
}
