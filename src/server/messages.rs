//! What the JSON of HELLO and BEAT may hold. Unknown fields are skipped; `null` is as good as absent.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::error::InvalidHello;
use crate::hello::{Beat, Hello};
use crate::state::WorkerState;

/// HELLO.
#[derive(Debug, Deserialize)]
pub(super) struct HelloMessage {
    #[serde(default)]
    hostname: Option<String>,
    #[serde(default)]
    wid: Option<String>,
    #[serde(default)]
    pid: Option<Integer>,
    #[serde(default)]
    labels: Option<Vec<String>>,
    /// The version of the protocol that the client speaks.
    #[serde(default)]
    pub(super) v: Option<u64>,
    #[serde(default)]
    pub(super) pwdhash: Option<String>,
    /// Part of what BEAT says, which clients may send here too: checked, and not used.
    #[serde(default)]
    #[expect(dead_code, reason = "a HELLO with another type in its place is malformed")]
    rss_kb: Option<Integer>,
}

impl HelloMessage {
    /// The worker it announces; `None` for a producer, which says no wid or an empty one.
    pub(super) fn worker(&self) -> Result<Option<Hello>, InvalidHello> {
        let Some(wid) = self.wid.as_deref().filter(|wid| !wid.is_empty()) else { return Ok(None) };
        let mut hello = Hello::new(wid)?;
        if let Some(hostname) = &self.hostname {
            hello = hello.hostname(hostname);
        }
        if let Some(Integer(pid)) = self.pid {
            hello = hello.pid(pid);
        }
        Ok(Some(self.labels.iter().flatten().fold(hello, Hello::label)))
    }
}

/// BEAT.
#[derive(Debug, Deserialize)]
pub(super) struct BeatMessage<'a> {
    #[serde(default, borrow)]
    wid: Option<Text<'a>>,
    #[serde(default)]
    rss_kb: Option<Integer>,
    #[serde(default, borrow)]
    current_state: Option<Text<'a>>,
}

/// A whole number as it is written: `-0` is one, `1.0` and `1e3` are not.
#[derive(Clone, Copy, Debug)]
struct Integer(i64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        text.parse().map(Integer).map_err(D::Error::custom)
    }
}

/// A string that is borrowed where nothing in it is escaped.
#[derive(Debug, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl BeatMessage<'_> {
    /// The wid, empty if none was said.
    pub(super) fn wid(&self) -> &str {
        self.wid.as_ref().map_or("", |text| &text.0)
    }

    /// The beat. A memory size below zero says nothing.
    pub(super) fn beat(&self) -> Beat {
        let state =
            self.current_state.as_ref().map_or(WorkerState::Running, |text| WorkerState::from_wire(&text.0));
        let beat = Beat::default().state(state);
        match self.rss_kb.and_then(|Integer(rss_kb)| u64::try_from(rss_kb).ok()) {
            Some(rss_kb) => beat.rss_kb(rss_kb),
            None => beat,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_beat_is_not_copied() {
        let beat: BeatMessage<'_> =
            serde_json::from_slice(br#"{"wid":"w1","current_state":"quiet"}"#).unwrap();
        assert!(matches!(&beat.wid, Some(Text(Cow::Borrowed("w1")))));
        assert_eq!(beat.beat(), Beat::default().state(WorkerState::Quiet));
    }

    #[test]
    fn producers_say_no_wid() {
        for text in ["{}", r#"{"wid":null}"#, r#"{"wid":"","username":null,"labels":null}"#] {
            let hello: HelloMessage = serde_json::from_str(text).unwrap();
            assert_eq!(hello.worker(), Ok(None), "{text}");
        }
    }
}
