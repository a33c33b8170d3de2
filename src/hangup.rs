//! Closing connections from outside: the engine decides, these carry it out, where a stall or a panic harms nobody.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, unbounded};

use crate::clock;
use crate::engine::Wake;
use crate::state::EndReason;
use crate::worker::Closer;

/// One connection of an ended incarnation, to be closed: the closer that came with it, and why.
#[must_use = "a connection stays open until this is run"]
pub struct Hangup {
    closer: Closer,
    reason: EndReason,
}

impl Hangup {
    pub(crate) fn new(closer: Closer, reason: EndReason) -> Self {
        Hangup { closer, reason }
    }

    /// Why the connection is closed.
    #[must_use]
    pub fn reason(&self) -> EndReason {
        self.reason
    }

    /// Runs the closer, with nothing locked. `false` if it panicked.
    pub fn run(self) -> bool {
        catch_unwind(AssertUnwindSafe(|| (self.closer)(self.reason))).is_ok()
    }
}

impl fmt::Debug for Hangup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hangup").field("reason", &self.reason).finish_non_exhaustive()
    }
}

/// A closer that takes longer than this has its thread to itself; the next ones go on in a fresh one.
const STALLED: Duration = Duration::from_secs(1);

/// User code that an end calls.
enum Call {
    Wake(Wake),
    Close(Hangup),
}

impl Call {
    fn run(self) {
        match self {
            Call::Wake(wake) => wake.wake(),
            Call::Close(hangup) => drop(hangup.run()),
        }
    }
}

/// The thread that runs closers and wakers, replaced when one of them does not come back.
#[derive(Debug)]
pub(crate) struct Closers {
    queue: (Sender<Call>, Receiver<Call>),
    thread: Option<Arc<Running>>,
    /// What `Running::since` counts from.
    start: Instant,
}

#[derive(Debug, Default)]
struct Running {
    /// Since when it runs the closer it is at, in milliseconds from the start and one; 0 = it runs none.
    since: AtomicU64,
    /// Another thread has taken its place.
    replaced: AtomicBool,
}

impl Closers {
    pub(crate) fn new() -> Self {
        Closers { queue: unbounded(), thread: None, start: clock::now() }
    }

    pub(crate) fn add(&mut self, hangups: Vec<Hangup>, wake: Wake) {
        for call in wake.each().map(Call::Wake).chain(hangups.into_iter().map(Call::Close)) {
            // The other end is held by `self`.
            let _ = self.queue.0.send(call);
        }
        self.mind();
    }

    /// Sees to it that a thread that is not stalled takes care of what waits. To be called now and then.
    pub(crate) fn mind(&mut self) {
        if self.queue.1.is_empty() || self.thread.as_ref().is_some_and(|running| !self.is_stalled(running)) {
            return;
        }
        let running = Arc::new(Running::default());
        let (mine, queue, start) = (running.clone(), self.queue.1.clone(), self.start);
        let spawned =
            thread::Builder::new().name("heartwheel-close".into()).spawn(move || run(&mine, &queue, start));
        // Without a thread to be had what waits goes on waiting, and this is tried again at the next call.
        if spawned.is_ok()
            && let Some(stalled) = self.thread.replace(running)
        {
            // Relaxed: a flag for its own thread, which may see it after one closer more.
            stalled.replaced.store(true, Ordering::Relaxed);
        }
    }

    fn is_stalled(&self, running: &Running) -> bool {
        // Relaxed: a reading for a time-out.
        let since = running.since.load(Ordering::Relaxed);
        since != 0 && millis(self.start).saturating_sub(since) >= millis_of(STALLED)
    }

    pub(crate) fn are_waiting(&self) -> bool {
        !self.queue.1.is_empty()
    }
}

fn run(running: &Running, queue: &Receiver<Call>, start: Instant) {
    // Relaxed: as in `mind` and `is_stalled`.
    while !running.replaced.load(Ordering::Relaxed) {
        let Ok(call) = queue.recv() else { return };
        // Relaxed: as above.
        running.since.store(millis(start), Ordering::Relaxed);
        call.run();
        // Relaxed: as above.
        running.since.store(0, Ordering::Relaxed);
    }
}

fn millis(start: Instant) -> u64 {
    1 + millis_of(clock::now().saturating_duration_since(start))
}

fn millis_of(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hangup(closer: impl FnOnce() + Send + 'static) -> Hangup {
        Hangup::new(Box::new(|_| closer()), EndReason::Expired)
    }

    #[test]
    fn a_stall_and_a_panic_cost_only_themselves() {
        let mut closers = Closers::new();
        let (done, closed) = unbounded();
        let (release, stall) = unbounded::<()>();
        let first = done.clone();
        closers.add(
            vec![
                hangup(|| panic!("a closer that panics, on purpose")),
                hangup(move || {
                    let _ = stall.recv();
                    first.send("stalled").unwrap();
                }),
                hangup(move || done.send("next").unwrap()),
            ],
            Wake::default(),
        );
        let deadline = clock::now() + Duration::from_secs(20);
        while closed.is_empty() && clock::now() < deadline {
            closers.mind();
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(closed.try_recv(), Ok("next"));
        drop(release);
        assert_eq!(closed.recv_timeout(Duration::from_secs(20)), Ok("stalled"));
    }
}
