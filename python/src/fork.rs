//! What a `fork` leaves behind. Decides that a child's inherited objects answer with an error instead of waiting for
//! threads that only the parent has.
//!
//! A child inherits memory, not threads: its copy of a client has a lock that may be held for ever and a driver that is
//! gone. So each object remembers in which process generation it was made, a load and a comparison per call, and what
//! belongs to an earlier generation is neither used nor dropped.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use crate::errors;

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Which process this is, counted in forks from where the module was first loaded.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Runs in a child right after `os.fork`.
#[pyfunction]
pub(crate) fn _after_fork() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Something that works only in the process that made it.
pub(crate) struct ProcessBound<T> {
    value: ManuallyDrop<T>,
    generation: u32,
}

impl<T> ProcessBound<T> {
    pub(crate) fn new(value: T) -> Self {
        ProcessBound { value: ManuallyDrop::new(value), generation: generation() }
    }

    /// The thing itself. Errors: `ForkedProcess` in a child of the process that made it.
    #[inline]
    pub(crate) fn get(&self) -> PyResult<&T> {
        match self.is_of_this_process() {
            true => Ok(&self.value),
            false => Err(errors::forked()),
        }
    }

    /// Whether it was made in this process.
    #[inline]
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.generation == generation()
    }
}

impl<T> Drop for ProcessBound<T> {
    fn drop(&mut self) {
        // In a child it stays where it is: dropping may take a lock that nobody will free.
        if self.is_of_this_process() {
            drop_in_place(&mut self.value);
        }
    }
}

#[expect(unsafe_code, reason = "the one place where a value is dropped or not")]
fn drop_in_place<T>(value: &mut ManuallyDrop<T>) {
    // SAFETY: called once, from the drop of its owner, and nothing reads the value afterwards.
    unsafe { ManuallyDrop::drop(value) }
}
