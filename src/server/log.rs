//! What happens to workers, in the log.

use tracing::{debug, info, warn};

use crate::event::{Event, Subscriber};
use crate::registry::Registry;
use crate::state::EndReason;

/// Events that may wait to be written.
const CAPACITY: usize = 4096;

/// Writes what happens to the log, on a thread of its own, until the registry is gone.
pub(super) fn follow(registry: &Registry) {
    let events = registry.subscribe(CAPACITY);
    let spawned = std::thread::Builder::new().name("heartwheel-log".into()).spawn(move || write(events));
    if let Err(error) = spawned {
        warn!(%error, "no thread for the log of workers: what happens to them is not written");
    }
}

fn write(events: Subscriber) {
    for event in events {
        match event {
            Ok(Event::Joined(worker)) => info!(
                wid = ?worker.wid(), incarnation = %worker.incarnation(), hostname = ?worker.hostname(),
                pid = worker.pid(), state = %worker.state(), "worker joined"
            ),
            Ok(Event::Told { wid, incarnation, state }) => {
                info!(?wid, %incarnation, %state, "worker told");
            }
            Ok(Event::Ended(ended)) => {
                let worker = &ended.worker;
                if ended.reason == EndReason::Left {
                    info!(wid = ?worker.wid(), incarnation = %worker.incarnation(), "worker left");
                } else {
                    warn!(
                        wid = ?worker.wid(), incarnation = %worker.incarnation(), silent_for = ?worker.age(),
                        open_connections = worker.connections(), "worker {}", ended.reason
                    );
                }
            }
            Ok(Event::Late(worker)) => {
                warn!(wid = ?worker.wid(), incarnation = %worker.incarnation(), silent_for = ?worker.age(), "worker is late");
            }
            Ok(Event::Back { wid, incarnation }) => info!(?wid, %incarnation, "worker is back"),
            Ok(Event::Cordoned { wid, incarnation, cordoned }) => {
                info!(?wid, %incarnation, cordoned, "cordon");
            }
            Ok(Event::Overdue(not_done)) => warn!(
                wid = ?not_done.worker.wid(), incarnation = %not_done.worker.incarnation(),
                state = %not_done.worker.state(), leases = not_done.held.len(), "worker has not done in time what it was told"
            ),
            Ok(Event::Lost(lost)) => {
                warn!(wid = ?lost.wid, incarnation = %lost.incarnation, leases = lost.leases.len(), "leases {}", lost.how);
            }
            Ok(Event::MassSilence { fleet, expired }) => {
                warn!(fleet, expired, "mass silence: the rest of the silent workers is held");
            }
            Ok(Event::SilenceOver { held }) => warn!(held, "mass silence is over"),
            Ok(Event::Gap(gap)) => {
                warn!(?gap, "this server did not run for a while; every deadline moves by that");
            }
            Err(lagged) => debug!("{lagged}"),
        }
    }
}
