//! One connection from its first byte to its last, over any stream.

use std::fmt;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use super::Shared;
use super::admission::Handshaking;
use super::auth::Challenge;
use super::commands::{Next, Peer, Role};
use super::messages::HelloMessage;
use super::refusal::Refusal;
use super::wire::{self, LineTooLong, Lines};
use crate::hello::Hello;
use crate::session::Session;
use crate::state::EndReason;

/// Replies that have piled up to this size are written before the next command is looked at.
const FLUSH_AT: usize = 64 * 1024;
/// Longest HELLO: room for all that a worker may say of itself, and no more for who is not known yet.
const HELLO_LIMIT: usize = 32 * 1024;
/// Room for replies that a connection keeps.
const KEPT: usize = 4 * 1024;
/// How long a closed connection is read on, so that it ends with FIN and the peer sees the last reply.
const LINGER: Duration = Duration::from_millis(500);
/// And how much of it: who has more to say than this is reset.
const LINGER_BYTES: usize = 1024 * 1024;

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Closed {
    /// The peer closed it.
    Eof,
    /// The peer said END.
    End,
    /// What came instead of HELLO was not one, or did not come in time.
    NoHello(&'static str),
    /// It was refused, and told why.
    Refused(Refusal, String),
    LineTooLong(LineTooLong),
    /// The worker's incarnation ended.
    Ended(EndReason),
    /// The peer did not read its replies.
    WriteTimeout,
    Stopping,
    Io(io::Error),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::Eof => f.write_str("the peer closed it"),
            Closed::End => f.write_str("END"),
            Closed::NoHello(why) => write!(f, "no HELLO: {why}"),
            Closed::Refused(_, why) => f.write_str(why),
            Closed::LineTooLong(LineTooLong { limit }) => write!(f, "a line of over {limit} bytes"),
            Closed::Ended(reason) => write!(f, "its worker {reason}"),
            Closed::WriteTimeout => f.write_str("the peer does not read"),
            Closed::Stopping => f.write_str("the server stops"),
            Closed::Io(error) => error.fmt(f),
        }
    }
}

impl Closed {
    /// What kind of refusal this end is, if it is one.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        match self {
            Closed::NoHello(_) => Some(Refusal::NoHello),
            Closed::Refused(refusal, _) => Some(*refusal),
            Closed::LineTooLong(_) => Some(Refusal::LongLine),
            Closed::WriteTimeout => Some(Refusal::SlowReader),
            Closed::Eof | Closed::End | Closed::Ended(_) | Closed::Stopping | Closed::Io(_) => None,
        }
    }
}

impl From<io::Error> for Closed {
    fn from(error: io::Error) -> Self {
        Closed::Io(error)
    }
}

impl From<LineTooLong> for Closed {
    fn from(too_long: LineTooLong) -> Self {
        Closed::LineTooLong(too_long)
    }
}

/// Serves `stream` until it ends.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    shared: &Arc<Shared>,
    handshaking: Handshaking,
) -> Closed {
    let config = &shared.config;
    let mut link = Link {
        stream,
        lines: Lines::new(config.max_line.min(HELLO_LIMIT)),
        out: BytesMut::new(),
        write_timeout: config.write_timeout,
        ends: Ends { stopping: shared.stopping.clone(), worker: None },
    };
    let shaken = handshake(&mut link, shared, &handshaking).await;
    drop(handshaking);
    link.lines.set_limit(config.max_line);
    let closed = match shaken {
        Ok(peer) => {
            let Err(closed) = converse(&mut link, peer).await;
            closed
        }
        Err(closed) => closed,
    };
    link.finish(&closed).await;
    closed
}

/// Tells a peer, in place of HI, why it is not served.
pub(super) async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, why: &str) {
    let mut out = BytesMut::new();
    wire::error(&mut out, why);
    // Whatever goes wrong here, the stream is dropped.
    let _ = timeout(LINGER, async {
        stream.write_all_buf(&mut out).await?;
        linger(&mut stream).await
    })
    .await;
}

