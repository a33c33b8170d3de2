//! Writes the text form of a selector, with the parentheses it needs and no others.

use std::fmt;

use super::{Selector, Shape};

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// What a part is, for whether it needs parentheses.
        #[derive(Clone, Copy, PartialEq, PartialOrd)]
        enum Level {
            Or,
            And,
            Not,
        }
        fn within(level: Level, (own, text): (Level, String)) -> String {
            if own < level { format!("({text})") } else { text }
        }
        let mut terms = self.steps.iter().map(|step| &step.term);
        let mut parts: Vec<(Level, String)> = Vec::new();
        for shape in &self.shape {
            let part = match *shape {
                Shape::Term => (Level::Not, terms.next().map(ToString::to_string).unwrap_or_default()),
                Shape::Not => {
                    let inner = parts.pop().map(|part| within(Level::Not, part)).unwrap_or_default();
                    (Level::Not, format!("not {inner}"))
                }
                Shape::And(count) | Shape::Or(count) => {
                    let (level, word) = match shape {
                        Shape::And(_) => (Level::And, " and "),
                        _ => (Level::Or, " or "),
                    };
                    let own = parts.split_off(parts.len().saturating_sub(count));
                    let own: Vec<_> = own.into_iter().map(|part| within(level, part)).collect();
                    (level, own.join(word))
                }
            };
            parts.push(part);
        }
        parts.iter().try_for_each(|(_, text)| f.write_str(text))
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selector({self})")
    }
}
