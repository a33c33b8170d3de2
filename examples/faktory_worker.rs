//! A real Faktory worker, by the unmodified client crate `faktory`, to try the server with:
//!
//! ```text
//! cargo serve
//! cargo run --features server --example faktory_worker -- tcp://127.0.0.1:7419 my-worker
//! cargo run --features server -- workers
//! cargo run --features server -- quiet my-worker
//! cargo run --features server -- terminate my-worker
//! ```
//!
//! It works on the queue `default`, prints what it does, and ends when it is told to terminate.

use std::io::{self, Write as _};

use faktory::{Job, Worker, WorkerId};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "tcp://127.0.0.1:7419".into());
    let wid = args.next().unwrap_or_else(|| format!("example-{}", std::process::id()));
    let mut worker = Worker::builder()
        .wid(WorkerId::new(wid.clone()))
        .labels(["example".to_owned()])
        .workers(2)
        .register_fn("example", |job: Job| async move { say(&format!("done {}", job.id().as_str())) })
        .connect_to(&url)
        .await?;
    say(&format!("connected as {wid}"))?;
    let stopped = worker.run(&["default"]).await?;
    say(&format!("stopped: {}", stopped.reason))?;
    Ok(())
}

fn say(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}
