//! `tutti reference`: what is made from code: the pages of `docs/reference/`, manual pages, the
//! unit.

use super::Cli;
use clap::{Args, Command, CommandFactory, ValueEnum};
use std::path::{Path, PathBuf};
use tutti_client::output::{fold, print};
use tutti_keeper::{SLURM_VARIABLES, VARIABLES};
use tutti_node::exit::{self, Exit};
use tutti_types::class::RULES;
use tutti_types::param::{Range, Shown};
use tutti_types::params::{TABLE, policies_of};
use tutti_types::{Param, default_classes};

/// Columns of a page.
const WIDTH: usize = 100;

#[derive(Args, Debug)]
pub(crate) struct ReferenceArgs {
    /// The page to print
    page: Page,

    /// Directory for manual pages
    #[arg(required_if_eq("page", "man"))]
    directory: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Page {
    Verbs,
    Parameters,
    ExitCodes,
    Environment,
    Man,
    Unit,
}

pub(crate) fn execute(args: &ReferenceArgs) -> anyhow::Result<Exit> {
    let (name, body) = match args.page {
        Page::Verbs => ("verbs", verbs()),
        Page::Parameters => ("parameters", parameters()),
        Page::ExitCodes => ("exit-codes", exit_codes()),
        Page::Environment => ("environment", environment()),
        Page::Man => {
            let directory = args.directory.as_deref().unwrap_or(Path::new("."));
            let pages = super::man::write_pages(directory)?;
            print(&format!("{pages} pages in {}\n", directory.display()))?;
            return Ok(Exit::OK);
        }
        Page::Unit => {
            print(&tutti_node::service::packaged_unit()?)?;
            return Ok(Exit::OK);
        }
    };
    let (title, text) = body.split_once('\n').unwrap_or((&body, ""));
    let command = format!("`tutti reference {name} > docs/reference/{name}.md`");
    print(&format!("{title}\n\nThis page is made from code: {command}.\n{text}"))?;
    Ok(Exit::OK)
}

/// A paragraph, in lines.
fn paragraph(text: &str) -> String {
    fold(text, WIDTH).join("\n") + "\n"
}

fn verbs() -> String {
    let mut page = String::from("# Verbs\n\n`tutti VERB --help` prints the same.\n");
    let mut root = super::help::grouped(Cli::command()).term_width(WIDTH);
    root.build();
    let help = root.render_help().to_string();
    page.push_str(&format!("\n```text\n{}\n```\n", help.trim_end()));
    for verb in visible(&root) {
        write_verb(verb, 2, &mut page);
    }
    page
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

/// A verb, and those below it.
fn write_verb(verb: &Command, level: usize, page: &mut String) {
    let name = verb.get_bin_name().unwrap_or(verb.get_name());
    let marks = "#".repeat(level);
    let help = verb.clone().render_help().to_string();
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    page.push_str(&format!("\n{marks} {name}\n\n```text\n{}\n```\n", lines.join("\n")));
    for below in visible(verb) {
        write_verb(below, level + 1, page);
    }
}

fn parameters() -> String {
    let mut page = String::from(
        "# Parameters and rules of classes\n\n\
         `tutti params` shows all values and changes them, while jobs run. Lengths of time need a unit.\n\n\
         ## Parameters\n",
    );
    TABLE.iter().for_each(|param| write_param(param, &mut page));
    page.push_str("\n## Rules of a class\n\n`tutti params --class NAME RULE=VALUE` sets a rule.\n");
    RULES.iter().for_each(|rule| write_param(rule, &mut page));
    page.push_str("\n## Classes\n\nThese classes exist from the beginning. All other rules have the defaults above.\n");
    page.push_str("\n| class | rules |\n|---|---|\n");
    for (name, spec) in default_classes() {
        let differs = spec.iter().filter(|(rule, value)| *value != rule.default);
        let rules = differs.map(|(rule, value)| format!("`{}={}`", rule.name, Shown(rule, value)));
        page.push_str(&format!("| `{name}` | {} |\n", rules.collect::<Vec<_>>().join(" ")));
    }
    page
}

fn write_param(param: &'static Param, page: &mut String) {
    use tutti_types::param::Takes;
    let takes = match param.takes {
        Takes::Live => "at once, also for jobs that run",
        Takes::FromThenOn => "for jobs and decisions that come later",
    };
    page.push_str(&format!("\n### {}\n\n{}", param.name, paragraph(param.help)));
    let default = Shown(param, param.default);
    page.push_str(&format!("\n- Default: `{default}`\n- Values: {}\n", Range(param)));
    page.push_str(&format!("- A change takes effect {takes}.\n"));
    if let Some(policies) = policies_of(param.name) {
        page.push_str(&format!(
            "- Has an effect under `policy={}`.\n",
            policies.join("` or `policy=")
        ));
    }
}

fn exit_codes() -> String {
    let mut page = String::from(
        "# Exit codes\n\n## `tutti run` and `tutti wait`\n\n| code | meaning |\n|---|---|\n",
    );
    let (_, lines) = exit::TABLE.split_once('\n').unwrap_or_default();
    let mut rows: Vec<(String, String)> = Vec::new();
    for line in lines.lines() {
        match (line.trim_start().split_once("  "), rows.last_mut()) {
            // A line without a code goes on with the line before.
            (_, Some((_, meaning))) if line.starts_with("     ") => {
                meaning.push(' ');
                meaning.push_str(line.trim());
            }
            (Some((code, meaning)), _) => rows.push((code.into(), meaning.trim().into())),
            (None, _) => {}
        }
    }
    for (code, meaning) in rows {
        page.push_str(&format!("| {code} | {meaning} |\n"));
    }
    page.push_str("\n## Other verbs\n\n| code | meaning |\n|---|---|\n");
    for (exit, meaning) in exit::OTHER {
        page.push_str(&format!("| {} | {meaning} |\n", exit.code()));
    }
    page
}

fn environment() -> String {
    let mut page = String::from(
        "# Environment\n\n## Variables that `tutti` reads\n\n| variable | meaning |\n|---|---|\n",
    );
    for (name, meaning) in READ {
        page.push_str(&format!("| `{name}` | {meaning} |\n"));
    }
    page.push_str("\n## Variables that each task finds\n\n");
    page.push_str(&paragraph(
        "A task has the environment of its submitter, except what another launcher or an outer job set. \
         `MASTER_ADDR`, `MASTER_PORT`, `OMP_NUM_THREADS`, `PYTHONUNBUFFERED`, `TMPDIR` and the variables for `mpirun` \
         keep a value that the submitter has set. Tasks that are served by PMIx also find what its library sets \
         (`PMIX_...`), `OMPI_MCA_schizo` and `MPIR_CVAR_PMI_VERSION`; the latter two keep a value of the submitter. `--on-rank-failure notify` sets \
         `OMPI_MCA_mpi_ft_enable=1`, unless the submitter has.",
    ));
    page.push_str("\n| variable | meaning |\n|---|---|\n");
    for (name, meaning) in VARIABLES {
        page.push_str(&format!("| `{name}` | {meaning} |\n"));
    }
    page.push_str("\n## Variables of Slurm\n\n");
    page.push_str(&paragraph(
        "Only tasks of jobs that were submitted by a name of Slurm's, such as `sbatch`, or with `--slurm` find these.",
    ));
    page.push_str("\n| variable | meaning |\n|---|---|\n");
    for (name, meaning) in SLURM_VARIABLES {
        page.push_str(&format!("| `{name}` | {meaning} |\n"));
    }
    page
}

/// What verbs read of their environment.
pub(super) const READ: [(&str, &str); 14] = [
    ("TUTTI_DIR", "State directory of the instance to use, instead of the one that is found"),
    ("TUTTI_CLUSTER", "Name of the instance to use, where several share a machine"),
    ("TUTTI_QUEUE", "Queue of jobs that name none with `-q`; none: no queue"),
    ("TUTTI_SINGLETONS", "Accept several tasks of an Open MPI program, each a world of its own"),
    ("TUTTI_PMIX", "1: serve PMIx also where the program does not show that it loads Open MPI"),
    (
        "TUTTI_CRIU",
        "Command of CRIU, for daemons that root starts, instead of `criu` in the `PATH`",
    ),
    (
        "TUTTI_IMAGES",
        "Directory of images that nodes share, read by `tutti up` and `tutti join` of root",
    ),
    ("TUTTI_LIBPMIX", "Path of the PMIx library that serves Open MPI, instead of the one found"),
    (
        "TUTTI_SENDMAIL",
        "Mail program of notifications, read by `tutti up` [default: /usr/sbin/sendmail]",
    ),
    (
        "SSL_CERT_FILE",
        "Certificates that https webhooks of notifications trust, read by `tutti up`",
    ),
    ("NO_COLOR", "If not empty: no colours, unless by `--color=always`"),
    ("CLICOLOR_FORCE", "If not empty and not 0: colours also in files and pipes"),
    ("CLICOLOR", "0: no colours"),
    ("COLUMNS", "Width of tables, where the output is no terminal"),
];
