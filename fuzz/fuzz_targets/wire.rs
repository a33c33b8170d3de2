//! Bytes of the protocol in whatever pieces they come: the lines are those of the bytes, cut by hand.

#![no_main]

use heartwheel::server::fuzzing::lines;
use libfuzzer_sys::fuzz_target;

/// The lines of `bytes` up to the first that is longer than `limit`, and whether there is one. What follows the last end is a
/// line that goes on, and may be too long already.
fn by_hand(bytes: &[u8], limit: usize) -> (Vec<(Vec<u8>, Vec<u8>)>, bool) {
    let mut all = Vec::new();
    for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
        let ended = piece.last() == Some(&b'\n');
        let text = &piece[..piece.len() - usize::from(ended)];
        if text.len() > limit {
            return (all, true);
        }
        if ended {
            let text = text.trim_ascii_end();
            let (verb, rest) = match text.iter().position(|&byte| byte == b' ') {
                Some(at) => (&text[..at], &text[at + 1..]),
                None => (text, &b""[..]),
            };
            all.push((verb.to_vec(), rest.to_vec()));
        }
    }
    (all, false)
}

fuzz_target!(|input: (u8, Vec<u8>, &[u8])| {
    let (limit, cuts, bytes) = input;
    let limit = usize::from(limit);
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for cut in cuts {
        let (piece, after) = rest.split_at(usize::from(cut).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    let (all, too_long) = lines(pieces, limit);
    assert_eq!((all, too_long.is_some()), by_hand(bytes, limit));
    assert!(too_long.is_none_or(|said| said == limit));
});
