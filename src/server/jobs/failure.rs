//! What FAIL says, what of it a job carries along, and when the next attempt comes.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::json;

/// Longest message kept, in bytes.
const MESSAGE: usize = 4096;
/// Longest error type and longest backtrace line kept, in bytes.
const LINE: usize = 512;
/// Most backtrace lines kept of a job that does not say how many it wants.
const LINES: usize = 50;

/// A failed attempt, as FAIL reports it. Unknown fields are ignored; only `jid` must be there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Fail {
    /// The job.
    pub jid: String,
    /// The kind of error, such as a class name.
    pub errtype: Option<String>,
    /// What went wrong.
    pub message: Option<String>,
    /// Where, innermost first.
    pub backtrace: Option<Vec<String>>,
}

/// The `failure` object of a job.
#[derive(Debug)]
pub(super) enum Failure {
    /// The job came with one at PUSH; it is handed on as it came until the job fails here.
    Given { raw: Box<str>, retry_count: u32 },
    /// The job failed here.
    Seen { retry_count: u32, failed_at: Timestamp, next_at: Option<Timestamp>, fail: Fail },
}

impl Failure {
    /// Records a failure after `before`. `lines` is the job's `backtrace` field. Texts are cut to what is worth keeping:
    /// they are for people, and a job must not grow without bound by failing.
    pub(super) fn new(before: Option<&Self>, mut fail: Fail, lines: Option<usize>, wall: Timestamp) -> Self {
        cut(&mut fail.errtype, LINE);
        cut(&mut fail.message, MESSAGE);
        if let Some(trace) = &mut fail.backtrace {
            trace.truncate(lines.unwrap_or(LINES));
            for line in trace.iter_mut() {
                cut_to(line, LINE);
            }
        }
        fail.backtrace = fail.backtrace.filter(|trace| !trace.is_empty());
        let retry_count = before.map_or(0, |f| f.retry_count().saturating_add(1));
        Self::Seen { retry_count, failed_at: wall, next_at: None, fail }
    }

    /// How often the job was retried before this failure: 0 at the first.
    pub(super) fn retry_count(&self) -> u32 {
        match *self {
            Self::Given { retry_count, .. } | Self::Seen { retry_count, .. } => retry_count,
        }
    }

    /// Notes when the next attempt comes.
    pub(super) fn retry_after(&mut self, delay: Duration) {
        if let Self::Seen { failed_at, next_at, .. } = self {
            let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
            *next_at = Some(failed_at.checked_add(delay).unwrap_or(Timestamp::MAX));
        }
    }

    /// Bytes of text, for the size limit.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Given { raw, .. } => raw.len(),
            Self::Seen { fail, .. } => {
                let trace = fail.backtrace.iter().flatten().map(|line| line.len() + size_of::<String>());
                [&fail.errtype, &fail.message].into_iter().flatten().map(String::len).chain(trace).sum()
            }
        }
    }

    /// Appends the object.
    pub(super) fn write(&self, out: &mut String) {
        let (count, failed_at, next_at, fail) = match self {
            Self::Given { raw, .. } => return out.push_str(raw),
            Self::Seen { retry_count, failed_at, next_at, fail } => (retry_count, failed_at, next_at, fail),
        };
        let _ = write!(out, "{{\"retry_count\":{count}");
        json::key(out, "failed_at");
        json::time(out, *failed_at);
        if let Some(next_at) = next_at {
            json::key(out, "next_at");
            json::time(out, *next_at);
        }
        for (name, text) in [("message", &fail.message), ("errtype", &fail.errtype)] {
            if let Some(text) = text {
                json::key(out, name);
                json::string(out, text);
            }
        }
        if let Some(trace) = &fail.backtrace {
            json::key(out, "backtrace");
            out.push('[');
            for (i, line) in trace.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                json::string(out, line);
            }
            out.push(']');
        }
        out.push('}');
    }
}

/// The protocol's pause before the next attempt: count⁴ + 15 + (0 to 29) × (count + 1) seconds. The random part keeps
/// jobs that failed together from returning together.
pub(super) fn retry_delay(count: u32) -> Duration {
    let count = u64::from(count);
    let jitter = fastrand::u64(0..30) * (count + 1);
    Duration::from_secs(count.saturating_pow(4).saturating_add(15).saturating_add(jitter))
}

fn cut(text: &mut Option<String>, max: usize) {
    if let Some(text) = text {
        cut_to(text, max);
    }
}

fn cut_to(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        text.truncate(end);
    }
    // The client's buffer may be far larger than what is kept of it.
    text.shrink_to_fit();
}
