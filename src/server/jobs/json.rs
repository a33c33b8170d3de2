//! Writing small pieces of JSON by hand.
//!
//! The bulk of a job is copied as it came; only a few strings are written, and writing into a `String` cannot fail.

use std::fmt::Write as _;

use jiff::Timestamp;

/// Appends `text` as a JSON string.
pub(super) fn string(out: &mut String, text: &str) {
    let plain = text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\');
    if plain {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        let _ = write!(out, "{}", serde_json::Value::from(text));
    }
}

/// Appends `,"key":` (the key must be plain).
pub(super) fn key(out: &mut String, key: &str) {
    let _ = write!(out, ",\"{key}\":");
}

/// Appends a time as a JSON string.
pub(super) fn time(out: &mut String, at: Timestamp) {
    let _ = write!(out, "\"{at}\"");
}
