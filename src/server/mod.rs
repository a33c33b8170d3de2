//! The program's server: Faktory's worker protocol on one address, an API for operators on another.
//!
//! It is a thin shell: who is there, alive, and told what is decided by the [`Registry`]; where jobs are is decided by a
//! [`JobStore`]. What is here turns bytes into calls, and answers.
//!
//! Ground rules
//! - One task a connection; everything a connection read in one go is answered in one write.
//! - No task holds anything of the registry or the store across an `await` but its own session and its own wait.
//! - What a peer sent is echoed cut and escaped, so that a reply is always one line.
//! - Jobs are held in memory only, and are gone with the process. The program says so wherever a user looks.

mod admission;
mod api;
mod auth;
mod commands;
mod connection;
#[cfg(fuzzing)]
pub mod fuzzing;
mod info;
pub mod jobs;
mod listener;
mod log;
mod messages;
mod refusal;
mod reserve;
mod wire;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::clock;
use crate::error::PolicyError;
use crate::policy::Policy;
use crate::reaper::{Reaper, SpawnError};
use crate::registry::Registry;

pub use crate::policy::Recover;
use admission::Admission;
pub use api::{
    CordonReply, CordonRequest, SignalReply, SignalRequest, StatsReply, Whom, WorkerReply, WorkersReply,
};
pub use auth::Password;
use jobs::JobStore;
use listener::Acceptor;
use refusal::{Refusal, Refusals};

/// What the server is started with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where workers connect.
    pub listen: SocketAddr,
    /// Where operators' tools connect.
    pub api: SocketAddr,
    /// What both have to know, if anything.
    pub password: Option<Password>,
    /// The registry's policy.
    pub policy: Policy,
    /// How many jobs are held.
    pub jobs: jobs::Limits,
    /// When the jobs of an ended worker come back. It takes the place of the policy's: Faktory has [`Recover::AtExpiry`].
    pub recover: Recover,
    /// Longest line a client may send, in bytes.
    pub max_line: usize,
    /// How long a client may take from connecting to a complete HELLO.
    pub handshake: Duration,
    /// How long a client may take to read what was answered to it.
    pub write_timeout: Duration,
    /// Most connections of workers and producers; further ones are told so and closed. Those of operators' tools are counted apart
    /// and find a descriptor as long as the process may open a hundred more than this.
    pub max_connections: usize,
    /// Most connections of one address (of one /64 of IPv6) that have not completed their HELLO; further ones are told so and closed.
    pub max_handshakes: usize,
    /// How long a FETCH is held when there is nothing to hand out. Clients wait three to five seconds for an answer.
    pub fetch_hold: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 7419)),
            api: SocketAddr::from(([127, 0, 0, 1], 7420)),
            password: None,
            policy: Policy::default(),
            jobs: jobs::Limits::default(),
            recover: Recover::AtExpiry,
            max_line: 64 * 1024,
            handshake: Duration::from_secs(2),
            write_timeout: Duration::from_secs(10),
            max_connections: 10_000,
            max_handshakes: 1_000,
            fetch_hold: Duration::from_secs(2),
        }
    }
}

