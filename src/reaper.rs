//! The thread that drives a registry, for programs that have no loop of their own to do it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::clock;
use crate::engine::Engine;
use crate::hangup::Closers;
use crate::registry::Registry;

/// Steps of one slice: some hundred microseconds, between which the time is read anew.
const SLICE: usize = 4096;

/// Why a [`Reaper`] was not started.
#[derive(Debug)]
#[non_exhaustive]
pub enum SpawnError {
    /// The registry has a running one.
    AlreadyDriven,
    /// The thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpawnError::AlreadyDriven => f.write_str("this registry has a reaper already"),
            SpawnError::Thread(error) => write!(f, "the reaper's thread could not be started: {error}"),
        }
    }
}

impl std::error::Error for SpawnError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SpawnError::AlreadyDriven => None,
            SpawnError::Thread(error) => Some(error),
        }
    }
}

/// The thread `heartwheel-reaper`: it makes a pass every tick while a worker is registered, sleeps while none is, and has the
/// connections of ended workers closed, and those who waited for them woken, by a second thread: no user code runs on the first. Dropped, it stops; a registry without a driver reaps nobody,
/// and its time stands still.
#[derive(Debug)]
#[must_use = "a reaper that is dropped stops"]
pub struct Reaper {
    engine: Arc<Engine>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`SpawnError`]; nothing was started.
    pub fn spawn(registry: &Registry) -> Result<Self, SpawnError> {
        let engine = registry.engine().clone();
        // AcqRel: pairs with the Release of `stop`; the next reaper begins after the last one.
        if engine.driven.swap(true, Ordering::AcqRel) {
            return Err(SpawnError::AlreadyDriven);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (driven, stopped) = (engine.clone(), stop.clone());
        match thread::Builder::new().name("heartwheel-reaper".into()).spawn(move || drive(&driven, &stopped))
        {
            Ok(thread) => Ok(Reaper { engine, stop, thread: Some(thread) }),
            Err(error) => {
                // Release: as above.
                engine.driven.store(false, Ordering::Release);
                Err(SpawnError::Thread(error))
            }
        }
    }

    /// Stops the thread and waits for it; the same as dropping it.
    pub fn stop(self) {}
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `drive`.
        self.stop.store(true, Ordering::Release);
        self.engine.call_driver();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // Release: pairs with the AcqRel of `spawn`.
        self.engine.driven.store(false, Ordering::Release);
    }
}

fn drive(engine: &Engine, stop: &AtomicBool) {
    let mut closers = Closers::new();
    // Acquire: pairs with the Release of `Reaper::drop`.
    while !stop.load(Ordering::Acquire) {
        let (pass, wake) = engine.pass(clock::now(), SLICE);
        closers.add(pass.hangups, wake);
        if pass.more {
            continue;
        }
        match pass.next {
            Some(next) => {
                let _ = engine.wakeup.1.recv_deadline(next);
            }
            // A closer that stalls is minded at the regular ticks.
            None if closers.are_waiting() => {
                let _ = engine.wakeup.1.recv_timeout(engine.policy.load().tick);
            }
            None => engine.park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn an_error_says_what_was_wrong_and_why() {
        let error = SpawnError::Thread(io::Error::other("no thread is left"));
        assert_eq!(error.to_string(), "the reaper's thread could not be started: no thread is left");
        assert!(error.source().is_some_and(|source| source.to_string() == "no thread is left"));
        assert_eq!(SpawnError::AlreadyDriven.to_string(), "this registry has a reaper already");
        assert!(SpawnError::AlreadyDriven.source().is_none());
    }
}
