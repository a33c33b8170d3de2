//! A text to compare with: exact, or with wildcards.
//!
//! Ground rules
//! - `*` stands for any run of characters, also an empty one; `?` for exactly one character. Case counts.
//! - Matching allocates nothing and never branches: only the last `*` is ever taken back, so that a text of `n` characters
//!   costs at most `n` times the length of the pattern, whatever the pattern.

use std::fmt::{self, Write as _};

use smol_str::SmolStr;

/// What ends a bare word, beside white space and control characters. Some of them mean something here; the others look
/// as if they did, and are better refused than taken for part of a name.
const RESERVED: &[char] = &['(', ')', '"', '\'', '\\', '&', '|', '<', '>', '!', ',', ';'];

/// Whether `c` can stand in a bare word.
pub(super) fn is_bare(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !RESERVED.contains(&c)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Piece {
    Char(char),
    /// `?`
    One,
    /// `*`
    Many,
}

impl Piece {
    /// How a character is read that nothing escapes.
    pub(super) fn read(c: char) -> Self {
        match c {
            '*' => Piece::Many,
            '?' => Piece::One,
            c => Piece::Char(c),
        }
    }

    fn takes(self, c: char) -> bool {
        match self {
            Piece::Char(own) => own == c,
            Piece::One => true,
            Piece::Many => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Glob {
    Exact(SmolStr),
    /// With at least one wildcard, and no two `*` in a row.
    Pattern(Box<[Piece]>),
}

impl Glob {
    pub(super) fn exact(text: &str) -> Self {
        Glob::Exact(SmolStr::new(text))
    }

    /// `*` and `?` are wildcards; `\` has the next character stand for itself.
    pub(super) fn pattern(pattern: &str) -> Self {
        let mut chars = pattern.chars();
        let mut pieces = Vec::new();
        while let Some(c) = chars.next() {
            pieces.push(match c {
                '\\' => Piece::Char(chars.next().unwrap_or('\\')),
                c => Piece::read(c),
            });
        }
        Glob::from_pieces(pieces)
    }

    pub(super) fn from_pieces(mut pieces: Vec<Piece>) -> Self {
        pieces.dedup_by(|next, previous| (*next, *previous) == (Piece::Many, Piece::Many));
        let exact = pieces.iter().map(|piece| match piece {
            Piece::Char(c) => Some(*c),
            Piece::One | Piece::Many => None,
        });
        match exact.collect::<Option<SmolStr>>() {
            Some(text) => Glob::Exact(text),
            None => Glob::Pattern(pieces.into()),
        }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Glob::Exact(own) => own == text,
            Glob::Pattern(pieces) => matches(pieces, text),
        }
    }
}

fn matches(pieces: &[Piece], text: &str) -> bool {
    let (mut at, mut rest) = (0, text.chars());
    // Behind the last `*`: where the pattern goes on, and the text that this `*` has not taken yet.
    let mut retry = None;
    loop {
        if pieces.get(at) == Some(&Piece::Many) {
            at += 1;
            retry = Some((at, rest.clone()));
            continue;
        }
        let mut ahead = rest.clone();
        match (pieces.get(at), ahead.next()) {
            (None, None) => return true,
            (Some(piece), Some(c)) if piece.takes(c) => {
                at += 1;
                rest = ahead;
            }
            // The text is over before the pattern; a longer `*` leaves even less of it.
            (Some(_), None) => return false,
            (_, Some(_)) => {
                let Some((after, untaken)) = &mut retry else { return false };
                // There is one: the rest has one, and is a part of it.
                untaken.next();
                at = *after;
                rest = untaken.clone();
            }
        }
    }
}

/// As a value of the text form: bare if it can be, in quotes otherwise.
impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Glob::Exact(text) => write(f, text.chars().map(Piece::Char)),
            Glob::Pattern(pieces) => write(f, pieces.iter().copied()),
        }
    }
}

fn write(f: &mut fmt::Formatter<'_>, pieces: impl Iterator<Item = Piece> + Clone) -> fmt::Result {
    let plain = |piece| match piece {
        Piece::Char(c) => is_bare(c) && is_visible(c) && !matches!(c, '*' | '?'),
        Piece::One | Piece::Many => true,
    };
    // An `=` in front would be read with the operator before it.
    let first_is_plain = pieces.clone().next().is_some_and(|piece| piece != Piece::Char('='));
    let quoted = !(first_is_plain && pieces.clone().all(plain));
    if quoted {
        f.write_char('"')?;
    }
    for piece in pieces {
        match piece {
            Piece::One => f.write_char('?')?,
            Piece::Many => f.write_char('*')?,
            Piece::Char(c @ ('*' | '?' | '"' | '\\')) => write!(f, "\\{c}")?,
            Piece::Char(c) if is_visible(c) => f.write_char(c)?,
            Piece::Char(c) => write!(f, "{}", c.escape_unicode())?,
        }
    }
    if quoted { f.write_char('"') } else { Ok(()) }
}

/// Whether `c` shows as itself, so that a rendered selector looks like what it means.
fn is_visible(c: char) -> bool {
    matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The textbook definition, exponential and obvious.
    fn obvious(pieces: &[Piece], text: &[char]) -> bool {
        match (pieces.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((Piece::Many, more)), _) => {
                obvious(more, text) || text.split_first().is_some_and(|(_, left)| obvious(pieces, left))
            }
            (Some((piece, more)), Some((c, left))) => piece.takes(*c) && obvious(more, left),
            _ => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        #[test]
        fn agrees_with_the_definition(pattern in "[abé*?]{0,8}", text in "[abé]{0,10}") {
            let glob = Glob::pattern(&pattern);
            let pieces: Vec<_> = pattern.chars().map(Piece::read).collect();
            let chars: Vec<_> = text.chars().collect();
            prop_assert_eq!(glob.matches(&text), obvious(&pieces, &chars));
        }

        #[test]
        fn an_exact_text_matches_itself_only(own in "[ab*?\\\\]{0,4}", other in "[ab*?\\\\]{0,4}") {
            prop_assert_eq!(Glob::exact(&own).matches(&other), own == other);
        }
    }

    #[test]
    fn a_hostile_pattern_is_no_trouble() {
        let glob = Glob::pattern(&format!("{}b", "a*".repeat(2000)));
        assert!(!glob.matches(&"a".repeat(4096)));
        let glob = Glob::pattern(&format!("*{}b", "a".repeat(2000)));
        assert!(!glob.matches(&"a".repeat(4096)));
    }

    #[test]
    fn a_backslash_takes_the_meaning_from_the_next() {
        assert_eq!(Glob::pattern(r"a\*b"), Glob::exact("a*b"));
        assert_eq!(Glob::pattern(r"a\\"), Glob::exact(r"a\"));
        assert_eq!(Glob::pattern(r"a\"), Glob::exact(r"a\"));
        assert_eq!(Glob::pattern("a**b"), Glob::pattern("a*b"));
    }
}
