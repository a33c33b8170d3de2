//! What a worker says: who it is ([`Wid`], [`Hello`]) and that it is alive ([`Beat`]).

use std::borrow::Borrow;
use std::fmt;
use std::time::Duration;

use smol_str::SmolStr;

use crate::error::InvalidHello;
use crate::policy::Limits;
use crate::state::WorkerState;

/// A worker id, as the worker chose it: not white space only, without control characters.
/// Cheap to clone; up to 23 bytes are held inline.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wid(SmolStr);

impl Wid {
    /// Checks `wid`. How long it may be is [`Limits::wid`], checked when the worker connects.
    ///
    /// # Errors
    /// [`InvalidHello::BlankWid`] without a visible character, [`InvalidHello::ControlCharacter`] with a control character.
    pub fn new(wid: impl AsRef<str>) -> Result<Self, InvalidHello> {
        let wid = wid.as_ref();
        if let Some((at, _)) = wid.char_indices().find(|(_, c)| c.is_control()) {
            return Err(InvalidHello::ControlCharacter { at });
        }
        if wid.chars().all(char::is_whitespace) {
            return Err(InvalidHello::BlankWid);
        }
        Ok(Wid(SmolStr::new(wid)))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Wid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Wid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl AsRef<str> for Wid {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Wid {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl std::str::FromStr for Wid {
    type Err = InvalidHello;

    fn from_str(wid: &str) -> Result<Self, InvalidHello> {
        Wid::new(wid)
    }
}

/// What a worker says of itself when it connects. Immutable from then on, and shared by all who look at the worker.
///
/// A client without a wid is a producer: it is never registered, so there is nothing to say about it here.
///
/// ```
/// # fn main() -> Result<(), heartwheel::InvalidHello> {
/// let hello = heartwheel::Hello::new("4qpc2443vpvai")?.hostname("app-1").pid(40275).label("blue");
/// assert_eq!(hello.wid().as_str(), "4qpc2443vpvai");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    pub(crate) wid: Wid,
    pub(crate) hostname: SmolStr,
    pub(crate) pid: Option<i64>,
    pub(crate) version: SmolStr,
    pub(crate) ttl: Option<Duration>,
    pub(crate) labels: Vec<SmolStr>,
}

impl Hello {
    /// A worker with this id and nothing else said.
    ///
    /// # Errors
    /// As [`Wid::new`].
    pub fn new(wid: impl AsRef<str>) -> Result<Self, InvalidHello> {
        Ok(Hello {
            wid: Wid::new(wid)?,
            hostname: SmolStr::default(),
            pid: None,
            version: SmolStr::default(),
            ttl: None,
            labels: Vec::new(),
        })
    }

    /// The host the process runs on. With the pid it tells one process from another that brings the same wid.
    #[must_use]
    pub fn hostname(mut self, hostname: impl AsRef<str>) -> Self {
        self.hostname = SmolStr::new(hostname);
        self
    }

    /// The process id, as the worker's host numbers it.
    #[must_use]
    pub fn pid(mut self, pid: impl Into<i64>) -> Self {
        self.pid = Some(pid.into());
        self
    }

    /// The version of whatever it runs; as long as a label may be.
    #[must_use]
    pub fn version(mut self, version: impl AsRef<str>) -> Self {
        self.version = SmolStr::new(version);
        self
    }

    /// How long this worker may be silent, instead of the policy's ttl: from one tick to [`Policy::MAX`](crate::Policy::MAX).
    /// A further connection that says one changes it.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Adds a label; order and repeats are kept.
    #[must_use]
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.labels.push(SmolStr::new(label));
        self
    }

    /// The worker's id.
    #[must_use]
    pub fn wid(&self) -> &Wid {
        &self.wid
    }

    /// Whether both come from one process: same hostname and same pid (nothing said equals nothing said).
    #[must_use]
    pub fn same_process(&self, other: &Hello) -> bool {
        self.pid == other.pid && self.hostname == other.hostname
    }

    pub(crate) fn check(&self, limits: &Limits) -> Result<(), InvalidHello> {
        let within = |field, len, max| {
            if len > max { Err(InvalidHello::TooLong { field, len, max }) } else { Ok(()) }
        };
        within("wid", self.wid.as_str().len(), limits.wid)?;
        within("hostname", self.hostname.len(), limits.hostname)?;
        within("version", self.version.len(), limits.label)?;
        if self.labels.len() > limits.labels {
            return Err(InvalidHello::TooManyLabels { count: self.labels.len(), max: limits.labels });
        }
        self.labels.iter().try_for_each(|label| within("label", label.len(), limits.label))
    }

    /// Gives back what building it over-allocated.
    pub(crate) fn shrunk(mut self) -> Self {
        self.labels.shrink_to_fit();
        self
    }
}

/// One heartbeat: alive, and perhaps more.
///
/// ```
/// use heartwheel::{Beat, WorkerState};
/// let plain = Beat::default();
/// let full = Beat::default().rss_kb(54_176).state(WorkerState::Quiet);
/// assert_ne!(plain, full);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    pub(crate) rss_kb: Option<u64>,
    pub(crate) state: WorkerState,
}

impl Beat {
    /// The worker's resident memory in KiB. A beat without it keeps what was said last.
    #[must_use]
    pub fn rss_kb(mut self, rss_kb: u64) -> Self {
        self.rss_kb = Some(rss_kb);
        self
    }

    /// The state the worker says it is in: it can advance itself, never go back.
    #[must_use]
    pub fn state(mut self, state: WorkerState) -> Self {
        self.state = state;
        self
    }
}
