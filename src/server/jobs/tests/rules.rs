//! Each rule of the store by itself.

use super::super::store::OVERHEAD;
use super::*;
use crate::error::LeaseError;
use crate::state::WorkerState;

const NEARLY_A_SECOND: Duration = Duration::from_nanos(999_999_999);

/// Fetches from `default` and names what came.
fn take(store: &JobStore, fleet: &Fleet, n: usize) -> Option<String> {
    fleet.fetch(store, &["default"], n).map(|text| jid(&text))
}

fn push(store: &JobStore, jids: &[&str], now: Instant) {
    for jid in jids {
        store.push(job_with(jid, ""), now).unwrap();
    }
}

#[test]
fn first_queue_with_a_job_then_first_in_first_out() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    for (jid, queue) in [("low-0001", "low"), ("high-001", "high"), ("high-002", "high")] {
        store.push(job_in(jid, queue), now).unwrap();
    }
    let mut got = Vec::new();
    while let Some(text) = fleet.fetch(&store, &["none", "high", "low"], 1) {
        got.push(jid(&text));
    }
    assert_eq!(got, ["high-001", "high-002", "low-0001"]);
    assert_eq!(fleet.fetch(&store, &[], 1), None);
}

#[test]
fn a_job_that_may_not_be_leased_stays_next_and_others_are_untouched() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    push(&store, &["job-0001", "job-0002", "job-0003"], now);
    take(&store, &fleet, 1);
    let wid = fleet.sessions[2].wid().as_str();
    fleet.registry.cordon(wid, true).unwrap();
    assert!(matches!(store.fetch(&["default"], &fleet.sessions[2]), Err(LeaseError::Cordoned)));
    fleet.registry.signal(wid, WorkerState::Quiet).unwrap();
    assert!(matches!(
        store.fetch(&["default"], &fleet.sessions[2]),
        Err(LeaseError::Told(WorkerState::Quiet))
    ));
    assert_eq!((store.counts().enqueued, store.counts().working), (2, 1));
    assert_eq!(store.ack("job-0002", fleet.id(2)), Ack::Unknown, "it was never handed out");
    assert_eq!(take(&store, &fleet, 3).as_deref(), Some("job-0002"));
    assert_eq!(store.ack("job-0001", fleet.id(1)), Ack::Done);
    assert_eq!(fleet.registry.stats().leases, 1);
}

#[test]
fn priority_orders_nothing() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    store.push(job_with("first-001", r#","priority":1"#), now).unwrap();
    store.push(job_with("second-01", r#","priority":9"#), now).unwrap();
    assert_eq!(take(&store, &fleet, 1).as_deref(), Some("first-001"));
    let text = fleet.fetch(&store, &["default"], 1).unwrap();
    assert_eq!(value(&text)["priority"], 9);
}

#[test]
fn ack_ends_an_attempt_once() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    push(&store, &["job-0001"], now);
    assert_eq!(store.ack("job-0001", fleet.id(1)), Ack::Unknown, "not handed out yet");
    take(&store, &fleet, 1);
    assert_eq!(store.ack("job-0001", fleet.id(1)), Ack::Done);
    assert_eq!(store.ack("job-0001", fleet.id(1)), Ack::Unknown);
    let counts = store.counts();
    assert_eq!((counts.processed, counts.failures, counts.stale, counts.bytes), (1, 0, 0, 0));
}

#[test]
fn connections_of_one_worker_share_its_jobs_and_producers_act_for_anybody() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    push(&store, &["job-0001", "job-0002"], now);
    // One incarnation, two connections.
    let second =
        fleet.registry.connect(Hello::new(fleet.sessions[7].wid().as_str()).unwrap(), |_| {}).unwrap();
    assert!(store.fetch(&["default"], &second).unwrap().is_some());
    take(&store, &fleet, 7);
    assert_eq!(store.ack("job-0002", fleet.id(7)), Ack::Done);
    assert_eq!(store.ack("job-0001", None), Ack::Done);
}

#[test]
fn a_lost_holder_never_ends_the_new_holders_attempt() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtExpiry), start());
    fleet.pass(&store, now);
    push(&store, &["job-0001"], now);
    take(&store, &fleet, 1);
    let later = now + secs(1803);
    fleet.tick(later);
    assert_eq!(store.ack("job-0001", fleet.id(1)), Ack::Stale, "lost, and nobody has told of it yet");
    assert_eq!((fleet.hear(&store), fleet.hear(&store)), (1, 0));
    assert_eq!(store.ack("job-0001", fleet.id(1)), Ack::Stale, "it is back in its queue");
    assert_eq!(store.ack("job-0001", None), Ack::Stale);
    take(&store, &fleet, 2);
    assert_eq!(store.ack("job-0001", fleet.id(1)), Ack::Stale);
    assert_eq!(store.fail(fail("job-0001"), fleet.id(1), later), Ack::Stale);
    let counts = store.counts();
    assert_eq!((counts.working, counts.lost, counts.stale), (1, 1, 5));
    assert_eq!((counts.processed, counts.failures), (0, 0));
    assert_eq!(store.ack("job-0001", fleet.id(2)), Ack::Done);
    assert_eq!(store.ack("job-0001", fleet.id(1)), Ack::Unknown);
}

