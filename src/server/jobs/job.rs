//! A job as it came: checked where the server must understand it, untouched everywhere else.
//!
//! The top level is kept as names with raw JSON values, in order, so fields the server has never heard of and numbers
//! no integer type can hold leave byte for byte as they came. (A name itself may be re-escaped.) Of a name given twice
//! the last value wins. Null fields are removed: several clients fail on a null they did not write themselves.

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::store::Record;
use super::{JobError, json, time};

type Fields = IndexMap<String, Box<RawValue>>;

const DEFAULT_QUEUE: &str = "default";
const DEFAULT_RESERVE: u64 = 1800;
const DEFAULT_RETRY: i64 = 25;
/// Longest jid, in bytes.
pub(in crate::server) const MAX_JID: u8 = 255;
/// Longest `reserve_for`, in seconds.
pub(in crate::server) const MAX_RESERVE: u32 = 86_400;

/// A valid job.
///
/// | field | rule | when absent |
/// |---|---|---|
/// | `jid` | text, 8 to 255 bytes | refused |
/// | `jobtype` | text, not empty | refused |
/// | `args` | array | refused |
/// | `queue` | 1 to 255 bytes, no white space, no control characters | `default` (also when `""`) |
/// | `priority` | 1 to 9, kept, orders nothing | none (also when 0) |
/// | `reserve_for` | 60 to 86 400 seconds | 1800 (also when 0) |
/// | `retry` | −1 drop when failed, 0 dead at once, else retries | 25 |
/// | `backtrace` | lines of a backtrace to keep | 50 |
/// | `at` | RFC 3339 with any offset | now (also when `""` or past) |
/// | `created_at` | text | the time of PUSH (also when `""`) |
/// | `enqueued_at` | replaced by the server | |
/// | `failure` | object, its `retry_count` goes on counting | none |
#[derive(Clone, Debug)]
pub struct Job {
    fields: Fields,
    jid: String,
    jobtype: String,
    queue: String,
    priority: Option<u8>,
    reserve_for: Duration,
    retry: Option<u32>,
    backtrace: Option<usize>,
    at: Option<Timestamp>,
    retry_count: Option<u32>,
}

impl Job {
    /// Reads a job from its JSON text.
    ///
    /// # Errors
    /// The first field that breaks its rule.
    pub fn parse(text: &[u8]) -> Result<Self, JobError> {
        let mut fields = object(text)?;
        fields.retain(|_, value| value.get() != "null");
        let jid = need("jid", string(&fields, "jid")?)?;
        range("jid", length(&jid), 8, MAX_JID.into(), "bytes")?;
        let jobtype = need("jobtype", string(&fields, "jobtype")?)?;
        if jobtype.is_empty() {
            return Err(JobError::Kind { field: "jobtype", expected: "a text that is not empty" });
        }
        need("args", shape(&fields, "args", '[', "an array")?)?;
        string(&fields, "created_at")?;
        Ok(Self {
            queue: queue(&fields)?,
            priority: priority(&fields)?,
            reserve_for: reserve_for(&fields)?,
            retry: retry(&fields)?,
            backtrace: backtrace(&fields)?,
            at: at(&fields)?,
            retry_count: retry_count(&fields)?,
            jid,
            jobtype,
            fields,
        })
    }

    /// The job id.
    #[must_use]
    pub fn jid(&self) -> &str {
        &self.jid
    }

    /// What the job is to run.
    #[must_use]
    pub fn jobtype(&self) -> &str {
        &self.jobtype
    }

    /// The queue it goes to.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// The priority asked for; it orders nothing.
    #[must_use]
    pub fn priority(&self) -> Option<u8> {
        self.priority
    }

    /// How long a holder may work on it.
    #[must_use]
    pub fn reserve_for(&self) -> Duration {
        self.reserve_for
    }

    /// How often it is retried before it is dead; `None`: dropped at the first failure.
    #[must_use]
    pub fn retry(&self) -> Option<u32> {
        self.retry
    }

    /// When it is to run, if that was said.
    #[must_use]
    pub fn at(&self) -> Option<Timestamp> {
        self.at
    }

    /// The raw JSON of any field, as it came.
    #[must_use]
    pub fn raw(&self, field: &str) -> Option<&str> {
        self.fields.get(field).map(|value| value.get())
    }

    /// What a store keeps of it, and when it is due if not now.
    ///
    /// The text is written once, here, without what the server goes on changing (`enqueued_at`, `failure`) and without
    /// the last brace; those are added each time the job is handed out.
    pub(super) fn into_record(mut self, wall: Timestamp, now: Instant) -> (Record, Option<Instant>) {
        self.fields.shift_remove("enqueued_at");
        let failure = self
            .fields
            .shift_remove("failure")
            .map(|raw| Failure::Given { raw: raw.get().into(), retry_count: self.retry_count.unwrap_or(0) });
        let mut head = String::with_capacity(256);
        for (name, value) in &self.fields {
            if written_below(name, value.get()) {
                continue;
            }
            head.push(if head.is_empty() { '{' } else { ',' });
            json::string(&mut head, name);
            head.push(':');
            head.push_str(value.get());
        }
        // `jid` is always there, so the head is never empty and a comma is always right.
        if self.lacks("queue") {
            json::key(&mut head, "queue");
            json::string(&mut head, &self.queue);
        }
        if self.lacks("reserve_for") {
            json::key(&mut head, "reserve_for");
            let _ = write!(head, "{}", self.reserve_for.as_secs());
        }
        if self.lacks("created_at") {
            json::key(&mut head, "created_at");
            json::time(&mut head, wall);
        }
        let due = self.at.and_then(|at| time::due(at, wall, now));
        let record = Record::new(
            self.jid,
            self.queue,
            head,
            failure,
            self.reserve_for,
            self.retry,
            self.backtrace,
            wall,
        );
        (record, due)
    }

