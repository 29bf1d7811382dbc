//! What is set on the command line: parameters and rules of classes, always or in some hours.

use anyhow::{anyhow, bail};
use tutti_types::{
    BankAccount, ClassName, Classes, GroupId, Overrides, Params, Period, ProcessorTime, UserId,
    default_classes,
};
use tutti_wire::parameter::{override_param, override_rule, set_param, set_rule};
use tutti_wire::units::parse_duration;

/// The core's parameters under a policy such as `gang,rows=5`. What is set for all policies comes
/// first, so that a policy's own settings count.
pub(super) fn params(policy: &str, settings: &[String]) -> anyhow::Result<Params> {
    let mut params = Params::default();
    let mut words = policy.split(',');
    let name = words.next().unwrap_or_default();
    for setting in always(settings) {
        set(&mut params, setting)?;
    }
    tutti_sim::set_policy(&mut params, name)?;
    words.try_for_each(|setting| set(&mut params, setting))?;
    Ok(params)
}

/// The classes with what is set of their rules: `interactive:wait=1m,processors=64`.
pub(super) fn class_rules(settings: &[String]) -> anyhow::Result<Classes> {
    let mut classes = default_classes();
    for setting in always(settings) {
        let (name, rules) = class(setting)?;
        let mut spec = classes.get(&name).copied().unwrap_or_default();
        for rule in rules.split(',') {
            let (rule, value) = rule_of(rule)?;
            set_rule(&mut spec, rule, value).map_err(|error| anyhow!("{error}"))?;
        }
        spec.check(&name, &classes)?;
        classes.insert(name, spec);
    }
    Ok(classes)
}

/// What is set for some hours only: `HOURS/NAME=VALUE`, `HOURS/CLASS:RULE=VALUE`.
pub(super) fn periods(
    params: &[String],
    rules: &[String],
) -> anyhow::Result<Vec<(Period, Overrides)>> {
    let mut periods = Vec::new();
    for (period, setting) in in_hours(params) {
        let (name, value) = named(setting)?;
        let overrides = of(&mut periods, period.parse()?);
        override_param(overrides, name, value).map_err(|error| anyhow!("{error}"))?;
    }
    for (period, setting) in in_hours(rules) {
        let (name, rules) = class(setting)?;
        let overrides = of(&mut periods, period.parse()?);
        for rule in rules.split(',') {
            let (rule, value) = rule_of(rule)?;
            override_rule(overrides, &name, rule, value).map_err(|error| anyhow!("{error}"))?;
        }
    }
    Ok(periods)
}

/// Allowances: `7=100h`, `@3=2000h`.
pub(super) fn bank(settings: &[String]) -> anyhow::Result<Vec<(BankAccount, ProcessorTime)>> {
    settings.iter().map(|setting| allowance(setting)).collect()
}

fn allowance(setting: &str) -> anyhow::Result<(BankAccount, ProcessorTime)> {
    let wrong =
        || anyhow!("{setting:?} is no allowance; write USER=TIME or @GROUP=TIME, such as 7=100h");
    let (account, time) = setting.split_once('=').ok_or_else(wrong)?;
    let account = match account.strip_prefix('@') {
        Some(group) => BankAccount::Group(GroupId(group.parse().map_err(|_| wrong())?)),
        None => BankAccount::User(UserId(account.parse().map_err(|_| wrong())?)),
    };
    Ok((account, ProcessorTime::of_one(parse_duration(time)?)))
}

fn of(periods: &mut Vec<(Period, Overrides)>, period: Period) -> &mut Overrides {
    let known = periods.iter().position(|&(known, _)| known == period);
    let index = known.unwrap_or_else(|| {
        periods.push((period, Overrides::default()));
        periods.len() - 1
    });
    &mut periods[index].1
}

fn always(settings: &[String]) -> impl Iterator<Item = &str> {
    settings.iter().map(String::as_str).filter(|setting| !setting.contains('/'))
}

fn in_hours(settings: &[String]) -> impl Iterator<Item = (&str, &str)> {
    settings.iter().filter_map(|setting| setting.split_once('/'))
}

