//! `sacctmgr`, `sshare` and `sstat`: the few calls that programs make. There are no accounts; all
//! users are of one.

use super::format::{plain, push_fitted};
use super::jobs;
use super::options::{Known, Line, Order, flag, read, value};
use super::squeue::own_name;
use super::{print_version, wrong};
use std::ffi::OsString;
use tutti_client::output::print;

pub(super) use tutti_client::slurm::{ACCOUNT, QOS};

const OF_SACCTMGR: &[Known] = &[
    flag("associations", Some('s')),
    flag("help", Some('h')),
    flag("immediate", Some('i')),
    flag("json", None),
    flag("noheader", Some('n')),
    flag("oneliner", Some('o')),
    flag("parsable", Some('p')),
    flag("parsable2", Some('P')),
    flag("quiet", Some('Q')),
    flag("readonly", Some('r')),
    flag("usage", None),
    flag("verbose", Some('v')),
    flag("version", Some('V')),
];

const SACCTMGR_HELP: &str = "\
sacctmgr: only lists; there are no accounts, and all users are of one.

  sacctmgr -n -s list user ada format=account%256
  sacctmgr list cluster

`tutti bank`, `tutti weight` and `tutti queue` limit users and groups.
";

/// What one field of one row is.
type Value<'a> = &'a dyn Fn(&str) -> String;

pub(super) fn sacctmgr(words: &[OsString]) -> anyhow::Result<u8> {
    let line = read(OF_SACCTMGR, Order::Mixed, words);
    if line.has("help") || line.has("usage") {
        print(SACCTMGR_HELP)?;
        return Ok(0);
    }
    if line.has("version") {
        return print_version();
    }
    if !line.problems.is_empty() {
        return Ok(wrong("sacctmgr", &line.problems));
    }
    let rest: Vec<String> =
        line.rest.iter().map(|word| word.to_string_lossy().to_ascii_lowercase()).collect();
    let lists = ["list", "show"].iter().any(|verb| rest.first().is_some_and(|it| it == verb));
    let what = rest.get(1).map(String::as_str).unwrap_or_default();
    if !lists {
        say!(
            "sacctmgr: error: there are no accounts to change; `tutti bank`, `tutti weight` and \
             `tutti queue` limit users"
        );
        return Ok(1);
    }
    let default = match what {
        "cluster" | "clusters" => "Cluster,ControlHost",
        "account" | "accounts" => "Account,Descr,Org",
        "qos" => "Name,Priority",
        "user" | "users" | "association" | "associations" | "assoc" => "User,Account",
        other => {
            say!("sacctmgr: error: there is nothing of the kind {}", plain(other));
            return Ok(1);
        }
    };
    let format = rest.iter().find_map(|word| word.strip_prefix("format="));
    let user = rest.iter().skip(2).find_map(|word| match word.split_once('=') {
        Some(("user" | "users" | "name" | "names", user)) => Some(user.to_owned()),
        Some(_) => None,
        None => (what.starts_with("user") && word != "where").then(|| word.clone()),
    });
    let user = user.unwrap_or_else(own_name);
    let value = |field: &str| match field {
        "user" => user.clone(),
        "account" | "defaultaccount" | "def acct" => ACCOUNT.to_owned(),
        "cluster" => tutti_client::slurm::cluster_name(),
        "qos" | "name" | "defaultqos" => "normal".to_owned(),
        "descr" | "org" => ACCOUNT.to_owned(),
        "share" | "fairshare" | "priority" => "1".to_owned(),
        "admin" | "adminlevel" => "None".to_owned(),
        _ => String::new(),
    };
    print_row(&line, format.unwrap_or(default), &value)
}

const OF_SSHARE: &[Known] = &[
    flag("all", Some('a')),
    value("accounts", Some('A')),
    value("cluster", None),
    value("clusters", Some('M')),
    value("format", Some('o')),
    value("Format", None),
    flag("help", None),
    flag("long", Some('l')),
    flag("noheader", Some('n')),
    flag("parsable", Some('p')),
    flag("parsable2", Some('P')),
    flag("usage", None),
    flag("Users", Some('U')),
    value("users", Some('u')),
    flag("verbose", Some('v')),
    flag("version", Some('V')),
];

const SSHARE_HELP: &str = "\
sshare: the one account that all users are of; `tutti report` shows what users got.

  sshare -U --format Account%256 --noheader
";

pub(super) fn sshare(words: &[OsString]) -> anyhow::Result<u8> {
    let line = read(OF_SSHARE, Order::Mixed, words);
    if line.has("help") || line.has("usage") {
        print(SSHARE_HELP)?;
        return Ok(0);
    }
    if line.has("version") {
        return print_version();
    }
    if !line.problems.is_empty() {
        return Ok(wrong("sshare", &line.problems));
    }
    let user = line.last("users").map_or_else(own_name, str::to_owned);
    let value = |field: &str| match field {
        "account" => ACCOUNT.to_owned(),
        "user" => user.clone(),
        "rawshares" | "normshares" | "fairshare" => "1".to_owned(),
        "rawusage" | "effectvusage" | "normusage" => "0".to_owned(),
        _ => String::new(),
    };
    let format = line.last("format").or_else(|| line.last("Format"));
    print_row(
        &line,
        format.unwrap_or("Account,User,RawShares,NormShares,RawUsage,FairShare"),
        &value,
    )
}

