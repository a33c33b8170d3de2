//! Each rule of the store by itself.

use super::super::memory::{DEAD_KEPT, OVERHEAD};
use super::*;

const NEARLY_A_SECOND: Duration = Duration::from_nanos(999_999_999);

/// Fetches from `default` and names what came.
fn take(store: &MemoryStore, holder: u64, now: Instant) -> Option<String> {
    store.fetch(&["default"], holder, now).map(|text| jid(&text))
}

fn push(store: &MemoryStore, jids: &[&str], now: Instant) {
    for jid in jids {
        store.push(job_with(jid, ""), now).unwrap();
    }
}

#[test]
fn first_queue_with_a_job_then_first_in_first_out() {
    let (store, now) = (store(), start());
    for (jid, queue) in [("low-0001", "low"), ("high-001", "high"), ("high-002", "high")] {
        store.push(job_in(jid, queue), now).unwrap();
    }
    let mut got = Vec::new();
    while let Some(text) = store.fetch(&["none", "high", "low"], 1, now) {
        got.push(jid(&text));
    }
    assert_eq!(got, ["high-001", "high-002", "low-0001"]);
    assert_eq!(store.fetch(&[], 1, now), None);
}

#[test]
fn a_job_given_back_is_next_again_and_others_are_untouched() {
    let (store, now) = (store(), start());
    push(&store, &["job-0001", "job-0002", "job-0003"], now);
    take(&store, 1, now);
    take(&store, 1, now);
    assert!(!store.give_back("job-0002", 2), "another's");
    assert!(store.give_back("job-0002", 1));
    assert!(!store.give_back("job-0002", 1), "once");
    assert_eq!(take(&store, 2, now).as_deref(), Some("job-0002"));
    assert_eq!(store.ack("job-0001", Some(1)), Ack::Done);
}

