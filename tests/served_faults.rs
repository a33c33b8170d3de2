//! The faults of the original that show on the wire, each of which must not be ours; and hostile input.

#![cfg(feature = "server")]

mod served;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heartwheel::WorkerState;
use heartwheel::server::Recover;
use served::{Client, Served, config, short};

const JOB: &str = r#"PUSH {"jid":"job-0001","jobtype":"T","args":[]}"#;
const NULL: &str = "$-1\r\n";

fn quick_fetch() -> heartwheel::server::Config {
    let mut config = config();
    config.fetch_hold = Duration::from_millis(200);
    config
}

#[test]
fn a_quieted_worker_is_given_no_job_on_any_of_its_connections() {
    let served = Served::start(quick_fetch());
    let mut connections: Vec<Client> = (0..3).map(|_| served.worker("w1")).collect();
    let mut producer = served.hello("{}");
    served.registry.signal("w1", WorkerState::Quiet).unwrap();
    assert_eq!(producer.ask(JOB), "+OK\r\n");
    for connection in &mut connections {
        assert_eq!(connection.ask("FETCH default"), NULL);
        assert_eq!(connection.ask(r#"BEAT {"wid":"w1"}"#), "$17\r\n{\"state\":\"quiet\"}\r\n");
    }
    let mut later = served.worker("w1");
    assert_eq!(later.ask("FETCH default"), NULL);
    let mut other = served.worker("w2");
    assert!(other.ask_bulk("FETCH default").unwrap().contains("job-0001"));
}

#[test]
fn a_fetch_that_is_held_ends_with_the_signal() {
    let served = Served::start(config());
    let mut worker = served.worker("w1");
    let mut producer = served.hello("{}");
    worker.send("FETCH default\r\n");
    std::thread::sleep(Duration::from_millis(100));
    served.registry.signal("w1", WorkerState::Quiet).unwrap();
    // The signal has returned: this job is for somebody else.
    assert_eq!(producer.ask(JOB), "+OK\r\n");
    assert_eq!(worker.reply(), NULL);
    assert!(served.worker("w2").ask_bulk("FETCH default").unwrap().contains("job-0001"));
}

#[test]
fn a_fetch_that_is_held_is_woken_by_a_push_and_one_whose_peer_has_gone_takes_nothing() {
    let served = Served::start(config());
    let mut producer = served.hello("{}");
    let mut gone = served.worker("gone");
    gone.send("FETCH default\r\n");
    std::thread::sleep(Duration::from_millis(50));
    drop(gone);
    served.until("it has left", |registry| registry.get("gone").is_none());
    let mut worker = served.worker("w1");
    worker.send("FETCH default\r\n");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(producer.ask(JOB), "+OK\r\n");
    assert!(worker.reply().contains("job-0001"));
}

#[test]
fn two_hundred_resets_after_hello_leave_no_worker() {
    let served = Served::start(config());
    for n in 0..200 {
        let mut client = served.connect();
        if n % 2 == 0 {
            client.line();
        }
        client.send(&format!("HELLO {{\"wid\":\"ghost-{n}\",\"v\":2}}\r\n"));
        socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    // A connection behind them all has been served: each of them was accepted.
    served.worker("last");
    served.until("no ghosts", |registry| registry.stats().live() == 0);
    let stats = served.registry.stats();
    assert_eq!((stats.connections, stats.expired), (0, 0));
}

#[test]
fn eight_threads_come_and_go_while_the_list_is_read_all_the_time() {
    let served = Served::start(config());
    let over = AtomicBool::new(false);
    let cycles = std::thread::scope(|scope| {
        let churn: Vec<_> = (0..8)
            .map(|n| {
                let (served, over) = (&served, &over);
                scope.spawn(move || {
                    let mut cycles = 0;
                    while !over.load(Ordering::Relaxed) {
                        let mut worker = served.worker(&format!("churn-{n}"));
                        assert_eq!(worker.ask(&format!("BEAT {{\"wid\":\"churn-{n}\"}}")), "+OK\r\n");
                        cycles += 1;
                    }
                    cycles
                })
            })
            .collect();
        for page in 0..300 {
            let (status, body) = served.get("/api/workers");
            assert_eq!(status, 200, "page {page}");
            let reply: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert!(reply["workers"].as_array().unwrap().len() <= 8);
        }
        over.store(true, Ordering::Relaxed);
        churn.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
    });
    assert!(cycles > 300, "they did come and go: {cycles}");
    served.until("all have left", |registry| registry.stats().live() == 0);
}

#[test]
fn a_beat_without_rss_keeps_the_last_one() {
    let served = Served::start(config());
    let mut worker = served.worker("w1");
    let rss = || served.registry.get("w1").unwrap().rss_kb();
    assert_eq!(rss(), None);
    worker.ask(r#"BEAT {"wid":"w1","rss_kb":54176}"#);
    worker.ask(r#"BEAT {"wid":"w1"}"#);
    worker.ask(r#"BEAT {"wid":"w1","rss_kb":null}"#);
    worker.ask(r#"BEAT {"wid":"w1","rss_kb":-1}"#);
    assert_eq!(rss(), Some(54_176));
    worker.ask(r#"BEAT {"wid":"w1","rss_kb":7}"#);
    assert_eq!(rss(), Some(7));
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_line_of_512_mib_is_cut_off_at_the_limit() {
    let served = Served::start(config());
    let mut bystander = served.worker("bystander");
    let before = resident_kb();
    for stage in ["HELLO {\"wid\":\"", "BEAT {\"wid\":\""] {
        let mut client = if stage.starts_with('H') { served.connect() } else { served.worker("w1") };
        client.send(stage);
        let chunk = vec![b'x'; 1 << 20];
        let mut sent = 0;
        while sent < 512 && client.send_bytes(&chunk).is_ok() {
            sent += 1;
        }
        assert!(sent < 512, "it was let through");
        assert_eq!(bystander.ask(r#"BEAT {"wid":"bystander"}"#), "+OK\r\n");
    }
    let grown = resident_kb().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB for two lines");
}

#[test]
fn a_line_over_the_limit_is_answered_and_the_connection_ends_without_a_reset() {
    let served = Served::start(config());
    let mut client = served.worker("w1");
    client.send(&format!("BEAT {{\"wid\":\"{}\"}}\r\n", "x".repeat(70_000)));
    assert_eq!(client.line(), "-ERR line is longer than 65536 bytes\r\n");
    assert_eq!(client.rest().unwrap(), b"");
}

#[test]
fn an_echo_splits_no_reply() {
    let served = Served::start(config());
    let mut client = served.worker("w1");
    assert_eq!(client.ask(r#"BEAT {"wid":"a\r\n+OK"}"#), "-ERR unknown worker a\\r\\n+OK\r\n");
    let long = client.ask(&format!("BEAT {{\"wid\":\"{}\"}}", "y".repeat(10_000)));
    assert!(long.len() < 600 && long.ends_with("…\r\n"));
    assert_eq!(client.ask(r#"BEAT {"wid":"w1"}"#), "+OK\r\n");
}

#[test]
fn a_hello_that_cannot_be_taken_is_told_why() {
    let served = Served::start(config());
    let label = "l".repeat(300);
    for (hello, why) in [
        (r#"{"wid":"a\u0000b","v":2}"#.to_owned(), "wid has a control character at byte 1"),
        (
            format!(r#"{{"wid":"w","v":2,"labels":["{label}"]}}"#),
            "label of 300 bytes is over the limit of 255",
        ),
        (format!(r#"{{"wid":"{label}","v":2}}"#), "wid of 300 bytes is over the limit of 255"),
    ] {
        let mut client = served.connect();
        client.line();
        assert_eq!(client.ask(&format!("HELLO {hello}")), format!("-ERR {why}\r\n"));
        assert_eq!(client.rest().unwrap(), b"");
    }
    assert_eq!(served.registry.stats().joined, 0);
}

#[test]
fn a_silent_worker_is_closed_with_all_its_connections_and_others_stay() {
    let served = Served::start(short(Duration::from_millis(400), Duration::from_millis(20)));
    let mut silent: Vec<Client> = (0..3).map(|_| served.worker("silent")).collect();
    let mut well = served.worker("well");
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(well.ask(r#"BEAT {"wid":"well"}"#), "+OK\r\n");
    }
    for client in &mut silent {
        assert_eq!(client.rest().unwrap(), b"", "closed, and without a reset");
    }
    assert_eq!(well.ask(r#"BEAT {"wid":"silent"}"#), "-ERR unknown worker silent\r\n");
    assert_eq!(served.registry.stats().expired, 1);
}

#[test]
fn jobs_of_a_dead_worker_come_back_as_the_rule_says_and_its_late_ack_ends_nothing() {
    for (recover, comes_back) in [(Recover::AtDeath, true), (Recover::AtExpiry, false)] {
        let mut config = short(Duration::from_secs(2), Duration::from_millis(20));
        config.recover = recover;
        let served = Served::start(config);
        let mut producer = served.hello("{}");
        producer.ask(JOB);
        let mut silent = served.worker("w1");
        assert!(silent.ask_bulk("FETCH default").is_some());
        assert_eq!(silent.rest().unwrap(), b"");
        served.until("its connections are done", |registry| registry.stats().connections == 0);
        assert_eq!(served.registry.stats().leases, usize::from(!comes_back), "{recover:?}");
        if comes_back {
            served
                .until("it is queued again", |_| served.get("/api/stats").1.contains("\"jobs_enqueued\":1"));
            let mut heir = served.worker("w2");
            assert!(heir.ask_bulk("FETCH default").unwrap().contains("job-0001"));
            let mut again = served.worker("w1");
            assert_eq!(again.ask(r#"ACK {"jid":"job-0001"}"#), "+OK\r\n");
            assert!(served.get("/api/stats").1.contains("\"jobs_stale\":1"));
            assert_eq!(heir.ask(r#"ACK {"jid":"job-0001"}"#), "+OK\r\n");
            assert!(served.get("/api/stats").1.contains("\"jobs_processed\":1"));
        }
    }
}
