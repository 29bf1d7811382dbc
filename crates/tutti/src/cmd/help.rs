//! `tutti --help`: the verbs by task. Its tests have the rules for the help of each verb.

use clap::Command;
use std::fmt::Write as _;

/// The tasks of users and administrators, each with its verbs.
pub(super) const GROUPS: [(&str, &[&str]); 9] = [
    ("Run jobs", &["run", "submit", "batch", "alloc", "pvm", "spawn", "exec", "adopt", "wait"]),
    (
        "Look at jobs",
        &["ps", "show", "logs", "attach", "events", "top", "web", "timeline", "history", "report"],
    ),
    (
        "Change jobs",
        &[
            "cancel",
            "signal",
            "suspend",
            "resume",
            "hold",
            "release",
            "requeue",
            "checkpoint",
            "class",
            "limit",
            "move",
        ],
    ),
    ("Share a machine", &["params", "queue", "at", "bank", "weight", "resource", "access"]),
    ("Administer an instance", &["up", "down", "upgrade", "metrics"]),
    ("Administer a cluster", &["nodes", "invite", "join", "leave"]),
    ("Find faults", &["doctor", "explain", "switches", "replay"]),
    ("Try, simulate, measure", &["demo", "sim", "bench"]),
    ("Set up a shell", &["slurm", "completion"]),
];

/// The command with the verbs by task in its help.
pub(super) fn grouped(command: Command) -> Command {
    let styles = command.get_styles();
    let (title, verb) = (styles.get_header(), styles.get_literal());
    let mut page = format!("{{about}}\n\n{title}Usage:{title:#} tutti VERB [OPTIONS]\n");
    for (task, names) in GROUPS {
        let _ = write!(page, "\n{title}{task}:{title:#}\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(page, "  {verb}{name:<10}{verb:#} {about}");
        }
    }
    page.push_str(
        "\n`tutti VERB --help` shows options and examples, `tutti --version` the version.\n\
         All verbs take --color=auto|always|never; auto respects NO_COLOR.\n",
    );
    command.help_template(page)
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, grouped};
    use crate::cmd::Cli;
    use clap::{Command, CommandFactory};

    /// Columns of the terminal that help is made for.
    const COLUMNS: usize = 80;

    /// Options of a verb that stand under one heading at most, apart from `-h` and `-V`.
    const OPTIONS_MAX: usize = 8;

    /// All verbs that users see, and the verbs below them, each with its words.
    fn verbs() -> Vec<(String, Command)> {
        fn below(name: &str, command: &Command, found: &mut Vec<(String, Command)>) {
            let verbs = command.get_subcommands();
            for verb in verbs.filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
                let name = format!("{name} {}", verb.get_name());
                below(&name, verb, found);
                found.push((name, verb.clone()));
            }
        }
        let mut root = Cli::command().term_width(COLUMNS);
        root.build();
        let mut found = Vec::new();
        below("tutti", &root, &mut found);
        found
    }

    /// The words of an example, as a shell splits them; what follows two spaces explains it.
    fn words(line: &str) -> Vec<String> {
        let line = line.trim().split("  ").next().unwrap().trim();
        let line = line.strip_prefix("job=$(").and_then(|it| it.strip_suffix(')')).unwrap_or(line);
        let mut words = Vec::new();
        for (number, piece) in line.split('\'').enumerate() {
            match number % 2 {
                0 => words.extend(piece.split_whitespace().map(str::to_owned)),
                _ => words.push(piece.to_owned()),
            }
        }
        words
    }

    fn after_help(verb: &Command) -> String {
        verb.get_after_help().map(ToString::to_string).unwrap_or_default()
    }

    /// The lines below `Examples:` that begin with a command.
    fn examples(help: &str) -> Vec<String> {
        let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        let lines = lines.take_while(|line| !line.is_empty());
        lines.filter(|line| !line.starts_with("   ")).map(str::to_owned).collect()
    }

    #[test]
    fn each_verb_stands_in_one_group() {
        let root = Cli::command();
        let mut visible: Vec<&str> = root
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(|verb| verb.get_name())
            .collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        visible.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, visible, "left: GROUPS, right: the verbs");
    }

    #[test]
    fn the_list_of_verbs_fits_a_terminal() {
        let help = grouped(Cli::command()).render_help().to_string();
        let long: Vec<&str> = help.lines().filter(|it| it.chars().count() > COLUMNS).collect();
        assert!(long.is_empty(), "longer than {COLUMNS} columns: {long:#?}");
    }

    #[test]
    fn each_verb_has_examples_that_it_understands() {
        let mut found = Vec::new();
        for (name, verb) in verbs() {
            let examples = examples(&after_help(&verb));
            if !examples.iter().any(|example| words(example).join(" ").contains(&name)) {
                found.push(format!("`{name} --help` has no example"));
            }
            for example in examples {
                if let Err(error) = Cli::command().try_get_matches_from(words(&example)) {
                    found.push(format!("`{name} --help`: {example}: {error}"));
                }
            }
        }
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn many_options_of_a_verb_are_grouped() {
        let mut found = Vec::new();
        for (name, verb) in verbs() {
            let loose = verb.get_arguments().filter(|it| {
                !it.is_positional()
                    && it.get_help_heading().is_none()
                    && !it.is_hide_set()
                    && !["help", "version"].contains(&it.get_id().as_str())
            });
            let loose: Vec<&str> = loose.map(|it| it.get_id().as_str()).collect();
            if loose.len() > OPTIONS_MAX {
                found.push(format!("`{name}`: give options a heading: {loose:?}"));
            }
        }
        assert!(found.is_empty(), "{found:#?}");
    }

    /// Tables and examples of a help text; paragraphs are folded by the terminal's width.
    #[test]
    fn help_texts_fit_a_terminal() {
        let mut found = Vec::new();
        for (name, verb) in verbs() {
            let after = after_help(&verb);
            let lines: Vec<&str> = after.lines().collect();
            for (number, line) in lines.iter().enumerate() {
                let is_paragraph = number.checked_sub(1).is_none_or(|it| lines[it].is_empty())
                    && lines.get(number + 1).is_none_or(|line| line.is_empty());
                let is_short = line.chars().count() <= COLUMNS;
                if !is_short && !is_paragraph {
                    found.push(format!("`{name} --help` has a long line: {line}"));
                }
            }
        }
        assert!(found.is_empty(), "{found:#?}");
    }
}
