//! `tutti queue`.

use super::ask_of_the_past;
use clap::Args;
use tutti_client::ask::unexpected;
use tutti_client::output::{Align, Table, print, print_json, print_table};
use tutti_client::site_file::{self, FileOptions, Part, say_changes};
use tutti_node::codes::coded;
use tutti_node::exit::Exit;
use tutti_types::QueueName;
use tutti_wire::code::Code;
use tutti_wire::local::{Reply, Request, Section, Setting};
use tutti_wire::report::{QueueReport, QueueSetting};

const EXAMPLES: &str = "\
Examples:
  tutti queue                                    all queues
  tutti queue short user_jobs=2 job_time=1h      make a queue, or change it
  tutti queue short users=ada,@staff             only these may submit to it
  tutti queue short default_time=10m nodes=set:a defaults of its jobs
  tutti queue short default=yes                  for jobs that name none
  tutti queue short --during 'mon-fri 08:00-18:00' user_jobs=1
                                                 another limit in working hours
  tutti queue --toml                             all queues, as a file has them
  tutti queue --file site.toml --dry-run         what that file would change

Limits: jobs, waiting, processors, processor_time and memory of all jobs of the
queue; with user_ or group_ before them, of each user or group; job_processors
and job_time of one job. A value of none removes a limit.";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("how").args(["file", "toml", "preset", "remove"]))]
#[command(group = clap::ArgGroup::new("source").args(["file", "preset"]))]
pub(crate) struct QueueArgs {
    /// Name of a queue [default: show all]
    #[arg(value_name = "NAME", conflicts_with = "source")]
    name: Option<String>,

    /// Settings of the queue, such as user_jobs=2; makes it where there is none
    #[arg(value_name = "SETTING=VALUE", conflicts_with = "how")]
    settings: Vec<String>,

    /// Set limits for some hours of the week, such as "mon-fri 08:00-18:00"; LIMIT=same removes one
    #[arg(long, value_name = "HOURS", requires = "settings")]
    during: Option<String>,

    /// Remove the queue, once no job is in it
    #[arg(long, requires = "name")]
    remove: bool,

    #[command(flatten)]
    site: FileOptions,

    /// Make a set of queues that is built in: llnl-t3d, those of a published T3D
    #[arg(long, value_name = "SET")]
    preset: Option<String>,

    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn execute(args: &QueueArgs) -> anyhow::Result<Exit> {
    let typed = match &args.name {
        Some(name) => settings_of(args, name)?,
        None => Vec::new(),
    };
    let Some(lines) = args.site.run(Part::Queues, args.preset.as_deref(), typed)? else {
        return show(args);
    };
    if args.json {
        return show(args);
    }
    say_changes(&lines)?;
    Ok(Exit::OK)
}

/// What the command line sets of a queue.
fn settings_of(args: &QueueArgs, queue: &str) -> anyhow::Result<Vec<Setting>> {
    let setting = |name: &str, value: &str| Setting {
        line: 0,
        section: Section::Queue(QueueName::new(queue)),
        during: args.during.clone(),
        name: name.trim().into(),
        value: value.trim().into(),
    };
    if args.remove {
        return Ok(vec![setting("", "remove")]);
    }
    let each = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok(setting(name, value)),
        _ => {
            let reason = format!("{text:?} sets nothing; write SETTING=VALUE, such as user_jobs=2");
            Err(coded(Code::BadValue, reason))
        }
    };
    args.settings.iter().map(each).collect()
}

fn show(args: &QueueArgs) -> anyhow::Result<Exit> {
    let Reply::Queues(mut queues) = ask_of_the_past(&Request::Queues)? else {
        return unexpected();
    };
    if let Some(name) = &args.name {
        let names: Vec<String> = queues.iter().map(|queue| queue.name.clone()).collect();
        queues.retain(|queue| queue.name == *name);
        if queues.is_empty() {
            let known = match names.is_empty() {
                true => "and no other".into(),
                false => format!("the queues are {}", names.join(", ")),
            };
            let reason =
                format!("there is no queue {name}, {known}; user_jobs=2 behind the name makes it");
            return Err(coded(Code::NoQueue, reason));
        }
    }
    match (args.site.toml, args.json, &args.name) {
        (true, ..) => print(&site_file::queues(&queues))?,
        (false, true, _) => print_json(&queues)?,
        (false, false, Some(_)) => print_table(&settings_table(&queues[0]))?,
        (false, false, None) => print_table(&table(&queues))?,
    }
    Ok(Exit::OK)
}

fn table(queues: &[QueueReport]) -> Table {
    let mut table = Table::new(&[
        ("QUEUE", Align::Left),
        ("RUNNING", Align::Right),
        ("WAITING", Align::Right),
        ("PROCESSORS", Align::Right),
        ("SETTINGS", Align::Left),
    ]);
    for queue in queues {
        table.row([
            queue.name.clone(),
            queue.running.to_string(),
            queue.waiting.to_string(),
            queue.processors.to_string(),
            queue.settings.iter().map(shown).collect::<Vec<_>>().join(" "),
        ]);
    }
    table
}

fn shown(setting: &QueueSetting) -> String {
    let QueueSetting { during, name, value } = setting;
    match during {
        Some(during) => format!("{name}={value} ({during})"),
        None => format!("{name}={value}"),
    }
}

fn settings_table(queue: &QueueReport) -> Table {
    let mut table = Table::new(&[
        ("SETTING", Align::Left),
        ("VALUE", Align::Right),
        ("NOW", Align::Right),
        ("HOURS", Align::Left),
    ]);
    for QueueSetting { during, name, value } in &queue.settings {
        let now = queue.limits.iter().find(|limit| limit.name == *name);
        let now = now.map_or("-", |limit| limit.value.as_str());
        let hours = during.as_deref().unwrap_or("all");
        table.row([name.clone(), value.clone(), now.into(), hours.into()]);
    }
    for (name, value) in [
        ("jobs running", queue.running),
        ("jobs waiting", queue.waiting),
        ("processors in use", queue.processors),
    ] {
        table.row([name.into(), value.to_string(), "-".into(), "-".into()]);
    }
    table
}
