//! Tests of the job store: what a job may be, each rule by itself, all rules together against a model, threads, sleep.

use std::cell::Cell;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::*;
use crate::event::{EventKind, Filter, Subscriber};
use crate::hello::Hello;
use crate::policy::{Policy, Recover};
use crate::registry::Registry;
use crate::session::Session;
use crate::state::Incarnation;

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

fn store() -> JobStore {
    JobStore::new(Limits::default())
}

/// Ten workers, known by a number, and an engine whose time is moved by hand. What it reports lost waits in so small a channel that it
/// lags all the time.
struct Fleet {
    registry: Registry,
    lost: Subscriber,
    sessions: Vec<Session>,
    passed: Cell<Option<Instant>>,
}

/// How finely the engine of a fleet counts time. It is late by up to three of these.
const TICK: Duration = Duration::from_secs(1);

impl Fleet {
    fn new(recover: Recover) -> Self {
        let mut policy = Policy::default();
        (policy.ttl, policy.tick, policy.recover) = (Policy::MAX, TICK, recover);
        policy.limits.lease = 400;
        let registry = Registry::new(policy).unwrap();
        let lost = registry.subscribe_to(Filter::default().kinds([EventKind::Lost]), 2);
        let sessions = (0..10).map(|n| join(&registry, n)).collect();
        Self { registry, lost, sessions, passed: Cell::default() }
    }

    fn fetch(&self, store: &JobStore, queues: &[&str], n: usize) -> Option<Bytes> {
        store.fetch(queues, &self.sessions[n]).unwrap()
    }

    /// As whom worker `n` speaks.
    fn id(&self, n: usize) -> Option<Incarnation> {
        Some(self.sessions[n].incarnation())
    }

    /// Worker `n` ends, and comes back as a new incarnation. How many jobs came back.
    fn end(&mut self, store: &JobStore, n: usize) -> usize {
        let successor = join(&self.registry, n + 100);
        drop(std::mem::replace(&mut self.sessions[n], successor));
        self.hear(store)
    }

    /// The engine's time goes on to `now`, tick by tick: what ran out before is lost. How many jobs came back.
    fn pass(&self, store: &JobStore, now: Instant) -> usize {
        self.tick(now);
        self.hear(store)
    }

    fn tick(&self, now: Instant) {
        let mut at = self.passed.replace(Some(now)).unwrap_or(now);
        loop {
            while self.registry.reap(at, 1000).more {}
            if at >= now {
                return;
            }
            at = now.min(at + TICK);
        }
    }

    fn hear(&self, store: &JobStore) -> usize {
        let mut back = 0;
        while let Some(item) = self.lost.try_recv() {
            back += match item {
                Ok(crate::Event::Lost(lost)) => {
                    lost.leases.iter().filter(|lease| store.lost(lease.token).is_some()).count()
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => store.lost_unheard().len(),
            }
        }
        back
    }
}

fn join(registry: &Registry, n: usize) -> Session {
    registry.connect(Hello::new(format!("w{n}-{}", registry.stats().joined)).unwrap(), |_| {}).unwrap()
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
