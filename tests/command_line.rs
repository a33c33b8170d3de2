//! The program as an operator runs it.

#![cfg(feature = "server")]

mod served;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use served::{Served, config};

fn run(served: &Served, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heartwheel"))
        .args(args)
        .env("HEARTWHEEL_API", served.api.to_string())
        .env_remove("HEARTWHEEL_PASSWORD")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn workers_are_listed_and_signalled() {
    let served = Served::start(config());
    let mut one =
        served.hello(r#"{"wid":"one","hostname":"app\u001b[2J","pid":7,"labels":["blue","eu"],"v":2}"#);
    one.ask(r#"BEAT {"wid":"one","rss_kb":54176}"#);
    let _two = served.worker("two");

    let table = out(&run(&served, &["workers"]));
    let lines: Vec<&str> = table.lines().collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(lines[0]),
        ["WID", "STATE", "HEALTH", "AGE", "CONNS", "JOBS", "RSS", "HOST", "PID", "LABELS"]
    );
    let row = words(lines[1]);
    assert_eq!(row[..3], ["one", "running", "live"]);
    assert_eq!(row[4..], ["1", "0", "52.9M", "app\\u{1b}[2J", "7", "blue,eu"], "no control character");
    assert_eq!(lines.len(), 3);

    let quieted = run(&served, &["quiet", "one", "nobody"]);
    assert_eq!(out(&quieted), "one: quiet\nnobody: no live worker has this wid\n");
    assert_eq!(quieted.status.code(), Some(1), "one of them was not told");
    let terminated = run(&served, &["terminate", "--all"]);
    assert_eq!(
        (out(&terminated).as_str(), terminated.status.code()),
        ("told 2 workers: terminate\n", Some(0))
    );

    let json: serde_json::Value = serde_json::from_str(&out(&run(&served, &["workers", "--json"]))).unwrap();
    let states: Vec<_> = json["workers"].as_array().unwrap().iter().map(|worker| &worker["state"]).collect();
    assert_eq!(states, ["terminate", "terminate"]);
}

#[test]
fn a_selector_shows_and_does_and_a_cordon_is_lifted_again() {
    let served = Served::start(config());
    let blue = r#"{"wid":"one","hostname":"app-1","labels":["blue"],"v":2}"#;
    let (mut one, mut two) = (served.hello(blue), served.worker("two"));
    let shown = out(&run(&served, &["workers", "--where", "host=app-* and label=blue"]));
    assert_eq!(shown.lines().count(), 2, "{shown}");
    assert_eq!(out(&run(&served, &["cordon", "--where", "label=blue"])), "cordoned 1 workers\n");
    assert_eq!(out(&run(&served, &["cordon", "one", "two"])), "one: was cordoned already\ntwo: cordoned\n");
    assert!(out(&run(&served, &["workers"])).contains("running (cordoned)"));
    two.ask(r#"PUSH {"jid":"job-0001","jobtype":"T","args":[]}"#);
    assert_eq!(one.ask("FETCH default"), "$-1\r\n", "held, and given nothing");
    assert_eq!(one.ask(r#"BEAT {"wid":"one"}"#), "+OK\r\n", "it was told nothing");
    assert_eq!(out(&run(&served, &["uncordon", "--all"])), "uncordoned 2 workers\n");
    assert!(one.ask_bulk("FETCH default").is_some());
    assert_eq!(out(&run(&served, &["quiet", "--where", "not label=blue"])), "told 1 workers: quiet\n");

    let wrong = run(&served, &["quiet", "--where", "label=blue andstate=quiet"]);
    assert_eq!(wrong.status.code(), Some(2));
    let shown = String::from_utf8(wrong.stderr).unwrap();
    assert!(shown.contains("label=blue andstate=quiet\n") && shown.contains('^'), "{shown}");
}

#[test]
fn mistakes_are_named() {
    let served = Served::start(config());
    for args in [&["quiet"][..], &["quiet", "w", "--all"], &["bogus"], &["serve", "--ttl", "soon"], &[]] {
        let output = run(&served, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
    let serve = |args: &[&str]| {
        let output =
            run(&served, &[&["serve", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"], args].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(serve(&["--ttl", "0s"]).contains("policy: ttl of 0ns is not within 100ms to"));
    assert!(serve(&["--ttl", "1s", "--tick", "2s"]).contains("policy: ttl of 1s is not within 2s to"));
    assert!(
        serve(&["--password-file", "/nonexistent"]).contains("cannot read the password from /nonexistent")
    );
    let taken = served.address.to_string();
    let output = run(&served, &["serve", "--listen", &taken, "--api", "127.0.0.1:0"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains(&format!("cannot listen on {taken}")));
    let output = run(&served, &["workers", "--api", "127.0.0.1:1"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot ask the server at 127.0.0.1:1"));
}

#[test]
fn the_password_comes_from_a_file_or_the_environment() {
    let mut config = config();
    config.password = heartwheel::server::Password::new("sesame");
    let served = Served::start(config);
    let mut file = tempfile();
    writeln!(file.1, "sesame").unwrap();
    let refused = run(&served, &["workers"]);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("the password is needed"));
    assert!(run(&served, &["workers", "--password-file", &file.0]).status.success());
    let by_environment = Command::new(env!("CARGO_BIN_EXE_heartwheel"))
        .args(["workers", "--api", &served.api.to_string()])
        .env("HEARTWHEEL_PASSWORD", "sesame")
        .output()
        .unwrap();
    assert!(by_environment.status.success());
    std::fs::remove_file(file.0).unwrap();
}

fn tempfile() -> (String, std::fs::File) {
    let path = std::env::temp_dir().join(format!("heartwheel-password-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    (path.to_str().unwrap().to_owned(), file)
}

#[test]
fn it_stops_at_a_signal_and_says_goodbye() {
    for signal in ["-TERM", "-INT"] {
        let mut server = Command::new(env!("CARGO_BIN_EXE_heartwheel"))
            .args(["serve", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = std::io::BufReader::new(server.stderr.take().unwrap());
        let mut first = String::new();
        std::io::BufRead::read_line(&mut log, &mut first).unwrap();
        let address = first.split("workers=").nth(1).unwrap().split(' ').next().unwrap();
        let mut client = served::Client::new(address.parse().unwrap());
        client.line();
        assert_eq!(client.ask("HELLO {\"wid\":\"w1\",\"v\":2}"), "+OK\r\n");
        client.send("FETCH default\r\n");
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(Command::new("kill").args([signal, &server.id().to_string()]).status().unwrap().success());
        assert_eq!(client.reply(), "$-1\r\n", "the reply it was at");
        assert_eq!(client.rest().unwrap(), b"");
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
}
