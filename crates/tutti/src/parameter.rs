//! Parameters of the core as people write them.

use tutti_core::params::TABLE;
use tutti_core::{ParamKind, Params};
use tutti_wire::units;

/// Sets a parameter from text. A length of time needs a unit here: who thinks of a quantum thinks of
/// milliseconds, a bare number means seconds elsewhere.
///
/// # Errors
/// What is wrong, and what would be right.
pub(crate) fn set_param(params: &mut Params, name: &str, text: &str) -> Result<(), String> {
    let value = match TABLE.iter().find(|param| param.name == name).map(|param| param.kind) {
        Some(ParamKind::Duration) if text != "0" && text.parse::<f64>().is_ok() => {
            return Err(format!("{name}={text} has no unit; write {text}ms or {text}s"));
        }
        Some(ParamKind::Duration) => {
            units::parse_duration(text).map_err(|error| error.to_string())?.0
        }
        Some(ParamKind::Count) => {
            text.parse().map_err(|_| format!("{name} is a number, not {text:?}"))?
        }
        Some(ParamKind::Choice(_)) => {
            return params.choose(name, text).map_err(|error| error.to_string());
        }
        None => {
            let names: Vec<&str> = TABLE.iter().map(|param| param.name).collect();
            return Err(format!("there is no parameter {name:?}; there are {}", names.join(", ")));
        }
    };
    params.set(name, value).map_err(|error| error.to_string())
}
