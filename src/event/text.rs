//! An event as a line of a log.

use std::fmt;

use super::{Ended, Event, Lost, NotDone};
use crate::lease::{LeaseEnd, LeaseInfo};
use crate::policy::Overdue;

/// One line for a log, for people; programs take the fields.
///
/// ```
/// # use heartwheel::{Hello, Policy, Registry};
/// # let registry = Registry::new(Policy::default())?;
/// let events = registry.subscribe(10);
/// let session = registry.connect(Hello::new("w1")?.hostname("app-1").pid(40275), |_| {})?;
/// let event = events.try_recv().expect("a worker joined")?;
/// assert_eq!(event.to_string(), "worker w1 of process 40275 on app-1 joined, running");
/// drop(session);
/// let event = events.try_recv().expect("its last connection closed")?;
/// assert_eq!(event.to_string(), "worker w1 left, running, heard 0ns ago");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Joined(worker) => {
                write!(f, "worker {}", worker.wid())?;
                if let Some(pid) = worker.pid() {
                    write!(f, " of process {pid}")?;
                }
                if !worker.hostname().is_empty() {
                    write!(f, " on {}", worker.hostname().escape_debug())?;
                }
                write!(f, " joined, {}", worker.state())?;
                if worker.is_cordoned() { f.write_str(", cordoned") } else { Ok(()) }
            }
            Event::Told { wid, state, .. } => write!(f, "worker {wid} is told {state}"),
            Event::Late(worker) => {
                write!(f, "worker {} is late: silent for {:?}", worker.wid(), worker.age())
            }
            Event::Back { wid, .. } => write!(f, "worker {wid} is heard again"),
            Event::Cordoned { wid, cordoned: true, .. } => write!(f, "worker {wid} is cordoned"),
            Event::Cordoned { wid, cordoned: false, .. } => write!(f, "worker {wid} is no longer cordoned"),
            Event::Overdue(NotDone { worker, held, then }) => {
                write!(f, "worker {} is overdue to {}", worker.wid(), worker.state())?;
                if !held.is_empty() {
                    leases(f, ", holds", held)?;
                }
                f.write_str(match then {
                    Overdue::Leave => "",
                    Overdue::Close => "; its connections are closed",
                    Overdue::End => "; it is ended",
                })
            }
            Event::Lost(Lost { wid, how, leases: lost, .. }) => {
                write!(f, "worker {wid} lost")?;
                leases(f, "", lost)?;
                f.write_str(match how {
                    LeaseEnd::HolderEnded => ": it has ended",
                    _ => ": the time ran out",
                })
            }
            Event::Ended(Ended { worker, reason }) => {
                write!(
                    f,
                    "worker {} {reason}, {}, heard {:?} ago",
                    worker.wid(),
                    worker.state(),
                    worker.age()
                )?;
                match worker.connections() {
                    0 => Ok(()),
                    1 => f.write_str(", 1 connection open"),
                    n => write!(f, ", {n} connections open"),
                }
            }
            Event::MassSilence { fleet, expired } => {
                write!(f, "mass silence: {expired} of {fleet} workers expired, the rest is held")
            }
            Event::SilenceOver { held } => write!(f, "mass silence is over, {held} workers were held"),
            Event::Gap(gap) => write!(f, "the engine stood still for {gap:?}; every deadline moved by it"),
        }
    }
}

/// How many they are, and which the first ones.
fn leases(f: &mut fmt::Formatter<'_>, verb: &str, leases: &[LeaseInfo]) -> fmt::Result {
    const NAMED: usize = 3;
    write!(f, "{verb} {} lease{}", leases.len(), if leases.len() == 1 { "" } else { "s" })?;
    for (n, lease) in leases.iter().take(NAMED).enumerate() {
        write!(f, "{} {}", if n == 0 { ":" } else { "," }, lease.id.escape_debug())?;
    }
    if leases.len() > NAMED { f.write_str(", …") } else { Ok(()) }
}
