//! What is said about a command line that can't be understood: in our words, one line for what is
//! wrong and one for where to look.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use clap::{Command, CommandFactory};
use std::ffi::OsString;
use std::num::{ParseFloatError, ParseIntError};

/// Verbs of other systems, and which verb it is here.
const KNOWN_ELSEWHERE: &[(&str, &[&str])] = &[
    ("cancel", &["kill", "stop", "scancel", "qdel", "delete", "rm", "abort"]),
    ("ps", &["ls", "list", "jobs", "job", "squeue", "qstat", "status"]),
    ("show", &["inspect", "describe", "scontrol"]),
    ("logs", &["log", "tail", "output"]),
    ("exec", &["enter", "shell"]),
    ("run", &["start", "launch", "srun", "mpirun", "mpiexec"]),
    ("batch", &["sbatch", "qsub"]),
    ("submit", &["bsub"]),
    ("suspend", &["pause", "freeze"]),
    ("resume", &["continue", "cont", "unpause", "thaw"]),
    ("nodes", &["hosts", "sinfo", "node"]),
    ("params", &["param", "config", "set", "get", "classes"]),
    ("up", &["init"]),
    ("down", &["shutdown", "quit", "exit"]),
];

/// The text for what was typed, the name of the program first.
pub(super) fn explain(error: &Error, words: &[OsString]) -> String {
    let cli = super::Cli::command();
    let verb = typed_verb(&cli, words);
    if error.kind() == ErrorKind::InvalidSubcommand && verb.is_empty() {
        return format!("tutti: {}", unknown_verb(&cli, error));
    }
    let (subject, command) = match verb.as_str() {
        "" => ("tutti", "tutti".to_owned()),
        verb => (verb, format!("tutti {verb}")),
    };
    format!(
        "tutti: {}\n`{command} --help` shows what {subject} takes",
        what_is_wrong(error, subject)
    )
}

/// Which verb was typed, with that of its own, such as `sim compare`; empty: none that there is.
fn typed_verb(cli: &Command, words: &[OsString]) -> String {
    let (mut command, mut verbs) = (cli, Vec::new());
    for word in words.iter().skip(1) {
        let Some(verb) = command.find_subcommand(word) else { break };
        verbs.push(verb.get_name());
        command = verb;
    }
    verbs.join(" ")
}

/// In one line, for a verb.
pub(crate) fn what_is_wrong(error: &Error, verb: &str) -> String {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            format!("{verb} has no {}", context(error, ContextKind::InvalidSubcommand).join(" "))
        }
        ErrorKind::UnknownArgument => unknown_argument(error, verb),
        ErrorKind::MissingRequiredArgument => {
            let instead = if verb == "cancel" { ", or --me, --user or --all" } else { "" };
            format!("{verb} needs {}{instead}", named(error))
        }
        ErrorKind::ArgumentConflict => {
            let with = context(error, ContextKind::PriorArg);
            let with: Vec<&str> = with.iter().map(|name| bare(name)).collect();
            match (named(error), with.join(", ")) {
                (twice, same) if twice == same => format!("{twice} is given twice"),
                (more, one) if more.is_empty() => format!("{verb} takes {one} alone"),
                (one, others) => format!("{one} can't go with {others}"),
            }
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => wrong_value(error),
        _ => first_line(error),
    }
}

fn unknown_verb(cli: &Command, error: &Error) -> String {
    let typed = context(error, ContextKind::InvalidSubcommand).join(" ");
    let ours = KNOWN_ELSEWHERE.iter().find(|(_, others)| others.contains(&typed.as_str()));
    let meant = match ours {
        Some((ours, _)) => vec![(*ours).to_owned()],
        None => context(error, ContextKind::SuggestedSubcommand),
    };
    let is_hidden =
        |verb: &String| cli.find_subcommand(verb).is_some_and(|verb| verb.is_hide_set());
    let meant: Vec<String> = meant.into_iter().filter(|verb| !is_hidden(verb)).collect();
    let hint = match meant.as_slice() {
        [] => "`tutti --help` lists the verbs".to_owned(),
        verbs => format!("did you mean `tutti {}`?", verbs.join("` or `tutti ")),
    };
    format!("there is no verb {typed}; {hint}")
}

fn unknown_argument(error: &Error, verb: &str) -> String {
    let near = context(error, ContextKind::SuggestedArg);
    let typed = named(error);
    match near.first() {
        _ if !typed.starts_with('-') => format!("{verb} does not take {typed}"),
        Some(near) => format!("{verb} has no option {typed}; did you mean {near}?"),
        None => format!("{verb} has no option {typed}"),
    }
}

