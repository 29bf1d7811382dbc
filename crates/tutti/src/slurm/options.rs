//! Command lines as `getopt_long` reads them: short options in one word, long ones with their value
//! behind `=` or in the next word, and cut short as far as they stay unique.

use std::ffi::OsString;
use tutti_client::slurm::cluster_name;
use tutti_wire::script::{SbatchValue, sbatch_options};
use tutti_wire::units::shown;

/// How `getopt_long` begins what it says of a word that is no option.
pub(super) const GETOPT: [&str; 3] = ["unrecognized option", "invalid option", "option '"];

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// Only behind `=`, or behind the letter in the same word.
    Perhaps,
    Value,
}

/// An option that a command knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) long: &'static str,
    pub(super) short: Option<char>,
    pub(super) takes: Takes,
}

/// An option without a value.
pub(super) const fn flag(long: &'static str, short: Option<char>) -> Known {
    Known { long, short, takes: Takes::Nothing }
}

/// An option with a value.
pub(super) const fn value(long: &'static str, short: Option<char>) -> Known {
    Known { long, short, takes: Takes::Value }
}

/// An option that may have a value.
pub(super) const fn perhaps(long: &'static str, short: Option<char>) -> Known {
    Known { long, short, takes: Takes::Perhaps }
}

/// All options that `sbatch` documents.
pub(super) fn of_sbatch() -> Vec<Known> {
    let takes = |value| match value {
        SbatchValue::Never => Takes::Nothing,
        SbatchValue::Optional => Takes::Perhaps,
        SbatchValue::Always => Takes::Value,
    };
    let known = |(long, short, value)| Known { long, short, takes: takes(value) };
    sbatch_options().map(known).collect()
}

/// An option as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// Its long name.
    pub(super) name: &'static str,
    /// Its value, if it has one.
    pub(super) value: Option<String>,
}

/// A command line, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) given: Vec<Given>,
    /// What is no option.
    pub(super) rest: Vec<OsString>,
    /// What is wrong.
    pub(super) problems: Vec<String>,
}

impl Line {
    /// Whether an option was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|it| it.name == name)
    }

    /// The value of an option that was given last.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        let last = self.given.iter().rev().find(|it| it.name == name);
        last.and_then(|it| it.value.as_deref())
    }

    /// Notes as a problem each cluster that options name and that is not this one.
    pub(super) fn check_clusters(&mut self) {
        let mut named = self.items("clusters");
        named.extend(self.items("cluster"));
        self.problems.extend(named.iter().filter_map(|name| no_cluster(name)));
    }

    /// What stands above a list if clusters were named; nothing without headings.
    pub(super) fn cluster_heading(&self) -> String {
        match self.has("clusters") && !self.has("noheader") {
            true => format!("CLUSTER: {}\n", cluster_name()),
            false => String::new(),
        }
    }

    /// The items of all lists that were given for an option.
    pub(super) fn items(&self, name: &str) -> Vec<String> {
        let lists = self.given.iter().filter(|it| it.name == name);
        let lists = lists.filter_map(|it| it.value.as_deref());
        let items = lists.flat_map(|list| list.split([',', ' ']));
        items.map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }
}

/// What is wrong with the name of a cluster, if it is not that of this one.
pub(super) fn no_cluster(name: &str) -> Option<String> {
    let is_known = name.eq_ignore_ascii_case("all") || name == cluster_name();
    (!is_known).then(|| {
        format!(
            "'{}' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list \
             clusters' to see available clusters.",
            shown(name).trim_matches('"')
        )
    })
}

/// Whether options may stand behind what is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The first word that is no option ends them: a script or a program and its arguments.
    Strict,
    /// They may.
    Mixed,
}

/// Reads a command line without the command's name.
pub(super) fn read(known: &[Known], order: Order, words: &[OsString]) -> Line {
    let mut line = Line::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(text) = word.to_str().filter(|it| it.len() > 1 && it.starts_with('-')) else {
            line.rest.push(word.clone());
            if order == Order::Strict {
                break;
            }
            continue;
        };
        if text == "--" {
            break;
        }
        let mut next = || words.next().map(|next| next.to_string_lossy().into_owned());
        let result = match text.strip_prefix("--") {
            Some(long) => read_long(known, long, &mut next, &mut line.given),
            None => read_short(known, &text[1..], &mut next, &mut line.given),
        };
        line.problems.extend(result.err());
    }
    line.rest.extend(words.cloned());
    line
}

type Next<'a> = &'a mut dyn FnMut() -> Option<String>;

