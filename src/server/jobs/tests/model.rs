//! The store against a model that is a plain list: any sequence of operations must give the same answers and counts.
//!
//! Reservations run out and holders die by the engine, whose reports are missed half of the time. Jobs carry a number of their own, so the model sees which of several jobs with one jid it was.

use proptest::prelude::*;

use super::*;

const QUEUES: [&str; 3] = ["a", "b", "c"];
const JIDS: usize = 8;

#[derive(Clone, Debug)]
enum Op {
    Push { jid: usize, queue: usize, ahead: u64, retry: i64, reserve_for: u64 },
    Fetch { first: usize, count: usize, holder: usize },
    Ack { jid: usize, holder: Option<usize> },
    Fail { jid: usize, holder: Option<usize>, seed: u64 },
    End { holder: usize },
    Sleep { seconds: u64 },
    Advance { budget: usize },
    Flush,
}

fn op() -> impl Strategy<Value = Op> {
    let holder = || prop_oneof![1 => Just(None), 4 => (0..3_usize).prop_map(Some)];
    let ahead = prop_oneof![3 => Just(0), 1 => 1..200_u64];
    prop_oneof![
        8 => (0..JIDS, 0..3_usize, ahead, -1..3_i64, 6..12_u64)
            .prop_map(|(jid, queue, ahead, retry, reserve_for)| Op::Push { jid, queue, ahead, retry, reserve_for: reserve_for * 10 }),
        8 => (0..3_usize, 0..4_usize, 0..3_usize).prop_map(|(first, count, holder)| Op::Fetch { first, count, holder }),
        5 => (0..JIDS, holder()).prop_map(|(jid, holder)| Op::Ack { jid, holder }),
        5 => (0..JIDS, holder(), any::<u64>()).prop_map(|(jid, holder, seed)| Op::Fail { jid, holder, seed }),
        1 => (0..3_usize).prop_map(|holder| Op::End { holder }),
        4 => (0..10_u64).prop_map(|tens| Op::Sleep { seconds: tens * 10 }),
        4 => (0..6_usize).prop_map(|budget| Op::Advance { budget }),
        1 => Just(Op::Advance { budget: 1000 }),
        1 => prop_oneof![9 => Just(Op::Advance { budget: 1 }), 1 => Just(Op::Flush)],
    ]
}

/// The one place a job is in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Queued,
    Scheduled { due: Instant, id: u64, retry: bool },
    Reserved { holder: Incarnation, attempt: u64, end: Instant },
    Done,
    Dropped,
    Dead,
}

#[derive(Debug)]
struct Entry {
    jid: usize,
    queue: usize,
    retry: i64,
    retries: Option<u64>,
    reserve_for: u64,
    /// Order in the queue.
    line: u64,
    returned: bool,
    place: Place,
}

#[derive(Debug, Default)]
struct Model {
    jobs: Vec<Entry>,
    last: u64,
    totals: Counts,
}

impl Model {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn queue_up(&mut self, n: usize) {
        let line = self.next();
        let job = &mut self.jobs[n];
        (job.line, job.returned, job.place) = (line, false, Place::Queued);
    }

    fn push(&mut self, entry: Entry, due: Option<Instant>) {
        let n = self.jobs.len();
        self.jobs.push(entry);
        match due {
            None => self.queue_up(n),
            Some(due) => self.jobs[n].place = Place::Scheduled { due, id: self.next(), retry: false },
        }
    }

    fn fetch(&mut self, queues: &[usize], holder: Incarnation, now: Instant) -> Option<usize> {
        let first_in = |queue: &usize| {
            let here = self.jobs.iter().enumerate();
            let here = here.filter(|(_, job)| job.queue == *queue && job.place == Place::Queued);
            here.min_by_key(|(_, job)| job.line).map(|(n, _)| n)
        };
        let n = queues.iter().find_map(first_in)?;
        let attempt = self.next();
        let end = now + secs(self.jobs[n].reserve_for);
        self.jobs[n].returned = false;
        self.jobs[n].place = Place::Reserved { holder, attempt, end };
        Some(n)
    }

    /// Which job an ACK or FAIL ends.
    fn finish(&mut self, jid: usize, by: Option<Incarnation>) -> Result<usize, Ack> {
        let mut mine = None;
        let mut known = false;
        for (n, job) in self.jobs.iter().enumerate().filter(|(_, job)| job.jid == jid) {
            known |= job.place == Place::Queued && job.returned;
            if let Place::Reserved { holder, attempt, .. } = job.place {
                known = true;
                if by.is_none_or(|by| by == holder) && mine.is_none_or(|(key, _)| (holder, attempt) < key) {
                    mine = Some(((holder, attempt), n));
                }
            }
        }
        let Some((_, n)) = mine else {
            self.totals.stale += u64::from(known);
            return Err(if known { Ack::Stale } else { Ack::Unknown });
        };
        self.totals.processed += 1;
        Ok(n)
    }

    fn fail(&mut self, jid: usize, by: Option<Incarnation>, now: Instant) -> Ack {
        let n = match self.finish(jid, by) {
            Err(refused) => return refused,
            Ok(n) => n,
        };
        self.totals.failures += 1;
        let count = self.jobs[n].retries.map_or(0, |n| n + 1);
        self.jobs[n].retries = Some(count);
        self.jobs[n].place = match u64::try_from(self.jobs[n].retry) {
            Err(_) => Place::Dropped,
            Ok(retry) if count >= retry => {
                self.totals.dead += 1;
                Place::Dead
            }
            Ok(_) => {
                let due = now + secs(count.pow(4) + 15 + fastrand::u64(0..30) * (count + 1));
                Place::Scheduled { due, id: self.next(), retry: true }
            }
        };
        Ack::Done
    }

