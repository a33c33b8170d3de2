//! A small job server: a thread a connection, leases that bring work back, and a rolling upgrade by a drain.
//! `cargo run --example embed_threads`
//!
//! The protocol is a line each way: `HELLO wid version`, then `beat` (answered with what the worker was told), `fetch` (a job or
//! `none`), `done job` (`ok` or `lost`). Three old workers, one of which dies with a job, are drained while two new ones take over.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use heartwheel::{Beat, Drain, Event, Hello, Policy, Reaper, Recover, Registry};
use heartwheel::{Session, Share, Until, WorkerState};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Queue = Arc<Mutex<VecDeque<String>>>;

/// One connection of a worker, on the server's side.
fn serve(registry: &Registry, queue: &Queue, stream: &TcpStream) -> Result<(), Error> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let hello = lines.next().ok_or("no HELLO")??;
    let [_, wid, version] = hello.split(' ').collect::<Vec<_>>()[..] else { return Err("no HELLO".into()) };
    let other_end = stream.try_clone()?;
    let session = registry.connect(Hello::new(wid)?.version(version), move |_| {
        let _ = other_end.shutdown(Shutdown::Both);
    })?;
    for line in lines {
        let answer = match line?.split_once(' ') {
            Some(("done", job)) => {
                let done = session.held(job).is_some_and(|lease| lease.complete().is_ok());
                if done { "ok".into() } else { "lost".into() }
            }
            None => match fetch(&session, queue) {
                Some(job) => job,
                None => session.beat(&Beat::default())?.to_string(),
            },
            Some(_) => "what?".into(),
        };
        writeln!(&*stream, "{answer}")?;
    }
    Ok(())
}

/// The next job, leased to the worker; nothing for one that was told to take none.
fn fetch(session: &Session, queue: &Queue) -> Option<String> {
    let mut queue = queue.lock().ok()?;
    let job = queue.pop_front()?;
    if session.lease_with(&job, Duration::from_secs(60), Recover::AtDeath).is_ok() {
        return Some(job);
    }
    queue.push_front(job);
    None
}

/// A worker: asks for work, does it, leaves when it is told to.
struct Worker {
    stream: TcpStream,
    lines: Lines<BufReader<TcpStream>>,
}

impl Worker {
    fn connect(address: SocketAddr, wid: &str, version: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(address)?;
        writeln!(&stream, "HELLO {wid} {version}")?;
        let lines = BufReader::new(stream.try_clone()?).lines();
        Ok(Worker { stream, lines })
    }

    fn ask(&mut self, line: &str) -> Result<String, Error> {
        writeln!(&self.stream, "{line}")?;
        Ok(self.lines.next().ok_or("closed")??)
    }

    fn work(mut self, done: &Mutex<Vec<String>>) -> Result<(), Error> {
        loop {
            match self.ask("next")?.as_str() {
                "terminate" => return Ok(()),
                "running" | "quiet" => thread::sleep(Duration::from_millis(5)),
                job => {
                    thread::sleep(Duration::from_millis(1));
                    if self.ask(&format!("done {job}"))? == "ok" {
                        done.lock().map_err(|_| "a worker panicked")?.push(job.to_owned());
                    }
                }
            }
        }
    }
}

fn main() -> Result<(), Error> {
    let mut policy = Policy::default();
    policy.tick = Duration::from_millis(10);
    let registry = Registry::new(policy)?;
    let _reaper = Reaper::spawn(&registry)?;
    let jobs: Vec<String> = (0..500).map(|n| format!("job-{n:03}")).collect();
    let queue: Queue = Arc::new(Mutex::new(jobs.iter().cloned().collect()));
    let done = Arc::new(Mutex::new(Vec::new()));
    // What a dead worker held is queued again.
    let (events, back) = (registry.subscribe(1000), queue.clone());
    thread::spawn(move || {
        for event in events {
            if let (Ok(Event::Lost(lost)), Ok(mut queue)) = (event, back.lock()) {
                lost.leases.iter().for_each(|lease| queue.push_front(lease.id.to_string()));
            }
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (serving, served) = (registry.clone(), queue.clone());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (registry, queue) = (serving.clone(), served.clone());
            thread::spawn(move || serve(&registry, &queue, &stream));
        }
    });

    let start = |wid: &str, version: &str| -> Result<_, Error> {
        let (worker, done) = (Worker::connect(address, wid, version)?, done.clone());
        Ok(thread::spawn(move || worker.work(&done)))
    };
    let mut workers = vec![start("old-1", "1")?, start("old-2", "1")?];
    let mut dies = Worker::connect(address, "old-3", "1")?;
    let job = dies.ask("next")?;
    writeln!(std::io::stdout(), "old-3 dies with {job}")?;
    drop(dies);
    workers.extend([start("new-1", "2")?, start("new-2", "2")?]);
    while registry.stats().live() < 4 {
        thread::sleep(Duration::from_millis(5));
    }
    let plan = Drain::plan("version=1".parse()?).to(WorkerState::Terminate);
    let mut drain = plan.at_most(Share::Count(1)).wait_for(Until::Gone).start(&registry)?;
    drain.run(&registry, |_, progress| assert!(progress.out <= 1));
    writeln!(std::io::stdout(), "drained: {}", drain.progress())?;

    while done.lock().map_err(|_| "a worker panicked")?.len() < jobs.len() {
        thread::sleep(Duration::from_millis(5));
    }
    registry.signal_all(WorkerState::Terminate);
    for worker in workers {
        worker.join().map_err(|_| "a worker panicked")??;
    }
    let mut done = done.lock().map_err(|_| "a worker panicked")?.clone();
    done.sort();
    assert_eq!(done, jobs, "each exactly once");
    writeln!(std::io::stdout(), "{} jobs, each done once", done.len())?;
    Ok(())
}
