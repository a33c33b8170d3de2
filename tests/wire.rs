//! Every recorded case of the protocol, sent to a running server: its replies are those of Faktory 1.10, byte for byte.
//!
//! `data/wire.jsonl` holds one case a line. A case that says `may_differ` names what another reply must hold to; what this server
//! answers there is in `ours`, each with its reason.

#![cfg(feature = "server")]

mod served;

use std::collections::HashMap;
use std::io::Write as _;

use serde::Deserialize;
use served::{Client, Served, config};

#[derive(Deserialize)]
struct Case {
    group: String,
    case: String,
    steps: Vec<Step>,
    may_differ: Option<String>,
}

#[derive(Deserialize)]
struct Step {
    conn: String,
    send: Option<String>,
    reply: String,
    end: String,
}

const QUIET: &str = "$17\r\n{\"state\":\"quiet\"}\r\n";

/// The replies of this server where they may differ, in the order of the steps.
fn ours(group: &str, case: &str) -> Option<&'static [&'static str]> {
    const HI: &str = "+HI {\"v\":2}\r\n";
    const OK: &str = "+OK\r\n";
    Some(match (group, case) {
        // An error that says what is missing; the connection goes on.
        ("HELLO", "no payload") => &[HI, "-ERR HELLO needs a JSON object\r\n"],
        ("BEAT", "no payload") => &[HI, OK, "-ERR BEAT needs a JSON object\r\n", OK],
        // Nobody could see such a worker in a list. The connection is closed after the reply.
        ("HELLO", "wid only a space") => &[HI, "-ERR wid has no visible character\r\n", ""],
        // Keys are matched exactly: this is a producer.
        ("HELLO", "key WID in capitals") => &[HI, OK, "-ERR unknown worker w1\r\n"],
        ("BEAT", "key WID in capitals") => &[HI, OK, "-ERR unknown worker \r\n"],
        ("BEAT", "key Wid after wid: last wins") => &[HI, OK, "-ERR unknown worker nobody\r\n"],
        // No text holds a lone surrogate.
        ("HELLO", "wid with lone surrogate escape") => &[HI, "", ""],
        // Control characters are escaped, so that a reply is one line.
        ("BEAT", "wid unknown with NUL escape") => &[HI, OK, "-ERR unknown worker x\\u{0}y\r\n"],
        ("BEAT", "raw NUL in the line") => &[HI, OK, "-ERR invalid BEAT {\"wid\":\"w1\\u{0}\"}\r\n"],
        // What is not UTF-8 is refused, and echoed as replacement characters.
        ("BEAT", "wid unknown, invalid UTF-8") => {
            &[HI, OK, "-ERR invalid BEAT {\"wid\":\"x\u{fffd}\u{fffd}y\"}\r\n"]
        }
        ("BEAT", "invalid UTF-8 outside strings") => &[HI, OK, "-ERR invalid BEAT \u{fffd}\u{fffd}\r\n"],
        ("BEAT", "invalid UTF-8 in an unknown field") => &[HI, OK, OK],
        // A key that is said twice is refused: nobody can tell which one was meant.
        ("BEAT", "wid then wid null") => &[HI, OK, "-ERR invalid BEAT {\"wid\":\"w1\",\"wid\":null}\r\n"],
        ("STATE", "quiet twice in one object, last wins") => &[
            HI,
            OK,
            "-ERR invalid BEAT {\"wid\":\"w1\",\"current_state\":\"terminate\",\"current_state\":\"quiet\"}\r\n",
            OK,
        ],
        // The state is kept for the same process (`Policy::remember`).
        ("STATE", "quiet, END, new connection with the same wid") => &[HI, OK, QUIET, "", HI, OK, QUIET],
        _ => return None,
    })
}

/// The file holds each byte as the character of that number.
fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).expect("one byte a character")).collect()
}

fn play(case: &Case) -> Result<(), String> {
    let served = Served::start(config());
    let mut clients: HashMap<&str, Client> = HashMap::new();
    let ours = ours(&case.group, &case.case);
    if ours.is_some() != case.may_differ.is_some() {
        return Err("the list of what differs is not the file's".into());
    }
    let mut closed = false;
    for (at, step) in case.steps.iter().enumerate() {
        let client = clients.entry(&step.conn).or_insert_with(|| served.connect());
        if let Some(send) = &step.send {
            let sent = client.stream.write_all(&bytes(send));
            if !closed {
                sent.map_err(|error| format!("step {at}: {error}"))?;
            }
        }
        let (expected, end) = match ours {
            None => (bytes(&step.reply), step.end == "<EOF>"),
            // Where the other one goes on, a refusal closes: `ours` has nothing more for it then.
            Some(ours) => {
                let Some(reply) = ours.get(at) else { break };
                (reply.as_bytes().to_vec(), reply.is_empty())
            }
        };
        let got = if end {
            closed = true;
            client.rest()
        } else {
            client.read(expected.len())
        };
        let got =
            got.map_err(|error| format!("step {at}: {error}, not {:?}", String::from_utf8_lossy(&expected)))?;
        if got != expected {
            let [got, expected] = [&got, &expected].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            return Err(format!("step {at}: {got:?}, not {expected:?}"));
        }
    }
    // Nothing more comes than was recorded: END answers nothing.
    for (conn, mut client) in clients {
        if client.stream.write_all(b"END\r\n").is_ok()
            && let Ok(rest) = client.rest()
            && !rest.is_empty()
        {
            return Err(format!("{conn}: and then {:?}", String::from_utf8_lossy(&rest)));
        }
    }
    Ok(())
}

#[test]
fn every_recorded_case() {
    let file = include_str!("data/wire.jsonl");
    let cases: Vec<Case> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(cases.len() >= 106, "the file is whole");
    // Two at a time would do; one case waits for the handshake's limit.
    let failed: Vec<String> = std::thread::scope(|scope| {
        let halves: Vec<_> = cases
            .chunks(cases.len().div_ceil(4))
            .map(|part| {
                scope.spawn(move || {
                    part.iter()
                        .filter_map(|case| {
                            play(case).err().map(|why| format!("{} / {}: {why}", case.group, case.case))
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{} cases:\n{}", failed.len(), failed.join("\n"));
}
