//! What INFO tells, in the shape of Faktory 1.10, which clients and exporters read.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde::Serialize;

use super::Shared;
use crate::clock;

/// The version of the protocol's reference server whose behaviour this one has. Clients parse it.
const FAKTORY_VERSION: &str = "1.10.0";

#[derive(Serialize)]
struct Info {
    faktory: Jobs,
    now: String,
    server: Process,
    server_utc_time: String,
}

#[derive(Serialize)]
struct Jobs {
    queues: BTreeMap<String, usize>,
    tasks: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    total_enqueued: usize,
    total_failures: u64,
    total_processed: u64,
    total_queues: usize,
}

#[derive(Serialize)]
struct Process {
    command_count: u64,
    connections: usize,
    description: String,
    faktory_version: &'static str,
    uptime: u64,
    used_memory_mb: u64,
}

pub(super) fn reply(shared: &Shared) -> String {
    let counts = shared.store.counts();
    let stats = shared.registry.stats();
    let now = super::jobs::wall_now();
    let tasks = BTreeMap::from([
        (
            "Workers",
            BTreeMap::from([
                ("live", stats.live() as u64),
                ("quiet", stats.quiet as u64),
                ("terminate", stats.terminate as u64),
                ("reaped", stats.expired),
            ]),
        ),
        ("Busy", BTreeMap::from([("size", counts.working as u64), ("reaped", counts.lost)])),
        ("Scheduled", BTreeMap::from([("size", counts.scheduled as u64)])),
        ("Retries", BTreeMap::from([("size", counts.retries as u64)])),
        ("Dead", BTreeMap::from([("size", counts.dead_kept as u64)])),
    ]);
    let info = Info {
        faktory: Jobs {
            total_queues: counts.queues.len(),
            queues: counts.queues,
            tasks,
            total_enqueued: counts.enqueued,
            total_failures: counts.failures,
            total_processed: counts.processed,
        },
        server_utc_time: now.strftime("%H:%M:%S UTC").to_string(),
        now: now.to_string(),
        server: Process {
            // Relaxed: a counter.
            command_count: shared.commands.load(Ordering::Relaxed),
            connections: shared.admission.connections(),
            description: format!("heartwheel {}: jobs in memory only", env!("CARGO_PKG_VERSION")),
            faktory_version: FAKTORY_VERSION,
            uptime: clock::now().saturating_duration_since(shared.started).as_secs(),
            used_memory_mb: resident_kb() / 1024,
        },
    };
    serde_json::to_string(&info).unwrap_or_default()
}

/// The resident memory of this process in KiB, where the system tells it; 0 elsewhere.
fn resident_kb() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.split_whitespace().next()?.parse().ok()
        })
        .unwrap_or(0)
}
