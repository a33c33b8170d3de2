//! Accepting connections, through whatever goes wrong there.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::refusal::Throttle;

/// First and longest pause after an error that will not go away at once: no descriptors, no memory.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// When the kernel asks whether a silent peer is still there, how often, and for how long: a host that lost its power is
/// found after a minute, also where no heartbeat is expected (a producer).
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

/// A listener that only ever gives connections.
#[derive(Debug)]
pub(super) struct Acceptor {
    listener: TcpListener,
    /// How long to wait before the next try, after one that failed.
    pause: Option<Duration>,
    log: Throttle,
}

impl Acceptor {
    pub(super) fn new(listener: TcpListener) -> Self {
        Acceptor { listener, pause: None, log: Throttle::default() }
    }

    /// The next connection. May be dropped and called again: nothing is lost by that, a pause included.
    pub(super) async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            if let Some(pause) = self.pause {
                sleep(pause).await;
            }
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    if self.pause.take().is_some() {
                        debug!("accepting again");
                    }
                    prepare(&stream, peer);
                    return (stream, peer);
                }
                // It was the connection that failed, before it was ours.
                Err(error) if is_of_the_connection(error.kind()) => {
                    debug!(%error, "a connection failed at once");
                }
                Err(error) => {
                    let next = self.pause.map_or(PAUSE.0, |pause| (pause * 2).min(PAUSE.1));
                    self.pause = Some(next);
                    if let Some(unwritten) = self.log.pass() {
                        warn!(%error, unwritten, "cannot accept connections; it is tried again and again");
                    }
                }
            }
        }
    }
}

fn is_of_the_connection(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused)
}

fn prepare(stream: &TcpStream, peer: SocketAddr) {
    let set = || -> io::Result<()> {
        // Replies are written whole; nothing is gained by waiting for more.
        stream.set_nodelay(true)?;
        SockRef::from(stream).set_tcp_keepalive(&KEEPALIVE)
    };
    if let Err(error) = set() {
        info!(%error, %peer, "cannot set the options of a connection");
    }
}