/// Why the server did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address could not be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The policy has a value outside its range.
    #[error("policy: {0}")]
    Policy(#[from] PolicyError),
    /// The reaper's thread did not start.
    #[error(transparent)]
    Reaper(#[from] SpawnError),
}

/// What all connections share.
struct Shared {
    registry: Registry,
    store: JobStore,
    config: Config,
    admission: Arc<Admission>,
    refusals: Refusals,
    /// Connections that are being told that there is no place for them.
    refusing: Arc<Semaphore>,
    started: Instant,
    commands: AtomicU64,
    stopping: watch::Receiver<bool>,
}

impl Shared {
    fn new(config: Config, registry: Registry, stopping: watch::Receiver<bool>) -> Self {
        Shared {
            registry,
            store: JobStore::new(config.jobs),
            admission: Arc::new(Admission::new(config.max_connections, config.max_handshakes)),
            refusals: Refusals::default(),
            refusing: Arc::new(Semaphore::new(REFUSING)),
            config,
            started: clock::now(),
            commands: AtomicU64::new(0),
            stopping,
        }
    }
}

/// A server whose addresses are bound.
pub struct Server {
    shared: Arc<Shared>,
    reaper: Reaper,
    workers: TcpListener,
    api: TcpListener,
    stop: watch::Sender<bool>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

/// Moves due jobs this often.
const STORE_TICK: Duration = Duration::from_millis(100);
/// Jobs moved in one go.
const STORE_SLICE: usize = 1024;
/// How long replies in flight may take when the server stops.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Connections told at once that there is no place for them; more are closed without a word.
const REFUSING: usize = 64;

impl Server {
    /// Binds both addresses, and starts the reaper.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn bind(config: Config) -> Result<Self, StartError> {
        let registry = Registry::new(reserve::policy(&config))?;
        let workers = listen(config.listen).await?;
        let api = listen(config.api).await?;
        let reaper = Reaper::spawn(&registry)?;
        let (stop, stopping) = watch::channel(false);
        let shared = Arc::new(Shared::new(config, registry, stopping));
        Ok(Server { shared, reaper, workers, api, stop })
    }

    /// Where workers connect.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.workers.local_addr()
    }

    /// Where operators' tools connect.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn api_address(&self) -> io::Result<SocketAddr> {
        self.api.local_addr()
    }

    /// The registry, to look at or to signal.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// Serves until `until` completes; then accepts nobody any more, lets every connection finish the reply it is at, and returns.
    ///
    /// # Errors
    /// When the API's listener fails.
    pub async fn run(self, until: impl Future<Output = ()>) -> io::Result<()> {
        let Server { shared, reaper, workers, api, stop } = self;
        log::follow(&shared.registry);
        let requeueing = tokio::spawn(reserve::requeue(shared.clone()));
        let advancing = tokio::spawn(advance(shared.clone()));
        let api = tokio::spawn(api::serve(api, shared.clone()));
        let mut workers = Acceptor::new(workers);
        let mut connections = JoinSet::new();
        tokio::pin!(until);
        loop {
            tokio::select! {
                () = &mut until => break,
                (stream, peer) = workers.accept() => accept(&mut connections, &shared, stream, peer),
                Some(_) = connections.join_next() => {}
            }
        }
        info!("stopping");
        drop(workers);
        stop.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_LIMIT, all).await.is_err() {
            warn!("some connections did not finish in time");
        }
        advancing.abort();
        requeueing.abort();
        let api = match api.await {
            Ok(served) => served,
            Err(error) => Err(io::Error::other(error)),
        };
        // Joins its thread, which may be at work for a moment.
        let _ = tokio::task::spawn_blocking(move || drop(reaper)).await;
        api
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

fn accept(connections: &mut JoinSet<()>, shared: &Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    let place = shared
        .admission
        .connect()
        .map_err(|limit| (Refusal::Full, format!("too many connections: the limit is {limit}")));
    let places = place.and_then(|place| match shared.admission.shake(peer) {
        Ok(handshake) => Ok((place, handshake)),
        Err(limit) => Err((
            Refusal::Crowd,
            format!("too many connections from your address without a HELLO: the limit is {limit}"),
        )),
    });
    match places {
        Ok((place, handshake)) => {
            let shared = shared.clone();
            connections.spawn(async move {
                let ended = connection::serve(stream, &shared, handshake).await;
                drop(place);
                match ended.refusal() {
                    Some(refusal) => shared.refusals.note(refusal, peer, &ended),
                    None => debug!(%peer, %ended, "connection closed"),
                }
            });
        }
        Err((refusal, why)) => {
            shared.refusals.note(refusal, peer, &why);
            if let Ok(turn) = shared.refusing.clone().try_acquire_owned() {
                connections.spawn(async move {
                    connection::refuse(stream, &why).await;
                    drop(turn);
                });
            }
        }
    }
}

/// Moves what is due in the job store, as long as the server runs.
async fn advance(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(STORE_TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        while shared.store.advance(clock::now(), STORE_SLICE) {
            tokio::task::yield_now().await;
        }
    }
}
