//! The registry in an async server: a task a connection, which hears at once what its worker is told.
//! `cargo run --example embed_tokio`
//!
//! The protocol is a line each way: the worker says its wid, then `beat`; the server pushes a line whenever the worker is told something,
//! and closes the connection when the worker is reaped.

use std::io::Write as _;
use std::time::Duration;

use heartwheel::{Beat, EndReason, Hello, Policy, Reaper, Registry, WorkerState};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn serve(registry: Registry, stream: TcpStream) -> Result<(), Error> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let wid = lines.next_line().await?.ok_or("no wid")?;
    let (close, mut closed) = oneshot::channel();
    let session = registry.connect(Hello::new(wid)?, move |reason| {
        let _ = close.send(reason);
    })?;
    let mut known = WorkerState::Running;
    loop {
        tokio::select! {
            line = lines.next_line() => match line?.as_deref() {
                Some("beat") => drop(session.beat(&Beat::default())?),
                Some(_) => write.write_all(b"what?\n").await?,
                None => return Ok(()),
            },
            // After the end there is nothing told any more, and `closed` says why.
            Ok(told) = session.changed(known) => {
                known = told;
                write.write_all(format!("{known}\n").as_bytes()).await?;
            }
            reason = &mut closed => {
                let reason: EndReason = reason?;
                write.write_all(format!("closed: {reason}\n").as_bytes()).await?;
                return Ok(());
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut policy = Policy::default();
    policy.ttl = Duration::from_millis(500);
    policy.tick = Duration::from_millis(10);
    let registry = Registry::new(policy)?;
    let _reaper = Reaper::spawn(&registry)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = registry.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(serving.clone(), stream));
        }
    });

    let mut worker = TcpStream::connect(address).await?;
    worker.write_all(b"w1\nbeat\n").await?;
    while registry.get("w1").is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    registry.signal("w1", WorkerState::Quiet)?;
    registry.signal("w1", WorkerState::Terminate)?;
    // It never beats again.
    let mut heard = Vec::new();
    let mut lines = BufReader::new(worker).lines();
    while let Some(line) = lines.next_line().await? {
        writeln!(std::io::stdout(), "{line}")?;
        heard.push(line);
    }
    // Told twice in a row, it may have heard of both at once.
    assert_eq!(heard[heard.len() - 2..], ["terminate", "closed: expired"]);
    Ok(())
}
