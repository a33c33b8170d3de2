//! A text that is not a selector, and where it stops being one.

use std::fmt;

/// What was wrong with the text of a [`Selector`](crate::Selector).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectorFault {
    /// Something else should stand there: this.
    Expected(&'static str),
    /// A quoted value is not closed.
    Unclosed,
    /// A number is larger than what it is compared with can ever be.
    TooLarge,
    /// The text is longer than [`Selector::MAX_LEN`](crate::Selector::MAX_LEN).
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// Parentheses stand within one another deeper than [`Selector::MAX_DEPTH`](crate::Selector::MAX_DEPTH).
    TooDeep,
}

impl fmt::Display for SelectorFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SelectorFault::Expected(what) => write!(f, "expected {what}"),
            SelectorFault::Unclosed => f.write_str("this quote is not closed"),
            SelectorFault::TooLarge => f.write_str("this number is too large"),
            SelectorFault::TooLong { len } => {
                write!(f, "{len} bytes are over the limit of {}", crate::Selector::MAX_LEN)
            }
            SelectorFault::TooDeep => {
                write!(f, "more than {} parentheses within one another", crate::Selector::MAX_DEPTH)
            }
        }
    }
}

/// The text is not a [`Selector`](crate::Selector): what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    at: usize,
    fault: SelectorFault,
}

impl SelectorError {
    pub(super) fn new(at: usize, fault: SelectorFault) -> Self {
        SelectorError { at, fault }
    }

    /// The byte offset in the text; its length when something is missing at the end.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// What is wrong there.
    #[must_use]
    pub fn fault(&self) -> &SelectorFault {
        &self.fault
    }

    /// The text and, below it, a caret at the character: two lines for a terminal, without a line feed at the end. Of a long
    /// text the neighbourhood is shown; control characters show as spaces.
    ///
    /// ```
    /// use heartwheel::Selector;
    /// let text = "label=blue and stat=quiet";
    /// let error = text.parse::<Selector>().unwrap_err();
    /// assert_eq!(error.at(), 15);
    /// assert!(error.render(text).starts_with(concat!(
    ///     "label=blue and stat=quiet\n",
    ///     "               ^ expected a condition: ",
    /// )));
    /// ```
    #[must_use]
    pub fn render(&self, text: &str) -> String {
        /// Characters shown on either side.
        const AROUND: usize = 60;
        let mut at = self.at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let (before, after) = text.split_at(at);
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        let mut left: Vec<char> = before.chars().rev().map(shown).take(AROUND + 1).collect();
        if left.len() > AROUND {
            left[AROUND] = '…';
        }
        let mut right: Vec<char> = after.chars().map(shown).take(AROUND + 1).collect();
        if right.len() > AROUND {
            right[AROUND] = '…';
        }
        let column = left.len();
        let line: String = left.into_iter().rev().chain(right).collect();
        format!("{}\n{:column$}^ {}", line.trim_end(), "", self.fault)
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "selector, at byte {}: {}", self.at, self.fault)
    }
}

impl std::error::Error for SelectorError {}
