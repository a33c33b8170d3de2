#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod clock;
mod driver;
mod engine;
mod error;
mod event;
mod hangup;
mod hello;
mod policy;
mod reaper;
mod registry;
#[cfg(feature = "server")]
pub mod server;
mod session;
mod snapshot;
mod state;
mod sync;
mod vitals;
pub mod wheel;
mod worker;

pub use driver::Pass;
pub use error::{ConnectError, Gone, InvalidHello, PolicyError, UnknownWorker};
pub use event::{Ended, Event, Item, Lagged, Subscriber};
pub use hangup::Hangup;
pub use hello::{Beat, Hello, Wid};
pub use policy::{Identity, Limits, Policy};
pub use reaper::{Reaper, SpawnError};
pub use registry::Registry;
pub use session::{Changed, Session};
pub use snapshot::{Snapshot, Stats};
pub use state::{EndReason, Health, Incarnation, UnknownState, WorkerState};
pub use worker::WorkerInfo;
