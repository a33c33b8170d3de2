//! The settings of a registry, with the advice that goes with each.

use std::time::Duration;

use crate::clock;
use crate::error::{LeaseError, OutOfRange, PolicyError};

/// What happens when a HELLO brings the wid of a live worker from another process (another hostname or pid).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Identity {
    /// It joins the worker as one more connection. What clients of the Faktory protocol expect.
    #[default]
    Share,
    /// The old incarnation ends as [`Superseded`](crate::EndReason::Superseded), its connections are closed, and the newcomer begins a new one.
    Supersede,
    /// It is refused with [`ConnectError::Conflict`](crate::ConnectError::Conflict) while the other lives.
    Reject,
}

/// What becomes of a lease when its holder's incarnation ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recover {
    /// It ends with its holder; all of them in one [`Event::Lost`](crate::Event::Lost).
    #[default]
    AtDeath,
    /// It goes on until it runs out, and may be completed until then. The rule of the Faktory job server.
    AtExpiry,
}

/// What follows when a worker has not done in time what it was told, beside [`Event::Overdue`](crate::Event::Overdue).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overdue {
    /// Nothing: it is left alone.
    #[default]
    Leave,
    /// Its connections are closed. It ends when the last one is dropped.
    Close,
    /// Its incarnation ends as [`Expired`](crate::EndReason::Expired), and its connections are closed.
    End,
}

/// When silence is held to be the engine's own, or the network's, rather than that of so many workers: no more than
/// `share` of the fleet expires within one `window`. What is beyond is held, and looked at again a window later; once a whole
/// window finds fewer silent than that, they expire as usual. The idea is that of Eureka's self-preservation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Brake {
    /// Share of the live workers at the window's beginning, above 0 and up to 1. A quarter is a good beginning; if a
    /// lost rack is held as silence, raise it.
    pub share: f64,
    /// From one tick to [`Policy::MAX`]. Half a ttl to a ttl: shorter ones let more through in all.
    pub window: Duration,
    /// With fewer workers than this it does nothing: of three workers, two may well die at once.
    pub at_least: usize,
}

impl Default for Brake {
    fn default() -> Self {
        Brake { share: 0.25, window: Duration::from_secs(60), at_least: 20 }
    }
}

/// How large what a worker says of itself may be. Lengths are bytes of UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Longest wid. Default 255; 1 to 4096.
    pub wid: usize,
    /// Longest hostname. Default 255; at most 4096.
    pub hostname: usize,
    /// Most labels of one worker. Default 64; at most 4096.
    pub labels: usize,
    /// Longest label, and longest version. Default 255; at most 4096.
    pub label: usize,
    /// Longest id of a lease. Default 255; 1 to 4096.
    pub lease: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { wid: 255, hostname: 255, labels: 64, label: 255, lease: 255 }
    }
}

/// The settings of a [`Registry`](crate::Registry). Start from the default and change what you must:
///
/// ```
/// use std::time::Duration;
/// use heartwheel::{Policy, Registry};
///
/// let mut policy = Policy::default();
/// policy.ttl = Duration::from_secs(30);
/// let registry = Registry::new(policy)?;
/// # Ok::<(), heartwheel::PolicyError>(())
/// ```
///
/// A value outside its range is an error, never a clamp. Durations are at most [`Policy::MAX`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Policy {
    /// How long a worker may be silent before it is reaped. Default 60 s; at least one tick.
    ///
    /// Three to four times the interval at which workers beat survives one lost beat and a slow one. If healthy workers are
    /// reaped under load, their beats are late: raise it. If work of dead workers waits too long, lower it.
    pub ttl: Duration,
    /// The unit of the engine's time, and the longest regular distance of two passes of the driver. Default 100 ms;
    /// 1 ms to one minute. Fixed for the life of a registry.
    ///
    /// With regular passes a dead worker is reaped between one and two ticks after its ttl. A finer tick wakes the driver more often, and
    /// costs beats nothing.
    pub tick: Duration,
    /// A silence longer than this shows a worker as [`Late`](crate::Health::Late). Default half of what the worker may be silent
    /// (`None`), which is 30 s; up to `ttl`.
    ///
    /// Twice the interval of beats shows who missed one. It decides nothing; with `ttl` there are no events about it but for whom the
    /// brake holds, and the driver looks at each worker less often.
    pub late_after: Option<Duration>,
    /// How long the state that a worker was told outlives it, for the same process to come back to. Default one
    /// ttl (`None`); zero switches it off. With [`Identity::Share`] the process is the one that said HELLO first.
    ///
    /// Kept when a worker expires, and when one told to quiet closes its last connection: some clients close it and say
    /// HELLO again at once, and would be handed work they were told not to take. A worker told to terminate that leaves in
    /// order is forgotten, for its next HELLO is its restart.
    pub remember: Option<Duration>,
    /// Most states remembered at once. Default 100 000; about 250 bytes each. Past it a worker that ends is forgotten,
    /// and [`Stats::not_remembered`](crate::Stats::not_remembered) counts it.
    pub max_remembered: usize,
    /// A distance of two passes of the driver longer than this is taken for a pause of the engine itself (a stopped
    /// process, a paused machine, starvation), and moves every deadline by that pause. Default ten ticks (`None`), which is
    /// 1 s; from two ticks up, for no driver comes exactly on the tick.
    ///
    /// It must be longer than the regular distance at which you call [`Registry::reap`](crate::Registry::reap), or the engine's
    /// time stands still: [`Event::Gap`](crate::Event::Gap) on every pass is the symptom.
    pub gap: Option<Duration>,
    /// What to do when another process brings the wid of a live worker. Default [`Identity::Share`].
    pub identity: Identity,
    /// Within what time a worker that is told to terminate must have left, unless the call says otherwise. Default 30 s;
    /// from 1 ms up; `None`: no deadline.
    pub grace: Option<Duration>,
    /// What follows when it has not. Default [`Overdue::Leave`].
    pub overdue: Overdue,
    /// Shortest ttl of a lease. Default `None`, which is one tick.
    pub lease_min: Option<Duration>,
    /// Longest ttl of a lease. Default one day.
    pub lease_max: Duration,
    /// What becomes of the leases of a worker that ends. Default [`Recover::AtDeath`].
    pub recover: Recover,
    /// Keep the last intervals between each worker's beats, for [`WorkerInfo::phi`](crate::WorkerInfo::phi). Default off: it costs
    /// 132 bytes a worker, and a few instructions a beat. For workers that join while it is on.
    pub suspicion: bool,
    /// Hold mass silence. Default `None`: every silent worker expires.
    pub brake: Option<Brake>,
    /// How large what a worker says may be.
    pub limits: Limits,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            ttl: Duration::from_secs(60),
            tick: Duration::from_millis(100),
            late_after: None,
            remember: None,
            max_remembered: 100_000,
            gap: None,
            identity: Identity::default(),
            grace: Some(Duration::from_secs(30)),
            overdue: Overdue::default(),
            lease_min: None,
            lease_max: Duration::from_secs(24 * 60 * 60),
            recover: Recover::default(),
            suspicion: false,
            brake: None,
            limits: Limits::default(),
        }
    }
}