/// Says HI, and waits for HELLO.
async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    link: &mut Link<S>,
    shared: &Arc<Shared>,
    handshaking: &Handshaking,
) -> Result<Peer, Closed> {
    let shaking = async {
        let challenge = match &shared.config.password {
            None => {
                link.out.put_slice(b"+HI {\"v\":2}\r\n");
                None
            }
            Some(password) => {
                let challenge = Challenge::new().map_err(io::Error::other)?;
                link.out.put_slice(challenge.hi().as_bytes());
                link.out.put_slice(b"\r\n");
                Some((password.clone(), challenge))
            }
        };
        let message = loop {
            link.flush().await?;
            match link.lines.next()? {
                None => link.read().await?,
                Some(line) => {
                    let (verb, rest) = (link.lines.get(&line.verb), link.lines.get(&line.rest));
                    if verb != b"HELLO" {
                        return Err(Closed::NoHello("another command"));
                    }
                    if rest.is_empty() {
                        wire::error(&mut link.out, "HELLO needs a JSON object");
                        link.lines.done(&line);
                        continue;
                    }
                    let message: HelloMessage =
                        serde_json::from_slice(rest).map_err(|_| Closed::NoHello("malformed JSON"))?;
                    link.lines.done(&line);
                    break message;
                }
            }
        };
        if let Some((password, challenge)) = challenge
            && !is_authentic(handshaking, password, challenge, &message).await?
        {
            return Err(link.refused(Refusal::Password, "Invalid password"));
        }
        match message.worker() {
            Ok(hello) => Ok(hello),
            Err(invalid) => Err(link.refused(Refusal::BadHello, invalid)),
        }
    };
    let hello = timeout(shared.config.handshake, shaking)
        .await
        .unwrap_or(Err(Closed::NoHello("it did not come in time")))?;
    let role = match hello {
        None => Role::Producer,
        Some(hello) => Role::Worker(register(link, shared, hello)?),
    };
    wire::ok(&mut link.out);
    Ok(Peer { shared: shared.clone(), role })
}

/// Hashes off the I/O threads and in turn, so that a storm of handshakes starves no beat.
async fn is_authentic(
    handshaking: &Handshaking,
    password: super::Password,
    challenge: Challenge,
    message: &HelloMessage,
) -> Result<bool, Closed> {
    let Some(answer) = message.pwdhash.clone() else { return Ok(false) };
    let v = message.v;
    let turn = handshaking.hash().await.map_err(io::Error::other)?;
    let met = tokio::task::spawn_blocking(move || {
        // Given up when the work is done, not when the peer has lost its patience.
        let _turn = turn;
        challenge.is_met(&password, v, &answer)
    });
    Ok(met.await.map_err(io::Error::other)?)
}

fn register<S: AsyncRead + AsyncWrite + Unpin>(
    link: &mut Link<S>,
    shared: &Shared,
    hello: Hello,
) -> Result<Session, Closed> {
    let (closer, closed) = oneshot::channel();
    let session = shared.registry.connect(hello, move |reason| {
        // Nobody is there to be told if the connection has just closed by itself.
        let _ = closer.send(reason);
    });
    match session {
        Ok(session) => {
            link.ends.worker = Some(closed);
            Ok(session)
        }
        Err(refused) => Err(link.refused(Refusal::BadHello, refused)),
    }
}

/// Answers command after command. Only ever ends with a reason.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    link: &mut Link<S>,
    peer: Peer,
) -> Result<std::convert::Infallible, Closed> {
    loop {
        let mut commands = 0;
        let next = loop {
            let Some(line) = link.lines.next()? else { break Next::Reply };
            commands += 1;
            let verb = link.lines.get(&line.verb);
            let next = peer.command(verb, link.lines.get(&line.rest), &mut link.out);
            link.lines.done(&line);
            if !matches!(next, Next::Reply) || link.out.len() >= FLUSH_AT {
                break next;
            }
        };
        // Relaxed: a counter.
        peer.shared.commands.fetch_add(commands, Ordering::Relaxed);
        match next {
            Next::Reply => {
                let all_done = link.out.len() < FLUSH_AT;
                link.flush().await?;
                if all_done {
                    link.read().await?;
                }
            }
            Next::Hold(queues) => {
                link.flush().await?;
                hold(link, &peer, &queues).await?;
            }
            Next::End => {
                link.flush().await?;
                return Err(Closed::End);
            }
        }
    }
}

