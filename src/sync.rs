//! The locks and atomics of the protocols that loom explores, and the one way this crate takes a lock.
//!
//! Under `--cfg heartwheel_loom` they are loom's. The cfg is our own because a plain `cfg(loom)` would also change our dependencies.
//! Sums, serial numbers and what is shown are the standard library's in either case, for loom would try every order of them.

#[cfg(heartwheel_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(heartwheel_loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Numbers beside the words, each for itself: not part of what loom explores.
pub(crate) use std::sync::atomic::{AtomicBool as Flag, AtomicU64 as Number, AtomicUsize as Count};

use std::sync::PoisonError;

/// Locks `mutex`, poisoned or not: no user code runs under any lock of this crate, so a poisoned one still guards
/// whole data (a thread can only have died of memory exhaustion between two complete steps).
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A sum that is kept as things happen. Each number stands for itself: no other memory is read by what it says, so every access is
/// relaxed.
pub(crate) trait Sum {
    type Number;
    fn up(&self, by: Self::Number);
    fn down(&self, by: Self::Number);
    fn get(&self) -> Self::Number;
}

macro_rules! sum {
    ($atomic:ty, $number:ty) => {
        impl Sum for $atomic {
            type Number = $number;

            fn up(&self, by: $number) {
                // Relaxed, as of all sums.
                self.fetch_add(by, Ordering::Relaxed);
            }

            fn down(&self, by: $number) {
                // Relaxed, as of all sums.
                self.fetch_sub(by, Ordering::Relaxed);
            }

            fn get(&self) -> $number {
                // Relaxed, as of all sums.
                self.load(Ordering::Relaxed)
            }
        }
    };
}

sum!(Number, u64);
sum!(Count, usize);
