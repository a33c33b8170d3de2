//! Stateless beats: workers register once, then send datagrams with their wid and nothing else; whoever receives them holds no
//! session. `cargo run --example udp_beats`
//!
//! The registering connection is stood in for by this program itself; the beats are real datagrams on the loopback.

use std::io::Write as _;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use heartwheel::{Beat, EndReason, Event, Hello, Policy, Reaper, Registry, WorkerState};

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let mut policy = Policy::default();
    policy.ttl = Duration::from_millis(400);
    policy.tick = Duration::from_millis(10);
    let registry = Registry::new(policy)?;
    let _reaper = Reaper::spawn(&registry)?;
    let events = registry.subscribe(100);

    // A worker whose session is kept for it: it ends by silence alone.
    let kept: Vec<_> = ["steady", "silent"]
        .into_iter()
        .map(|wid| Ok::<_, Error>(registry.connect(Hello::new(wid)?, |_| {})?))
        .collect::<Result<_, _>>()?;

    // The receiver: one look-up a datagram, and what the worker was told goes back.
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let address = receiver.local_addr()?;
    let known = registry.clone();
    thread::spawn(move || -> Result<(), Error> {
        let mut datagram = [0; 255];
        loop {
            let (len, from) = receiver.recv_from(&mut datagram)?;
            let answer = match std::str::from_utf8(&datagram[..len]) {
                Ok(wid) => match known.beat(wid, &Beat::default()) {
                    Ok(state) => state.to_string(),
                    Err(unknown) => unknown.to_string(),
                },
                Err(_) => "not a wid".into(),
            };
            receiver.send_to(answer.as_bytes(), from)?;
        }
    });

    // The workers.
    let worker = UdpSocket::bind("127.0.0.1:0")?;
    worker.set_read_timeout(Some(Duration::from_secs(5)))?;
    worker.connect(address)?;
    let beat = |wid: &str| -> Result<String, Error> {
        let mut answer = [0; 64];
        worker.send(wid.as_bytes())?;
        let len = worker.recv(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer[..len]).into_owned())
    };
    let mut out = std::io::stdout();
    for round in 0..20 {
        if round == 10 {
            registry.signal("steady", WorkerState::Quiet)?;
        }
        let answer = beat("steady")?;
        assert_eq!(answer, if round < 10 { "running" } else { "quiet" });
        thread::sleep(Duration::from_millis(50));
    }
    writeln!(out, "steady: {}", beat("steady")?)?;
    writeln!(out, "silent: {}", beat("silent")?)?;
    let mut ends = Vec::new();
    while let Some(event) = events.try_recv() {
        if let Event::Ended(ended) = event? {
            writeln!(out, "{} {}", ended.worker.wid(), ended.reason)?;
            ends.push(ended.reason);
        }
    }
    assert_eq!(ends, [EndReason::Expired]);
    drop(kept);
    Ok(())
}