impl Policy {
    /// The longest duration any field takes: one year.
    pub const MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    /// Checks every value.
    ///
    /// # Errors
    /// The first value outside its range, with the range.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let within = OutOfRange::check;
        within("tick", self.tick, Duration::from_millis(1), Duration::from_secs(60))?;
        within("ttl", self.ttl, self.tick, Policy::MAX)?;
        within("late_after", self.late_after(), Duration::ZERO, self.ttl)?;
        within("remember", self.remember(), Duration::ZERO, Policy::MAX)?;
        within("gap", self.gap(), self.tick * 2, Policy::MAX)?;
        if let Some(grace) = self.grace {
            self.check_grace(grace)?;
        }
        within("lease_max", self.lease_max, self.tick, Policy::MAX)?;
        within("lease_min", self.lease_min(), self.tick, self.lease_max)?;
        if let Some(brake) = &self.brake {
            within("brake.window", brake.window, self.tick, Policy::MAX)?;
            if !(brake.share > 0.0 && brake.share <= 1.0) {
                return Err(PolicyError::ShareOutOfRange { share: brake.share });
            }
        }
        let within = |field, value: usize, min, max| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(PolicyError::LimitOutOfRange { field, value, min, max })
            }
        };
        within("limits.wid", self.limits.wid, 1, 4096)?;
        within("limits.hostname", self.limits.hostname, 0, 4096)?;
        within("limits.labels", self.limits.labels, 0, 4096)?;
        within("limits.label", self.limits.label, 0, 4096)?;
        within("limits.lease", self.limits.lease, 1, 4096)
    }

    /// How long a told state is remembered: `remember`, or one ttl.
    #[must_use]
    pub fn remember(&self) -> Duration {
        self.remember.unwrap_or(self.ttl)
    }

    /// From which silence on a worker is late: `late_after`, or half a ttl.
    #[must_use]
    pub fn late_after(&self) -> Duration {
        self.late_after.unwrap_or(self.ttl / 2)
    }

    /// Which distance of two passes is taken for a pause: `gap`, or ten ticks.
    #[must_use]
    pub fn gap(&self) -> Duration {
        self.gap.unwrap_or(self.tick * 10)
    }

    /// The shortest ttl of a lease: `lease_min`, or one tick.
    #[must_use]
    pub fn lease_min(&self) -> Duration {
        self.lease_min.unwrap_or(self.tick)
    }

    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), OutOfRange> {
        OutOfRange::check("ttl", ttl, self.tick, Policy::MAX)
    }

    pub(crate) fn check_grace(&self, grace: Duration) -> Result<(), OutOfRange> {
        OutOfRange::check("grace", grace, Duration::from_millis(1), Policy::MAX)
    }

    pub(crate) fn check_lease(&self, ttl: Duration) -> Result<(), OutOfRange> {
        OutOfRange::check("the ttl of a lease", ttl, self.lease_min(), self.lease_max)
    }

    pub(crate) fn check_lease_id(&self, id: &str) -> Result<(), LeaseError> {
        let (len, max) = (id.len(), self.limits.lease);
        if (1..=max).contains(&len) { Ok(()) } else { Err(LeaseError::InvalidId { len, max }) }
    }

    pub(crate) fn ticks(&self, span: Duration) -> u64 {
        clock::ticks(span, self.tick)
    }
}
