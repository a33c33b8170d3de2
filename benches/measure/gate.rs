//! The gate that threads pass together.

use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A barrier that spins: a round of 64 beats is over before the system has woken a sleeping thread, and two threads that
/// start one after the other do not meet at all.
pub(crate) struct Gate {
    threads: usize,
    waiting: AtomicUsize,
    opened: AtomicUsize,
}

/// So many looks before the core is offered to others, who may be the ones waited for.
const LOOKS: u32 = 10_000;

impl Gate {
    pub(crate) fn new(threads: usize) -> Self {
        Gate { threads, waiting: AtomicUsize::new(0), opened: AtomicUsize::new(0) }
    }

    /// Waits until all threads are here.
    pub(crate) fn pass(&self) {
        // Relaxed: it cannot grow before this thread is counted.
        let opened = self.opened.load(Ordering::Relaxed);
        // AcqRel: the last to come takes over what all others did before, and hands it on below.
        if self.waiting.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            // Relaxed: the next to count have passed the store below.
            self.waiting.store(0, Ordering::Relaxed);
            // Release: pairs with the Acquire below, so that what was done before the gate is seen behind it.
            self.opened.store(opened.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut looks = 0;
        // Acquire: as above.
        while self.opened.load(Ordering::Acquire) == opened {
            if looks < LOOKS {
                looks += 1;
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}
