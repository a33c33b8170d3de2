//! Who may come in: how many connections there are, and how many of one address have not said HELLO yet.
//!
//! A place is held by a guard and given back when that is dropped, so a task that ends in any way gives its place back.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Password hashes computed at once. One core of hashing is enough for a thousand logins a second, and leaves the others to beats.
const HASHES: usize = 1;

/// Counts connections against their limits.
#[derive(Debug)]
pub(super) struct Admission {
    max_connections: usize,
    max_handshakes: usize,
    open: AtomicUsize,
    /// The addresses with a connection that has not said HELLO.
    peers: Mutex<HashMap<IpAddr, Peer>>,
    hashing: Arc<Semaphore>,
}

#[derive(Debug)]
struct Peer {
    handshakes: usize,
    /// Its turn to wait for the turn to hash: one address never has two hashes in the queue of all.
    turn: Arc<Semaphore>,
}

/// A place among all connections.
#[derive(Debug)]
pub(super) struct Connected(Arc<Admission>);

/// A place among those that have not said HELLO.
#[derive(Debug)]
pub(super) struct Handshaking {
    admission: Arc<Admission>,
    address: IpAddr,
    turn: Arc<Semaphore>,
}

/// The turn to hash, given up when dropped.
#[derive(Debug)]
pub(super) struct Hashing(#[expect(dead_code, reason = "held")] (OwnedSemaphorePermit, OwnedSemaphorePermit));

impl Admission {
    pub(super) fn new(max_connections: usize, max_handshakes: usize) -> Self {
        Admission {
            max_connections,
            max_handshakes,
            open: AtomicUsize::new(0),
            peers: Mutex::default(),
            hashing: Arc::new(Semaphore::new(HASHES)),
        }
    }

    /// How many connections there are.
    pub(super) fn connections(&self) -> usize {
        // Relaxed: a gauge.
        self.open.load(Ordering::Relaxed)
    }

    /// A place for one more connection; the limit, if all are taken.
    pub(super) fn connect(self: &Arc<Self>) -> Result<Connected, usize> {
        let one_more = |open| (open < self.max_connections).then_some(open + 1);
        // Relaxed, both: a bare number; nothing is published with it.
        match self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(Connected(self.clone())),
            Err(_) => Err(self.max_connections),
        }
    }

    /// A place for one more handshake of this peer; the limit, if all are taken.
    pub(super) fn shake(self: &Arc<Self>, peer: SocketAddr) -> Result<Handshaking, usize> {
        let address = network(peer.ip());
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let peer =
            peers.entry(address).or_insert_with(|| Peer { handshakes: 0, turn: Arc::new(Semaphore::new(1)) });
        if peer.handshakes >= self.max_handshakes {
            return Err(self.max_handshakes);
        }
        peer.handshakes += 1;
        Ok(Handshaking { admission: self.clone(), address, turn: peer.turn.clone() })
    }
}

impl Handshaking {
    /// Waits for the turn to hash: first among the connections of this address, then among all addresses.
    pub(super) async fn hash(&self) -> Result<Hashing, AcquireError> {
        let own = self.turn.clone().acquire_owned().await?;
        let of_all = self.admission.hashing.clone().acquire_owned().await?;
        Ok(Hashing((of_all, own)))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        // Relaxed: as in `connect`.
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Handshaking {
    fn drop(&mut self) {
        let mut peers = self.admission.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = peers.get_mut(&self.address) {
            peer.handshakes -= 1;
            if peer.handshakes == 0 {
                peers.remove(&self.address);
            }
        }
    }
}

/// What counts as one peer: an IPv4 address, or the /64 that one host may number as it likes.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(ip: &str) -> SocketAddr {
        SocketAddr::new(ip.parse().unwrap(), 1)
    }

    #[test]
    fn places_are_limited_and_come_back() {
        let admission = Arc::new(Admission::new(2, 2));
        let first = admission.connect().unwrap();
        let _second = admission.connect().unwrap();
        assert_eq!(admission.connect().unwrap_err(), 2);
        drop(first);
        assert_eq!(admission.connections(), 1);
        admission.connect().unwrap();

        let one = admission.shake(peer("10.0.0.1")).unwrap();
        let _other_port = admission.shake(peer("::ffff:10.0.0.1")).unwrap();
        assert_eq!(admission.shake(peer("10.0.0.1")).unwrap_err(), 2);
        admission.shake(peer("10.0.0.2")).unwrap();
        drop(one);
        admission.shake(peer("10.0.0.1")).unwrap();
        assert_eq!(admission.peers.lock().unwrap().len(), 1, "those that are done leave nothing");
    }

    #[test]
    fn one_host_of_ipv6_is_one_peer() {
        assert_eq!(network("2001:db8::1".parse().unwrap()), network("2001:db8::ffff:2".parse().unwrap()));
        assert_ne!(network("2001:db8::1".parse().unwrap()), network("2001:db8:0:1::1".parse().unwrap()));
    }

    #[tokio::test]
    async fn an_address_has_one_hash_in_the_queue_of_all() {
        let admission = Arc::new(Admission::new(9, 9));
        let crowd: Vec<_> = (0..3).map(|_| admission.shake(peer("10.0.0.1")).unwrap()).collect();
        let single = admission.shake(peer("10.0.0.2")).unwrap();
        let at_work = crowd[0].hash().await.unwrap();
        let (mut second, mut third, mut other) =
            (Box::pin(crowd[1].hash()), Box::pin(crowd[2].hash()), Box::pin(single.hash()));
        assert!(futures_ready(&mut second).await.is_none() && futures_ready(&mut third).await.is_none());
        assert!(futures_ready(&mut other).await.is_none(), "one at a time");
        drop(at_work);
        let other = futures_ready(&mut other).await.expect("before the rest of the crowd");
        drop(other);
        futures_ready(&mut second).await.expect("then the crowd").unwrap();
    }

    /// Polls once.
    async fn futures_ready<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
            std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}
