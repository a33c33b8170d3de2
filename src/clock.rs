//! The engine's time.
//!
//! Ground rules
//! - Time is counted in ticks ([`Policy::tick`](crate::Policy::tick)) since the first pass of the driver. It is made
//!   from the monotonic instants that the driver brings, by [`Timekeeper`], and published in one atomic that beats
//!   read. No wall clock and no time said by a worker enters here (G8).
//! - It never goes backward: an instant before the last one counts as no time passed.
//! - It stands still while the engine does. A distance between two passes longer than
//!   [`Policy::gap`](crate::Policy::gap) is the engine's own pause, and is left out: every deadline moves by it, once (G9).
//! - Rounding happens in [`ticks`], up. What the published time lags behind the true one is measured here
//!   ([`Timekeeper::lag`]) and added once, where a deadline is made, so that nobody is reaped early (G2, G3).

use std::time::{Duration, Instant};

/// The one place where this crate reads the monotonic clock.
#[must_use]
pub(crate) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "this is that place")]
    Instant::now()
}

/// `span` in ticks of length `tick`, rounded up.
pub(crate) fn ticks(span: Duration, tick: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(tick.as_nanos())).unwrap_or(u64::MAX)
}

/// `count` ticks of length `tick` as a duration, saturating.
pub(crate) fn span(count: u64, tick: Duration) -> Duration {
    let nanos = tick.as_nanos().saturating_mul(u128::from(count));
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
}

/// What one pass found about time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Ticks by which time advanced.
    pub(crate) ticks: u64,
    /// The pause that was left out instead.
    pub(crate) gap: Option<Duration>,
}

/// Turns the driver's instants into ticks. Owned by the driver.
#[derive(Debug)]
pub(crate) struct Timekeeper {
    tick: Duration,
    last: Option<Instant>,
    /// Part of a tick that has passed but is not counted yet.
    carry: Duration,
    elapsed: u64,
    lag: WindowedMax,
    /// As `lag`, for what runs longer than any worker may be silent.
    long_lag: WindowedMax,
}

impl Timekeeper {
    pub(crate) fn new(tick: Duration) -> Self {
        Timekeeper {
            tick,
            last: None,
            carry: Duration::ZERO,
            elapsed: 0,
            lag: WindowedMax::default(),
            long_lag: WindowedMax::default(),
        }
    }

    /// Ticks since the first pass, pauses left out.
    pub(crate) fn elapsed(&self) -> u64 {
        self.elapsed
    }

    /// Advances to `now`. A distance of more than `gap` is left out. `window`, in ticks, is how long a lag is
    /// remembered: as long as any worker's beat may still be waiting for its deadline.
    pub(crate) fn advance(&mut self, now: Instant, gap: Duration, window: u64) -> Step {
        let Some(last) = self.last else {
            self.last = Some(now);
            return Step { ticks: 0, gap: None };
        };
        let passed = now.saturating_duration_since(last);
        self.last = Some(last.max(now));
        if passed > gap {
            // The part of a tick is kept: what passed before the pause did pass.
            return Step { ticks: 0, gap: Some(passed) };
        }
        self.carry += passed;
        let mut ticks = 0;
        if self.carry >= self.tick {
            ticks = u64::try_from(self.carry.as_nanos() / self.tick.as_nanos()).unwrap_or(u64::MAX);
            self.carry -= span(ticks, self.tick);
            self.elapsed += ticks;
            self.lag.record(self.elapsed, ticks, window);
        }
        Step { ticks, gap: None }
    }

    /// The driver stops on purpose; time goes on with its next pass.
    pub(crate) fn pause(&mut self) {
        self.last = None;
    }

    /// How many ticks the published time may have been behind when a beat read it, within the window: a beat that
    /// read tick `k` happened before `k + lag`.
    pub(crate) fn lag(&self) -> u64 {
        // One tick for the part of a tick that counting cuts off, and the largest step between two publications.
        1 + self.lag.max().max(1)
    }

    /// Keeps the step of a pass for `window` ticks, beside what [`advance`](Timekeeper::advance) keeps: as long as any lease or
    /// deadline may run.
    pub(crate) fn keep_step(&mut self, ticks: u64, window: u64) {
        if ticks > 0 {
            self.long_lag.record(self.elapsed, ticks, window);
        }
    }

