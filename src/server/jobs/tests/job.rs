//! What a job may be, and what of it survives.

use super::*;

fn refused(text: &str) -> JobError {
    match text.parse::<Job>() {
        Ok(job) => panic!("{text} was taken as {job:?}"),
        Err(error) => error,
    }
}

fn refused_with(extra: &str) -> JobError {
    refused(&format!(r#"{{"jid":"12345678","jobtype":"T","args":[]{extra}}}"#))
}

/// The JSON a worker gets for this text.
fn through(text: &str) -> String {
    let (store, now) = (store(), start());
    let job: Job = text.parse().unwrap();
    let queue = job.queue().to_owned();
    store.push(job, now).unwrap();
    String::from_utf8(Fleet::new(Recover::AtDeath).fetch(&store, &[&queue], 1).unwrap().to_vec()).unwrap()
}

#[test]
fn defaults() {
    let job = job_with("12345678", "");
    assert_eq!((job.jid(), job.jobtype(), job.queue()), ("12345678", "T", "default"));
    assert_eq!((job.priority(), job.retry(), job.at()), (None, Some(25), None));
    assert_eq!(job.reserve_for(), secs(1800));
    let empty = job_with("12345678", r#","queue":"","at":"","reserve_for":0,"priority":0,"created_at":"""#);
    assert_eq!((empty.queue(), empty.at(), empty.priority()), ("default", None, None));
    assert_eq!(empty.reserve_for(), secs(1800));
}

#[test]
fn a_worker_always_gets_what_it_relies_on() {
    for extra in ["", r#","queue":"","reserve_for":0,"created_at":"","enqueued_at":"x""#] {
        let out = through(&format!(r#"{{"jid":"12345678","jobtype":"T","args":[]{extra}}}"#));
        let job = value(out.as_bytes());
        assert_eq!(job["queue"], "default");
        assert_eq!(job["reserve_for"], 1800);
        for field in ["created_at", "enqueued_at"] {
            job[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
            assert_eq!(out.matches(field).count(), 1, "{out}");
        }
        assert_eq!(out.matches("\"queue\"").count(), 1, "{out}");
        assert_eq!(out.matches("reserve_for").count(), 1, "{out}");
    }
    let kept = value(through(r#"{"jid":"12345678","jobtype":"T","args":[],"created_at":"then"}"#).as_bytes());
    assert_eq!(kept["created_at"], "then");
}

#[test]
fn unknown_fields_and_numbers_survive_byte_for_byte() {
    let odd = r#""z":[1.0,1e400,-0,123456789012345678901234567890, {"b":null,"a":"\u00e9\ud800"}]"#;
    let out = through(&format!(r#"{{"args":[ 1.50 ],{odd},"jid":"12345678","jobtype":"T","a":1E2}}"#));
    assert!(
        out.starts_with(&format!(r#"{{"args":[ 1.50 ],{odd},"jid":"12345678","jobtype":"T","a":1E2,"#)),
        "{out}"
    );
    let key = through(r#"{"jid":"12345678","jobtype":"T","args":[],"q\"\\\u0001":7}"#);
    assert_eq!(value(key.as_bytes())["q\"\\\u{1}"], 7);
}

#[test]
fn top_level_nulls_are_removed_and_the_last_of_two_names_wins() {
    let out =
        through(r#"{"jid":"12345678","jobtype":"T","args":[null],"queue":null,"custom":null,"at":null}"#);
    let job = value(out.as_bytes());
    assert!(job.as_object().unwrap().values().all(|v| !v.is_null()), "{out}");
    assert_eq!(job["args"], serde_json::json!([null]));
    assert!(job.get("custom").is_none());

    let out = through(r#"{"jid":"aaaaaaaa","jobtype":"T","args":[],"jid":"bbbbbbbb"}"#);
    assert_eq!(jid(out.as_bytes()), "bbbbbbbb");
    assert_eq!(out.matches("jid").count(), 1);
    assert_eq!(refused_with(r#","jid":null"#), JobError::Missing { field: "jid" });
}

#[test]
fn needed_fields() {
    for (text, field) in [
        (r#"{"jobtype":"T","args":[]}"#, "jid"),
        (r#"{"jid":"12345678","args":[]}"#, "jobtype"),
        (r#"{"jid":"12345678","jobtype":"T"}"#, "args"),
        (r#"{"jid":"12345678","jobtype":"T","args":null}"#, "args"),
    ] {
        assert_eq!(refused(text), JobError::Missing { field });
    }
    for (extra, field) in [
        (r#","jid":1"#, "jid"),
        (r#","jobtype":"""#, "jobtype"),
        (r#","jobtype":[]"#, "jobtype"),
        (r#","args":{}"#, "args"),
        (r#","args":"[]""#, "args"),
        (r#","created_at":5"#, "created_at"),
        (r#","failure":[]"#, "failure"),
        (r#","failure":{"retry_count":-1}"#, "failure"),
        (r#","queue":7"#, "queue"),
        (r#","at":7"#, "at"),
        (r#","at":"tomorrow""#, "at"),
        (r#","at":"2030-01-01T00:00:00""#, "at"),
        (r#","retry":"5""#, "retry"),
        (r#","retry":1.5"#, "retry"),
        (r#","priority":true"#, "priority"),
        (r#","reserve_for":1800.0"#, "reserve_for"),
        (r#","reserve_for":99999999999999999999"#, "reserve_for"),
        (r#","backtrace":true"#, "backtrace"),
    ] {
        let error = refused_with(extra);
        assert_eq!(error.field(), Some(field), "{extra}");
        assert!(matches!(error, JobError::Kind { .. }), "{extra}: {error:?}");
        assert!(error.to_string().contains(field));
    }
}

#[test]
fn ranges_are_errors_and_never_clamped() {
    for (extra, field, found) in [
        (r#","jid":"1234567""#, "jid", 7),
        (r#","reserve_for":59"#, "reserve_for", 59),
        (r#","reserve_for":86401"#, "reserve_for", 86_401),
        (r#","reserve_for":-1"#, "reserve_for", -1),
        (r#","priority":10"#, "priority", 10),
        (r#","priority":-1"#, "priority", -1),
        (r#","retry":-2"#, "retry", -2),
        (r#","retry":4294967296"#, "retry", 4_294_967_296),
        (r#","backtrace":-1"#, "backtrace", -1),
    ] {
        let error = refused_with(extra);
        assert!(
            matches!(error, JobError::Range { field: f, found: n, .. } if f == field && n == found),
            "{extra}: {error:?}"
        );
    }
    let long = "x".repeat(256);
    assert_eq!(refused_with(&format!(r#","jid":"{long}""#)).field(), Some("jid"));
    assert_eq!(refused_with(&format!(r#","queue":"{long}""#)).field(), Some("queue"));
    for good in [
        r#","reserve_for":60"#,
        r#","reserve_for":86400"#,
        r#","priority":1"#,
        r#","priority":9"#,
        r#","retry":-1"#,
        r#","retry":0"#,
        r#","backtrace":0"#,
    ] {
        job_with(&long[..255], good);
    }
    assert_eq!(job_with("12345678", r#","retry":-1"#).retry(), None);
}

#[test]
fn queue_names() {
    for good in ["a", "A-z_0.9:x", "größe", "a/b"] {
        assert_eq!(job_in("12345678", good).queue(), good);
    }
    for bad in ["a b", " a", "a\\tb", "a\\u0000", "a\\u00a0b", "\\r\\n", "\\u007f"] {
        assert_eq!(refused_with(&format!(r#","queue":"{bad}""#)).field(), Some("queue"), "{bad}");
    }
}

#[test]
fn what_is_no_object_is_refused_without_an_echo() {
    for text in
        ["", "[]", "7", "\"x\"", "{", "{\"a\":}", "{} x", "{'a':1}", "null", "nonsense", "{\"a\":\"\u{1}\"}"]
    {
        let error = refused(text);
        assert_eq!(error.field(), None);
        assert!(!error.to_string().contains("nonsense"));
    }
    assert!(Job::parse(b"{\"jid\":\"\xff2345678\"}").is_err());
    // Deep nesting costs no stack.
    let deep = format!(
        r#"{{"jid":"12345678","jobtype":"T","args":[{}{}]}}"#,
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    assert!(through(&deep).len() > deep.len());
}

#[test]
fn a_refused_job_can_still_be_named() {
    assert_eq!(jid_of(br#"{"jid":"x","args":1}"#).as_deref(), Some("x"));
    assert_eq!(jid_of(br#"{"jid":7}"#), None);
    assert_eq!(jid_of(b"[]"), None);
}

#[test]
fn at_understands_offsets() {
    let z = job_with("12345678", r#","at":"2030-01-01T00:00:00Z""#).at();
    assert_eq!(z, job_with("12345678", r#","at":"2030-01-01T02:00:00+02:00""#).at());
    assert_eq!(z, job_with("12345678", r#","at":"2029-12-31T18:30:00.000000-05:30""#).at());
    assert!(z.is_some());
}
