//! Whether a concurrent history has an order in which, one step at a time, it agrees with the specification (Wing and Gong, 1993), with
//! the states that led nowhere remembered (Lowe, 2017).

use std::collections::HashSet;

use crate::spec::{Fact, Op, Progress, Rules, Spec};
use heartwheel::LeaseEnd;

/// An operation with the instants, by one counter for all threads, between which it took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) from: u64,
    pub(crate) op: Op,
    pub(crate) to: u64,
}

/// What happened to one wid: the calls of each thread in its order, the events in theirs, and the leases that were lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) threads: Vec<Vec<Call>>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) lost: Vec<(u64, LeaseEnd)>,
}

/// How far each thread has come, and the state that this led to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Point {
    threads: Vec<(usize, Progress)>,
    spec: Spec,
}

impl History {
    /// Whether there is such an order.
    pub(crate) fn is_linearizable(&self, rules: &Rules) -> bool {
        let threads = vec![(0, Progress::default()); self.threads.len()];
        let mut open = vec![Point { threads, spec: Spec::new() }];
        let mut known = HashSet::new();
        while let Some(point) = open.pop() {
            let current: Vec<_> =
                point.threads.iter().zip(&self.threads).map(|(&(n, _), calls)| calls.get(n)).collect();
            if current.iter().all(Option::is_none) {
                if point.spec.is_final(&self.facts, &self.lost) {
                    return true;
                }
                continue;
            }
            // A call that began after another one had returned comes after it.
            let first_return = current.iter().flatten().map(|call| call.to).min().unwrap_or(u64::MAX);
            for (thread, call) in current.iter().enumerate() {
                let Some(call) = call.filter(|call| call.from < first_return) else { continue };
                let (n, progress) = point.threads[thread];
                for (spec, progress) in point.spec.after(&call.op, progress, rules, &self.facts) {
                    let mut threads = point.threads.clone();
                    threads[thread] = match progress {
                        Some(progress) => (n, progress),
                        None => (n + 1, Progress::default()),
                    };
                    let next = Point { threads, spec };
                    if known.insert(next.clone()) {
                        open.push(next);
                    }
                }
            }
        }
        false
    }
}
