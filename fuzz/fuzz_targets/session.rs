//! Three connections of the server and whatever bytes come on them, in turn: no panic, one answer a line, nobody left behind, no job lost.
//!
//! The input is a script. Parts are separated by the byte 0x1e; the first byte of each says what it is:
//! - `A`, `B`, `C`: the rest is sent on that connection, which is opened if it is not open.
//! - `a`, `b`, `c`: that connection is closed by its peer.
//! - `+`: time goes on by the next byte's number of seconds.
//! - `q`, `t`, `o`: everyone is told to quiet, to terminate; is cordoned.

#![no_main]

use std::time::{Duration, Instant};

use heartwheel::server::Config;
use heartwheel::server::fuzzing::Inside;
use heartwheel::{Selector, WorkerState};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const PIPE: usize = 1 << 20;

struct Client {
    stream: DuplexStream,
    served: JoinHandle<()>,
    sent: Vec<u8>,
    read: Vec<u8>,
    ended: bool,
}

impl Client {
    fn open(inside: &Inside) -> Self {
        let (stream, far) = duplex(PIPE);
        Client {
            stream,
            served: tokio::spawn(inside.serve(far)),
            sent: Vec::new(),
            read: Vec::new(),
            ended: false,
        }
    }

    async fn send(&mut self, bytes: &[u8]) {
        // Once it has ended, what is sent is for nobody.
        if !self.ended && self.stream.write_all(bytes).await.is_ok() {
            self.sent.extend_from_slice(bytes);
        }
        self.listen(Duration::from_millis(1)).await;
    }

    /// Reads until nothing has come for so long. The clock stands while anyone is at work, so this is exact.
    async fn listen(&mut self, patience: Duration) {
        while !self.ended {
            match timeout(patience, self.stream.read_buf(&mut self.read)).await {
                Ok(Ok(0) | Err(_)) => self.ended = true,
                Ok(Ok(_)) => {}
                Err(_) => return,
            }
        }
    }

    /// The replies, each with what was asked: HI first, then one for each whole line. Everything that was written must be a reply.
    fn replies(&self) -> Vec<(&[u8], Reply<'_>)> {
        let mut replies = Vec::new();
        let mut rest = &self.read[..];
        while !rest.is_empty() {
            let (reply, after) = Reply::read(rest)
                .unwrap_or_else(|| panic!("not a reply: {:?}", String::from_utf8_lossy(rest)));
            replies.push(reply);
            rest = after;
        }
        let asked = self.sent.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let mut all = Vec::new();
        let mut replies = replies.into_iter();
        if let Some(hi) = replies.next() {
            assert!(matches!(hi, Reply::Simple(text) if text.starts_with(b"HI ")), "{hi:?}");
        }
        let mut asked = asked;
        for reply in replies {
            // A line that is too long is answered before its end, and is the last.
            all.push((asked.next().unwrap_or_default(), reply));
        }
        if !self.ended {
            assert_eq!(asked.count(), 0, "every whole line is answered while the connection is open");
        }
        all
    }
}

#[derive(Debug)]
enum Reply<'a> {
    Simple(&'a [u8]),
    Error,
    Bulk(&'a [u8]),
    Null,
}

impl<'a> Reply<'a> {
    fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
        assert!(!line.iter().any(|&byte| byte == b'\n' || byte == b'\r'), "a reply is one line");
        let (kind, text) = line.split_first()?;
        Some(match kind {
            b'+' => (Reply::Simple(text), rest),
            b'-' => (Reply::Error, rest),
            b'$' if text == b"-1" => (Reply::Null, rest),
            b'$' => {
                let length: usize = std::str::from_utf8(text).ok()?.parse().ok()?;
                let (bulk, rest) = rest.split_at_checked(length)?;
                (Reply::Bulk(bulk), rest.strip_prefix(b"\r\n")?)
            }
            _ => return None,
        })
    }
}

fn verb(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii_end();
    line.split(|&byte| byte == b' ').next().unwrap_or(line)
}

async fn play(script: &[u8]) {
    let mut config = Config::default();
    config.max_line = 4096;
    let inside = Inside::new(config);
    let start = Instant::now();
    let mut elapsed = Duration::ZERO;
    let mut open: [Option<Client>; 3] = [None, None, None];
    let mut closed = Vec::new();
    let _ = inside.registry().reap(start, 1 << 10);
    for part in script.split(|&byte| byte == 0x1e) {
        match part.split_first() {
            Some((name @ b'A'..=b'C', bytes)) => {
                let client = open[usize::from(name - b'A')].get_or_insert_with(|| Client::open(&inside));
                client.send(bytes).await;
            }
            Some((name @ b'a'..=b'c', _)) => {
                if let Some(mut client) = open[usize::from(name - b'a')].take() {
                    let _ = client.stream.shutdown().await;
                    client.listen(Duration::from_secs(5)).await;
                    assert!(client.ended, "who says that nothing follows is let go");
                    closed.push(client);
                }
            }
            Some((b'+', rest)) => {
                let seconds = rest.first().copied().unwrap_or(1);
                for _ in 0..seconds {
                    elapsed += Duration::from_secs(1);
                    let pass = inside.registry().reap(start + elapsed, 1 << 10);
                    for hangup in pass.hangups {
                        hangup.run();
                    }
                    inside.advance(start + elapsed);
                }
                for client in open.iter_mut().flatten() {
                    client.listen(Duration::from_secs(seconds.into())).await;
                }
            }
            Some((b'q', _)) => drop(inside.registry().signal_where(&Selector::all(), WorkerState::Quiet)),
            Some((b't', _)) => drop(inside.registry().signal_where(&Selector::all(), WorkerState::Terminate)),
            Some((b'o', _)) => drop(inside.registry().cordon_where(&Selector::all(), true)),
            _ => {}
        }
    }
    for client in open.iter_mut().flatten() {
        // Longer than a FETCH is held.
        client.listen(Duration::from_secs(5)).await;
    }
    let (mut pushed, mut ended, mut bulk) = (0, 0, false);
    for client in open.iter().flatten().chain(&closed) {
        for (line, reply) in client.replies() {
            match verb(line) {
                b"PUSH" => pushed += usize::from(matches!(reply, Reply::Simple(b"OK"))),
                b"ACK" | b"FAIL" => ended += 1,
                b"PUSHB" | b"FLUSH" => bulk = true,
                b"FETCH" => {
                    let Reply::Bulk(job) = reply else { continue };
                    let job: serde_json::Value = serde_json::from_slice(job).expect("a job is JSON");
                    assert!(job["jid"].is_string(), "{job}");
                }
                _ => {}
            }
        }
    }
    for mut client in open.into_iter().flatten() {
        let _ = client.stream.shutdown().await;
        client.listen(Duration::from_secs(5)).await;
        closed.push(client);
    }
    for client in closed {
        client.served.await.expect("no panic");
    }
    let sums = inside.registry().stats();
    assert_eq!((sums.live(), sums.connections), (0, 0), "nobody is left behind");
    let jobs = inside.jobs();
    let there = jobs.enqueued + jobs.scheduled + jobs.retries + jobs.working + jobs.dead_kept;
    if !bulk {
        assert!(there <= pushed && there + ended >= pushed, "{pushed} pushed, {ended} ended: {jobs:?}");
    }
}

fuzz_target!(|script: &[u8]| {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
        .block_on(play(script));
});
