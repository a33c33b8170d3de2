//! `heartwheel storm`, as who measures a server runs it.

#![cfg(feature = "server")]

mod served;

use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use heartwheel::WorkerState;
use heartwheel::server::Password;
use served::{Served, config};

fn storm(url: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heartwheel"))
        .args(["storm", "--url", url])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn url(served: &Served) -> String {
    format!("tcp://{}", served.address)
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

fn complaint(output: &Output) -> String {
    assert!(!output.status.success() && output.stdout.is_empty());
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn beats_are_counted_as_the_server_counts_them() {
    let served = Served::start(config());
    let pid = std::process::id().to_string();
    let args =
        ["--connections", "3", "--depth", "16", "--duration", "500ms", "--threads", "2", "--pid", &pid];
    let output = storm(&url(&served), &[&args[..], &["--json"]].concat());
    assert!(output.status.success());
    let report = json(&output);
    let beats = report["beats"].as_u64().unwrap();
    assert!(beats >= 48, "{report}");
    let info: serde_json::Value =
        serde_json::from_str(&served.worker("w").ask_bulk("INFO").unwrap()).unwrap();
    // What was answered before the measuring began and after it ended is in there, too.
    assert!(info["server"]["command_count"].as_u64().unwrap() >= beats, "{info} {report}");
    assert_eq!((&report["connected"], &report["workers"]), (&3.into(), &3.into()));
    assert_eq!(report["errors"], serde_json::json!({}));
    let latency = |name: &str| report["latency_us"][name].as_u64().unwrap();
    assert!(latency("p50") <= latency("p99") && latency("p99") <= latency("max"), "{report}");
    assert_eq!(report["server"]["pid"], std::process::id());
    served.until("they say goodbye", |registry| registry.stats().live() == 0);

    let text = String::from_utf8(storm(&url(&served), &args).stdout).unwrap();
    for part in ["3 connections of 3 workers, 16 deep", "beats", "p99", "core-seconds", "µs a beat"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn every_share_does_its_part() {
    let served = Served::start(served::short(Duration::from_millis(1500), Duration::from_millis(50)));
    let args = ["--connections", "8", "--silent", "0.25", "--flapping", "0.25", "--flap-after", "10ms"];
    let more =
        ["--connections-per-worker", "2", "--rate", "200", "--ramp", "100ms", "--duration", "3s", "--json"];
    let output = storm(&url(&served), &[&args[..], &more].concat());
    let report = json(&output);
    assert!(output.status.success(), "{report}");
    assert_eq!(report["workers"], 4);
    assert_eq!(
        report["silent_closed"], 2,
        "a silent worker is reaped, and its connections are closed: {report}"
    );
    assert!(report["reconnects"].as_u64().unwrap() >= 10, "{report}");
    assert_eq!(served.registry.stats().expired, 1);
    // Four keep to the schedule, at 33 beats a second each; a quarter of that leaves room for a busy machine.
    assert!(report["beats"].as_u64().unwrap() >= 100, "{report}");
}

#[test]
fn what_workers_are_told_is_counted() {
    let served = Served::start(config());
    let child = Command::new(env!("CARGO_BIN_EXE_heartwheel"))
        .args([
            "storm",
            "--url",
            &url(&served),
            "--connections",
            "2",
            "--rate",
            "100",
            "--duration",
            "2s",
            "--json",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    served.until("both are there", |registry| registry.stats().live() == 2);
    served.registry.signal_all(WorkerState::Quiet);
    let report = json(&child.wait_with_output().unwrap());
    assert!(report["told"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["errors"], serde_json::json!({}));
}

#[test]
fn a_late_answer_counts_from_when_its_beat_was_due() {
    // A server that answers all beats of a second at its end.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        use std::io::{BufRead as _, Write as _};
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            stream.write_all(b"+HI {\"v\":2}\r\n").unwrap();
            let lines = std::io::BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let mut stalled = false;
            for line in lines {
                if line == "END" {
                    break;
                }
                if line.starts_with("BEAT") && !stalled {
                    stalled = true;
                    std::thread::sleep(Duration::from_secs(1));
                }
                if stream.write_all(b"+OK\r\n").is_err() {
                    break;
                }
            }
        }
    });
    let url = format!("tcp://{address}");
    let output = storm(&url, &["--connections", "1", "--rate", "100", "--duration", "2500ms", "--json"]);
    let report = json(&output);
    // A hundred beats were due in that second: every one of them is charged, not only the one that was under way.
    let p90 = report["latency_us"]["p90"].as_u64().unwrap();
    assert!(p90 >= 400_000, "{report}");
    server.join().unwrap();
}

#[test]
fn a_password_is_answered_and_mistakes_are_named() {
    let mut config = config();
    config.password = Password::new("se@same");
    let served = Served::start(config);
    let with = |password: &str| format!("tcp://:{password}@{}", served.address);
    let output = storm(&with("se%40same"), &["--connections", "2", "--duration", "100ms", "--json"]);
    assert!(output.status.success() && json(&output)["beats"].as_u64().unwrap() > 0);

    let wrong = complaint(&storm(&with("open"), &[]));
    assert_eq!(wrong, format!("heartwheel: tcp://{} refuses: ERR Invalid password\n", served.address));
    assert!(
        complaint(&storm("tcp://127.0.0.1:1", &[]))
            .contains("cannot connect to tcp://127.0.0.1:1: Connection refused")
    );
    let api = complaint(&storm(&format!("tcp://{}", served.api), &["--duration", "0s"]));
    assert!(api.contains("a --duration of 0s measures nothing"), "{api}");
    let shares = complaint(&storm(&url(&served), &["--silent", "0.6", "--flapping", "0.6"]));
    assert!(shares.contains("--silent 0.6 and --flapping 0.6 are more than all connections"), "{shares}");
    let pid = complaint(&storm(&with("se%40same"), &["--duration", "1ms", "--pid", "4294967295"]));
    assert!(pid.contains("cannot read what process 4294967295 uses of the processors"), "{pid}");
    for args in
        [["--silent", "2"], ["--connections", "0"], ["--depth", "0"], ["--rate", "-1"], ["--url", "http://x"]]
    {
        assert_eq!(storm("tcp://127.0.0.1:1", &args).status.code(), Some(2), "{args:?}");
    }
}
