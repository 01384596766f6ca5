//! How anybody wakes the driver. Decides when a wake-up is needed; knows neither links nor the machine.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use futures::task::AtomicWaker;

const SLEEPING: u8 = 0;
const RUNNING: u8 = 1;
const RUNG: u8 = 2;

/// The driver's bell: rung by commands and by links, heard once however often it rings.
///
/// A driver that is awake isn't woken again; it looks at the bell before it sleeps.
pub(crate) struct Bell {
    state: AtomicU8,
    driver: AtomicWaker,
    /// Keys of the links that have something to do.
    ready: Mutex<Vec<u64>>,
}

impl Bell {
    pub(crate) fn new() -> Self {
        // Running, because a driver is polled first of all.
        Bell { state: AtomicU8::new(RUNNING), driver: AtomicWaker::new(), ready: Mutex::new(Vec::new()) }
    }

    /// Has the driver look at the shared state again.
    pub(crate) fn ring(&self) {
        if self.state.swap(RUNG, Ordering::AcqRel) == SLEEPING {
            self.driver.wake();
        }
    }

    /// The driver is awake: from here on a ring only leaves its mark.
    pub(crate) fn awake(&self, driver: &Waker) {
        self.driver.register(driver);
        self.state.store(RUNNING, Ordering::Release);
    }

    /// Whether the driver may sleep: false when the bell rang since [`awake`](Self::awake).
    pub(crate) fn may_sleep(&self) -> bool {
        self.state.compare_exchange(RUNNING, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Moves the keys of the links with something to do behind those in `keys`.
    pub(crate) fn take_ready(&self, keys: &mut Vec<u64>) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        match keys.is_empty() {
            true => mem::swap(keys, &mut ready),
            false => keys.append(&mut ready),
        }
    }
}

/// The waker of one link: it says which link woke the driver, so that a wake-up costs the same however many there are.
pub(crate) struct LinkWaker {
    key: u64,
    queued: AtomicBool,
    bell: Arc<Bell>,
}

impl LinkWaker {
    pub(crate) fn new(key: u64, bell: Arc<Bell>) -> Arc<Self> {
        Arc::new(LinkWaker { key, queued: AtomicBool::new(false), bell })
    }

    /// The driver turns to this link now; a wake-up from here on queues it again.
    pub(crate) fn served(&self) {
        self.queued.store(false, Ordering::Release);
    }
}

impl Wake for LinkWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.bell.ready.lock().unwrap_or_else(PoisonError::into_inner).push(self.key);
            self.bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_sleeping_driver_is_woken_once_and_an_awake_one_only_sees_the_mark() {
        let (bell, count) = (Bell::new(), Arc::new(Count::default()));
        bell.awake(&count.clone().into());
        bell.ring();
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        assert!(!bell.may_sleep());
        bell.awake(&count.clone().into());
        assert!(bell.may_sleep());
        bell.ring();
        bell.ring();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_link_is_queued_once_until_it_is_served() {
        let bell = Arc::new(Bell::new());
        let link = LinkWaker::new(7, bell.clone());
        link.wake_by_ref();
        link.wake_by_ref();
        let mut keys = vec![1];
        bell.take_ready(&mut keys);
        assert_eq!(keys, [1, 7]);
        link.wake_by_ref();
        bell.take_ready(&mut keys);
        assert_eq!(keys, [1, 7], "not served yet");
        link.served();
        link.wake_by_ref();
        bell.take_ready(&mut keys);
        assert_eq!(keys, [1, 7, 7]);
    }
}
