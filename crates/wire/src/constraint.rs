//! What a job asks of its nodes' features, as people write it: `avx2&ssd`, `(intel|amd),gpu`.
//!
//! `&` and `,` stand for "and", `|` for "or"; "and" binds closer, and parentheses group. A name is
//! a feature that nodes were found to have, or a set of nodes: which there are, the controller
//! knows.

use crate::limits::NAME_BYTES_MAX;
use crate::units::shown;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The longest constraint, in bytes.
pub const CONSTRAINT_BYTES_MAX: usize = 1024;
/// How deep parentheses may stand in each other.
const DEPTH_MAX: u32 = 16;

/// Which nodes have what is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// Those with this feature, or in the set of this name.
    Has(String),
    /// Those that each of these holds for.
    All(Vec<Self>),
    /// Those that one of these holds for.
    Any(Vec<Self>),
}

/// Why a constraint can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// Longer than [`CONSTRAINT_BYTES_MAX`].
    #[error("the constraint is too long: at most {CONSTRAINT_BYTES_MAX} bytes are taken")]
    TooLong,
    /// A name is missing: between two signs, behind one, or at all.
    #[error("a name is missing at '{rest}'; write names with & or | between, such as avx2&ssd")]
    NoName {
        /// What stands there.
        rest: String,
    },
    /// Something that belongs to no name and is no sign.
    #[error(
        "'{rest}' can't be read; names have letters, digits, '-', '_' and '.', at most \
         {NAME_BYTES_MAX}, with & (and) or | (or) between; parentheses group"
    )]
    Sign {
        /// What stands there.
        rest: String,
    },
    /// A parenthesis without its counterpart, or too many in each other.
    #[error("parentheses must be closed, and at most {DEPTH_MAX} stand in each other")]
    Parentheses,
}

/// Reads a constraint.
///
/// # Errors
/// If it is not as the module says.
pub fn parse_constraint(text: &str) -> Result<Constraint, ConstraintError> {
    if text.len() > CONSTRAINT_BYTES_MAX {
        return Err(ConstraintError::TooLong);
    }
    let mut reader = Reader { rest: text.trim(), depth: 0 };
    let constraint = reader.any()?;
    match reader.rest.chars().next() {
        None => Ok(constraint),
        Some(')') => Err(ConstraintError::Parentheses),
        Some(_) => Err(ConstraintError::Sign { rest: shown(reader.rest) }),
    }
}

impl Constraint {
    /// Each name in it, in order of their places.
    pub fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Has(name) => Box::new(core::iter::once(name.as_str())),
            Self::All(parts) | Self::Any(parts) => Box::new(parts.iter().flat_map(Self::names)),
        }
    }

    /// Whether it holds where the names hold for which `has` says so.
    pub fn holds(&self, has: &impl Fn(&str) -> bool) -> bool {
        match self {
            Self::Has(name) => has(name),
            Self::All(parts) => parts.iter().all(|part| part.holds(has)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(has)),
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
    depth: u32,
}

impl Reader<'_> {
    fn any(&mut self) -> Result<Constraint, ConstraintError> {
        self.parts(&['|'], Self::all, Constraint::Any)
    }

    fn all(&mut self) -> Result<Constraint, ConstraintError> {
        self.parts(&['&', ','], Self::one, Constraint::All)
    }

    fn parts(
        &mut self,
        signs: &[char],
        part: impl Fn(&mut Self) -> Result<Constraint, ConstraintError>,
        whole: impl Fn(Vec<Constraint>) -> Constraint,
    ) -> Result<Constraint, ConstraintError> {
        let first = part(self)?;
        let mut parts = vec![first];
        while self.takes(signs) {
            parts.push(part(self)?);
        }
        match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => Ok(whole(parts)),
        }
    }

    fn one(&mut self) -> Result<Constraint, ConstraintError> {
        if self.takes(&['(']) {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return Err(ConstraintError::Parentheses);
            }
            let inner = self.any()?;
            self.depth -= 1;
            return match self.takes(&[')']) {
                true => Ok(inner),
                false if self.rest.is_empty() => Err(ConstraintError::Parentheses),
                false => Err(ConstraintError::Sign { rest: shown(self.rest) }),
            };
        }
        let end = self.rest.find(|c: char| !is_of_name(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        if !is_feature_name(name) {
            return Err(match self.rest.chars().next() {
                Some(c) if !"&|,)".contains(c) => ConstraintError::Sign { rest: shown(self.rest) },
                _ => ConstraintError::NoName { rest: shown(self.rest) },
            });
        }
        self.rest = rest.trim_start();
        Ok(Constraint::Has(name.into()))
    }

    fn takes(&mut self, signs: &[char]) -> bool {
        let Some(rest) = self.rest.strip_prefix(signs) else { return false };
        self.rest = rest.trim_start();
        true
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

/// Whether a text can be the name of a feature.
#[must_use]
pub fn is_feature_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && text.chars().all(is_of_name)
}

#[cfg(test)]
mod tests {
    use super::{CONSTRAINT_BYTES_MAX, ConstraintError, parse_constraint};

    fn holds(text: &str, names: &[&str]) -> bool {
        parse_constraint(text).unwrap().holds(&|name| names.contains(&name))
    }

    #[test]
    fn and_binds_closer_than_or_and_parentheses_group() {
        assert!(holds("a", &["a"]) && !holds("a", &["b"]));
        assert!(holds("a & b", &["a", "b"]) && !holds("a,b", &["a"]));
        assert!(holds("a|b&c", &["a"]) && !holds("(a|b)&c", &["a"]));
        assert!(holds(" ( a | b ) & x86-64-v3 ", &["b", "x86-64-v3"]));
        let constraint = parse_constraint("a&(b|c),d").unwrap();
        assert_eq!(constraint.names().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| parse_constraint(text).unwrap_err();
        assert_eq!(error(""), ConstraintError::NoName { rest: String::new() });
        assert_eq!(error("a&&b"), ConstraintError::NoName { rest: "&b".into() });
        assert_eq!(error("a|"), ConstraintError::NoName { rest: String::new() });
        assert_eq!(error("(a"), ConstraintError::Parentheses);
        assert_eq!(error("a)"), ConstraintError::Parentheses);
        assert_eq!(error("[a|b]"), ConstraintError::Sign { rest: "[a|b]".into() });
        assert_eq!(error("a*4"), ConstraintError::Sign { rest: "*4".into() });
        assert_eq!(error(&"(".repeat(17)), ConstraintError::Parentheses);
        assert_eq!(error(&"a".repeat(CONSTRAINT_BYTES_MAX + 1)), ConstraintError::TooLong);
        assert!(matches!(error(&"a".repeat(CONSTRAINT_BYTES_MAX)), ConstraintError::Sign { .. }));
    }
}