#[test]
fn priority_orders_nothing() {
    let (store, now) = (store(), start());
    store.push(job_with("first-001", r#","priority":1"#), now).unwrap();
    store.push(job_with("second-01", r#","priority":9"#), now).unwrap();
    assert_eq!(take(&store, 1, now).as_deref(), Some("first-001"));
    let text = store.fetch(&["default"], 1, now).unwrap();
    assert_eq!(value(&text)["priority"], 9);
}

#[test]
fn ack_ends_an_attempt_once() {
    let (store, now) = (store(), start());
    push(&store, &["job-0001"], now);
    assert_eq!(store.ack("job-0001", Some(1)), Ack::Unknown, "not handed out yet");
    take(&store, 1, now);
    assert_eq!(store.ack("job-0001", Some(1)), Ack::Done);
    assert_eq!(store.ack("job-0001", Some(1)), Ack::Unknown);
    let counts = store.counts();
    assert_eq!((counts.processed, counts.failures, counts.stale, counts.bytes), (1, 0, 0, 0));
}

#[test]
fn connections_of_one_worker_share_its_jobs_and_producers_act_for_anybody() {
    let (store, now) = (store(), start());
    push(&store, &["job-0001", "job-0002"], now);
    // One incarnation, two connections: the number is all that counts.
    take(&store, 7, now);
    take(&store, 7, now);
    assert_eq!(store.ack("job-0002", Some(7)), Ack::Done);
    assert_eq!(store.ack("job-0001", None), Ack::Done);
}

#[test]
fn a_lost_holder_never_ends_the_new_holders_attempt() {
    let (store, now) = (store(), start());
    push(&store, &["job-0001"], now);
    take(&store, 1, now);
    let later = now + secs(1800);
    assert!(!store.advance(later, 10));
    assert_eq!(store.ack("job-0001", Some(1)), Ack::Stale, "it is back in its queue");
    assert_eq!(store.ack("job-0001", None), Ack::Stale);
    take(&store, 2, later);
    assert_eq!(store.ack("job-0001", Some(1)), Ack::Stale);
    assert_eq!(store.fail(fail("job-0001"), Some(1), later), Ack::Stale);
    let counts = store.counts();
    assert_eq!((counts.working, counts.expired, counts.stale), (1, 1, 4));
    assert_eq!((counts.processed, counts.failures), (0, 0));
    assert_eq!(store.ack("job-0001", Some(2)), Ack::Done);
    assert_eq!(store.ack("job-0001", Some(1)), Ack::Unknown);
}

#[test]
fn a_reservation_ends_exactly_when_it_was_said() {
    let (store, now) = (store(), start());
    store.push(job_with("job-0001", r#","reserve_for":60"#), now).unwrap();
    take(&store, 1, now + secs(5));
    store.advance(now + secs(64) + NEARLY_A_SECOND, 10);
    assert_eq!(store.counts().working, 1);
    // Late, but nobody has taken it back: the work is done, and it counts.
    assert_eq!(store.ack("job-0001", Some(1)), Ack::Done);

    store.push(job_with("job-0002", r#","reserve_for":60"#), now).unwrap();
    take(&store, 1, now + secs(5));
    store.advance(now + secs(65), 10);
    assert_eq!((store.counts().working, store.counts().enqueued), (0, 1));
}

#[test]
fn what_comes_back_keeps_its_place() {
    let (store, now) = (store(), start());
    push(&store, &["job-0001", "job-0002", "job-0003", "job-0004", "job-0005"], now);
    for holder in [1, 2, 1, 2] {
        take(&store, holder, now);
    }
    assert_eq!(store.release(2, now), 2);
    assert_eq!(store.release(1, now), 2);
    assert_eq!(store.release(1, now), 0, "once");
    let got: Vec<_> = std::iter::from_fn(|| take(&store, 3, now)).collect();
    assert_eq!(got, ["job-0001", "job-0002", "job-0003", "job-0004", "job-0005"]);
}

#[test]
fn release_takes_from_one_holder_only_however_much_it_has() {
    let (store, now) = (store(), start());
    let jids: Vec<_> = (0..1000).map(|n| format!("job-{n:05}")).collect();
    for (n, jid) in jids.iter().enumerate() {
        store.push(job_with(jid, ""), now).unwrap();
        take(&store, u64::from(n % 10 == 0), now);
    }
    assert_eq!(store.release(0, now), 900);
    assert_eq!((store.counts().working, store.counts().enqueued), (100, 900));
    assert_eq!(store.ack("job-00010", Some(1)), Ack::Done);
}

#[test]
fn at_is_a_deadline() {
    let (store, now, wall) = (store(), start(), wall_now());
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
    let got: Vec<_> = std::iter::from_fn(|| take(&store, 3, now)).collect();
    assert_eq!(got, ["past-0001", "present-1", "sooner-01", "later-001"]);
}

#[test]
fn advance_keeps_to_its_budget() {
    let (store, now) = (store(), start());
    for n in 0..1000 {
        store.push(job_with(&format!("job-{n:05}"), ""), now).unwrap();
        take(&store, 1, now);
    }
    let later = now + secs(1800);
    assert!(store.advance(later, 0));
    assert!(store.advance(later, 300));
    assert_eq!(store.counts().expired, 300);
    assert!(!store.advance(later, 700));
    assert_eq!((store.counts().expired, store.counts().working), (1000, 0));
}

#[test]
fn a_failed_job_is_retried_then_dead() {
    let (store, now) = (store(), start());
    store.push(job_with("job-0001", r#","retry":4"#), now).unwrap();
    let mut now = now;
    for count in 0..5_u64 {
        let text = store.fetch(&["default"], 1, now).expect("due by now");
        let before = value(&text)["failure"]["retry_count"].as_u64();
        assert_eq!(before, count.checked_sub(1));
        let report = Fail {
            jid: "job-0001".into(),
            errtype: Some("Oops".into()),
            message: Some("went \"wrong\"".into()),
            backtrace: Some(vec!["a".into(), "b".into()]),
        };
        assert_eq!(store.fail(report, Some(1), now), Ack::Done);
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
    assert_eq!((counts.bytes, counts.working, counts.retries), (0, 0, 0));
    let dead = value(&store.dead(10)[0]);
    let failure = &dead["failure"];
    assert_eq!((&failure["retry_count"], &failure["errtype"]), (&4.into(), &"Oops".into()));
    assert_eq!(failure["message"], "went \"wrong\"");
    assert_eq!(failure["backtrace"], serde_json::json!(["a", "b"]));
    assert!(failure.get("next_at").is_none() && failure["failed_at"].is_string());
}

#[test]
fn retry_zero_is_dead_at_once_and_minus_one_leaves_nothing() {
    let (store, now) = (store(), start());
    store.push(job_with("job-0001", r#","retry":0"#), now).unwrap();
    store.push(job_with("job-0002", r#","retry":-1"#), now).unwrap();
    take(&store, 1, now);
    take(&store, 1, now);
    assert_eq!(store.fail(fail("job-0001"), Some(1), now), Ack::Done);
    assert_eq!(store.fail(fail("job-0002"), None, now), Ack::Done);
    assert_eq!(store.fail(fail("job-0002"), None, now), Ack::Unknown);
    let counts = store.counts();
    assert_eq!((counts.dead, counts.failures, counts.processed, counts.bytes), (1, 2, 2, 0));
}

#[test]
fn next_at_agrees_with_the_schedule() {
    let (store, now) = (store(), start());
    push(&store, &["job-0001"], now);
    take(&store, 1, now);
    fastrand::seed(3);
    let delay = 15 + fastrand::i64(0..30);
    fastrand::seed(3);
    assert_eq!(store.fail(fail("job-0001"), Some(1), now), Ack::Done);
    store.advance(now + secs(44), 1);
    let text = value(&store.fetch(&["default"], 1, now).unwrap());
    let time = |name: &str| text["failure"][name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(time("next_at").duration_since(time("failed_at")).as_secs(), delay);
}

#[test]
fn a_failure_given_at_push_is_handed_on_and_goes_on_counting() {
    let (store, now) = (store(), start());
    let given = r#"{"retry_count":3,"own":[1.0]}"#;
    store.push(job_with("job-0001", &format!(r#","retry":4,"failure":{given}"#)), now).unwrap();
    let text = store.fetch(&["default"], 1, now).unwrap();
    assert!(String::from_utf8_lossy(&text).contains(given));
    assert_eq!(store.fail(fail("job-0001"), Some(1), now), Ack::Done);
    assert_eq!(store.counts().dead, 1, "3 retries and this one make 4");
    assert_eq!(value(&store.dead(1)[0])["failure"]["retry_count"], 4);
}

#[test]
fn a_job_does_not_grow_without_bound_by_failing() {
    let (store, now) = (store(), start());
    for (jid, extra, lines) in
        [("job-0001", "", 50), ("job-0002", r#","backtrace":3"#, 3), ("job-0003", r#","backtrace":0"#, 0)]
    {
        store.push(job_with(jid, &format!(r#"{extra},"retry":0"#)), now).unwrap();
        take(&store, 1, now);
        let report = Fail {
            jid: jid.into(),
            errtype: Some("é".repeat(10_000)),
            message: Some("é".repeat(10_000)),
            backtrace: Some(vec!["xé".repeat(1000); 500]),
        };
        assert_eq!(store.fail(report, Some(1), now), Ack::Done);
        let failure = &value(&store.dead(1)[0])["failure"];
        assert_eq!(failure["message"].as_str().unwrap().len(), 4096);
        assert_eq!(failure["errtype"].as_str().unwrap().len(), 512);
        let trace = failure.get("backtrace").map_or(0, |t| t.as_array().unwrap().len());
        assert_eq!(trace, lines);
    }
}

#[test]
fn the_newest_dead_are_kept() {
    let (store, now) = (store(), start());
    for n in 0..DEAD_KEPT + 10 {
        let jid = format!("job-{n:05}");
        store.push(job_with(&jid, r#","retry":0"#), now).unwrap();
        take(&store, 1, now);
        assert_eq!(store.fail(fail(&jid), Some(1), now), Ack::Done);
    }
    let counts = store.counts();
    assert_eq!((counts.dead, counts.dead_kept), (DEAD_KEPT as u64 + 10, DEAD_KEPT));
    let newest: Vec<_> = store.dead(2).iter().map(|text| jid(text)).collect();
    assert_eq!(newest, [format!("job-{:05}", DEAD_KEPT + 9), format!("job-{:05}", DEAD_KEPT + 8)]);
    assert_eq!(jid(store.dead(usize::MAX).last().unwrap()), "job-00010");
}

#[test]
fn the_dead_have_a_share_of_the_bytes() {
    let (store, now) = (MemoryStore::new(Limits { max_jobs: 100, max_bytes: 80_000 }), start());
    for n in 0..50 {
        let jid = format!("job-{n:05}");
        store.push(job_with(&jid, &format!(r#","retry":0,"x":"{}""#, "x".repeat(2000))), now).unwrap();
        take(&store, 1, now);
        assert_eq!(store.fail(fail(&jid), Some(1), now), Ack::Done);
    }
    assert_eq!((store.counts().dead, store.counts().dead_kept), (50, 3));
}

#[test]
fn a_full_store_refuses_and_loses_nothing() {
    let now = start();
    let store = MemoryStore::new(Limits { max_jobs: 2, max_bytes: usize::MAX });
    push(&store, &["job-0001", "job-0002"], now);
    let full = PushError::Full { limit: 2, unit: "jobs" };
    assert_eq!(store.push(job_with("job-0003", ""), now), Err(full));
    take(&store, 1, now);
    assert_eq!(store.push(job_with("job-0003", ""), now), Err(full), "a reserved job can return");
    assert_eq!(store.ack("job-0001", Some(1)), Ack::Done);
    push(&store, &["job-0003"], now);
    assert_eq!(store.counts().enqueued, 2);

    let store = MemoryStore::new(Limits { max_jobs: 10, max_bytes: 2 * (OVERHEAD + 200) });
    push(&store, &["job-0001", "job-0002"], now);
    assert!(matches!(store.push(job_with("job-0003", ""), now), Err(PushError::Full { unit: "bytes", .. })));
    // FAIL may pass the limit: the job was accepted.
    take(&store, 1, now);
    let report = Fail { message: Some("m".repeat(1000)), ..fail("job-0001") };
    assert_eq!(store.fail(report, Some(1), now), Ack::Done);
    assert!(store.counts().bytes > store.limits().max_bytes);
    assert_eq!((store.counts().retries, store.counts().enqueued), (1, 1));
}

#[test]
fn two_jobs_with_one_jid_do_not_meet() {
    let (store, now) = (store(), start());
    for n in 0..3 {
        store.push(job_with("same-jid", &format!(r#","n":{n}"#)), now).unwrap();
    }
    take(&store, 2, now);
    take(&store, 1, now);
    take(&store, 2, now);
    assert_eq!(store.ack("same-jid", Some(2)), Ack::Done);
    assert_eq!(store.ack("same-jid", Some(2)), Ack::Done);
    assert_eq!(store.ack("same-jid", Some(2)), Ack::Stale, "the third is another's");
    assert_eq!(store.release(1, now), 1);
    let left = store.fetch(&["default"], 3, now).unwrap();
    assert_eq!(value(&left)["n"], 1);
}

#[test]
fn flush_leaves_nothing() {
    let (store, now) = (store(), start());
    push(&store, &["job-0001", "job-0002", "job-0003"], now);
    store.push(job_with("job-0004", r#","at":"2999-01-01T00:00:00Z""#), now).unwrap();
    take(&store, 1, now);
    take(&store, 1, now);
    assert_eq!(store.fail(fail("job-0002"), Some(1), now), Ack::Done);
    store.flush();
    assert_eq!(store.counts(), Counts::default());
    assert_eq!(store.names(), 0);
    assert_eq!(store.ack("job-0001", Some(1)), Ack::Unknown);
    assert_eq!(store.release(1, now), 0);
    push(&store, &["job-0005"], now);
    assert_eq!(take(&store, 1, now).as_deref(), Some("job-0005"));
}

#[test]
fn names_of_queues_are_forgotten() {
    let (store, now) = (store(), start());
    for n in 0..100 {
        store.push(job_in("job-0001", &format!("queue-{n}")), now).unwrap();
    }
    assert_eq!((store.names(), store.counts().queues.len()), (100, 100));
    for n in 0..100 {
        store.fetch(&[&format!("queue-{n}")], 1, now).unwrap();
    }
    assert_eq!((store.names(), store.counts().queues.len()), (0, 0));
    assert_eq!(store.release(1, now), 100);
    assert_eq!((store.names(), store.counts().queues["queue-7"]), (100, 1));
}

#[test]
fn enqueued_at_is_the_time_of_the_last_queueing() {
    let (store, now) = (store(), start());
    let past: jiff::Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    store.push_at(job_with("job-0001", r#","at":"2020-01-01T00:01:00Z""#), now, past).unwrap();
    store.advance(now + secs(60), 1);
    let job = value(&store.fetch(&["default"], 1, now).unwrap());
    assert_eq!(job["created_at"], "2020-01-01T00:00:00Z");
    assert!(job["enqueued_at"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap() > past);
}
