//! Command lines that are read without the table of all verbs.
//!
//! That table, with all options of all verbs, takes longer to make than a job takes to launch. So
//! of what people and scripts start by the thousand, and of what starts with each job, only the
//! verb's own options are made. The whole table has the last word on whatever these don't take:
//! help, and what is wrong with a command line.

use super::{ColourArgs, Verb};
use clap::{Args, FromArgMatches};
use std::ffi::OsString;
use tutti_client::output::colours::{self, ColorChoice};

/// The verb of a command line without the program's name, and when it wants colours; `None` if it
/// takes the whole table to tell.
fn read(words: impl IntoIterator<Item = OsString>) -> Option<(Verb, ColorChoice)> {
    let mut words = words.into_iter();
    let verb = words.next()?;
    match verb.to_str()? {
        "run" => of(words, Verb::Run),
        "submit" => of(words, Verb::Submit),
        "batch" => of(words, Verb::Batch),
        "spawn" => of(words, Verb::Spawn),
        "exec" => of(words, Verb::Exec),
        "wait" => of(words, Verb::Wait),
        "ps" => of(words, Verb::Ps),
        "show" => of(words, Verb::Show),
        "logs" => of(words, Verb::Logs),
        "history" => of(words, Verb::History),
        "nodes" => of(words, Verb::Nodes),
        "cancel" => of(words, Verb::Cancel),
        "signal" => of(words, Verb::Signal),
        "suspend" => of(words, Verb::Suspend),
        "resume" => of(words, Verb::Resume),
        "writer" => of_none(words, Verb::Writer),
        "saver" => of(words, Verb::Saver),
        "spawner" => of_none(words, Verb::Spawner),
        "pmix-server" => of(words, Verb::PmixServer),
        "pvm-manager" => of(words, Verb::PvmManager),
        "pvm-node" => of(words, Verb::PvmNode),
        "pvm-daemon" => of(words, Verb::PvmDaemon),
        "keeper" => of(words, Verb::Keeper),
        "agent" => of(words, Verb::Agent),
        "controller" => of(words, Verb::Controller),
        _ => None,
    }
}

fn of<A: Args>(
    words: impl Iterator<Item = OsString>,
    verb: fn(A) -> Verb,
) -> Option<(Verb, ColorChoice)> {
    let command = clap::Command::new("tutti").no_binary_name(true);
    let command = ColourArgs::augment_args(A::augment_args(command));
    let matches = command.try_get_matches_from(words).ok()?;
    let colours = ColourArgs::from_arg_matches(&matches).ok()?.color;
    Some((verb(A::from_arg_matches(&matches).ok()?), colours))
}

fn of_none(mut words: impl Iterator<Item = OsString>, verb: Verb) -> Option<(Verb, ColorChoice)> {
    words.next().is_none().then_some((verb, ColorChoice::Auto))
}

/// The verb of the command line of this process, if it does not take the whole table to tell.
pub(super) fn parse() -> Option<Verb> {
    let (verb, colours) = read(std::env::args_os().skip(1))?;
    colours::choose(colours);
    Some(verb)
}

#[cfg(test)]
mod tests {
    use super::super::{Cli, help};
    use super::*;
    use clap::CommandFactory;

    /// What the whole table makes of a line.
    fn whole(words: &[&str]) -> Result<Verb, clap::Error> {
        let words = std::iter::once(&"tutti").chain(words);
        let matches = help::grouped(Cli::command()).try_get_matches_from(words)?;
        Ok(Cli::from_arg_matches(&matches)?.verb)
    }

    #[test]
    fn lines_are_read_as_the_whole_table_reads_them() {
        for line in [
            "run -n 4 -m 1G --color never echo -n --help",
            "run true",
            "submit -n 2 -o out a.sh 1 2",
            "batch --wrap hostname",
            "exec 7 ls -l",
            "wait 7 8",
            "ps",
            "ps -a --json",
            "show 7",
            "logs -f 7",
            "history --json 7",
            "nodes",
            "nodes drain n1 --reason disk",
            "cancel --now 7",
            "cancel --me --state queued",
            "signal USR1 7",
            "suspend 7",
            "resume 7 8.1",
            "writer",
            "spawner",
            "keeper --directory /run/x",
            "agent --directory /run/x",
            "controller --directory /run/x",
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let quick = read(words.iter().map(OsString::from)).map(|(verb, _)| verb);
            let whole = whole(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(format!("{quick:?}"), format!("{:?}", Some(whole)), "{line}");
        }
    }

    #[test]
    fn the_whole_table_says_what_is_wrong_and_helps() {
        for line in
            ["", "ps --help", "ps -h", "ps --version", "cancel", "ps --nope", "nope", "writer x"]
        {
            let words = line.split(' ').map(OsString::from);
            assert!(read(words).is_none(), "{line}");
        }
    }
}
