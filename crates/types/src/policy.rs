//! A site's own policy: its program, and what jobs ask of it.

use crate::limits::{POLICY_ARG_BYTES_MAX, POLICY_ARG_NAME_BYTES_MAX, POLICY_ARGS_MAX};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The program of a site's own policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PolicyProgram {
    /// The absolute path of the program.
    pub path: String,
    /// The user that it runs as; `None`: the default of the instance.
    pub user: Option<String>,
    /// The absolute path of its part on each node; `None`: it has none.
    pub node: Option<String>,
}

/// A job's own parameters for the policy program: names and values, in the order given.
pub type PolicyArgs = Vec<(String, String)>;

/// Why a job can't have such parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyArgsError {
    /// There are too many.
    #[error("a job has at most {POLICY_ARGS_MAX} parameters for the policy, and this one has {0}")]
    TooMany(usize),
    /// A name is empty, long, or has other characters than letters, digits, `_`, `-` and `.`.
    #[error(
        "invalid parameter name {0:?} for the policy; take at most {POLICY_ARG_NAME_BYTES_MAX} \
         letters, digits, `_`, `-` or `.`"
    )]
    Name(String),
    /// A value is too long.
    #[error(
        "the value of {0} for the policy has {1} bytes; at most {POLICY_ARG_BYTES_MAX} are possible"
    )]
    LongValue(String, usize),
    /// A name stands twice.
    #[error("parameter {0} for the policy is given twice; give it once")]
    Twice(String),
}

/// Whether a job can have these parameters.
///
/// # Errors
/// If there are too many of them, or one is too long, malformed or given twice.
pub fn check_policy_args(args: &[(String, String)]) -> Result<(), PolicyArgsError> {
    if args.len() > POLICY_ARGS_MAX {
        return Err(PolicyArgsError::TooMany(args.len()));
    }
    let may = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    for (index, (name, value)) in args.iter().enumerate() {
        if name.is_empty() || name.len() > POLICY_ARG_NAME_BYTES_MAX || !name.bytes().all(may) {
            return Err(PolicyArgsError::Name(name.chars().take(80).collect()));
        }
        if value.len() > POLICY_ARG_BYTES_MAX {
            return Err(PolicyArgsError::LongValue(name.clone(), value.len()));
        }
        if args[..index].iter().any(|(before, _)| before == name) {
            return Err(PolicyArgsError::Twice(name.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PolicyArgsError, check_policy_args};

    #[test]
    fn parameters_for_the_policy_are_few_short_and_named_once() {
        let arg = |name: &str, value: &str| (name.into(), value.into());
        assert_eq!(check_policy_args(&[arg("urgency", "7"), arg("a.b-c", "")]), Ok(()));
        let name = |name: &str| Err(PolicyArgsError::Name(name.into()));
        assert_eq!(check_policy_args(&[arg("", "7")]), name(""));
        assert_eq!(check_policy_args(&[arg("a b", "7")]), name("a b"));
        let twice = Err(PolicyArgsError::Twice("a".into()));
        assert_eq!(check_policy_args(&[arg("a", "7"), arg("a", "8")]), twice);
        let long = "x".repeat(1000);
        assert!(check_policy_args(&[arg("a", &long)]).is_err());
        assert!(check_policy_args(&vec![arg("a", ""); 100]).is_err());
    }
}
