//! Parameters of the core, and rules of its classes, as people write them.

use crate::units;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use tutti_types::class::RULES;
use tutti_types::limits::SHARE_WHOLE;
use tutti_types::param::{NodePart, Range};
use tutti_types::params::TABLE;
use tutti_types::{ClassName, ClassSpec, Overrides, Param, ParamKind, Params, queue};

/// Sets a parameter from text.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn set_param(params: &mut Params, name: &str, text: &str) -> Result<(), String> {
    let set = match TABLE.iter().find(|param| param.name == name) {
        // A policy may name its queue.
        Some(Param { kind: ParamKind::Choice(_), .. }) => params.choose(name, text),
        Some(param) => params.set(name, value(param, text)?),
        None => match name.split_once('.') {
            Some(("resource", resource)) => {
                return Err(format!(
                    "a resource is no parameter; write `tutti resource {resource}={text}`"
                ));
            }
            Some((class, rule)) => {
                let rule = format!("{rule}={text}");
                return Err(format!(
                    "a rule of a class is set by `tutti params --class {class} {rule}`"
                ));
            }
            // Says which there are.
            None => params.set(name, 0),
        },
    };
    set.map_err(|error| error.to_string())
}

/// Sets a rule of a class from text.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn set_rule(spec: &mut ClassSpec, name: &str, text: &str) -> Result<(), String> {
    let set = match RULES.iter().find(|rule| rule.name == name) {
        Some(rule) => spec.set(name, value(rule, text)?),
        None => spec.set(name, 0),
    };
    set.map_err(|error| error.to_string())
}

/// The number that a text stands for. A length of time needs a unit here: a user that thinks of a
/// quantum thinks of milliseconds, a bare number means seconds elsewhere.
fn value(param: &'static Param, text: &str) -> Result<u64, String> {
    if let Ok(value) = param.value_of(text) {
        return Ok(value);
    }
    let name = param.name;
    match param.kind {
        ParamKind::Duration | ParamKind::DurationOr(_) => {
            if text != "0" && text.parse::<f64>().is_ok() {
                return Err(format!("{name}={text} has no unit; write {text}ms or {text}s"));
            }
            let length = units::parse_duration(text).map_err(|error| format!("{name}: {error}"))?;
            Ok(length.0)
        }
        ParamKind::Count | ParamKind::CountOr(_) => {
            let is_whole =
                text.strip_prefix('-').unwrap_or(text).bytes().all(|it| it.is_ascii_digit());
            text.parse().map_err(|_| match is_whole && !text.is_empty() {
                true => format!("{name} can't be {text}; it may be {}", Range(param)),
                false => format!("{name} is a number, not {text:?}"),
            })
        }
        ParamKind::BytesOr(_) => {
            units::parse_bytes(text).map_err(|error| format!("{name}: {error}"))
        }
        ParamKind::NodePart if text.ends_with('%') => {
            let part = share(text).map(|part| NodePart::Part(part).value());
            part.ok_or_else(|| format!("{name} can't be {text:?}; it may be {}", Range(param)))
        }
        ParamKind::NodePart => units::parse_bytes(text)
            .map(|bytes| NodePart::Bytes(bytes).value())
            .map_err(|error| format!("{name}: {error}; it may be {}", Range(param))),
        ParamKind::Share => share(text).ok_or_else(|| match text.parse::<f64>() {
            Ok(_) => format!("{name}={text} has no unit; write {text}%"),
            Err(_) => format!("{name} can't be {text:?}; it may be 0% to 100%, such as 12.5%"),
        }),
        ParamKind::Choice(_) => param.value_of(text).map_err(|error| error.to_string()),
    }
}

/// A share: `25%`, `12.5%`; in ten-thousandths.
#[must_use]
pub fn share(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let number = text.strip_suffix('%')?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if part.len() > 2 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let part: u64 = format!("{part:0<2}").parse().ok()?;
    let share = whole.checked_mul(100)?.checked_add(part)?;
    (share <= u64::from(SHARE_WHOLE)).then_some(share)
}

/// Sets a limit of a queue by what people write.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn limit_value(name: &str, text: &str) -> Result<(&'static str, u64), String> {
    let known = queue::LIMITS.iter().find(|limit| limit.name == name);
    let param = known.ok_or_else(|| {
        let names: Vec<&str> = queue::LIMITS.iter().map(|limit| limit.name).collect();
        format!("a queue has no {name:?}; there are {QUEUE_SETTINGS}, {}", names.join(", "))
    })?;
    let number = value(param, text)?;
    param.check(number).map_err(|error| error.to_string())?;
    Ok((param.name, number))
}