    /// As [`lag`](Timekeeper::lag), for a lease or a deadline.
    pub(crate) fn long_lag(&self) -> u64 {
        self.lag().max(1 + self.long_lag.max())
    }

    /// When the next tick is due, seen from the last pass.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        // At the end of time the next tick is now.
        self.last.map(|last| last.checked_add(self.tick - self.carry).unwrap_or(last))
    }
}

/// The maximum of what was recorded within the last one to two windows.
#[derive(Debug, Default)]
struct WindowedMax {
    current: u64,
    previous: u64,
    since: u64,
}

impl WindowedMax {
    fn record(&mut self, now: u64, value: u64, window: u64) {
        if now.saturating_sub(self.since) > window {
            self.previous = self.current;
            self.current = 0;
            self.since = now;
        }
        self.current = self.current.max(value);
    }

    fn max(&self) -> u64 {
        self.current.max(self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(100);
    const GAP: Duration = Duration::from_secs(1);
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn rounding_is_up_and_saturates() {
        assert_eq!(ticks(Duration::ZERO, TICK), 0);
        assert_eq!(ticks(Duration::from_nanos(1), TICK), 1);
        assert_eq!(ticks(TICK, TICK), 1);
        assert_eq!(ticks(TICK + Duration::from_nanos(1), TICK), 2);
        assert_eq!(ticks(Duration::MAX, Duration::from_nanos(1)), u64::MAX);
        assert_eq!(span(u64::MAX, TICK), Duration::MAX);
    }

    #[test]
    fn parts_of_ticks_add_up() {
        let start = now();
        let mut time = Timekeeper::new(TICK);
        for pass in 0..=1000 {
            time.advance(start + MS * 33 * pass, GAP, 600);
        }
        assert_eq!(time.elapsed(), 330);
        assert_eq!(time.next_tick(), Some(start + MS * 33_100));
    }

    #[test]
    fn backward_is_no_time_and_is_not_counted_twice() {
        let start = now();
        let mut time = Timekeeper::new(TICK);
        time.advance(start, GAP, 600);
        time.advance(start + TICK * 5, GAP, 600);
        assert_eq!(time.advance(start, GAP, 600), Step { ticks: 0, gap: None });
        assert_eq!(time.advance(start + TICK * 5, GAP, 600), Step { ticks: 0, gap: None });
        assert_eq!(time.advance(start + TICK * 6, GAP, 600), Step { ticks: 1, gap: None });
    }

    #[test]
    fn a_gap_is_left_out_once_and_whole() {
        let start = now();
        let mut time = Timekeeper::new(TICK);
        time.advance(start, GAP, 600);
        let hour = Duration::from_secs(3600);
        assert_eq!(time.advance(start + hour, GAP, 600), Step { ticks: 0, gap: Some(hour) });
        assert_eq!(time.advance(start + hour + TICK, GAP, 600), Step { ticks: 1, gap: None });
        assert_eq!(time.lag(), 2, "a pause that was left out is no lag");
    }

    #[test]
    fn a_slow_pass_is_remembered_as_lag_for_a_window() {
        let start = now();
        let mut time = Timekeeper::new(TICK);
        time.advance(start, GAP, 10);
        time.advance(start + TICK * 7, GAP, 10);
        assert_eq!(time.lag(), 8);
        for tick in 8..=17 {
            time.advance(start + TICK * tick, GAP, 10);
            assert_eq!(time.lag(), 8, "a beat of before the slow pass may still be waiting");
        }
        for tick in 18..=40 {
            time.advance(start + TICK * tick, GAP, 10);
        }
        assert_eq!(time.lag(), 2);
    }

    #[test]
    fn a_pause_on_purpose_is_neither_time_nor_gap() {
        let start = now();
        let mut time = Timekeeper::new(TICK);
        time.advance(start, GAP, 600);
        time.pause();
        assert_eq!(time.advance(start + Duration::from_secs(9), GAP, 600), Step { ticks: 0, gap: None });
    }
}
