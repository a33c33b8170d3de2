//! The jobs of the server: what a job is, and where jobs are between PUSH and ACK.
//!
//! # Ground rules
//! - A [`JobStore`] is sans-I/O. It has no thread and no clock: `now` is an argument, and somebody must call
//!   [`advance`](JobStore::advance) and [`lost`](JobStore::lost). Wall time ([`wall_now`]) is text for people, with one exception
//!   that lies in its nature: `at` names a wall time. It becomes a monotonic deadline once, at PUSH, so a later clock step moves
//!   nothing.
//! - An accepted job is in exactly one place: queued, scheduled, reserved, or finished (done, dropped, dead).
//!   A full store refuses the new job; it never forgets an old one to make room.
//! - A reservation is a [`Lease`](crate::Lease) of the liveness engine, held by the incarnation of a worker and shared by all its
//!   connections. The lease decides: whether the worker may be given work at all, ACK against the end of its time, ACK against the
//!   holder's death. The store follows: it ends an attempt after it has won the lease, and puts a job back after the lease was lost.
//! - A job keeps its place in line. One that comes back returns to the place it was taken from: ahead of every job that was
//!   never handed out, and in the old order among its like.
//! - No user code, no waker included, runs while the store is locked, and no lease is granted or ended.
//!
//! `priority` is checked and kept but orders nothing: order is the order of queues in FETCH, then first in, first out.
//!
//! # Two jobs with one jid
//! A jid is not made unique; a second PUSH of it is a second job. While both are reserved, ACK or FAIL from a holder
//! ends one attempt of *that holder* (its oldest); without a holder it ends one attempt of the lowest incarnation.
//! Each ACK ends one attempt, so two jobs take two ACKs, and neither ever ends an attempt of another holder.

mod counts;
mod error;
mod failure;
mod job;
mod json;
mod store;
mod time;
mod wait;

pub use counts::{Counts, Limits};
pub use error::{JobError, PushError};
pub use failure::Fail;
pub use job::{Job, jid_of};
pub(super) use job::{MAX_JID, MAX_RESERVE};
pub use store::{Ack, JobStore, Requeued};
pub use time::wall_now;
pub use wait::Wait;

#[cfg(test)]
mod tests;
