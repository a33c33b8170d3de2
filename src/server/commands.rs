//! The commands after HELLO: each is a verb, what follows it, and one reply.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::jobs::{Ack, Fail, Job, jid_of};
use super::messages::BeatMessage;
use super::wire::{self, echo};
use super::{Shared, info};
use crate::clock;
use crate::error::LeaseError;
use crate::session::Session;
use crate::state::{Incarnation, WorkerState};

/// Whoever is at the other end.
pub(super) enum Role {
    /// A client without a wid: never registered, and given no jobs.
    Producer,
    Worker(Session),
}

/// The other end of one connection, after its HELLO.
pub(super) struct Peer {
    pub(super) shared: Arc<Shared>,
    pub(super) role: Role,
}

/// What follows a command.
#[derive(Debug)]
pub(super) enum Next {
    /// Its reply is in the buffer.
    Reply,
    /// It is a FETCH on these queues that found nothing.
    Hold(Vec<String>),
    /// It was END.
    End,
}

/// What a FETCH may be given now.
enum Grant {
    Job(Bytes),
    /// Nothing is there.
    Nothing,
    /// This worker is not to be given any.
    Refused,
}

impl Peer {
    /// Carries out one command, and puts its reply into `out` unless it has to wait.
    pub(super) fn command(&self, verb: &[u8], rest: &[u8], out: &mut BytesMut) -> Next {
        match verb {
            b"BEAT" => self.beat(rest, out),
            b"FETCH" => return self.fetch(rest, out),
            b"ACK" => self.ack(rest, out),
            b"FAIL" => self.fail(rest, out),
            b"PUSH" => self.push(rest, out),
            b"PUSHB" => self.push_all(rest, out),
            b"INFO" => wire::bulk(out, info::reply(&self.shared).as_bytes()),
            b"FLUSH" => {
                self.shared.store.flush();
                wire::ok(out);
            }
            b"END" => return Next::End,
            b"QUEUE" | b"MUTATE" | b"BATCH" | b"TRACK" => {
                wire::error(out, format_args!("{} is not supported by this server", echo(verb)));
            }
            _ => wire::error(out, format_args!("unknown command {}", echo(verb))),
        }
        Next::Reply
    }

    fn wid(&self) -> &str {
        match &self.role {
            Role::Producer => "",
            Role::Worker(session) => session.wid().as_str(),
        }
    }

