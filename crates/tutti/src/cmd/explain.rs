//! `tutti explain`: what the codes of messages mean.

use clap::Args;
use serde::Serialize;
use tutti_client::output::{fold, print, print_json, terminal_width};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_wire::code::{Code, Entry, TABLE};

const EXAMPLES: &str = "\
Examples:
  tutti explain T021           what happened, and what to do
  tutti explain                all codes, a line each";

/// Columns of a line, on the page and where there is no terminal.
const COLUMNS: usize = 100;

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// As JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// All of them, as docs/reference/errors.md has them
    #[arg(long, hide = true, conflicts_with = "codes")]
    markdown: bool,

    /// Codes, such as T021 [default: all]
    #[arg(value_name = "CODE")]
    codes: Vec<String>,
}

#[derive(Serialize)]
struct Shown {
    code: Code,
    happened: &'static str,
    did: &'static str,
    can_do: &'static str,
}

impl From<&'static Entry> for Shown {
    fn from(&Entry { code, happened, did, can_do }: &'static Entry) -> Self {
        Self { code, happened, did, can_do }
    }
}

pub(crate) fn execute(args: &ExplainArgs) -> anyhow::Result<Exit> {
    let asked = args.codes.iter().map(|text| entry(text)).collect::<anyhow::Result<Vec<_>>>()?;
    match asked[..] {
        [] if args.json => print_json(&TABLE.iter().map(Shown::from).collect::<Vec<_>>())?,
        [] if args.markdown => print(&markdown())?,
        [] => {
            let line = |entry: &Entry| format!("{}  {}\n", entry.code, entry.happened);
            print(&TABLE.iter().map(line).collect::<String>())?;
        }
        [one] if args.json => print_json(&Shown::from(one))?,
        _ if args.json => print_json(&asked.into_iter().map(Shown::from).collect::<Vec<_>>())?,
        _ => print(&asked.into_iter().map(told).collect::<Vec<_>>().join("\n"))?,
    }
    Ok(Exit::OK)
}

fn entry(text: &str) -> anyhow::Result<&'static Entry> {
    let code = Code::parse(text).ok_or_else(|| coded(Code::BadValue, unknown(text)))?;
    Ok(code.entry())
}

/// What there is to say of a code, in lines.
fn told(entry: &Entry) -> String {
    let Entry { code, happened, did, can_do } = entry;
    let lines = [
        format!("{code}: {happened}"),
        format!("What Tutti did: {did}"),
        format!("What you can do: {can_do}"),
    ];
    let width = terminal_width().unwrap_or(COLUMNS);
    lines.map(|line| fold(&line, width).join("\n") + "\n").concat()
}

/// A user that mistypes a number means one that is near.
fn unknown(text: &str) -> String {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let near = digits.parse::<u16>().ok().and_then(|number| {
        TABLE.iter().map(|entry| entry.code).min_by_key(|code| number.abs_diff(*code as u16))
    });
    match near {
        Some(near) => format!(
            "there is no code {text}; the nearest is {near}: {} `tutti explain` lists all",
            near.entry().happened
        ),
        None => format!("{text:?} is no code, such as T021; `tutti explain` lists all"),
    }
}

fn markdown() -> String {
    let mut page = String::from(
        "# Codes of messages\n\n\
         Every message about an error, a refusal or a loss ends its first line with a code.\n\
         `tutti explain CODE` prints what is here. A job that did not end by itself has its code in\n\
         the JSON of `ps` and `history` (`code`). The meaning of a code never changes.\n\n\
         This page is made from the table in `crates/wire/src/code.rs`:\n\
         `tutti explain --markdown > docs/reference/errors.md`.\n",
    );
    // An item of a list, of which further lines are indented.
    let item = |text: String| fold(&text, COLUMNS - 2).join("\n  ");
    for Entry { code, happened, did, can_do } in TABLE {
        let did = item(format!("What Tutti did: {did}"));
        let can_do = item(format!("What you can do: {can_do}"));
        let happened = fold(happened, COLUMNS).join("\n");
        page.push_str(&format!("\n## {code}\n\n{happened}\n\n- {did}\n- {can_do}\n"));
    }
    page
}