    /// Puts back what `is_lost` says of its holder and its end.
    fn lose(&mut self, is_lost: impl Fn(Incarnation, Instant) -> bool) -> usize {
        let mut count = 0;
        for job in &mut self.jobs {
            if matches!(job.place, Place::Reserved { holder, end, .. } if is_lost(holder, end)) {
                (job.place, job.returned) = (Place::Queued, true);
                count += 1;
            }
        }
        self.totals.lost += count as u64;
        count
    }

    fn due(&self, now: Instant) -> Option<usize> {
        let due = self.jobs.iter().enumerate().filter_map(|(n, job)| match job.place {
            Place::Scheduled { due, id, .. } if due <= now => Some((due, id, n)),
            _ => None,
        });
        due.min().map(|(_, _, n)| n)
    }

    fn advance(&mut self, now: Instant, budget: usize) -> bool {
        for _ in 0..budget {
            let Some(n) = self.due(now) else { return false };
            self.queue_up(n);
        }
        self.due(now).is_some()
    }

    fn counts(&self) -> Counts {
        let mut counts = self.totals.clone();
        for job in &self.jobs {
            match job.place {
                Place::Queued => {
                    counts.enqueued += 1;
                    *counts.queues.entry(QUEUES[job.queue].to_owned()).or_default() += 1;
                }
                Place::Scheduled { retry: false, .. } => counts.scheduled += 1,
                Place::Scheduled { retry: true, .. } => counts.retries += 1,
                Place::Reserved { .. } => counts.working += 1,
                Place::Dead => counts.dead_kept += 1,
                Place::Done | Place::Dropped => {}
            }
        }
        counts
    }
}

fn name(jid: usize) -> String {
    format!("job-{jid:06}")
}

fn run(ops: Vec<Op>) {
    let (store, mut fleet, mut now, wall) = (store(), Fleet::new(Recover::AtDeath), start(), wall_now());
    fleet.pass(&store, now);
    let mut model = Model::default();
    for op in ops {
        match op {
            Op::Push { jid, queue, ahead, retry, reserve_for } => {
                let n = model.jobs.len();
                let at = wall.checked_add(jiff::SignedDuration::from_secs(ahead.cast_signed())).unwrap();
                let rest = format!(
                    r#","n":{n},"queue":"{}","at":"{at}","retry":{retry},"reserve_for":{reserve_for}"#,
                    QUEUES[queue]
                );
                store.push_at(job_with(&name(jid), &rest), now, wall).unwrap();
                let place = Place::Queued;
                let entry =
                    Entry { jid, queue, retry, reserve_for, retries: None, line: 0, returned: false, place };
                model.push(entry, (ahead > 0).then(|| now + secs(ahead)));
            }
            Op::Fetch { first, count, holder } => {
                let queues: Vec<usize> = (0..count).map(|i| (first + i) % 3).collect();
                let names: Vec<&str> = queues.iter().map(|&q| QUEUES[q]).collect();
                let got = fleet.fetch(&store, &names, holder).map(|text| value(&text)["n"].as_u64().unwrap());
                let holder = fleet.sessions[holder].incarnation();
                assert_eq!(got, model.fetch(&queues, holder, now).map(|n| n as u64));
            }
            Op::Ack { jid, holder } => {
                let holder = holder.and_then(|n| fleet.id(n));
                let expected = model.finish(jid, holder).map_or_else(
                    |refused| refused,
                    |n| {
                        model.jobs[n].place = Place::Done;
                        Ack::Done
                    },
                );
                assert_eq!(store.ack(&name(jid), holder), expected);
            }
            Op::Fail { jid, holder, seed } => {
                let holder = holder.and_then(|n| fleet.id(n));
                fastrand::seed(seed);
                let expected = model.fail(jid, holder, now);
                fastrand::seed(seed);
                assert_eq!(store.fail(fail(&name(jid)), holder, now), expected);
            }
            Op::End { holder: n } => {
                let ended = fleet.sessions[n].incarnation();
                assert_eq!(fleet.end(&store, n), model.lose(|holder, _| holder == ended));
            }
            Op::Sleep { seconds } => {
                now += secs(seconds);
                // All of this is in tens of seconds, of which the engine is late by three at the most.
                assert_eq!(fleet.pass(&store, now), model.lose(|_, end| end < now));
            }
            Op::Advance { budget } => assert_eq!(store.advance(now, budget), model.advance(now, budget)),
            Op::Flush => {
                store.flush();
                model = Model { last: model.last, ..Model::default() };
            }
        }
        let counts = store.counts();
        let live = counts.enqueued + counts.scheduled + counts.retries + counts.working;
        assert_eq!(counts.bytes == 0, live + counts.dead_kept == 0);
        assert_eq!(fleet.registry.stats().leases, counts.working);
        assert_eq!(Counts { bytes: 0, ..counts }, model.counts());
    }
    // Everything that is left comes out, once.
    for n in 0..3 {
        fleet.end(&store, n);
    }
    while store.advance(now + secs(1_000_000), 10) {}
    let left = model.counts();
    let rest = std::iter::from_fn(|| fleet.fetch(&store, &QUEUES, 9)).count();
    assert_eq!(rest, left.enqueued + left.scheduled + left.retries + left.working);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does(ops in prop::collection::vec(op(), 1..120)) {
        run(ops);
    }
}
