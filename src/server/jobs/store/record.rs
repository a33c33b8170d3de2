//! What the store keeps of one job.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;

use super::super::failure::Failure;
use super::super::json;

/// Estimated bytes of bookkeeping a job costs beside its text, as the size limit counts it. Measured with jobs of one
/// queue: about 320 queued, about 560 reserved, with the lease.
pub(crate) const OVERHEAD: usize = 576;

/// A job in the store.
#[derive(Debug)]
pub(crate) struct Record {
    /// Its place in line: grows with every job that is queued. A job that returns keeps its place.
    pub(super) place: u64,
    /// It was handed out and came back, and nobody has it now.
    pub(super) returned: bool,
    pub(super) jid: Arc<str>,
    pub(super) queue: Arc<str>,
    pub(super) reserve_for: Duration,
    /// `None`: dropped at the first failure.
    pub(super) retry: Option<u32>,
    pub(super) backtrace: Option<usize>,
    pub(super) text: Text,
}

/// The parts of the JSON a worker is given. Cheap to clone, so that the text is put together outside the lock.
#[derive(Clone, Debug)]
pub(super) struct Text {
    /// The object as it came, without the fields below and without the closing brace.
    pub(super) head: Bytes,
    pub(super) enqueued_at: Timestamp,
    pub(super) failure: Option<Arc<Failure>>,
}

impl Record {
    #[expect(clippy::too_many_arguments, reason = "the fields of a job, called from one place")]
    pub(crate) fn new(
        jid: String,
        queue: String,
        head: String,
        failure: Option<Failure>,
        reserve_for: Duration,
        retry: Option<u32>,
        backtrace: Option<usize>,
        wall: Timestamp,
    ) -> Self {
        // `into_boxed_str` first: the spare capacity of a growing `String` would stay with the job.
        let head = Bytes::from(head.into_boxed_str().into_boxed_bytes());
        let text = Text { head, enqueued_at: wall, failure: failure.map(Arc::new) };
        Self {
            place: 0,
            returned: false,
            jid: jid.into(),
            queue: queue.into(),
            reserve_for,
            retry,
            backtrace,
            text,
        }
    }

    /// What the job costs, as the size limit counts it.
    pub(super) fn size(&self) -> usize {
        let failure = self.text.failure.as_ref().map_or(0, |f| f.size());
        OVERHEAD + self.jid.len() + self.text.head.len() + failure
    }
}

impl Text {
    /// The whole JSON.
    pub(super) fn render(&self) -> Bytes {
        let failure = self.failure.as_ref().map_or(0, |f| f.size() + 128);
        let mut tail = String::with_capacity(64 + failure);
        json::key(&mut tail, "enqueued_at");
        json::time(&mut tail, self.enqueued_at);
        if let Some(failure) = &self.failure {
            json::key(&mut tail, "failure");
            failure.write(&mut tail);
        }
        tail.push('}');
        let mut out = Vec::with_capacity(self.head.len() + tail.len());
        out.extend_from_slice(&self.head);
        out.extend_from_slice(tail.as_bytes());
        out.into()
    }
}

/// The jobtype of the object as it came.
pub(super) fn jobtype(head: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Typed {
        jobtype: String,
    }
    let whole = [head, b"}"].concat();
    serde_json::from_slice(&whole).map(|Typed { jobtype }| jobtype).unwrap_or_default()
}
