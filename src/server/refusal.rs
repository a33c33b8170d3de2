//! Why peers are turned away: counted for the metrics, and written to the log without letting a flood of them flood it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::clock;

/// A kind of refusal. Few and fixed, so that they can be counted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// All connections are taken.
    Full,
    /// Too many connections of one address have not said HELLO.
    Crowd,
    /// Nothing that was a HELLO came, or it came too late.
    NoHello,
    /// A HELLO that cannot be taken.
    BadHello,
    Password,
    LongLine,
    /// Replies were not read in time.
    SlowReader,
}

impl Refusal {
    const ALL: [Refusal; 7] = [
        Refusal::Full,
        Refusal::Crowd,
        Refusal::NoHello,
        Refusal::BadHello,
        Refusal::Password,
        Refusal::LongLine,
        Refusal::SlowReader,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Refusal::Full => "full",
            Refusal::Crowd => "crowd",
            Refusal::NoHello => "no_hello",
            Refusal::BadHello => "bad_hello",
            Refusal::Password => "password",
            Refusal::LongLine => "long_line",
            Refusal::SlowReader => "slow_reader",
        }
    }
}

/// All refusals of a server.
#[derive(Debug, Default)]
pub(super) struct Refusals([Kind; Refusal::ALL.len()]);

#[derive(Debug, Default)]
struct Kind {
    count: AtomicU64,
    log: Throttle,
}

impl Refusals {
    /// Counts one, and writes it unless one of its kind was written just now.
    pub(super) fn note(&self, refusal: Refusal, peer: SocketAddr, why: impl fmt::Display) {
        let kind = &self.0[refusal as usize];
        // Relaxed: a counter.
        kind.count.fetch_add(1, Ordering::Relaxed);
        let Some(unwritten) = kind.log.pass() else { return };
        let reason = refusal.name();
        match refusal {
            // Somebody guesses, or a limit is too low: an operator should look.
            Refusal::Password | Refusal::Full | Refusal::Crowd => {
                warn!(%peer, reason, unwritten, "connection refused: {why}");
            }
            _ => info!(%peer, reason, unwritten, "connection refused: {why}"),
        }
    }

    /// How many there were, of all kinds.
    pub(super) fn all(&self) -> u64 {
        // Relaxed: counters.
        self.0.iter().map(|kind| kind.count.load(Ordering::Relaxed)).sum()
    }
}

/// Lets one line through in a while, and counts those it held back.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<(Option<Instant>, u64)>);

impl Throttle {
    const WHILE: Duration = Duration::from_secs(10);

    /// How many were held back since the last one, if this one may be written.
    pub(super) fn pass(&self) -> Option<u64> {
        self.pass_at(clock::now())
    }

    fn pass_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, held_back) = &mut *state;
        if last.is_some_and(|last| now.saturating_duration_since(last) < Self::WHILE) {
            *held_back += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_counted_and_told_with_the_next_line() {
        let throttle = Throttle::default();
        let now = clock::now();
        assert_eq!(throttle.pass_at(now), Some(0));
        assert_eq!(throttle.pass_at(now), None);
        assert_eq!(throttle.pass_at(now + Duration::from_secs(9)), None);
        assert_eq!(throttle.pass_at(now + Duration::from_secs(10)), Some(2));
        assert_eq!(throttle.pass_at(now + Duration::from_secs(21)), Some(0));
    }

    #[test]
    fn each_kind_has_its_place() {
        for (at, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, at);
        }
    }
}
