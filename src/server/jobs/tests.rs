//! Tests of the job store: what a job may be, each rule by itself, all rules together against a model, threads, sleep.

use std::time::{Duration, Instant};

use super::*;

mod job;
mod model;
mod rules;
mod threads;
mod waiting;

/// Where the hand-moved clock of a test starts.
#[allow(clippy::disallowed_methods, reason = "only a start: no test measures time with it")]
fn start() -> Instant {
    Instant::now()
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A job with more fields, `extra` starting with a comma.
fn job_with(jid: &str, extra: &str) -> Job {
    let text = format!(r#"{{"jid":"{jid}","jobtype":"T","args":[1]{extra}}}"#);
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn job_in(jid: &str, queue: &str) -> Job {
    job_with(jid, &format!(r#","queue":"{queue}""#))
}

fn store() -> MemoryStore {
    MemoryStore::new(Limits::default())
}

fn value(text: &[u8]) -> serde_json::Value {
    serde_json::from_slice(text).expect("a store hands out JSON")
}

fn jid(text: &[u8]) -> String {
    jid_of(text).expect("a job has a jid")
}

fn fail(jid: &str) -> Fail {
    Fail { jid: jid.to_owned(), ..Fail::default() }
}