#[test]
fn a_reservation_runs_for_as_long_as_the_job_says_and_an_ack_counts_until_it_is_ended() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    fleet.pass(&store, now + secs(5));
    store.push(job_with("job-0001", r#","reserve_for":60"#), now).unwrap();
    take(&store, &fleet, 1);
    assert_eq!(fleet.pass(&store, now + secs(65)), 0);
    // Late, but nobody has taken it back: the work is done, and it counts.
    assert_eq!(store.ack("job-0001", fleet.id(1)), Ack::Done);

    store.push(job_with("job-0002", r#","reserve_for":60"#), now).unwrap();
    take(&store, &fleet, 1);
    assert_eq!(fleet.pass(&store, now + secs(65 + 63)), 1);
    assert_eq!((store.counts().working, store.counts().enqueued), (0, 1));
    assert_eq!(fleet.registry.stats().leases_expired, 1);
}

#[test]
fn what_comes_back_keeps_its_place() {
    let (store, mut fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    push(&store, &["job-0001", "job-0002", "job-0003", "job-0004", "job-0005"], now);
    for n in [1, 2, 1, 2] {
        take(&store, &fleet, n);
    }
    assert_eq!(fleet.end(&store, 2), 2);
    assert_eq!(fleet.end(&store, 1), 2);
    assert_eq!(fleet.end(&store, 1), 0, "once");
    let got: Vec<_> = std::iter::from_fn(|| take(&store, &fleet, 3)).collect();
    assert_eq!(got, ["job-0001", "job-0002", "job-0003", "job-0004", "job-0005"]);
}

#[test]
fn the_end_of_a_holder_takes_from_that_one_only_however_much_it_has() {
    let (store, mut fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    let jids: Vec<_> = (0..1000).map(|n| format!("job-{n:05}")).collect();
    for (n, jid) in jids.iter().enumerate() {
        store.push(job_with(jid, ""), now).unwrap();
        take(&store, &fleet, usize::from(n % 10 == 0));
    }
    assert_eq!(fleet.end(&store, 0), 900);
    assert_eq!((store.counts().working, store.counts().enqueued), (100, 900));
    assert_eq!(store.ack("job-00010", fleet.id(1)), Ack::Done);
}

#[test]
fn with_at_expiry_a_job_outlives_its_holder_and_is_the_holders_until_its_time_is_over() {
    let (store, mut fleet, now) = (store(), Fleet::new(Recover::AtExpiry), start());
    fleet.pass(&store, now);
    push(&store, &["job-0001"], now);
    take(&store, &fleet, 1);
    assert_eq!(fleet.end(&store, 1), 0);
    assert_eq!(
        store.ack("job-0001", fleet.id(1)),
        Ack::Stale,
        "a new incarnation holds nothing of the old one's"
    );
    assert_eq!(fleet.pass(&store, now + secs(1800)), 0);
    assert_eq!(fleet.pass(&store, now + secs(1803)), 1);
    assert_eq!(take(&store, &fleet, 1).as_deref(), Some("job-0001"));
}

#[test]
fn after_a_lag_what_was_lost_is_found_and_nothing_else() {
    let (store, mut fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    for n in 0..1000 {
        store.push(job_with(&format!("job-{n:05}"), ""), now).unwrap();
        take(&store, &fleet, n % 10);
    }
    assert_eq!(store.ack("job-00003", fleet.id(3)), Ack::Done);
    // Each of these is one event, and two fit.
    for n in 0..8 {
        let successor = join(&fleet.registry, n);
        fleet.sessions[n] = successor;
    }
    assert_eq!((fleet.hear(&store), fleet.hear(&store)), (799, 0));
    assert!(store.lost_unheard().is_empty());
    let counts = store.counts();
    assert_eq!((counts.enqueued, counts.working, counts.lost, counts.processed), (799, 200, 799, 1));
}

#[test]
fn at_is_a_deadline() {
    let (store, fleet, now, wall) = (store(), Fleet::new(Recover::AtDeath), start(), wall_now());
    let at = |ahead: i64| {
        let at = wall.checked_add(jiff::SignedDuration::from_secs(ahead)).unwrap();
        format!(r#","at":"{at}""#)
    };
    store.push_at(job_with("later-001", &at(100)), now, wall).unwrap();
    store.push_at(job_with("sooner-01", &at(50)), now, wall).unwrap();
    store.push_at(job_with("past-0001", &at(-50)), now, wall).unwrap();
    store.push_at(job_with("present-1", &at(0)), now, wall).unwrap();
    store.push(job_with("farthest1", r#","at":"9999-12-30T00:00:00Z""#), now).unwrap();
    assert_eq!((store.counts().scheduled, store.counts().enqueued), (3, 2));
    assert!(!store.advance(now + secs(49), 10));
    assert_eq!(store.counts().scheduled, 3);
    assert!(store.advance(now + secs(100), 1), "one more is due");
    assert!(!store.advance(now + secs(100), 1));
    let got: Vec<_> = std::iter::from_fn(|| take(&store, &fleet, 3)).collect();
    assert_eq!(got, ["past-0001", "present-1", "sooner-01", "later-001"]);
}

#[test]
fn advance_keeps_to_its_budget() {
    let (store, now, wall) = (store(), start(), wall_now());
    let at = wall.checked_add(jiff::SignedDuration::from_secs(5)).unwrap();
    for n in 0..1000 {
        store.push_at(job_with(&format!("job-{n:05}"), &format!(r#","at":"{at}""#)), now, wall).unwrap();
    }
    let later = now + secs(5);
    assert!(store.advance(later, 0));
    assert!(store.advance(later, 300));
    assert_eq!(store.counts().enqueued, 300);
    assert!(!store.advance(later, 700));
    assert_eq!((store.counts().scheduled, store.counts().enqueued), (0, 1000));
}

#[test]
fn a_failed_job_is_retried_then_dead() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    store.push(job_with("job-0001", r#","retry":4"#), now).unwrap();
    let mut now = now;
    for count in 0..5_u64 {
        let text = fleet.fetch(&store, &["default"], 1).expect("due by now");
        let before = value(&text)["failure"]["retry_count"].as_u64();
        assert_eq!(before, count.checked_sub(1));
        let report = Fail {
            jid: "job-0001".into(),
            errtype: Some("Oops".into()),
            message: Some("went \"wrong\"".into()),
            backtrace: Some(vec!["a".into(), "b".into()]),
        };
        assert_eq!(store.fail(report, fleet.id(1), now), Ack::Done);
        if count == 4 {
            break;
        }
        assert_eq!(store.counts().retries, 1);
        let shortest = count.pow(4) + 15;
        assert!(!store.advance(now + secs(shortest - 1) + NEARLY_A_SECOND, 1));
        assert_eq!(store.counts().retries, 1, "not before {shortest} s");
        now += secs(shortest + 29 * (count + 1));
        store.advance(now, 1);
        assert_eq!((store.counts().retries, store.counts().enqueued), (0, 1));
    }
    let counts = store.counts();
    assert_eq!((counts.dead, counts.dead_kept, counts.processed, counts.failures), (1, 1, 5, 5));
    assert_eq!((counts.working, counts.retries), (0, 0));
    let dead = value(&store.dead(10)[0]);
    let failure = &dead["failure"];
    assert_eq!((&failure["retry_count"], &failure["errtype"]), (&4.into(), &"Oops".into()));
    assert_eq!(failure["message"], "went \"wrong\"");
    assert_eq!(failure["backtrace"], serde_json::json!(["a", "b"]));
    assert!(failure.get("next_at").is_none() && failure["failed_at"].is_string());
}

#[test]
fn retry_zero_is_dead_at_once_and_minus_one_leaves_nothing() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    store.push(job_with("job-0001", r#","retry":0"#), now).unwrap();
    store.push(job_with("job-0002", r#","retry":-1"#), now).unwrap();
    take(&store, &fleet, 1);
    take(&store, &fleet, 1);
    assert_eq!(store.fail(fail("job-0001"), fleet.id(1), now), Ack::Done);
    assert_eq!(store.fail(fail("job-0002"), None, now), Ack::Done);
    assert_eq!(store.fail(fail("job-0002"), None, now), Ack::Unknown);
    let counts = store.counts();
    assert_eq!((counts.dead, counts.dead_kept, counts.failures, counts.processed), (1, 1, 2, 2));
}

#[test]
fn next_at_agrees_with_the_schedule() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    push(&store, &["job-0001"], now);
    take(&store, &fleet, 1);
    fastrand::seed(3);
    let delay = 15 + fastrand::i64(0..30);
    fastrand::seed(3);
    assert_eq!(store.fail(fail("job-0001"), fleet.id(1), now), Ack::Done);
    store.advance(now + secs(44), 1);
    let text = value(&fleet.fetch(&store, &["default"], 1).unwrap());
    let time = |name: &str| text["failure"][name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(time("next_at").duration_since(time("failed_at")).as_secs(), delay);
}

#[test]
fn a_failure_given_at_push_is_handed_on_and_goes_on_counting() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    let given = r#"{"retry_count":3,"own":[1.0]}"#;
    store.push(job_with("job-0001", &format!(r#","retry":4,"failure":{given}"#)), now).unwrap();
    let text = fleet.fetch(&store, &["default"], 1).unwrap();
    assert!(String::from_utf8_lossy(&text).contains(given));
    assert_eq!(store.fail(fail("job-0001"), fleet.id(1), now), Ack::Done);
    assert_eq!(store.counts().dead, 1, "3 retries and this one make 4");
    assert_eq!(value(&store.dead(1)[0])["failure"]["retry_count"], 4);
}

#[test]
fn a_job_does_not_grow_without_bound_by_failing() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    for (jid, extra, lines) in
        [("job-0001", "", 50), ("job-0002", r#","backtrace":3"#, 3), ("job-0003", r#","backtrace":0"#, 0)]
    {
        store.push(job_with(jid, &format!(r#"{extra},"retry":0"#)), now).unwrap();
        take(&store, &fleet, 1);
        let report = Fail {
            jid: jid.into(),
            errtype: Some("é".repeat(10_000)),
            message: Some("é".repeat(10_000)),
            backtrace: Some(vec!["xé".repeat(1000); 500]),
        };
        assert_eq!(store.fail(report, fleet.id(1), now), Ack::Done);
        let failure = &value(&store.dead(1)[0])["failure"];
        assert_eq!(failure["message"].as_str().unwrap().len(), 4096);
        assert_eq!(failure["errtype"].as_str().unwrap().len(), 512);
        let trace = failure.get("backtrace").map_or(0, |t| t.as_array().unwrap().len());
        assert_eq!(trace, lines);
    }
}

#[test]
fn the_dead_are_kept_and_count() {
    let fleet = Fleet::new(Recover::AtDeath);
    let (store, now) = (JobStore::new(Limits { max_jobs: 10, ..Limits::default() }), start());
    for n in 0..10 {
        let jid = format!("job-{n:05}");
        store.push(job_with(&jid, r#","retry":0"#), now).unwrap();
        take(&store, &fleet, 1);
        assert_eq!(store.fail(fail(&jid), fleet.id(1), now), Ack::Done);
    }
    let counts = store.counts();
    assert_eq!((counts.dead, counts.dead_kept), (10, 10));
    assert!(counts.bytes > 10 * OVERHEAD);
    let newest: Vec<_> = store.dead(2).iter().map(|text| jid(text)).collect();
    assert_eq!(newest, ["job-00009", "job-00008"]);
    assert!(matches!(store.push(job_with("job-0010", ""), now), Err(PushError::Full { unit: "jobs", .. })));
}

#[test]
fn a_full_store_refuses_and_loses_nothing() {
    let (fleet, now) = (Fleet::new(Recover::AtDeath), start());
    let store = JobStore::new(Limits { max_jobs: 2, max_bytes: usize::MAX });
    push(&store, &["job-0001", "job-0002"], now);
    let full = PushError::Full { limit: 2, unit: "jobs" };
    assert_eq!(store.push(job_with("job-0003", ""), now), Err(full));
    take(&store, &fleet, 1);
    assert_eq!(store.push(job_with("job-0003", ""), now), Err(full), "a reserved job can return");
    assert_eq!(store.ack("job-0001", fleet.id(1)), Ack::Done);
    push(&store, &["job-0003"], now);
    assert_eq!(store.counts().enqueued, 2);

    let store = JobStore::new(Limits { max_jobs: 10, max_bytes: 2 * (OVERHEAD + 200) });
    push(&store, &["job-0001", "job-0002"], now);
    assert!(matches!(store.push(job_with("job-0003", ""), now), Err(PushError::Full { unit: "bytes", .. })));
    // FAIL may pass the limit: the job was accepted.
    take(&store, &fleet, 1);
    let report = Fail { message: Some("m".repeat(1000)), ..fail("job-0001") };
    assert_eq!(store.fail(report, fleet.id(1), now), Ack::Done);
    assert!(store.counts().bytes > store.limits().max_bytes);
    assert_eq!((store.counts().retries, store.counts().enqueued), (1, 1));
}

#[test]
fn two_jobs_with_one_jid_do_not_meet() {
    let (store, mut fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    for n in 0..3 {
        store.push(job_with("same-jid", &format!(r#","n":{n}"#)), now).unwrap();
    }
    take(&store, &fleet, 2);
    take(&store, &fleet, 1);
    take(&store, &fleet, 2);
    let mut ids: Vec<_> = fleet.registry.leases().into_iter().map(|lease| lease.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), ids[0].as_str()), (3, "same-jid"), "each has a lease of its own");
    assert_eq!(store.ack("same-jid", fleet.id(2)), Ack::Done);
    assert_eq!(store.ack("same-jid", fleet.id(2)), Ack::Done);
    assert_eq!(store.ack("same-jid", fleet.id(2)), Ack::Stale, "the third is another's");
    assert_eq!(fleet.end(&store, 1), 1);
    let left = fleet.fetch(&store, &["default"], 3).unwrap();
    assert_eq!(value(&left)["n"], 1);
}

#[test]
fn flush_leaves_nothing() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    push(&store, &["job-0001", "job-0002", "job-0003"], now);
    store.push(job_with("job-0004", r#","at":"2999-01-01T00:00:00Z""#), now).unwrap();
    take(&store, &fleet, 1);
    take(&store, &fleet, 1);
    assert_eq!(store.fail(fail("job-0002"), fleet.id(1), now), Ack::Done);
    store.flush();
    assert_eq!(store.counts(), Counts::default());
    assert_eq!(store.names(), 0);
    assert_eq!(store.ack("job-0001", fleet.id(1)), Ack::Unknown);
    assert_eq!(fleet.registry.stats().leases, 0, "no lease is left without its job");
    push(&store, &["job-0005"], now);
    assert_eq!(take(&store, &fleet, 1).as_deref(), Some("job-0005"));
}

#[test]
fn names_of_queues_are_forgotten() {
    let (store, mut fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    for n in 0..100 {
        store.push(job_in("job-0001", &format!("queue-{n}")), now).unwrap();
    }
    assert_eq!((store.names(), store.counts().queues.len()), (100, 100));
    for n in 0..100 {
        fleet.fetch(&store, &[&format!("queue-{n}")], 1).unwrap();
    }
    assert_eq!((store.names(), store.counts().queues.len()), (0, 0));
    assert_eq!(fleet.end(&store, 1), 100);
    assert_eq!((store.names(), store.counts().queues["queue-7"]), (100, 1));
}

#[test]
fn enqueued_at_is_the_time_of_the_last_queueing() {
    let (store, fleet, now) = (store(), Fleet::new(Recover::AtDeath), start());
    let past: jiff::Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    store.push_at(job_with("job-0001", r#","at":"2020-01-01T00:01:00Z""#), now, past).unwrap();
    store.advance(now + secs(60), 1);
    let job = value(&fleet.fetch(&store, &["default"], 1).unwrap());
    assert_eq!(job["created_at"], "2020-01-01T00:00:00Z");
    assert!(job["enqueued_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap() > past);
}
