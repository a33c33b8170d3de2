//! The unmodified client crate `faktory` as a worker: its whole life, and its two deaths.

#![cfg(feature = "server")]

mod served;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use faktory::{Client, Job, StopReason, Worker, WorkerId};
use heartwheel::{EndReason, Event, WorkerState};
use served::{Served, config, short};

/// The crate beats every five seconds, whatever one does.
const BEAT: Duration = Duration::from_secs(5);

fn url(served: &Served) -> String {
    format!("tcp://{}", served.address)
}

#[test]
fn it_connects_works_beats_is_quieted_and_terminated_and_leaves() {
    let served = Served::start(config());
    let events = served.registry.subscribe(64);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (done, mut jobs) = tokio::sync::mpsc::unbounded_channel();
    runtime.block_on(async {
        let mut client = Client::connect_to(&url(&served)).await.unwrap();
        let mut worker = Worker::builder()
            .wid(WorkerId::new("real"))
            .hostname("app-1".into())
            .labels(["blue".to_owned()])
            .workers(2)
            .register_fn("real", move |job: Job| {
                done.send(job.id().to_string()).unwrap();
                async { Ok::<(), std::io::Error>(()) }
            })
            .connect_to(&url(&served))
            .await
            .unwrap();
        let running = tokio::spawn(async move { worker.run(&["default"]).await });
        let job = Job::new("real", vec!["x"]);
        let jid = job.id().to_string();
        client.enqueue(job).await.unwrap();
        assert_eq!(jobs.recv().await.unwrap(), jid);
        let info = client.current_info().await.unwrap();
        assert_eq!(info.server.version.to_string(), "1.10.0");

        served.until("two fetch and one beats", |registry| registry.stats().connections == 3);
        let worker = served.registry.get("real").unwrap();
        assert_eq!(worker.hostname(), "app-1");
        assert_eq!(worker.labels().next(), Some("blue"));
        tokio::time::sleep(BEAT + Duration::from_secs(1)).await;
        assert_eq!(served.registry.get("real").unwrap().beats(), 1);

        served.registry.signal("real", WorkerState::Quiet).unwrap();
        let held = Job::new("real", vec!["y"]);
        client.enqueue(held).await.unwrap();
        tokio::time::sleep(BEAT + Duration::from_secs(1)).await;
        assert!(jobs.try_recv().is_err(), "no work after quiet");
        assert_eq!(client.current_info().await.unwrap().data.queues["default"], 1);

        served.registry.signal("real", WorkerState::Terminate).unwrap();
        let stopped = running.await.unwrap().unwrap();
        assert_eq!(stopped.reason, StopReason::ServerInstruction);
    });
    served.until("it has left", |registry| registry.get("real").is_none());
    let mut seen = Vec::new();
    while let Some(event) = events.try_recv() {
        match event.unwrap() {
            Event::Joined(worker) => seen.push(format!("joined {}", worker.wid())),
            Event::Told { state, .. } => seen.push(format!("told {state}")),
            Event::Ended(ended) => seen.push(format!("ended {}", ended.reason)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, ["joined real", "told quiet", "told terminate", "ended left"]);
}

/// A worker in a process of its own, by the example.
struct Process(Child);

impl Process {
    fn start(served: &Served, wid: &str) -> Self {
        let program =
            Path::new(env!("CARGO_BIN_EXE_heartwheel")).with_file_name("examples").join("faktory_worker");
        let mut child =
            Command::new(&program).args([&url(served), wid]).stdout(Stdio::piped()).spawn().unwrap_or_else(
                |error| {
                    panic!("{}: {error}; `cargo build --examples --all-features` makes it", program.display())
                },
            );
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, format!("connected as {wid}\n"));
        Process(child)
    }

    fn signal(&self, name: &str) {
        let done = Command::new("kill").args([name, &self.0.id().to_string()]).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_one_is_gone_at_once_and_a_frozen_one_at_its_ttl_with_its_sockets_closed() {
    let ttl = BEAT + Duration::from_millis(1500);
    let tick = Duration::from_millis(100);
    let served = Served::start(short(ttl, tick));
    let events = served.registry.subscribe(64);
    let well = Process::start(&served, "well");
    let killed = Process::start(&served, "killed");
    let frozen = Process::start(&served, "frozen");

    killed.signal("-KILL");
    served.until("the killed one is gone", |registry| registry.get("killed").is_none());

    served.until("all are connected", |registry| registry.stats().connections == 6);
    frozen.signal("-STOP");
    #[expect(clippy::disallowed_methods, reason = "the test's own stop watch")]
    let stopped = Instant::now();
    let age = served.registry.get("frozen").unwrap().age();
    served.until("the frozen one is gone", |registry| registry.get("frozen").is_none());
    let silent = age + stopped.elapsed();
    assert!(silent >= ttl, "reaped early: {silent:?}");
    assert!(silent <= ttl + tick * 2 + Duration::from_secs(1), "reaped late: {silent:?}");
    served.until("its connections are closed", |registry| registry.stats().connections == 3);

    // Longer than a ttl after its HELLO, by its beats.
    assert_eq!(served.registry.get("well").unwrap().state(), WorkerState::Running);
    let mut ends = Vec::new();
    while let Some(event) = events.try_recv() {
        if let Event::Ended(ended) = event.unwrap() {
            ends.push((ended.worker.wid().to_string(), ended.reason, ended.worker.connections()));
        }
    }
    assert_eq!(
        ends,
        [("killed".to_owned(), EndReason::Left, 0), ("frozen".to_owned(), EndReason::Expired, 3)]
    );
    // What the kernel of the frozen process has been told: the server closed. Woken up, it ends itself.
    let mut frozen = frozen;
    frozen.signal("-CONT");
    let code = frozen.0.wait().unwrap();
    assert!(!code.success(), "it found its connections closed");
    drop(well);
}
