//! Whatever comes to the API instead of HTTP: an answer in JSON with a status that fits, never a fault of the server's.

#![no_main]

use heartwheel::Hello;
use heartwheel::server::fuzzing::Inside;
use heartwheel::server::{Config, CordonReply, SignalReply, StatsReply, WorkersReply};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::sync::mpsc;

/// A request is the line of its method and path, and its body: whoever makes it up need not know HTTP to get through to the API.
fn request(input: &str) -> String {
    let (line, body) = input.split_once('\n').unwrap_or((input, ""));
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    let length = body.len();
    format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fuzz_target!(|input: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let inside = Inside::new(Config::default());
    let hello = Hello::new("w1").expect("a valid wid").hostname("h").label("blue");
    let _session = inside.registry().connect(hello, |_| {}).expect("it is welcome");
    // Raw bytes, or a request that is well formed.
    let sent = match input.split_first() {
        Some((b'!', raw)) => raw.to_vec(),
        _ => match std::str::from_utf8(input) {
            Ok(text) => request(text).into_bytes(),
            Err(_) => return,
        },
    };
    let mut answer = Vec::new();
    runtime.block_on(async {
        let (connect, streams) = mpsc::unbounded_channel();
        tokio::spawn(inside.serve_api(streams));
        let (mut near, far) = duplex(1 << 20);
        connect.send(far).expect("it is served");
        let _ = near.write_all(&sent).await;
        let _ = near.shutdown().await;
        let _ = near.read_to_end(&mut answer).await;
    });
    if answer.is_empty() {
        return;
    }
    let head = String::from_utf8_lossy(&answer);
    assert!(head.starts_with("HTTP/1."), "{head}");
    let status: u16 = head[9..12].parse().expect("a status");
    assert!(status < 500 || status == 501 || status == 505, "{head}");
    let Some((head, body)) = head.split_once("\r\n\r\n") else { panic!("{head}") };
    if !head.contains("application/json") || body.contains("HTTP/1.") || sent.starts_with(b"HEAD") {
        return;
    }
    let json: serde_json::Value = serde_json::from_str(body).expect(body);
    if status != 200 {
        assert!(json["error"].as_str().is_some_and(|why| !why.is_empty()), "{body}");
        return;
    }
    // One of these four, and written as it was read.
    let again = |value: Result<serde_json::Value, serde_json::Error>| value.is_ok_and(|value| value == json);
    let read = |text: &str| -> [bool; 4] {
        [
            again(serde_json::from_str::<WorkersReply>(text).and_then(serde_json::to_value)),
            again(serde_json::from_str::<StatsReply>(text).and_then(serde_json::to_value)),
            again(serde_json::from_str::<SignalReply>(text).and_then(serde_json::to_value)),
            again(serde_json::from_str::<CordonReply>(text).and_then(serde_json::to_value)),
        ]
    };
    assert_eq!(read(body).into_iter().filter(|&same| same).count(), 1, "{body}");
});
