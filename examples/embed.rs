//! The registry in a server of one's own: threads and plain sockets, a protocol of one line.
//!
//! A worker says its id once, then `beat` from time to time, and is answered what it has been told. Here three workers connect: one
//! leaves, one falls silent and is reaped, one is told to quiet. `cargo run --example embed`

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use heartwheel::{Beat, EndReason, Event, Hello, Policy, Reaper, Registry, WorkerState};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// One connection, from its first line to its end; the session ends with it.
fn serve(registry: &Registry, stream: &TcpStream) -> Result<(), Error> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let wid = lines.next().ok_or("no wid")??;
    let other_end = stream.try_clone()?;
    let session = registry.connect(Hello::new(wid)?, move |_| {
        // Its worker was reaped: whoever reads from this connection is woken.
        let _ = other_end.shutdown(Shutdown::Both);
    })?;
    for line in lines {
        if line? == "beat" {
            writeln!(&*stream, "{}", session.beat(&Beat::default())?)?;
        }
    }
    Ok(())
}

/// A worker that beats so many times, a fifth of its ttl apart, and tells what it hears last.
fn work(address: std::net::SocketAddr, wid: &str, beats: u32) -> Result<(String, TcpStream), Error> {
    let stream = TcpStream::connect(address)?;
    writeln!(&stream, "{wid}")?;
    let mut answers = BufReader::new(stream.try_clone()?).lines();
    let mut heard = String::new();
    for _ in 0..beats {
        writeln!(&stream, "beat")?;
        heard = answers.next().ok_or("closed")??;
        thread::sleep(Duration::from_millis(100));
    }
    Ok((heard, stream))
}

fn main() -> Result<(), Error> {
    let mut policy = Policy::default();
    policy.ttl = Duration::from_millis(500);
    policy.tick = Duration::from_millis(10);
    let registry = Registry::new(policy)?;
    let _reaper = Reaper::spawn(&registry)?;
    let events = registry.subscribe(100);

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let serving = registry.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let registry = serving.clone();
            thread::spawn(move || serve(&registry, &stream));
        }
    });

    let leaves = work(address, "leaves", 3)?;
    let silent = work(address, "silent", 1)?;
    let quieted = thread::spawn(move || work(address, "quieted", 12));
    drop(leaves);
    thread::sleep(Duration::from_millis(300));
    registry.signal("quieted", WorkerState::Quiet)?;
    let (heard, connection) = quieted.join().map_err(|_| "a worker panicked")??;
    assert_eq!(heard, "quiet");
    drop((silent, connection));

    let mut ends = Vec::new();
    let mut out = std::io::stdout();
    while ends.len() < 3 {
        match events.recv_timeout(Duration::from_secs(10)).ok_or("no more events")?? {
            Event::Joined(worker) => writeln!(out, "{} joined", worker.wid())?,
            Event::Told { wid, state, .. } => writeln!(out, "{wid} was told {state}")?,
            Event::Ended(ended) => {
                writeln!(
                    out,
                    "{} {}, silent for {:?}",
                    ended.worker.wid(),
                    ended.reason,
                    ended.worker.age()
                )?;
                ends.push((ended.worker.wid().to_string(), ended.reason));
            }
            other => writeln!(out, "{other:?}")?,
        }
    }
    ends.sort();
    let reasons: Vec<EndReason> = ends.into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(reasons, [EndReason::Left, EndReason::Left, EndReason::Expired]);
    Ok(())
}