    fn lacks(&self, field: &str) -> bool {
        self.raw(field).is_none_or(|value| written_below(field, value))
    }
}

impl FromStr for Job {
    type Err = JobError;

    fn from_str(text: &str) -> Result<Self, JobError> {
        Self::parse(text.as_bytes())
    }
}

/// The jid in a text that need not be a valid job: a bulk push names the jobs it refused.
#[must_use]
pub fn jid_of(text: &[u8]) -> Option<String> {
    string(&object(text).ok()?, "jid").ok()?
}

/// Fields that workers rely on are written anew when they came empty.
fn written_below(field: &str, value: &str) -> bool {
    match field {
        "queue" | "created_at" => value == "\"\"",
        "reserve_for" => value == "0",
        _ => false,
    }
}

fn object(text: &[u8]) -> Result<Fields, JobError> {
    serde_json::from_slice(text).map_err(|e| JobError::NotAnObject { line: e.line(), column: e.column() })
}

fn need<T>(field: &'static str, value: Option<T>) -> Result<T, JobError> {
    value.ok_or(JobError::Missing { field })
}

fn read<'a, T: Deserialize<'a>>(
    fields: &'a Fields,
    field: &'static str,
    expected: &'static str,
) -> Result<Option<T>, JobError> {
    let Some(raw) = fields.get(field) else { return Ok(None) };
    serde_json::from_str(raw.get()).map_err(|_| JobError::Kind { field, expected })
}

fn string(fields: &Fields, field: &'static str) -> Result<Option<String>, JobError> {
    read(fields, field, "a text")
}

fn whole(fields: &Fields, field: &'static str) -> Result<Option<i64>, JobError> {
    read(fields, field, "a whole number")
}

fn shape(
    fields: &Fields,
    field: &'static str,
    first: char,
    expected: &'static str,
) -> Result<Option<()>, JobError> {
    match fields.get(field) {
        None => Ok(None),
        Some(raw) if raw.get().starts_with(first) => Ok(Some(())),
        Some(_) => Err(JobError::Kind { field, expected }),
    }
}

fn range(field: &'static str, found: i64, min: i64, max: i64, unit: &'static str) -> Result<i64, JobError> {
    if (min..=max).contains(&found) {
        Ok(found)
    } else {
        Err(JobError::Range { field, found, min, max, unit })
    }
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

fn queue(fields: &Fields) -> Result<String, JobError> {
    let Some(name) = string(fields, "queue")?.filter(|name| !name.is_empty()) else {
        return Ok(DEFAULT_QUEUE.to_owned());
    };
    range("queue", length(&name), 1, 255, "bytes")?;
    if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        // FETCH separates names by spaces: such a queue could never be fetched from.
        return Err(JobError::Kind {
            field: "queue",
            expected: "free of white space and control characters",
        });
    }
    Ok(name)
}

fn priority(fields: &Fields) -> Result<Option<u8>, JobError> {
    match whole(fields, "priority")? {
        None | Some(0) => Ok(None),
        Some(n) => Ok(u8::try_from(range("priority", n, 1, 9, "in rank")?).ok()),
    }
}

fn reserve_for(fields: &Fields) -> Result<Duration, JobError> {
    let seconds = match whole(fields, "reserve_for")? {
        None | Some(0) => DEFAULT_RESERVE,
        Some(n) => range("reserve_for", n, 60, MAX_RESERVE.into(), "seconds")?.unsigned_abs(),
    };
    Ok(Duration::from_secs(seconds))
}

fn retry(fields: &Fields) -> Result<Option<u32>, JobError> {
    let retry = whole(fields, "retry")?.unwrap_or(DEFAULT_RETRY);
    Ok(u32::try_from(range("retry", retry, -1, i64::from(u32::MAX), "retries")?).ok())
}

fn backtrace(fields: &Fields) -> Result<Option<usize>, JobError> {
    let Some(lines) = whole(fields, "backtrace")? else { return Ok(None) };
    Ok(usize::try_from(range("backtrace", lines, 0, i64::from(u32::MAX), "lines")?).ok())
}

fn at(fields: &Fields) -> Result<Option<Timestamp>, JobError> {
    match string(fields, "at")?.filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| JobError::Kind { field: "at", expected: "an RFC 3339 time with an offset" }),
    }
}

fn retry_count(fields: &Fields) -> Result<Option<u32>, JobError> {
    #[derive(Deserialize)]
    struct Given {
        retry_count: Option<u32>,
    }
    shape(fields, "failure", '{', "an object")?;
    let given = read::<Given>(fields, "failure", "an object with a whole retry_count")?;
    Ok(given.and_then(|given| given.retry_count))
}