fn read_long(
    known: &[Known],
    text: &str,
    next: Next<'_>,
    given: &mut Vec<Given>,
) -> Result<(), String> {
    let (name, inner) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let option = find(known, name)?;
    let value = match (option.takes, inner) {
        (Takes::Nothing, Some(_)) => {
            return Err(format!("option '--{}' doesn't allow an argument", option.long));
        }
        (Takes::Value, None) => Some(next().ok_or_else(|| needs(&format!("--{}", option.long)))?),
        (_, inner) => inner,
    };
    given.push(Given { name: option.long, value });
    Ok(())
}

fn needs(option: &str) -> String {
    format!("option '{option}' requires an argument")
}

/// The option of this name, or the only one that begins so.
fn find(known: &[Known], name: &str) -> Result<Known, String> {
    if let Some(option) = known.iter().find(|it| it.long == name) {
        return Ok(*option);
    }
    let mut begun = known.iter().filter(|it| it.long.starts_with(name));
    match (begun.next(), begun.next()) {
        (Some(option), None) => Ok(*option),
        (Some(one), Some(other)) => Err(format!(
            "option '--{}' is ambiguous; --{} or --{}?",
            shown(name),
            one.long,
            other.long
        )),
        (None, _) => Err(format!("unrecognized option '--{}'", shown(name))),
    }
}

fn read_short(
    known: &[Known],
    letters: &str,
    next: Next<'_>,
    given: &mut Vec<Given>,
) -> Result<(), String> {
    let mut rest = letters;
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        let Some(option) = known.iter().find(|it| it.short == Some(letter)) else {
            return Err(format!("invalid option -- '{}'", shown(&letter.to_string())));
        };
        let inner = Some(rest).filter(|rest| !rest.is_empty()).map(str::to_owned);
        let value = match option.takes {
            Takes::Nothing => None,
            Takes::Perhaps => inner,
            Takes::Value => match inner {
                Some(value) => Some(value),
                None => Some(next().ok_or_else(|| needs(&format!("-{letter}")))?),
            },
        };
        given.push(Given { name: option.long, value });
        if option.takes != Takes::Nothing {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Known, Line, Order, flag, perhaps, read, value};
    use proptest::prelude::*;
    use std::ffi::OsString;

    const KNOWN: &[Known] = &[
        flag("noheader", Some('h')),
        value("jobs", Some('j')),
        value("format", Some('o')),
        value("Format", Some('O')),
        flag("parsable", Some('p')),
        flag("parsable2", Some('P')),
        perhaps("exclusive", None),
        perhaps("nice", Some('i')),
    ];

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').filter(|it| !it.is_empty()).map(OsString::from).collect()
    }

    fn shown(order: Order, text: &str) -> String {
        let line: Line = read(KNOWN, order, &words(text));
        let given = line.given.iter().map(|it| match &it.value {
            Some(value) => format!("{}={value}", it.name),
            None => it.name.to_owned(),
        });
        let rest = line.rest.iter().map(|it| format!("[{}]", it.display()));
        let problems = line.problems.iter().map(|it| format!("!{it}"));
        given.chain(rest).chain(problems).collect::<Vec<String>>().join(" ")
    }

    #[test]
    fn options_are_read_as_getopt_long_reads_them() {
        for (text, expected) in [
            ("-h -j 7", "noheader jobs=7"),
            ("-hj7,8", "noheader jobs=7,8"),
            ("--job 7 --noh", "jobs=7 noheader"),
            ("--job=7", "jobs=7"),
            ("--parsable --parsable2", "parsable parsable2"),
            ("--exclusive --exclusive=user", "exclusive exclusive=user"),
            ("-i5 -i 5", "nice=5 nice [5]"),
            ("7 -h", "noheader [7]"),
            ("-- -h", "[-h]"),
            ("- -h", "noheader [-]"),
            ("--fo=x -o -h", "format=x format=-h"),
            ("--Fo x", "Format=x"),
        ] {
            assert_eq!(shown(Order::Mixed, text), expected, "{text}");
        }
        assert_eq!(shown(Order::Strict, "-h a.sh -j 7"), "noheader [a.sh] [-j] [7]");
    }

    #[test]
    fn what_is_no_option_is_named() {
        for (text, expected) in [
            ("--pars", "!option '--pars' is ambiguous; --parsable or --parsable2?"),
            ("--nosuch", "!unrecognized option '--nosuch'"),
            ("-z", "!invalid option -- 'z'"),
            ("-j", "!option '-j' requires an argument"),
            ("--jobs", "!option '--jobs' requires an argument"),
            ("--noheader=x", "!option '--noheader' doesn't allow an argument"),
        ] {
            assert_eq!(shown(Order::Mixed, text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_words_are_read_without_a_panic(all in prop::collection::vec(".{0,8}", 0..6)) {
            let all: Vec<OsString> = all.into_iter().map(OsString::from).collect();
            let line = read(KNOWN, Order::Mixed, &all);
            prop_assert!(line.rest.len() <= all.len());
        }
    }
}
