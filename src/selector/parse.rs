//! Reads the text form of a selector. The grammar is in the documentation of [`Selector`].
//!
//! Ground rules
//! - One pass, from left to right, one character ahead. An error points at the first character that cannot go on.
//! - Only a parenthesis recurses, and they are counted; the length of the text is bounded before it is looked at.

use std::time::Duration;

use super::error::{SelectorError, SelectorFault};
use super::glob::{Glob, Piece, is_bare};
use super::term::{Compare, SIZES, SPANS, Span, Term, Text};
use super::{Selector, WorkerState};
use crate::state::Health;

const CONDITION: &str = "a condition: wid, host, label, version, state, health, age, up, idle, rss, leases, cordoned, all, `not` or `(`";
const ESCAPE: &str = "`*`, `?`, `\"`, `'`, `\\`, `n`, `r`, `t` or `u{...}` behind the `\\`";

type Parsed<T> = Result<T, SelectorError>;

pub(super) fn parse(text: &str) -> Parsed<Selector> {
    if text.len() > Selector::MAX_LEN {
        return Err(SelectorError::new(Selector::MAX_LEN, SelectorFault::TooLong { len: text.len() }));
    }
    let mut parser = Parser { text, at: 0, depth: 0 };
    let selector = parser.or()?;
    if parser.rest().is_empty() { Ok(selector) } else { parser.expected("`and`, `or` or the end") }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

/// A sign between a field and its value. `!=` is the only one that is no [`Compare`].
#[derive(Clone, Copy)]
enum Sign {
    Compare(Compare),
    NotEqual,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn error<T>(&self, fault: SelectorFault) -> Parsed<T> {
        Err(SelectorError::new(self.at, fault))
    }

    fn expected<T>(&self, what: &'static str) -> Parsed<T> {
        self.error(SelectorFault::Expected(what))
    }

    /// The part of the rest whose characters are `like` this; taken.
    fn run(&mut self, like: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let run = rest.find(|c| !like(c)).map_or(rest, |end| &rest[..end]);
        self.at += run.len();
        run
    }

    fn space(&mut self) {
        self.run(char::is_whitespace);
    }

    /// Takes `token` if it is next.
    fn token(&mut self, token: &str) -> bool {
        let is_next = self.rest().starts_with(token);
        if is_next {
            self.at += token.len();
        }
        is_next
    }

    /// Takes `keyword` if it is the next word.
    fn keyword(&mut self, keyword: &str) -> bool {
        let start = self.at;
        let is_next = self.run(is_word).eq_ignore_ascii_case(keyword);
        if is_next {
            self.space();
        } else {
            self.at = start;
        }
        is_next
    }

    fn or(&mut self) -> Parsed<Selector> {
        self.space();
        let mut selector = self.and()?;
        while self.keyword("or") {
            selector = selector.or(self.and()?);
        }
        Ok(selector)
    }

    fn and(&mut self) -> Parsed<Selector> {
        let mut selector = self.not()?;
        while self.keyword("and") {
            selector = selector.and(self.not()?);
        }
        Ok(selector)
    }

    fn not(&mut self) -> Parsed<Selector> {
        let mut negated = false;
        while self.keyword("not") {
            negated = !negated;
        }
        let selector = if self.peek() == Some('(') { self.parenthesis()? } else { self.condition()? };
        self.space();
        Ok(if negated { !selector } else { selector })
    }

    fn parenthesis(&mut self) -> Parsed<Selector> {
        if self.depth == Selector::MAX_DEPTH {
            return self.error(SelectorFault::TooDeep);
        }
        self.depth += 1;
        self.at += 1;
        let selector = self.or()?;
        if !self.token(")") {
            return self.expected("`and`, `or` or `)`");
        }
        self.depth -= 1;
        Ok(selector)
    }

    fn condition(&mut self) -> Parsed<Selector> {
        let start = self.at;
        let field = self.run(is_word).to_ascii_lowercase();
        let (sign, term) = match field.as_str() {
            "all" => return Ok(Selector::all()),
            "cordoned" => return Ok(Selector::cordoned()),
            "wid" => self.text_term(Text::Wid)?,
            "host" => self.text_term(Text::Host)?,
            "label" => self.text_term(Text::Label)?,
            "version" => self.text_term(Text::Version)?,
            "state" => {
                let sign = self.sign()?;
                let states = WorkerState::ALL.map(|state| (state.as_str(), state));
                let state = self.one_of(&states, "a state: running, quiet or terminate")?;
                (sign, Term::State(sign.compare(), state))
            }
            "health" => {
                let sign = self.equality()?;
                let healths = [Health::Live, Health::Late].map(|health| (health.as_str(), health));
                (sign, Term::Health(self.one_of(&healths, "a health: live or late")?))
            }
            "age" => self.span_term(Span::Age)?,
            "up" => self.span_term(Span::Up)?,
            "idle" => self.span_term(Span::Idle)?,
            "rss" => {
                let sign = self.sign()?;
                let what = "a size such as 512M or 2G";
                let unit = "a unit: K, M or G (1024 each)";
                let kb = self.amount(&SIZES, what, unit, true, |kb| u64::try_from(kb).ok())?;
                (sign, Term::Rss(sign.compare(), kb))
            }
            "leases" => {
                let sign = self.sign()?;
                let count =
                    self.amount(&[("", 1)], "a number", "a number without a unit", true, |count| {
                        u32::try_from(count).ok()
                    })?;
                (sign, Term::Leases(sign.compare(), count))
            }
            _ => {
                self.at = start;
                return self.expected(CONDITION);
            }
        };
        let selector = Selector::term(term);
        Ok(if matches!(sign, Sign::NotEqual) { !selector } else { selector })
    }

    fn text_term(&mut self, text: Text) -> Parsed<(Sign, Term)> {
        let sign = self.equality()?;
        Ok((sign, Term::Text(text, self.glob()?)))
    }

    fn span_term(&mut self, span: Span) -> Parsed<(Sign, Term)> {
        let sign = self.sign()?;
        let what = "a duration such as 30s or 10m";
        let unit = "a unit: d, h, m, s, ms, us or ns";
        let length = self.amount(&SPANS, what, unit, false, duration)?;
        Ok((sign, Term::Span(span, sign.compare(), length)))
    }

    fn sign(&mut self) -> Parsed<Sign> {
        self.space();
        // Longer ones first.
        let signs = [
            ("==", Sign::Compare(Compare::Equal)),
            ("=", Sign::Compare(Compare::Equal)),
            ("!=", Sign::NotEqual),
            ("<=", Sign::Compare(Compare::AtMost)),
            ("<", Sign::Compare(Compare::Less)),
            (">=", Sign::Compare(Compare::AtLeast)),
            (">", Sign::Compare(Compare::More)),
        ];
        for (token, sign) in signs {
            if self.token(token) {
                self.space();
                return Ok(sign);
            }
        }
        self.expected("`=`, `!=`, `<`, `<=`, `>` or `>=`")
    }

    /// A sign of a field that has no order.
    fn equality(&mut self) -> Parsed<Sign> {
        self.space();
        if matches!(self.peek(), Some('=' | '!')) { self.sign() } else { self.expected("`=` or `!=`") }
    }

    fn one_of<T: Copy>(&mut self, words: &[(&str, T)], what: &'static str) -> Parsed<T> {
        let start = self.at;
        let word = self.run(is_bare);
        match words.iter().find(|(own, _)| own.eq_ignore_ascii_case(word)) {
            Some((_, value)) => Ok(*value),
            None => {
                self.at = start;
                self.expected(what)
            }
        }
    }

    /// A number with its unit, as what `convert` makes of the count of the smallest one.
    fn amount<T>(
        &mut self,
        units: &[(&str, u128)],
        what: &'static str,
        expected_unit: &'static str,
        any_case: bool,
        convert: impl Fn(u128) -> Option<T>,
    ) -> Parsed<T> {
        let start = self.at;
        let digits = self.run(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return self.expected(what);
        }
        let unit_at = self.at;
        let unit = self.run(is_bare);
        let is_unit = |own: &str| own == unit || any_case && own.eq_ignore_ascii_case(unit);
        let Some((_, size)) = units.iter().find(|(own, _)| is_unit(own)) else {
            self.at = unit_at;
            return self.expected(expected_unit);
        };
        let count = digits.parse::<u128>().ok().and_then(|number| number.checked_mul(*size));
        match count.and_then(convert) {
            Some(value) => Ok(value),
            None => {
                self.at = start;
                self.error(SelectorFault::TooLarge)
            }
        }
    }

    fn glob(&mut self) -> Parsed<Glob> {
        match self.peek() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote),
            Some(c) if is_bare(c) && c != '=' => {
                Ok(Glob::from_pieces(self.run(is_bare).chars().map(Piece::read).collect()))
            }
            _ => self.expected("a text, in quotes if it has other characters than a name"),
        }
    }

    fn quoted(&mut self, quote: char) -> Parsed<Glob> {
        let start = self.at;
        self.at += 1;
        let mut pieces = Vec::new();
        loop {
            let Some(c) = self.peek() else {
                self.at = start;
                return self.error(SelectorFault::Unclosed);
            };
            if c.is_control() {
                return self.expected("an escape such as \\n instead of a control character");
            }
            self.at += c.len_utf8();
            if c == quote {
                return Ok(Glob::from_pieces(pieces));
            }
            pieces.push(if c == '\\' { Piece::Char(self.escape()?) } else { Piece::read(c) });
        }
    }

    /// What stands behind a `\`.
    fn escape(&mut self) -> Parsed<char> {
        let escaped = match self.peek() {
            Some(c @ ('*' | '?' | '"' | '\'' | '\\')) => c,
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let start = self.at;
                self.at += 1;
                let code = if self.token("{") { self.run(|c| c.is_ascii_hexdigit()) } else { "" };
                let c = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
                return match (c, self.token("}")) {
                    (Some(c), true) => Ok(c),
                    _ => {
                        self.at = start;
                        self.expected("a character's code such as u{2028}")
                    }
                };
            }
            _ => return self.expected(ESCAPE),
        };
        // Each of these is one byte.
        self.at += 1;
        Ok(escaped)
    }
}

impl Sign {
    /// The comparison to make; `!=` is the opposite of its result.
    fn compare(self) -> Compare {
        match self {
            Sign::Compare(compare) => compare,
            Sign::NotEqual => Compare::Equal,
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn duration(nanos: u128) -> Option<Duration> {
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    let rest = u32::try_from(nanos % 1_000_000_000).ok()?;
    Some(Duration::new(seconds, rest))
}
