//! Manual pages, made from the tables of `--help`: tutti(1), and one page for each verb.

use super::Cli;
use super::help::{GROUPS, grouped};
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write as _;
use std::path::Path;
use tutti_node::exit;

/// What tutti(1) says of the program.
const DESCRIPTION: &str = "\
Tutti is a gang scheduler for Linux. All processes of a parallel job run, stop and end together. \
Jobs that want the same processors take turns, and every process of a job switches at the same \
instant, on all nodes.

The first `tutti run` of a user starts a private instance. Root's `tutti up` starts an instance for \
all users of the machine, and `tutti join` adds machines. No configuration is needed.";

/// Writes the pages `*.1` into the directory.
///
/// # Errors
/// If a page can't be written.
pub(super) fn write_pages(directory: &Path) -> anyhow::Result<usize> {
    use anyhow::Context;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?;
    let pages = pages();
    for (name, text) in &pages {
        let path = directory.join(format!("{name}.1"));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(pages.len())
}

/// All pages by name, such as `tutti-nodes-drain`.
fn pages() -> Vec<(String, String)> {
    fn below(command: &Command, found: &mut Vec<(String, String)>) {
        for verb in visible(command) {
            found.push((page_name(verb), page_of(verb)));
            below(verb, found);
        }
    }
    let mut root = grouped(Cli::command());
    root.build();
    let mut found = vec![("tutti".to_owned(), page_of_all(&root))];
    below(&root, &mut found);
    found
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

fn page_name(verb: &Command) -> String {
    verb.get_bin_name().unwrap_or(verb.get_name()).replace(' ', "-")
}

/// Title and name of a page.
fn begin(name: &str, about: &str) -> String {
    format!(
        ".\\\" Made from the tables of --help by `tutti reference man`.\n\
         .TH {} 1 \"\" \"tutti {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n",
        escape(&name.to_uppercase()),
        env!("CARGO_PKG_VERSION"),
        escape(name),
        text(about)
    )
}

fn page_of_all(root: &Command) -> String {
    let about = root.get_about().map(ToString::to_string).unwrap_or_default();
    let mut page = begin("tutti", &about);
    page.push_str(".SH SYNOPSIS\n\\fBtutti\\fR \\fIVERB\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n");
    write_paragraphs(DESCRIPTION, &mut page);
    page.push_str(".SH VERBS\n");
    for (task, names) in GROUPS {
        let _ = writeln!(page, ".SS {}", escape(task));
        for verb in names.iter().filter_map(|name| root.find_subcommand(name)) {
            write_reference(verb, &mut page);
        }
    }
    page.push_str(".SH ENVIRONMENT\n");
    for (name, meaning) in super::reference::READ {
        write_item(&format!("\\fB{}\\fR", escape(name)), meaning, &mut page);
    }
    page.push_str(".SH EXIT STATUS\n");
    for (exit, meaning) in exit::OTHER {
        write_item(&format!("\\fB{}\\fR", exit.code()), meaning, &mut page);
    }
    page.push_str("tutti\\-run(1) has those of \\fBrun\\fR and \\fBwait\\fR.\n");
    page
}

fn page_of(verb: &Command) -> String {
    let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
    let mut page = begin(&page_name(verb), &about);
    page.push_str(".SH SYNOPSIS\n");
    let usage = verb.clone().render_usage().to_string();
    let name = verb.get_bin_name().unwrap_or(verb.get_name());
    for line in usage.trim_start_matches("Usage:").lines().filter(|line| !line.trim().is_empty()) {
        let rest = line.trim().strip_prefix(name).unwrap_or(line.trim());
        let _ = write!(page, "\\fB{}\\fR{}\n.br\n", escape(name), escape(rest));
    }
    page.push_str(".SH DESCRIPTION\n");
    let long = verb.get_long_about().map(ToString::to_string).unwrap_or(about);
    write_paragraphs(&format!("{}.", long.trim_end_matches('.')), &mut page);
    if verb.get_positionals().any(|it| !it.is_hide_set()) {
        page.push_str(".SH ARGUMENTS\n");
        verb.get_positionals()
            .filter(|it| !it.is_hide_set())
            .for_each(|it| write_argument(it, &mut page));
    }
    write_options(verb, &mut page);
    if visible(verb).next().is_some() {
        page.push_str(".SH VERBS\n");
        visible(verb).for_each(|below| write_reference(below, &mut page));
    }
    write_after_help(verb, &mut page);
    page.push_str(".SH SEE ALSO\ntutti(1)\n");
    page
}

/// The options: first those without a heading, then each heading with its own.
fn write_options(verb: &Command, page: &mut String) {
    let options: Vec<&Arg> =
        verb.get_arguments().filter(|it| !it.is_positional() && !it.is_hide_set()).collect();
    let mut headings: Vec<Option<&str>> = vec![None];
    for option in &options {
        if !headings.contains(&option.get_help_heading()) {
            headings.push(option.get_help_heading());
        }
    }
    page.push_str(".SH OPTIONS\n");
    for heading in headings {
        if let Some(heading) = heading {
            let _ = writeln!(page, ".SS {}", escape(heading));
        }
        for option in options.iter().filter(|it| it.get_help_heading() == heading) {
            write_argument(option, page);
        }
    }
}

fn write_argument(argument: &Arg, page: &mut String) {
    let mut head = String::new();
    if let (Some(short), Some(_)) = (argument.get_short(), argument.get_long()) {
        let _ = write!(head, "\\fB\\-{short}\\fR, ");
    }
    let shown = argument.to_string();
    let end = shown.find([' ', '[', '=', '<']).unwrap_or(shown.len());
    let (name, value) = shown.split_at(end);
    let _ = write!(head, "\\fB{}\\fR\\fI{}\\fR", escape(name), escape(value));
    let help = argument.get_long_help().or(argument.get_help());
    let mut help = help.map(ToString::to_string).unwrap_or_default();
    let is_taken = argument.get_action().takes_values();
    let defaults = argument.get_default_values();
    if is_taken && defaults.iter().any(|it| !it.is_empty()) && !argument.is_hide_default_value_set()
    {
        let defaults: Vec<_> = defaults.iter().map(|it| it.to_string_lossy()).collect();
        let _ = write!(help, " [default: {}]", defaults.join(" "));
    }
    let values = argument.get_possible_values();
    let values: Vec<&str> =
        values.iter().filter(|it| !it.is_hide_set()).map(|it| it.get_name()).collect();
    if is_taken && !values.is_empty() && !argument.is_hide_possible_values_set() {
        let _ = write!(help, " [possible values: {}]", values.join(", "));
    }
    write_item(&head, &help, page);
}

/// A line for the page of another verb.
fn write_reference(verb: &Command, page: &mut String) {
    let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
    write_item(&format!("\\fB{}\\fR(1)", escape(&page_name(verb))), &about, page);
}

fn write_item(head: &str, body: &str, page: &mut String) {
    let _ = write!(page, ".TP\n{head}\n{}\n", text(body.trim()).replace("\n\n", "\n.IP\n"));
}

fn write_paragraphs(paragraphs: &str, page: &mut String) {
    for paragraph in paragraphs.split("\n\n") {
        let lines: Vec<&str> = paragraph.lines().map(str::trim).collect();
        let _ = write!(page, ".PP\n{}\n", text(&lines.join("\n")));
    }
}

/// What follows the options in `--help`: blocks below a title, as they are, and paragraphs.
fn write_after_help(verb: &Command, page: &mut String) {
    let after = verb.get_after_long_help().or(verb.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    for block in after.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let (title, rest) = block.split_once('\n').unwrap_or((block, ""));
        let is_titled = title.ends_with(':') && rest.starts_with(' ');
        if !is_titled && !block.lines().skip(1).any(|line| line.starts_with(' ')) {
            write_paragraphs(block, page);
            continue;
        }
        let rest = if is_titled { rest } else { block };
        if is_titled {
            let _ = writeln!(page, ".SH {}", escape(&title.trim_end_matches(':').to_uppercase()));
        }
        page.push_str(".nf\n");
        for line in rest.lines() {
            let line = line.strip_prefix("  ").unwrap_or(line);
            let _ = writeln!(page, "\\&{}", escape(line));
        }
        page.push_str(".fi\n");
    }
}

/// Prose as roff: what stands between backticks is bold.
fn text(prose: &str) -> String {
    let pairs = prose.matches('`').count() / 2;
    let mut pieces = prose.split('`').enumerate();
    let mut made = String::new();
    for (number, piece) in pieces.by_ref() {
        let piece = escape(piece);
        match (number % 2, number / 2 < pairs) {
            (0, _) => made.push_str(&piece),
            (_, true) => made.push_str(&format!("\\fB{piece}\\fR")),
            (_, false) => made.push_str(&format!("\\(ga{piece}")),
        }
    }
    // A line that begins with one of these would be a request.
    let lines = made.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Characters that roff would take for something else, or print as typographic ones.
fn escape(text: &str) -> String {
    let mut made = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => made.push_str("\\e"),
            '-' => made.push_str("\\-"),
            '\'' => made.push_str("\\(aq"),
            '`' => made.push_str("\\(ga"),
            '^' => made.push_str("\\(ha"),
            '~' => made.push_str("\\(ti"),
            '"' => made.push_str("\\(dq"),
            _ => made.push(c),
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::{escape, pages, text};
    use crate::cmd::Cli;
    use clap::CommandFactory;

    #[test]
    fn each_verb_that_help_lists_has_a_page() {
        let pages = pages();
        for verb in Cli::command().get_subcommands() {
            let name = format!("tutti-{}", verb.get_name());
            let has = pages.iter().any(|(page, _)| *page == name);
            assert_eq!(has, !verb.is_hide_set(), "{name}");
        }
        let (_, drain) = pages.iter().find(|(name, _)| name == "tutti-nodes-drain").unwrap();
        assert!(drain.contains("\n\\fBtutti nodes drain\\fR [OPTIONS] <NODES>\n"), "{drain}");
    }

    #[test]
    fn pages_have_all_options_and_only_requests_that_are_known() {
        let known = [".TH", ".SH", ".SS", ".TP", ".PP", ".IP", ".br", ".nf", ".fi", ".\\\""];
        for (name, page) in pages() {
            for line in page.lines().filter(|line| line.starts_with(['.', '\''])) {
                let request = line.split(' ').next().unwrap();
                assert!(known.contains(&request), "{name}: {line}");
            }
            assert!(page.contains("\n.SH SYNOPSIS\n"), "{name}");
        }
        let pages = pages();
        let (_, run) = pages.iter().find(|(name, _)| name == "tutti-run").unwrap();
        for part in [
            "\\fB\\-n\\fR, \\fB\\-\\-tasks\\fR\\fI <N>\\fR\nNumber of tasks [default: 1,",
            "\n.SS Nodes\n",
            "\n.SH EXAMPLES\n.nf\n\\&tutti run make \\-j4 ",
            "\n.SH EXIT CODES OF RUN\n",
        ] {
            assert!(run.contains(part), "no {part:?} in {run}");
        }
    }

    #[test]
    fn roff_prints_texts_as_they_are() {
        assert_eq!(escape("a\\b-c 'd'"), "a\\eb\\-c \\(aqd\\(aq");
        assert_eq!(text("see `tutti ps -a`\n.x ` y"), "see \\fBtutti ps \\-a\\fR\n\\&.x \\(ga y");
    }
}
