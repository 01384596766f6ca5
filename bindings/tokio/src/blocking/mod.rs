//! The same client for programs without async: every call returns when it is done.
//!
//! ```no_run
//! # fn main() -> Result<(), geminga::Error> {
//! let client = geminga::blocking::Client::connect("pulsar://localhost:6650")?;
//! let producer = client.create_producer(geminga::ProducerConfig::new("greetings"))?;
//! println!("stored as {}", producer.send("hello")?);
//! # Ok(())
//! # }
//! ```
//!
//! The client works on a thread of its own, so these calls may be made from any thread. Inside async code they work too, but
//! stop the thread they are made on; use the asynchronous handles there (`asynchronous` of each handle).

mod client;
mod consumer;
mod producer;
mod reader;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};

use tokio::task::coop::unconstrained;

pub use client::Client;
pub use consumer::{Consumer, Messages};
pub use producer::{Producer, Receipt};
pub use reader::Reader;

/// Stops this thread until the future is ready.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    // A task that may be around us has a budget; this thread does nothing else meanwhile, so it must not run out of it.
    let mut future = pin!(unconstrained(future));
    let parker = Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = parker.clone().into();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !parker.woken.swap(false, Ordering::AcqRel) {
            thread::park();
        }
    }
}

struct Parker {
    thread: Thread,
    woken: AtomicBool,
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
