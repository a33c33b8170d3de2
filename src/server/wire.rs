//! The framing of the protocol: lines in, replies out.
//!
//! A client sends lines, ended by LF or CR LF, each a verb and the rest. The server answers with a subset of the Redis
//! serialisation protocol: `+simple`, `-ERR …`, `$length` and that many bytes, or `$-1` for nothing.

use std::fmt::Write as _;
use std::ops::Range;

use bytes::{Buf as _, BufMut as _, BytesMut};

/// Longest text of a peer that is sent back, in bytes.
const ECHO: usize = 512;

/// A line is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineTooLong {
    pub(super) limit: usize,
}

/// Bytes read in one go: few from a peer that says little, more from one that fills them.
const READ: (usize, usize) = (512, 16 * 1024);

/// Bytes as they come, handed out line by line.
#[derive(Debug)]
pub(super) struct Lines {
    bytes: BytesMut,
    /// Up to here there is no line end.
    searched: usize,
    limit: usize,
    /// Room made for the next read.
    room: usize,
}

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Lines { bytes: BytesMut::new(), searched: 0, limit, room: READ.0 }
    }

    /// Sets how long a line may be from now on.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Where what is read next goes.
    pub(super) fn space(&mut self) -> &mut BytesMut {
        if self.bytes.is_empty() && self.bytes.capacity() > READ.1 {
            // One long line must not cost a quiet connection its size for good.
            self.bytes = BytesMut::new();
            self.room = READ.0;
        } else if !self.bytes.is_empty() && self.bytes.len() == self.bytes.capacity() {
            self.room = (self.room * 4).min(READ.1);
        }
        self.bytes.reserve(self.room);
        &mut self.bytes
    }

    /// Whether another line's worth may be read before one is taken.
    pub(super) fn has_room(&self) -> bool {
        self.bytes.len() <= self.limit
    }

    /// The next whole line, without its end and the white space before that; it is to be looked at by [`Lines::get`]
    /// and then given up by [`Lines::done`].
    pub(super) fn next(&mut self) -> Result<Option<Line>, LineTooLong> {
        let Some(at) = memchr::memchr(b'\n', &self.bytes[self.searched..]) else {
            self.searched = self.bytes.len();
            return if self.searched > self.limit {
                Err(LineTooLong { limit: self.limit })
            } else {
                Ok(None)
            };
        };
        let end = self.searched + at;
        if end > self.limit {
            return Err(LineTooLong { limit: self.limit });
        }
        let text = self.bytes[..end].trim_ascii_end().len();
        let verb = memchr::memchr(b' ', &self.bytes[..text]).unwrap_or(text);
        Ok(Some(Line { verb: 0..verb, rest: (verb + 1).min(text)..text, end: end + 1 }))
    }

    pub(super) fn get(&self, range: &Range<usize>) -> &[u8] {
        &self.bytes[range.clone()]
    }

    pub(super) fn done(&mut self, line: &Line) {
        self.bytes.advance(line.end);
        self.searched = 0;
    }
}

/// Where a line lies: its verb, and what follows the first space.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) verb: Range<usize>,
    pub(super) rest: Range<usize>,
    end: usize,
}

/// `+OK`.
pub(super) fn ok(out: &mut BytesMut) {
    out.put_slice(b"+OK\r\n");
}

/// Nothing.
pub(super) fn null(out: &mut BytesMut) {
    out.put_slice(b"$-1\r\n");
}

/// A bulk string.
pub(super) fn bulk(out: &mut BytesMut, bytes: &[u8]) {
    let _ = write!(out, "${}\r\n", bytes.len());
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

/// `-ERR ` and the text, one line whatever it holds.
pub(super) fn error(out: &mut BytesMut, text: impl std::fmt::Display) {
    out.put_slice(b"-ERR ");
    let _ = write!(OneLine(out), "{text}");
    out.put_slice(b"\r\n");
}

/// Text of a peer as it may be sent back: cut, and with what is not UTF-8 replaced.
pub(super) fn echo(bytes: &[u8]) -> String {
    let cut = bytes.len() > ECHO;
    let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(ECHO)]).into_owned();
    if cut {
        text.push('…');
    }
    text
}