fn wrong_value(error: &Error) -> String {
    let source = std::error::Error::source(error);
    let no_number =
        source.is_some_and(|source| source.is::<ParseIntError>() || source.is::<ParseFloatError>());
    let reason = source.map(ToString::to_string);
    let value = context(error, ContextKind::InvalidValue).join(" ");
    let allowed = context(error, ContextKind::ValidValue);
    let name = named(error);
    match reason {
        // `-np 4` is `-n` with the value `p`.
        Some(_) if name == "--tasks" && value == "p" => "there is no -np; write -n N".into(),
        // The standard library's own words name neither the value nor what would be right.
        Some(_) if no_number => format!("{name}: {value:?} is no number that can be taken here"),
        Some(reason) => format!("{name}: {reason}"),
        None if value.is_empty() && !name.is_empty() => format!("{name} needs a value"),
        None if !allowed.is_empty() => {
            format!("{name}: {value:?} is none of {}", allowed.join(", "))
        }
        None => first_line(error),
    }
}

/// The options or arguments that it is about.
fn named(error: &Error) -> String {
    let names = context(error, ContextKind::InvalidArg);
    names.iter().map(|name| bare(name)).collect::<Vec<_>>().join(" and ")
}

/// Of `--tasks <N>` the option; of `<JOB>...` the word.
fn bare(name: &str) -> &str {
    let name = name.split_once(" <").map_or(name, |(option, _)| option);
    name.trim_end_matches("...").trim_matches(['<', '>', '[', ']'])
}

fn context(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// Of what clap makes of it.
fn first_line(error: &Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[track_caller]
    fn check(line: &str, says: &str) {
        let words: Vec<_> = line.split(' ').map(Into::into).collect();
        let error = crate::cmd::Cli::try_parse_from(&words).unwrap_err();
        let text = explain(&error, &words);
        assert!(text.contains(says), "{line}: {text}");
        assert!(text.starts_with("tutti: ") && !text.contains("error:"), "{line}: {text}");
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        check("tutti kill 3", "there is no verb kill; did you mean `tutti cancel`?");
        check("tutti ls", "did you mean `tutti ps`?");
        check("tutti runn x", "did you mean `tutti run`?");
        check("tutti frobnicate", "`tutti --help` lists the verbs");
        check("tutti stop 3", "did you mean `tutti cancel`?");
        for near in ["wor", "controler", "agen", "keeprs", "supervis"] {
            let line = format!("tutti {near}");
            let error = crate::cmd::Cli::try_parse_from(line.split(' ')).unwrap_err();
            let text = explain(&error, &["tutti".into(), near.into()]);
            for hidden in ["work", "controller", "agent", "keeper", "supervise"] {
                assert!(!text.contains(&format!("`tutti {hidden}`")), "{text}");
            }
        }
        check("tutti history -n x", "--last: \"x\" is no number that can be taken here");
        check("tutti history -n 99999999999999999999", "is no number that can be taken here");
        check("tutti run --max-processes x true", "--max-processes: 'x' is no count");
        check("tutti run --max-processes 4194305 true", "the most is 4194304");
        check("tutti run --max-processes 99999999999999999999 true", "the most is");
        check("tutti run", "run needs COMMAND\n");
        check("tutti cancel --state queued", "cancel needs TARGET, or --me, --user or --all\n");
        check("tutti run --lable x", "run has no option --lable; did you mean --label?");
        check("tutti run --raw --label x", "--raw can't go with --label");
        check("tutti run -n x true", "--tasks: 'x' is no count");
        check("tutti run -n 0 true", "--tasks: the least is 1");
        check("tutti run -m 5 true", "--memory: 5 is 5 bytes; the least is 1M");
        check("tutti run -m", "--memory needs a value");
        check("tutti down 7", "down does not take 7");
        check("tutti cancel 7x", "TARGET: invalid job \"7x\"");
        check("tutti cancel 7x", "`tutti cancel --help` shows what cancel takes");
        check("tutti run -n 1 -n 2 true", "--tasks is given twice");
        check("tutti nodes drop x", "nodes takes NODE alone\n`tutti nodes --help`");
        check("tutti sim compare x", "sim compare needs --policy\n`tutti sim compare --help`");
        check("tutti --frobnicate", "tutti has no option --frobnicate\n`tutti --help`");
    }

    #[test]
    fn no_verb_of_ours_is_taken_for_another() {
        let ours: Vec<String> = crate::cmd::Cli::command()
            .get_subcommands()
            .map(|verb| verb.get_name().to_owned())
            .collect();
        for (verb, others) in KNOWN_ELSEWHERE {
            assert!(ours.iter().any(|known| known == verb), "{verb}");
            for other in *others {
                assert!(!ours.iter().any(|known| known == other), "{other}");
            }
        }
    }
}
