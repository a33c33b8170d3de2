#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod brake;
mod clock;
mod drain;
mod driver;
mod engine;
mod error;
mod event;
mod hangup;
mod hello;
mod holding;
mod lease;
mod map;
mod plot;
mod policy;
mod reaper;
mod registry;
mod selector;
#[cfg(feature = "server")]
pub mod server;
mod session;
mod snapshot;
mod state;
pub mod suspicion;
mod sync;
mod timer;
mod transitions;
#[doc = include_str!("docs/verification.md")]
pub mod verification {}
mod vitals;
pub mod wheel;
mod worker;

pub use drain::{Drain, DrainError, DrainPhase, DrainPlan, DrainProgress, Share, Standing, Until};
pub use driver::Pass;
pub use error::{
    ConnectError, Gone, InvalidHello, LeaseError, NotHeld, OutOfRange, PolicyError, SignalError, TtlError,
    UnknownWorker,
};
#[cfg(feature = "stream")]
pub use event::EventStream;
pub use event::{Ended, Event, EventKind, Filter, Item, Lagged, Lost, NotDone, Subscriber};
pub use hangup::Hangup;
pub use hello::{Beat, Hello, Wid};
pub use lease::{Lease, LeaseEnd, LeaseInfo, Token};
pub use policy::{Brake, Identity, Limits, Overdue, Policy, Recover};
pub use reaper::{Reaper, SpawnError};
pub use registry::Registry;
pub use selector::{Compare, Selector, SelectorError, SelectorFault};
pub use session::{Changed, Session};
pub use snapshot::{Snapshot, Stats};
pub use state::{EndReason, Health, Incarnation, UnknownState, WorkerState};
pub use worker::WorkerInfo;