/// A FETCH that found nothing: held until there is a job, the worker is told something, or the time is over.
async fn hold<S: AsyncRead + AsyncWrite + Unpin>(
    link: &mut Link<S>,
    peer: &Peer,
    queues: &[String],
) -> Result<(), Closed> {
    let mut job = pin!(peer.wait_for_job(queues));
    let mut over = pin!(sleep(peer.shared.config.fetch_hold));
    let job = loop {
        tokio::select! {
            biased;
            closed = link.ends.reached() => {
                wire::null(&mut link.out);
                return Err(closed);
            }
            job = &mut job => break job,
            () = &mut over => break None,
            // A peer that has gone must not be handed a job.
            read = link.stream.read_buf(link.lines.space()), if link.lines.has_room() => {
                if read? == 0 {
                    return Err(Closed::Eof);
                }
            }
        }
    };
    match job {
        Some(job) => wire::bulk(&mut link.out, &job),
        None => wire::null(&mut link.out),
    }
    Ok(())
}

/// What ends a connection from outside.
struct Ends {
    stopping: watch::Receiver<bool>,
    /// Says that the worker ended; there is none for a producer.
    worker: Option<oneshot::Receiver<EndReason>>,
}

impl Ends {
    async fn reached(&mut self) -> Closed {
        let worker = async {
            match &mut self.worker {
                Some(closer) => closer.await,
                None => pending().await,
            }
        };
        tokio::select! {
            Ok(reason) = worker => Closed::Ended(reason),
            _ = self.stopping.wait_for(|&stopping| stopping) => Closed::Stopping,
        }
    }
}

/// The two directions of a stream, and what ends them from outside.
struct Link<S> {
    stream: S,
    lines: Lines,
    out: BytesMut,
    write_timeout: Duration,
    ends: Ends,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    async fn read(&mut self) -> Result<(), Closed> {
        tokio::select! {
            biased;
            read = self.stream.read_buf(self.lines.space()) => match read? {
                0 => Err(Closed::Eof),
                _ => Ok(()),
            },
            closed = self.ends.reached() => Err(closed),
        }
    }

    /// Writes what was answered. Ends early when the connection is to end: [`Link::finish`] writes the rest then.
    async fn flush(&mut self) -> Result<(), Closed> {
        if self.out.is_empty() {
            return Ok(());
        }
        tokio::select! {
            biased;
            written = timeout(self.write_timeout, self.stream.write_all_buf(&mut self.out)) => match written {
                Ok(written) => written?,
                Err(_) => return Err(Closed::WriteTimeout),
            },
            closed = self.ends.reached() => return Err(closed),
        }
        if self.out.capacity() > KEPT {
            self.out = BytesMut::new();
        }
        Ok(())
    }

    /// Answers with why it is refused.
    fn refused(&mut self, refusal: Refusal, why: impl fmt::Display) -> Closed {
        let why = why.to_string();
        wire::error(&mut self.out, &why);
        Closed::Refused(refusal, why)
    }

    /// Ends the connection from this side: the last replies, then FIN, and a reset only for a peer that goes on talking.
    async fn finish(mut self, closed: &Closed) {
        let patience = match closed {
            Closed::Io(_) | Closed::WriteTimeout => return,
            Closed::LineTooLong(LineTooLong { limit }) => {
                wire::error(&mut self.out, format_args!("line is longer than {limit} bytes"));
                LINGER
            }
            // A reply that was on its way is finished.
            Closed::Stopping => self.write_timeout,
            _ => LINGER,
        };
        // Whatever goes wrong here, the stream is dropped.
        if let Ok(Ok(())) = timeout(patience, self.stream.write_all_buf(&mut self.out)).await {
            let _ = timeout(LINGER, linger(&mut self.stream)).await;
        }
    }
}

/// Says that nothing follows, and reads on until the peer has said so too.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    stream.shutdown().await?;
    let mut ignored = [0; 512];
    let mut left = LINGER_BYTES;
    while left > 0 {
        match stream.read(&mut ignored).await? {
            0 => break,
            read => left = left.saturating_sub(read),
        }
    }
    Ok(())
}