fn class(setting: &str) -> anyhow::Result<(ClassName, &str)> {
    match setting.split_once(':') {
        Some((name, rules)) if !name.is_empty() => Ok((ClassName::new(name), rules)),
        _ => bail!("{setting:?} sets no rule; write CLASS:RULE=VALUE, such as interactive:wait=1m"),
    }
}

fn set(params: &mut Params, setting: &str) -> anyhow::Result<()> {
    let (name, value) = named(setting)?;
    set_param(params, name, value).map_err(|error| anyhow!("{error}"))
}

fn named(setting: &str) -> anyhow::Result<(&str, &str)> {
    let Some((name, value)) = setting.split_once('=') else {
        bail!("{setting:?} sets nothing; write NAME=VALUE, such as quantum=200s");
    };
    Ok((name.trim(), value.trim()))
}

fn rule_of(setting: &str) -> anyhow::Result<(&str, &str)> {
    let Some((rule, value)) = setting.split_once('=') else {
        bail!("{setting:?} sets nothing; write RULE=VALUE, such as wait=1m");
    };
    Ok((rule.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::{bank, class_rules, params, periods};
    use tutti_types::{BankAccount, ClassName, GroupId, Nanos, UserId};

    fn rules(settings: &[&str]) -> anyhow::Result<tutti_types::Classes> {
        class_rules(&settings.iter().map(|&setting| setting.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn rules_of_classes_are_set_one_after_the_other() {
        let set =
            rules(&["interactive:wait=1m,share=60%", "mine:share=40%", "interactive:priority=7"]);
        let classes = set.unwrap();
        let interactive = classes[&ClassName::new("interactive")];
        assert_eq!(interactive.wait(), Some(Nanos::from_secs(60)));
        assert_eq!((interactive.share(), interactive.priority()), (6000, 7));
        assert_eq!(classes[&ClassName::new("mine")].share(), 4000);
        assert_eq!(classes.len(), 5);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let says = |settings| rules(settings).unwrap_err().to_string();
        assert!(says(&["interactive"]).contains("CLASS:RULE=VALUE"));
        assert!(says(&[":wait=1m"]).contains("CLASS:RULE=VALUE"));
        assert!(says(&["interactive:wait"]).contains("RULE=VALUE"));
        assert!(says(&["interactive:colour=red"]).contains("no parameter colour"));
        assert!(says(&["a:share=60%", "b:share=60%"]).contains("at most 40%"));
    }

    #[test]
    fn allowances_are_of_users_and_groups() {
        let says = |setting: &str| bank(&[setting.to_owned()]).unwrap_err().to_string();
        assert!(says("ada=1h").contains("such as 7=100h") && says("7").contains("such as 7=100h"));
        assert!(says("7=much").contains("much"));
        let accounts = bank(&["7=100h".to_owned(), "@3=1m".to_owned()]).unwrap();
        assert_eq!(accounts[0].0, BankAccount::User(UserId(7)));
        assert_eq!(accounts[1].0, BankAccount::Group(GroupId(3)));
        assert_eq!(accounts[0].1.seconds(), 360_000);
    }

    #[test]
    fn what_holds_in_some_hours_is_kept_apart() {
        let text = |settings: &[&str]| -> Vec<String> {
            settings.iter().map(|&setting| setting.to_owned()).collect()
        };
        let settings = text(&["rows=2", "mon-fri 08:00-18:00/rows=3", "sat/policy=space:easy"]);
        let rules = text(&["standby:share=1%", "mon-fri 08:00-18:00/standby:share=2%,empty=hold"]);
        assert_eq!(params("gang", &settings).unwrap().rows(), 2);
        assert_eq!(class_rules(&rules).unwrap()[&ClassName::new("standby")].share(), 100);
        let periods = periods(&settings, &rules).unwrap();
        let (hours, by_day) = &periods[0];
        assert_eq!(hours.to_string(), "mon-fri 08:00-18:00");
        assert_eq!(by_day.params["rows"], 3);
        assert_eq!(by_day.classes[&ClassName::new("standby")]["share"], 200);
        assert_eq!(periods[1].1.params.len(), 2, "a policy and its discipline");
    }
}
