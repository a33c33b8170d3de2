//! Jobs on the wire: what a worker holds is a lease of the engine, with all that follows.

#![cfg(feature = "server")]

mod served;

use std::time::{Duration, Instant};

use heartwheel::WorkerState;
use heartwheel::server::Recover;
use served::{Client, Served, config};

fn push(served: &Served, jids: &[&str]) {
    let mut producer = served.hello("{}");
    for jid in jids {
        let job = format!(r#"PUSH {{"jid":"{jid}","jobtype":"T","args":[],"reserve_for":3600}}"#);
        assert_eq!(producer.ask(&job), "+OK\r\n");
    }
}

fn ack(client: &mut Client, jid: &str) {
    assert_eq!(client.ask(&format!(r#"ACK {{"jid":"{jid}"}}"#)), "+OK\r\n");
}

fn stats(served: &Served) -> serde_json::Value {
    serde_json::from_str(&served.get("/api/stats").1).unwrap()
}

#[test]
fn what_a_worker_holds_is_a_lease_of_its_own_and_runs_as_long_as_the_job_says() {
    let served = Served::start(config());
    push(&served, &["job-0001", "job-0002"]);
    let (mut first, mut second) = (served.worker("w1"), served.worker("w1"));
    assert!(first.ask_bulk("FETCH default").unwrap().contains("job-0001"));
    assert!(second.ask_bulk("FETCH default").unwrap().contains("job-0002"));
    assert_eq!(served.registry.get("w1").unwrap().leases(), 2);
    let (lease, left) = served.registry.lease("job-0001").unwrap();
    assert_eq!(lease.wid.as_str(), "w1");
    assert!(left > Duration::from_secs(3500) && left <= Duration::from_secs(3601), "{left:?}");
    // On another connection of the same worker than it was fetched on.
    ack(&mut second, "job-0001");
    assert_eq!(first.ask(r#"FAIL {"jid":"job-0002"}"#), "+OK\r\n");
    let stats = served.registry.stats();
    assert_eq!((stats.leases, stats.leases_completed, stats.leases_failed), (0, 1, 1));
}

#[test]
fn a_client_without_a_wid_is_given_no_job_and_may_acknowledge_for_others() {
    let served = Served::start(config());
    push(&served, &["job-0001"]);
    let mut producer = served.hello("{}");
    assert_eq!(producer.ask("FETCH default"), "-ERR FETCH needs a worker: say a wid in HELLO\r\n");
    assert!(served.worker("w1").ask_bulk("FETCH default").is_some());
    ack(&mut producer, "job-0001");
    assert_eq!(served.registry.stats().leases_completed, 1);
}

#[test]
fn a_worker_that_leaves_gives_its_jobs_back_at_once_if_that_is_the_rule() {
    let mut config = config();
    config.recover = Recover::AtDeath;
    let served = Served::start(config);
    push(&served, &["job-0001", "job-0002", "job-0003"]);
    let mut leaver = served.worker("w1");
    assert!(leaver.ask_bulk("FETCH default").unwrap().contains("job-0001"));
    assert!(leaver.ask_bulk("FETCH default").unwrap().contains("job-0002"));
    let mut stays = served.worker("w2");
    assert!(stays.ask_bulk("FETCH default").unwrap().contains("job-0003"));
    // Waits for what comes back.
    stays.send("FETCH default\r\n");
    leaver.send("END\r\n");
    assert!(stays.reply().contains("job-0001"), "back in its place");
    assert!(stays.ask_bulk("FETCH default").unwrap().contains("job-0002"));
    assert_eq!(served.registry.get("w2").unwrap().leases(), 3);
}

#[test]
fn a_late_ack_never_ends_the_new_holders_attempt() {
    let mut config = config();
    config.recover = Recover::AtDeath;
    let served = Served::start(config);
    push(&served, &["job-0001"]);
    let mut loser = served.worker("w1");
    assert!(loser.ask_bulk("FETCH default").is_some());
    loser.send("END\r\n");
    let mut holder = served.worker("w2");
    assert!(holder.ask_bulk("FETCH default").unwrap().contains("job-0001"));
    let mut again = served.worker("w1");
    ack(&mut again, "job-0001");
    assert_eq!(again.ask(r#"FAIL {"jid":"job-0001"}"#), "+OK\r\n");
    assert_eq!((&stats(&served)["jobs_stale"], &stats(&served)["jobs_processed"]), (&2.into(), &0.into()));
    assert_eq!(served.registry.get("w2").unwrap().leases(), 1);
    ack(&mut holder, "job-0001");
    assert_eq!((&stats(&served)["jobs_stale"], &stats(&served)["jobs_processed"]), (&2.into(), &1.into()));
}

#[test]
fn a_cordoned_worker_is_given_nothing_on_any_connection_and_does_not_ask_in_a_loop() {
    let mut config = config();
    config.fetch_hold = Duration::from_millis(300);
    let served = Served::start(config);
    let mut connections: Vec<_> = (0..2).map(|_| served.worker("w1")).collect();
    // Cordoned before it asks, and while it is held.
    connections[0].send("FETCH default\r\n");
    std::thread::sleep(Duration::from_millis(50));
    served.registry.cordon("w1", true).unwrap();
    push(&served, &["job-0001"]);
    assert_eq!(connections[0].reply(), "$-1\r\n");
    #[expect(clippy::disallowed_methods, reason = "the test's own stop watch")]
    let asked = Instant::now();
    assert_eq!(connections[1].ask("FETCH default"), "$-1\r\n");
    assert!(asked.elapsed() >= Duration::from_millis(300), "held, and not answered at once");
    let mut other = served.worker("w2");
    assert!(other.ask_bulk("FETCH default").is_some(), "what it was woken for went to another");
    push(&served, &["job-0002"]);
    served.registry.cordon("w1", false).unwrap();
    assert!(connections[1].ask_bulk("FETCH default").unwrap().contains("job-0002"));
}

/// A signal against every FETCH in flight: once it has returned, nothing is granted any more, whatever was on its way.
#[test]
fn quiet_against_fetches_in_flight() {
    let mut config = config();
    config.fetch_hold = Duration::from_millis(50);
    let served = Served::start(config);
    let jids: Vec<_> = (0..2000).map(|n| format!("job-{n:05}")).collect();
    push(&served, &jids.iter().map(String::as_str).collect::<Vec<_>>());
    for round in 0..20 {
        let wid = format!("w{round}");
        let mut connections: Vec<_> = (0..4).map(|_| served.worker(&wid)).collect();
        std::thread::scope(|scope| {
            let fetching: Vec<_> = connections
                .iter_mut()
                .map(|client| {
                    scope.spawn(move || {
                        let mut jobs = 0;
                        while jobs < 20 && client.ask("FETCH default") != "$-1\r\n" {
                            jobs += 1;
                        }
                        jobs
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_micros(200 * round));
            served.registry.signal(&wid, WorkerState::Quiet).unwrap();
            let granted = served.registry.get(&wid).unwrap().leases();
            let fetched: u32 = fetching.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert_eq!(fetched, granted, "every job was granted before the signal returned");
        });
        assert_eq!(connections[0].ask("FETCH default"), "$-1\r\n");
    }
}

#[test]
fn a_full_server_names_the_limit_and_keeps_what_it_took() {
    let mut config = config();
    config.jobs.max_jobs = 5;
    let served = Served::start(config);
    let mut worker = served.worker("w1");
    let full = "the job store is full: it may hold 5 jobs (max-jobs)";
    let job = |jid: &str, extra: &str| format!(r#"{{"jid":"{jid}","jobtype":"T","args":[]{extra}}}"#);
    // One reserved, one dead, one that waits for a retry, one scheduled, one queued.
    for (jid, extra) in [("reserved", ""), ("dead-job", r#","retry":0"#), ("retried1", "")] {
        assert_eq!(worker.ask(&format!("PUSH {}", job(jid, extra))), "+OK\r\n");
        assert!(worker.ask_bulk("FETCH default").unwrap().contains(jid));
    }
    assert_eq!(worker.ask(r#"FAIL {"jid":"dead-job"}"#), "+OK\r\n");
    assert_eq!(worker.ask(r#"FAIL {"jid":"retried1"}"#), "+OK\r\n");
    assert_eq!(
        worker.ask(&format!("PUSH {}", job("schedule", r#","at":"2999-01-01T00:00:00Z""#))),
        "+OK\r\n"
    );
    let refused =
        worker.ask_bulk(&format!("PUSHB [{},{}]", job("queued-1", ""), job("toomuch1", ""))).unwrap();
    assert_eq!(refused, format!(r#"{{"toomuch1":"{full}"}}"#));
    assert_eq!(worker.ask(&format!("PUSH {}", job("toomuch2", ""))), format!("-ERR {full}\r\n"));
    let info: serde_json::Value = serde_json::from_str(&worker.ask_bulk("INFO").unwrap()).unwrap();
    for set in ["Busy", "Scheduled", "Retries", "Dead"] {
        assert_eq!(info["faktory"]["tasks"][set]["size"], 1, "{set}");
    }
    assert_eq!(info["faktory"]["total_enqueued"], 1);
    // One is done: there is room for one.
    ack(&mut worker, "reserved");
    assert_eq!(worker.ask(&format!("PUSH {}", job("toomuch2", ""))), "+OK\r\n");
    assert!(worker.ask(&format!("PUSH {}", job("toomuch3", ""))).starts_with("-ERR "));
}