/// What a queue has besides limits.
pub const QUEUE_SETTINGS: &str = "users, nodes, default_class, default_time, default_memory";

/// Says what a parameter is in a period, from text as in [`set_param`].
///
/// # Errors
/// What is wrong, and what would be right.
pub fn override_param(overrides: &mut Overrides, name: &str, text: &str) -> Result<(), String> {
    let mut params = Params::default();
    set_param(&mut params, name, text)?;
    // A word such as space:easy stands for several parameters.
    let words = text.contains(':').then_some("discipline");
    for name in [name].into_iter().chain(words) {
        if let Some(value) = params.get(name) {
            overrides.params.insert(name.to_owned(), value);
        }
    }
    Ok(())
}

/// Says what a rule of a class is in a period, from text as in [`set_rule`].
///
/// # Errors
/// What is wrong, and what would be right.
pub fn override_rule(
    overrides: &mut Overrides,
    class: &ClassName,
    name: &str,
    text: &str,
) -> Result<(), String> {
    let mut spec = ClassSpec::default();
    set_rule(&mut spec, name, text)?;
    let rules = overrides.classes.entry(class.clone()).or_default();
    rules.extend(spec.get(name).map(|value| (name.to_owned(), value)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{set_param, set_rule, share};
    use tutti_types::{ClassSpec, Nanos, Params};

    #[test]
    fn a_share_is_a_percentage() {
        assert_eq!(share("25%"), Some(2500));
        assert_eq!(share("12.5%"), Some(1250));
        assert_eq!(share("0.01%"), Some(1));
        for wrong in ["25", "101%", "1.234%", "-1%", "%", "a%", "99999999999%"] {
            assert_eq!(share(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn rules_are_set_by_what_people_write() {
        let mut spec = ClassSpec::default();
        for (name, text) in [("wait", "1h"), ("processors", "64"), ("do_not_disturb", "never")] {
            set_rule(&mut spec, name, text).unwrap();
        }
        assert_eq!(spec.wait(), Some(Nanos::from_secs(3600)));
        assert_eq!((spec.processors(), spec.do_not_disturb(1)), (Some(64), None));
        set_rule(&mut spec, "wait", "never").unwrap();
        set_rule(&mut spec, "processors", "none").unwrap();
        assert_eq!((spec.wait(), spec.processors()), (None, None));
        let mut says = |name, text| set_rule(&mut spec, name, text).unwrap_err();
        assert_eq!(says("wait", "5"), "wait=5 has no unit; write 5ms or 5s");
        assert_eq!(says("priority", "high"), "priority is a number, not \"high\"");
        assert_eq!(says("empty", "full"), "empty can't be \"full\"; it may be hold or down");
        assert!(says("share", "200%").starts_with("share can't be \"200%\"; it may be 0% to"));
        assert_eq!(says("share", "20"), "share=20 has no unit; write 20%");
        assert!(says("priority", "1000").contains("it may be 0 to"));
        assert!(says("colour", "red").contains("share, empty, control"));
    }

    #[test]
    fn parameters_are_set_by_what_people_write() {
        let mut params = Params::default();
        for (name, text) in [("policy", "space:easy"), ("rows", "2"), ("large_job", "64")] {
            set_param(&mut params, name, text).unwrap();
        }
        assert_eq!((params.rows(), params.large_job()), (2, Some(64)));
        assert!(set_param(&mut params, "polcy", "gang").unwrap_err().contains("policy?"));
        let mut says = |name, text| set_param(&mut params, name, text).unwrap_err();
        assert!(says("quantum", "5").contains("5ms"));
        assert_eq!(says("rows", "-1"), "rows can't be -1; it may be 1 to 1024");
        assert_eq!(
            says("rows", "99999999999999999999"),
            "rows can't be 99999999999999999999; it may be 1 to 1024"
        );
        assert_eq!(says("rows", "many"), "rows is a number, not \"many\"");
        assert!(says("resource.licence", "4").ends_with("write `tutti resource licence=4`"));
        assert!(says("mine.rows", "4").ends_with("set by `tutti params --class mine rows=4`"));
    }
}