    fn beat(&self, rest: &[u8], out: &mut BytesMut) {
        if rest.is_empty() {
            return wire::error(out, "BEAT needs a JSON object");
        }
        // The text is checked to be an object here because serde would take an array for one.
        let Some(message) = object::<BeatMessage<'_>>(rest) else {
            return wire::error(out, format_args!("invalid BEAT {}", echo(rest)));
        };
        let wid = message.wid();
        let told = match &self.role {
            Role::Worker(session) if session.wid().as_str() == wid => session.beat(&message.beat()).ok(),
            _ => self.shared.registry.beat(wid, &message.beat()).ok(),
        };
        match told {
            Some(WorkerState::Running) => wire::ok(out),
            Some(WorkerState::Quiet) => out.put_slice(b"$17\r\n{\"state\":\"quiet\"}\r\n"),
            Some(WorkerState::Terminate) => out.put_slice(b"$21\r\n{\"state\":\"terminate\"}\r\n"),
            None => wire::error(out, format_args!("unknown worker {}", echo(wid.as_bytes()))),
        }
    }

    fn push(&self, rest: &[u8], out: &mut BytesMut) {
        match Job::parse(rest) {
            Err(error) => wire::error(out, format_args!("invalid PUSH: {error}")),
            Ok(job) => match self.shared.store.push(job, clock::now()) {
                Ok(()) => wire::ok(out),
                Err(error) => wire::error(out, error),
            },
        }
    }

    /// Many jobs at once; the reply names those that were not taken, and why.
    fn push_all(&self, rest: &[u8], out: &mut BytesMut) {
        let jobs: Vec<&serde_json::value::RawValue> = match serde_json::from_slice(rest) {
            Ok(jobs) => jobs,
            Err(error) => return wire::error(out, format_args!("invalid PUSHB: {error}")),
        };
        let mut refused = serde_json::Map::new();
        for (at, text) in jobs.into_iter().map(|job| job.get().as_bytes()).enumerate() {
            let taken = match Job::parse(text) {
                Ok(job) => self.shared.store.push(job, clock::now()).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = taken {
                // A job without a jid is named by its place.
                let jid = jid_of(text).unwrap_or_else(|| format!("#{at}"));
                refused.insert(jid, why.into());
            }
        }
        wire::bulk(out, serde_json::Value::from(refused).to_string().as_bytes());
    }

    fn ack(&self, rest: &[u8], out: &mut BytesMut) {
        match jid_of(rest) {
            None => wire::error(out, "invalid ACK: not a JSON object with a jid"),
            Some(jid) => {
                let ack = self.shared.store.ack(&jid, self.holder());
                self.ended("ACK", &jid, ack, out);
            }
        }
    }

    fn fail(&self, rest: &[u8], out: &mut BytesMut) {
        match serde_json::from_slice::<Fail>(rest) {
            Err(error) => wire::error(out, format_args!("invalid FAIL: {error}")),
            Ok(fail) => {
                let jid = fail.jid.clone();
                let ack = self.shared.store.fail(fail, self.holder(), clock::now());
                self.ended("FAIL", &jid, ack, out);
            }
        }
    }

    /// Answers OK whatever became of it, as Faktory does: some clients end themselves at an error here.
    fn ended(&self, verb: &str, jid: &str, ack: Ack, out: &mut BytesMut) {
        match ack {
            Ack::Done => {}
            Ack::Unknown => tracing::debug!(wid = ?self.wid(), verb, jid, "nobody holds this job"),
            Ack::Stale => {
                tracing::warn!(wid = ?self.wid(), verb, jid, "late: this job was lost before, and is queued or held by another");
            }
        }
        wire::ok(out);
    }

    fn fetch(&self, rest: &[u8], out: &mut BytesMut) -> Next {
        let Role::Worker(session) = &self.role else {
            wire::error(out, "FETCH needs a worker: say a wid in HELLO");
            return Next::Reply;
        };
        let Ok(text) = std::str::from_utf8(rest) else {
            wire::error(out, format_args!("invalid FETCH {}", echo(rest)));
            return Next::Reply;
        };
        let mut queues: Vec<&str> = text.split_ascii_whitespace().collect();
        if queues.is_empty() {
            queues.push("default");
        }
        match self.grant(session, &queues) {
            Grant::Job(job) => {
                wire::bulk(out, &job);
                Next::Reply
            }
            // Held, too: a worker that is refused at once would ask again at once.
            Grant::Nothing | Grant::Refused => Next::Hold(queues.into_iter().map(str::to_owned).collect()),
        }
    }

    /// A job for a FETCH that is held; `None` when the worker has been told something meanwhile.
    pub(super) async fn wait_for_job(&self, queues: &[String]) -> Option<Bytes> {
        let Role::Worker(session) = &self.role else { return None };
        let told = session.state().ok()?;
        let queues: Vec<&str> = queues.iter().map(String::as_str).collect();
        let granted = self.shared.store.wait(&queues).until(|| match self.grant(session, &queues) {
            Grant::Job(job) => Some(Some(job)),
            Grant::Nothing => None,
            Grant::Refused => Some(None),
        });
        let job = async {
            match granted.await {
                Some(job) => job,
                // Nothing will be granted for now. The wait is over, so that what it was woken for is offered to another.
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A job that was granted is handed out: its lease was granted before the word came.
            biased;
            job = job => Some(job),
            _ = session.changed(told) => None,
        }
    }

    fn grant(&self, session: &Session, queues: &[&str]) -> Grant {
        // Asked first, so that no job leaves its queue for nothing. The lease asks again, where it counts (G6).
        if !session.takes_work() {
            return Grant::Refused;
        }
        match self.shared.store.fetch(queues, session) {
            Ok(Some(job)) => Grant::Job(job),
            Ok(None) => Grant::Nothing,
            Err(LeaseError::Gone | LeaseError::Told(_) | LeaseError::Cordoned) => Grant::Refused,
            Err(error) => {
                tracing::error!(wid = ?session.wid(), %error, "a job could not be leased; it is back in its queue");
                Grant::Refused
            }
        }
    }

    /// As whom an ACK speaks: a worker for what it holds, a producer for whoever holds the job.
    fn holder(&self) -> Option<Incarnation> {
        match &self.role {
            Role::Producer => None,
            Role::Worker(session) => Some(session.incarnation()),
        }
    }
}

/// A JSON object as `T`; `None` for anything else.
fn object<'a, T: serde::Deserialize<'a>>(text: &'a [u8]) -> Option<T> {
    if text.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    serde_json::from_slice(text).ok()
}
