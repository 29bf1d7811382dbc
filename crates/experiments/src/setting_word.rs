//! A setting in one word, as simulations and `replay --what-if` take it:
//!
//! `[HOURS/]NAME=VALUE`, where NAME is a parameter, `class.NAME.RULE` or `queue.NAME.LIMIT`; and
//! `weight.USER=N`, `bank.USER=TIME`, `resource.NAME=COUNT`, where `@GROUP` stands for a group.

use anyhow::anyhow;
use tutti_controller::OtherSetting;
use tutti_types::{ClassName, QueueName};
use tutti_wire::local::{Section, Setting};

/// What a word sets.
#[derive(Clone, Debug)]
pub(super) enum SettingWord {
    /// A parameter, an allowance, or something of a class or a queue.
    Site(Setting),
    /// A weight or a counted resource.
    Other(OtherSetting),
}

/// Reads a word.
///
/// # Errors
/// What is wrong, and what would be right.
pub(super) fn parse(word: &str) -> anyhow::Result<SettingWord> {
    let (name, value) = word.split_once('=').ok_or_else(|| {
        anyhow!("{word:?} sets nothing; write NAME=VALUE, such as quantum=200s or order=arrival")
    })?;
    let (name, value) = (name.trim(), value.trim());
    let (during, name) = match name.split_once('/') {
        Some((during, name)) => (Some(during.to_owned()), name),
        None => (None, name),
    };
    if let Some(other) = OtherSetting::of(name, value) {
        let other = other.map_err(|reason| anyhow!("{name}: {reason}"))?;
        return match during {
            None => Ok(SettingWord::Other(other)),
            Some(_) => Err(anyhow!("{name} can't be by hours; parameters, classes and queues can")),
        };
    }
    let of = |kind: &str| name.strip_prefix(kind)?.rsplit_once('.');
    let (section, name) = match (of("class."), of("queue."), name.strip_prefix("bank.")) {
        (Some((class, rule)), ..) => (Section::Class(ClassName::new(class)), rule),
        (None, Some((queue, limit)), _) => (Section::Queue(QueueName::new(queue)), limit),
        (None, None, Some(account)) => (Section::Bank, account),
        (None, None, None) => (Section::Params, name),
    };
    if section == Section::Bank && value.contains('/') {
        return Err(anyhow!("{word:?}: an allowance is not renewed here; leave out the period"));
    }
    let (name, value) = (name.to_owned(), value.to_owned());
    Ok(SettingWord::Site(Setting { line: 0, section, during, name, value }))
}

#[cfg(test)]
mod tests {
    use super::{SettingWord, parse};

    #[test]
    fn a_word_names_what_it_sets() {
        let shown = |word: &str| match parse(word).unwrap() {
            SettingWord::Site(it) => {
                format!("{:?} {:?} {} {}", it.section, it.during, it.name, it.value)
            }
            SettingWord::Other(other) => format!("{other:?}"),
        };
        assert_eq!(shown("rows=2"), "Params None rows 2");
        assert!(shown("policy=space:easy").ends_with("policy space:easy"));
        assert!(shown("mon-fri 08:00-18:00/rows=2").contains("\"mon-fri 08:00-18:00\""));
        let class = shown("class.my.class.share=60%");
        assert!(class.contains("my.class") && class.ends_with("share 60%"), "{class}");
        assert!(shown("queue.short.user_jobs=2").ends_with("user_jobs 2"));
        assert!(shown("weight.7=3").contains("Some(3)"));
        assert_eq!(shown("bank.@3=1h"), "Bank None @3 1h");
        assert!(shown("resource.licence=4").contains("licence"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let says = |word: &str| parse(word).unwrap_err().to_string();
        assert!(says("rows").contains("write NAME=VALUE"));
        assert!(says("weight.7=0").contains("from 1 to 1000"));
        assert!(says("sat/weight.7=2").contains("can't be by hours"));
        assert!(says("bank.7=1h/day").contains("not renewed here"));
        assert!(says("resource.Licence=2").contains("invalid name"));
    }
}
