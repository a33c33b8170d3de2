//! The server without its sockets and threads, for the fuzz targets; built under `--cfg fuzzing` only.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BufMut as _;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};

use super::jobs::Counts;
use super::wire::{LineTooLong, Lines};
use super::{Config, Shared, api, connection, reserve};
use crate::registry::Registry;

/// Where every connection comes from.
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
/// Jobs moved at a time.
const SLICE: usize = 16;

/// What a server shares between its connections. Time comes from the caller.
pub struct Inside {
    shared: Arc<Shared>,
    _stop: watch::Sender<bool>,
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside").finish_non_exhaustive()
    }
}

impl Inside {
    /// As [`Server::bind`](super::Server::bind), without binding.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let registry = Registry::new(reserve::policy(&config)).expect("a valid policy");
        let (stop, stopping) = watch::channel(false);
        Inside { shared: Arc::new(Shared::new(config, registry, stopping)), _stop: stop }
    }

    /// The registry.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.shared.registry
    }

    /// What the job store holds.
    #[must_use]
    pub fn jobs(&self) -> Counts {
        self.shared.store.counts()
    }

    /// Serves one connection of the protocol until it ends. The future borrows nothing.
    pub fn serve(&self, stream: DuplexStream) -> impl Future<Output = ()> + Send + 'static {
        let shared = self.shared.clone();
        async move {
            let handshaking = shared.admission.shake(PEER).expect("few connections");
            let _ = connection::serve(stream, &shared, handshaking).await;
        }
    }

    /// Serves the API to what comes from `streams`.
    pub fn serve_api(
        &self,
        streams: mpsc::UnboundedReceiver<DuplexStream>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        api::serve(Streams(streams), self.shared.clone())
    }

    /// What the server's tasks do as time goes on: due jobs are moved, those of lost leases put back.
    pub fn advance(&self, now: Instant) {
        let _ = self.shared.store.lost_unheard();
        while self.shared.store.advance(now, SLICE) {}
    }
}

struct Streams(mpsc::UnboundedReceiver<DuplexStream>);

impl axum::serve::Listener for Streams {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.0.recv().await {
            Some(stream) => (stream, PEER),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(PEER)
    }
}

/// The lines in bytes that come in these pieces, each as its verb and the rest; and the limit, if a line was longer.
#[must_use]
pub fn lines<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    limit: usize,
) -> (Vec<(Vec<u8>, Vec<u8>)>, Option<usize>) {
    let mut lines = Lines::new(limit);
    let mut all = Vec::new();
    for mut piece in pieces {
        while !piece.is_empty() {
            // What is read in one go is as much as there is room for.
            let space = lines.space();
            let room = (space.capacity() - space.len()).min(piece.len());
            space.put_slice(&piece[..room]);
            piece = &piece[room..];
            loop {
                match lines.next() {
                    Ok(None) => break,
                    Ok(Some(line)) => {
                        all.push((lines.get(&line.verb).to_vec(), lines.get(&line.rest).to_vec()));
                        lines.done(&line);
                    }
                    Err(LineTooLong { limit }) => return (all, Some(limit)),
                }
            }
        }
    }
    (all, None)
}