const OF_SSTAT: &[Known] = &[
    flag("allsteps", Some('a')),
    value("format", Some('o')),
    flag("help", Some('h')),
    flag("helpformat", Some('e')),
    value("jobs", Some('j')),
    flag("noconvert", None),
    flag("noheader", Some('n')),
    flag("parsable", Some('p')),
    flag("parsable2", Some('P')),
    flag("pidformat", Some('i')),
    flag("usage", None),
    flag("verbose", Some('v')),
    flag("version", Some('V')),
];

const SSTAT_HELP: &str = "\
sstat: what running jobs have used so far; `tutti ps -l` shows more.

  sstat -j 7 -o JobID,MaxRSS,AveCPU
";

pub(super) fn sstat(words: &[OsString]) -> anyhow::Result<u8> {
    let line = read(OF_SSTAT, Order::Mixed, words);
    if line.has("help") || line.has("usage") || line.has("helpformat") {
        print(SSTAT_HELP)?;
        return Ok(0);
    }
    if line.has("version") {
        return print_version();
    }
    let wanted = line.items("jobs");
    if !line.problems.is_empty() || wanted.is_empty() {
        let mut problems = line.problems;
        problems.extend(wanted.is_empty().then(|| "name jobs with -j".to_owned()));
        return Ok(wrong("sstat", &problems));
    }
    let format = line.last("format").unwrap_or("JobID,MaxRSS,AveCPU,NTasks");
    let (mut exit, mut is_first) = (0, true);
    for word in wanted {
        let found = jobs::number(&word).map(jobs::with_usage).transpose()?.flatten();
        let Some(job) = found else {
            say!("sstat: error: job {} is not running", plain(&word));
            exit = 1;
            continue;
        };
        let usage = job.report.usage.unwrap_or_default();
        let kib = |bytes: u64| format!("{}K", bytes >> 10);
        let value = |field: &str| match field {
            "jobid" if job.is_batch() => format!("{}.batch", job.id()),
            "jobid" => format!("{}.0", job.id()),
            "ntasks" => job.report.tasks.to_string(),
            "maxrss" | "averss" | "maxvmsize" | "avevmsize" => kib(usage.memory_peak_bytes),
            "maxdiskread" | "avediskread" => kib(usage.read_bytes),
            "maxdiskwrite" | "avediskwrite" => kib(usage.written_bytes),
            "avecpu" | "mincpu" => {
                let all = usage.user_us.saturating_add(usage.system_us) / 1_000_000;
                super::format::duration(all / u64::from(job.report.tasks.max(1)))
            }
            "nodelist" => tutti_wire::host_list::format_host_list(job.nodes()),
            _ => String::new(),
        };
        print(&rows(&line, format, &value, is_first))?;
        is_first = false;
    }
    Ok(exit)
}

fn print_row(line: &Line, format: &str, value: Value<'_>) -> anyhow::Result<u8> {
    print(&rows(line, format, value, true))?;
    Ok(0)
}

/// A row, below its headings.
fn rows(line: &Line, format: &str, value: Value<'_>, is_first: bool) -> String {
    /// The width of a column that names none.
    const WIDTH: isize = 10;
    let fields: Vec<(String, isize)> = format
        .split(',')
        .filter(|item| !item.is_empty())
        .map(|item| {
            let (name, width) = item.split_once('%').unwrap_or((item, ""));
            (name.to_owned(), width.parse().unwrap_or(WIDTH).clamp(-4096, 4096))
        })
        .collect();
    let show = |of: &dyn Fn(&str) -> String| -> String {
        let cells = fields.iter().map(|(name, width)| {
            let text = plain(&of(name)).into_owned();
            match line.has("parsable") || line.has("parsable2") {
                true => text,
                false => {
                    let mut cell = String::new();
                    push_fitted(&mut cell, &text, width.unsigned_abs(), *width > 0);
                    cell + " "
                }
            }
        });
        let cells: Vec<String> = cells.collect();
        match (line.has("parsable2"), line.has("parsable")) {
            (true, _) => cells.join("|") + "\n",
            (_, true) => cells.join("|") + "|\n",
            _ => cells.concat() + "\n",
        }
    };
    let mut text = String::new();
    if is_first && !line.has("noheader") {
        text.push_str(&show(&str::to_owned));
        if !line.has("parsable") && !line.has("parsable2") {
            text.push_str(&show(&|_| "-".repeat(4096)));
        }
    }
    text + &show(&|name| value(&name.to_ascii_lowercase()))
}