/// Escapes control characters.
struct OneLine<'a>(&'a mut BytesMut);

impl std::fmt::Write for OneLine<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for piece in text.split_inclusive(char::is_control) {
            match piece.chars().next_back().filter(|last| last.is_control()) {
                Some(control) => {
                    self.0.put_slice(&piece.as_bytes()[..piece.len() - control.len_utf8()]);
                    write!(self.0, "{}", control.escape_default())?;
                }
                None => self.0.put_slice(piece.as_bytes()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(lines: &mut Lines) -> Result<Vec<(String, String)>, LineTooLong> {
        let mut all = Vec::new();
        while let Some(line) = lines.next()? {
            let text = |range| String::from_utf8(lines.get(range).to_vec()).unwrap();
            all.push((text(&line.verb), text(&line.rest)));
            lines.done(&line);
        }
        Ok(all)
    }

    #[test]
    fn verbs_and_rests() {
        let mut lines = Lines::new(64);
        lines.space().put_slice(b"END\r\nBEAT {\"wid\":1} \r\r\n\nFETCH  a b\nBEAT{}\n \r\n");
        let pairs =
            [("END", ""), ("BEAT", "{\"wid\":1}"), ("", ""), ("FETCH", " a b"), ("BEAT{}", ""), ("", "")];
        let pairs: Vec<_> = pairs.iter().map(|(verb, rest)| (verb.to_string(), rest.to_string())).collect();
        assert_eq!(read(&mut lines), Ok(pairs));
    }

    #[test]
    fn the_limit_is_on_the_line_whether_its_end_came_or_not() {
        for (len, ended, fits) in [(8, true, true), (8, false, true), (9, true, false), (9, false, false)] {
            let mut lines = Lines::new(8);
            lines.space().put_slice(&vec![b'x'; len]);
            if ended {
                lines.space().put_slice(b"\n");
            }
            assert_eq!(read(&mut lines).is_ok(), fits, "{len} {ended}");
        }
    }

    #[test]
    fn an_error_is_one_line() {
        let mut out = BytesMut::new();
        error(&mut out, "unknown worker a\r\n+OK\u{0}\u{85}é");
        assert_eq!(&out[..], "-ERR unknown worker a\\r\\n+OK\\u{0}\\u{85}é\r\n".as_bytes());
    }

    #[test]
    fn an_echo_is_cut_and_is_text() {
        assert_eq!(echo(b"\xff\xfex"), "\u{fffd}\u{fffd}x");
        assert_eq!(echo(&[b'a'; 10_000]).len(), ECHO + '…'.len_utf8());
    }

    proptest! {
        /// Wherever the bytes are torn, the lines are the same.
        #[test]
        fn torn_anywhere(text in "([A-Z]{0,4} ?[a-z{}]{0,6} ?\r?\n){0,6}[a-z]{0,3}", cuts in prop::collection::vec(0_usize..80, 0..6)) {
            let mut whole = Lines::new(1000);
            whole.space().put_slice(text.as_bytes());
            let expected = read(&mut whole).unwrap();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let mut torn = Lines::new(1000);
            let (mut from, mut seen) = (0, Vec::new());
            for to in cuts {
                torn.space().put_slice(&text.as_bytes()[from..to]);
                seen.extend(read(&mut torn).unwrap());
                from = to;
            }
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn any_reply_is_one_line(text in any::<String>()) {
            let mut out = BytesMut::new();
            error(&mut out, &text);
            prop_assert_eq!(out.iter().filter(|&&byte| byte == b'\n' || byte == b'\r').count(), 2);
        }
    }
}
