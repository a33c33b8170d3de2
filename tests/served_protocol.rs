//! What `wire.jsonl` has not recorded: jobs, INFO, passwords, torn and pipelined input, and the operators' API.

#![cfg(feature = "server")]

mod served;

use std::time::Duration;

use heartwheel::WorkerState;
use heartwheel::server::Password;
use served::{Served, config};

fn job(jid: &str) -> String {
    format!(r#"{{"jid":"{jid}","jobtype":"T","args":[1,"ö"],"custom":{{"z":1.50}}}}"#)
}

#[test]
fn a_job_from_push_to_ack() {
    let served = Served::start(config());
    let mut producer = served.hello("{}");
    let mut worker = served.worker("w1");
    assert_eq!(producer.ask(&format!("PUSH {}", job("job-0001"))), "+OK\r\n");
    let text = worker.ask_bulk("FETCH none default").unwrap();
    assert!(text.contains(r#""custom":{"z":1.50}"#), "kept byte for byte: {text}");
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["queue"], &value["reserve_for"]), (&"default".into(), &1800.into()));
    assert!(value["created_at"].is_string() && value["enqueued_at"].is_string());
    assert_eq!(worker.ask(r#"ACK {"jid":"job-0001"}"#), "+OK\r\n");
    assert_eq!(worker.ask(r#"ACK {"jid":"nobody's"}"#), "+OK\r\n");

    let refused =
        producer.ask_bulk(&format!(r#"PUSHB [{},{{"jid":"job-0003"}},{{}}]"#, job("job-0002"))).unwrap();
    let refused: serde_json::Value = serde_json::from_str(&refused).unwrap();
    let names: Vec<_> = refused.as_object().unwrap().keys().collect();
    assert_eq!(names, ["#2", "job-0003"]);
    assert!(worker.ask_bulk("FETCH").unwrap().contains("job-0002"));
    assert_eq!(
        worker.ask(r#"FAIL {"jid":"job-0002","errtype":"E","message":"m","backtrace":[]}"#),
        "+OK\r\n"
    );

    let info: serde_json::Value = serde_json::from_str(&worker.ask_bulk("INFO").unwrap()).unwrap();
    let faktory = &info["faktory"];
    assert_eq!((&faktory["total_processed"], &faktory["total_failures"]), (&2.into(), &1.into()));
    assert_eq!(faktory["tasks"]["Retries"]["size"], 1);
    for (part, names) in [
        (
            "server",
            &["description", "faktory_version", "uptime", "connections", "command_count", "used_memory_mb"][..],
        ),
        (
            "faktory",
            &["total_enqueued", "total_failures", "total_processed", "total_queues", "queues", "tasks"][..],
        ),
    ] {
        for name in names {
            assert!(!info[part][name].is_null(), "{part}.{name}");
        }
    }
    assert_eq!(info["server"]["connections"], 2);
    assert!(info["server"]["used_memory_mb"].as_u64().unwrap() > 0);
    assert!(info["now"].is_string() && info["server_utc_time"].as_str().unwrap().ends_with(" UTC"));

    assert_eq!(worker.ask("FLUSH"), "+OK\r\n");
    let info: serde_json::Value = serde_json::from_str(&worker.ask_bulk("INFO").unwrap()).unwrap();
    assert_eq!(info["faktory"]["total_processed"], 0);
}

#[test]
fn what_cannot_be_taken_is_told_why_and_changes_nothing() {
    let mut config = config();
    config.jobs.max_jobs = 1;
    let served = Served::start(config);
    let mut client = served.hello("{}");
    for command in [
        "PUSH",
        "PUSH []",
        r#"PUSH {"jid":"short"}"#,
        r#"PUSH {"jid":"job-0001","jobtype":"T","args":[],"reserve_for":86401}"#,
        "PUSHB {}",
        "ACK",
        "ACK {}",
        "FAIL {}",
        "QUEUE PAUSE *",
        "MUTATE {}",
        "BATCH NEW {}",
        "TRACK GET x",
        "TERMINATE",
    ] {
        let reply = client.ask(command);
        assert!(reply.starts_with("-ERR ") && reply.len() > 10, "{command}: {reply}");
        assert!(!reply.contains("internal"), "{command}: {reply}");
    }
    assert_eq!(client.ask(&format!("PUSH {}", job("job-0001"))), "+OK\r\n");
    assert!(client.ask(&format!("PUSH {}", job("job-0002"))).starts_with("-ERR "), "full");
    let stats = served.get("/api/stats").1;
    assert!(stats.contains("\"jobs_enqueued\":1"), "{stats}");
}

#[test]
fn torn_at_every_byte_and_pipelined_in_one_piece() {
    let served = Served::start(config());
    let script = "HELLO {\"wid\":\"w1\",\"v\":2}\r\nBEAT {\"wid\":\"w1\"}\nPUSH {\"jid\":\"job-0001\",\
                  \"jobtype\":\"T\",\"args\":[]}\r\nACK {\"jid\":\"x\"}\r\nEND\r\n";
    let expected = "+HI {\"v\":2}\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n";
    let cuts = 1..script.len();
    for cut in cuts.chain([script.len()]) {
        let mut client = served.connect();
        client.send(&script[..cut]);
        if cut < script.len() {
            std::thread::sleep(Duration::from_millis(2));
            client.send(&script[cut..]);
        }
        assert_eq!(String::from_utf8(client.rest().unwrap()).unwrap(), expected, "cut at {cut}");
    }
    let mut client = served.worker("deep");
    client.send(&"BEAT {\"wid\":\"deep\"}\r\n".repeat(5_000));
    assert_eq!(client.read(25_000).unwrap(), "+OK\r\n".repeat(5_000).as_bytes());
}

#[test]
fn a_fetch_answers_in_its_place_among_pipelined_commands() {
    let mut config = config();
    config.fetch_hold = Duration::from_millis(100);
    let served = Served::start(config);
    let mut client = served.worker("w1");
    client.send("BEAT {\"wid\":\"w1\"}\r\nFETCH default\r\nINFO2\r\n");
    assert_eq!(client.reply(), "+OK\r\n");
    assert_eq!(client.reply(), "$-1\r\n");
    assert_eq!(client.reply(), "-ERR unknown command INFO2\r\n");
}

#[test]
fn a_password_is_needed_everywhere_and_shown_nowhere() {
    let mut config = config();
    config.password = Password::new("sesame");
    assert!(!format!("{config:?}").contains("sesame"));
    let served = Served::start(config);
    for (password, v, rounds, welcome) in [
        ("sesame", r#","v":2"#, None, true),
        ("sesame", "", Some(1), true),
        ("sesame", r#","v":2"#, Some(1), false),
        ("Sesame", r#","v":2"#, None, false),
    ] {
        let mut client = served.connect();
        let hi = client.line();
        let hash = match rounds {
            None => served::answer(password, &hi),
            Some(rounds) => {
                let hi: serde_json::Value = serde_json::from_str(hi.strip_prefix("+HI ").unwrap()).unwrap();
                served::hash(password, hi["s"].as_str().unwrap(), rounds)
            }
        };
        let reply = client.ask(&format!(r#"HELLO {{"wid":"w1","pwdhash":"{hash}"{v}}}"#));
        assert_eq!(reply, if welcome { "+OK\r\n" } else { "-ERR Invalid password\r\n" });
        if !welcome {
            assert_eq!(client.rest().unwrap(), b"");
        }
    }
    let mut without = served.connect();
    without.line();
    assert_eq!(without.ask("HELLO {}"), "-ERR Invalid password\r\n");
    served.until("all have left", |registry| registry.stats().live() == 0);
    assert_eq!(served.registry.stats().joined, 2);

    assert_eq!(served.get("/api/workers").0, 401);
    let with = |pair: &str| {
        served.http(&format!(
            "GET /api/stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Basic {pair}\r\n\r\n"
        ))
    };
    // printf operator:sesame | base64, and with :Sesame
    assert_eq!(with("b3BlcmF0b3I6c2VzYW1l").0, 200);
    assert_eq!(with("b3BlcmF0b3I6U2VzYW1l").0, 401);
    assert_eq!(with("!").0, 401);
}

#[test]
fn the_api_lists_and_signals() {
    let served = Served::start(config());
    let mut client = served.hello(r#"{"wid":"w 1/ö","hostname":"app","pid":7,"labels":["blue"],"v":2}"#);
    client.ask(r#"BEAT {"wid":"w 1/ö","rss_kb":12}"#);
    let (status, body) = served.get("/api/workers");
    let reply: serde_json::Value = serde_json::from_str(&body).unwrap();
    let worker = &reply["workers"][0];
    assert_eq!((status, &worker["wid"], &worker["pid"]), (200, &"w 1/ö".into(), &7.into()));
    assert_eq!((&worker["labels"][0], &worker["rss_kb"]), (&"blue".into(), &12.into()));

    assert_eq!(
        served.post("/api/signal", r#"{"wid":"w 1/ö","state":"quiet"}"#),
        (200, r#"{"told":1,"state":"quiet"}"#.into())
    );
    assert!(served.get("/api/workers").1.contains("\"state\":\"quiet\""), "seen at once");
    assert_eq!(
        served.post("/api/signal", r#"{"all":true,"state":"terminate"}"#),
        (200, r#"{"told":1}"#.into())
    );
    assert_eq!(served.registry.get("w 1/ö").unwrap().state(), WorkerState::Terminate);

    for (body, status) in [
        (r#"{"wid":"nobody","state":"quiet"}"#, 404),
        (r#"{"wid":"w 1/ö","state":"running"}"#, 400),
        (r#"{"wid":"w 1/ö","state":"bogus"}"#, 400),
        (r#"{"wid":"w 1/ö","all":true,"state":"quiet"}"#, 400),
        (r#"{"state":"quiet"}"#, 400),
        (r#"{"where":"label=","state":"quiet"}"#, 400),
        (r#"{"where":"all","all":true,"state":"quiet"}"#, 400),
        (r#"{"all":true}"#, 422),
        ("{", 400),
    ] {
        let (got, text) = served.post("/api/signal", body);
        assert_eq!(got, status, "{body}");
        let error: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(error["error"].as_str().is_some_and(|error| !error.is_empty()), "{body}: {text}");
    }
    assert_eq!(served.get("/nowhere").0, 404);
    assert_eq!(served.get("/api/workers?where=label%3Dblue").1, served.get("/api/workers").1);
    assert_eq!(served.get("/api/workers?where=label%3Dgreen").1, r#"{"workers":[]}"#);
    assert_eq!(served.get("/api/workers?where=label").0, 400);
    let cordon = |body| served.post("/api/cordon", body);
    assert_eq!(cordon(r#"{"where":"label=blue","cordoned":true}"#), (200, r#"{"changed":1}"#.into()));
    assert_eq!(cordon(r#"{"wid":"nobody","cordoned":true}"#).0, 404);
    assert!(served.registry.get("w 1/ö").unwrap().is_cordoned());
}

#[test]
fn a_page_of_another_origin_cannot_signal() {
    let served = Served::start(config());
    let body = r#"{"all":true,"state":"quiet"}"#;
    let request = |host: &str, kind: &str| {
        served
            .http(&format!(
                "POST /api/signal HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nConnection: close\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .0
    };
    assert_eq!(request("localhost:7420", "application/json"), 200);
    assert_eq!(request("127.0.0.1", "application/json"), 200);
    assert_eq!(request("[::1]:7420", "application/json"), 200);
    assert_eq!(request("rebound.example:7420", "application/json"), 403);
    assert_eq!(request("localhost", "text/plain"), 415);
}
