//! Where a client's driver runs. Decides between the caller's runtime and a thread of the client's own.

use std::sync::Arc;
use std::thread;

use geminga_core::{Error, ErrorKind};
use tokio::runtime::{Builder, Handle};
use tokio::task::coop::unconstrained;

use crate::driver::Driver;
use crate::shared::Shared;

/// Where a client does its work.
///
/// Wherever it is, handles and their futures can be used from any thread, any runtime, and without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runtime {
    /// A task on the tokio runtime that the client is built in, which needs I/O and time enabled: the fewest wake-ups.
    /// Without a runtime, a thread of its own. When that runtime shuts down while handles live on elsewhere, a thread of
    /// its own takes over: connections are made anew, nothing is lost.
    #[default]
    Current,
    /// A thread of its own, which ends with the client: busy tasks of the application can't delay it.
    Own,
}

impl Runtime {
    /// Starts the driver of `shared`.
    pub(crate) fn drive(self, shared: Arc<Shared>) -> Result<(), Error> {
        match (self, Handle::try_current()) {
            (Runtime::Current, Ok(runtime)) => {
                // It yields by itself, and must not run out of budget in the middle of its work.
                runtime.spawn(unconstrained(Driver::new(shared, false)));
                Ok(())
            }
            _ => own_thread(shared),
        }
    }
}

/// Drives `shared` on a new thread until the client has ended.
pub(crate) fn own_thread(shared: Arc<Shared>) -> Result<(), Error> {
    let failed =
        |e: std::io::Error| Error::new(ErrorKind::Interrupted, "starting the client's thread", e.to_string());
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let run = move || {
        runtime.block_on(unconstrained(Driver::new(shared, true)));
        // A token callback that still blocks must not keep the thread.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("geminga".into()).spawn(run).map_err(failed)?;
    Ok(())
}
