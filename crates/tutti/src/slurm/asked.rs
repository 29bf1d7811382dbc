//! What options of `sbatch` and `srun` ask for, in the options of Tutti's verbs.
//!
//! Options with a counterpart are translated by the reader of `#SBATCH` lines
//! ([`tutti_wire::script::from_sbatch`]), which rejects those without. Here is what more the face
//! accepts: partitions, counted resources, sets of nodes, ranges of nodes, the environment; and
//! what it notes where the reader would reject.

use super::accounts::{ACCOUNT, QOS};
use super::cluster::Cluster;
use super::options::no_cluster;
use tutti_types::Per;
use tutti_wire::constraint::parse_constraint;
use tutti_wire::script::{Script, from_sbatch};
use tutti_wire::units::{parse_bytes, parse_count, shown};

/// An option with where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// `line 3: `, `SBATCH_GRES: ` or nothing, as messages begin.
    pub(super) origin: String,
    pub(super) name: &'static str,
    pub(super) value: Option<String>,
}

/// What of the environment a job gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Export {
    /// All of it, and these.
    #[default]
    All,
    /// All of it, and these variables otherwise.
    AllAnd(Vec<(String, String)>),
    /// What a login gives, and these: names alone are taken over.
    Only(Vec<(String, Option<String>)>),
}

/// What options come to.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// Options of Tutti's, each set with the number of its source.
    pub(super) script: Script,
    /// What has no effect though it may matter.
    pub(super) notes: Vec<String>,
    /// What has no effect and can't change what runs.
    pub(super) quiet: Vec<String>,
    /// What is wrong.
    pub(super) problems: Vec<String>,
    pub(super) export: Export,
    /// `--clusters`.
    pub(super) cluster: Option<String>,
    sources: Vec<Source>,
}

impl Asked {
    /// The place of a source, as a message begins with it.
    pub(super) fn origin(&self, number: u32) -> &str {
        let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        index.and_then(|index| self.sources.get(index)).map_or("", |source| &source.origin)
    }
}

/// Of options in one row, the one that was given last holds.
const EXCLUDE_EACH_OTHER: [&[&str]; 4] = [
    &["mem", "mem-per-cpu", "mem-per-gpu"],
    &["ntasks-per-node", "tasks-per-node"],
    &["exclusive", "oversubscribe", "share"],
    &["requeue", "no-requeue"],
];

/// Options that the reader of scripts rejects and that can't change what runs here.
const QUIET: [&str; 21] = [
    "batch",
    "cluster-constraint",
    "core-spec",
    "gpu-bind",
    "gpu-freq",
    "gres-flags",
    "mincpus",
    "network",
    "reboot",
    "resv-ports",
    "segment",
    "stepmgr",
    "thread-spec",
    "tmp",
    "tres-bind",
    "overcommit",
    "bb",
    "bbf",
    "delay-boot",
    "power",
    "container-id",
];

/// Options that may matter, and are accepted with a note.
const NOTED: [(&str, &str); 5] = [
    ("account", "there are no accounts"),
    ("qos", "there are no QOS; a partition is a queue or a class"),
    ("reservation", "there are no reservations"),
    ("deadline", "the job keeps no deadline"),
    ("tres-per-task", "ask with --cpus-per-task and --gpus-per-task"),
];

/// Whether an option names something of the cluster, so that it has to be asked.
pub(super) fn names_something(option: &str) -> bool {
    const OTHERS: [&str; 6] = ["partition", "account", "qos", "constraint", "gres", "licenses"];
    OTHERS.contains(&option) || option.starts_with("gpus")
}

/// What these options ask for, the earlier sources before the later ones, which hold.
pub(super) fn understand(sources: Vec<Source>, cluster: &Cluster) -> Asked {
    let mut asked = Asked { sources: last_of_each(sources), ..Asked::default() };
    let counts = Counts::of(&asked.sources);
    let mut gpus = Vec::new();
    let mut words: Vec<(u32, Vec<String>)> = Vec::new();
    let mut plain: Vec<(u32, &'static str, Option<String>)> = Vec::new();
    for (number, source) in (1u32..).zip(&asked.sources.clone()) {
        let value = source.value.as_deref().unwrap_or_default();
        let origin = &source.origin;
        match source.name {
            "partition" => match partition(value, cluster) {
                Ok(option) => words.push((number, vec![option])),
                Err(_) if cluster.is_strict => asked.problems.push(unknown(source)),
                Err(note) => asked.notes.push(format!("{origin}{note}")),
            },
            "constraint" => match constraint(value, cluster) {
                Ok(option) => words.push((number, vec![option])),
                Err(note) => asked.notes.push(format!("{origin}{note}")),
            },
            "gres" | "gpus" | "gpus-per-node" | "gpus-per-task" | "gpus-per-socket" => {
                match counted(source.name, value, counts) {
                    Ok(found) => gpus.extend(found.into_iter().map(|it| (number, it))),
                    Err(problem) => asked.problems.push(format!("{origin}{problem}")),
                }
            }
            "licenses" => match licences(value, cluster) {
                Ok(options) => words.push((number, options)),
                Err(problem) => asked.problems.push(format!("{origin}{problem}")),
            },
            "export" => asked.export = export(value),
            "clusters" => asked.note_clusters(source),
            "begin" if value.is_empty() => {}
            "uid" | "gid" if is_own(source.name, value) => {}
            "mem" if parse_bytes(value) == Ok(0) => {
                asked.quiet.push(format!("{origin}--mem=0: memory is not limited"));
            }
            name if QUIET.contains(&name) => asked.quiet.push(format!("{origin}--{name}")),
            "account" | "qos" if cluster.is_strict => {
                let only = if source.name == "qos" { QOS } else { ACCOUNT };
                if value != only {
                    asked.problems.push(unknown(source));
                }
            }
            name => match NOTED.iter().find(|(noted, _)| *noted == name) {
                Some((_, why)) => {
                    asked
                        .notes
                        .push(format!("{origin}--{name}={} has no effect: {why}", shown(value)));
                }
                None => plain.push((number, name, source.value.clone())),
            },
        }
    }
    let total = gpu_total(&gpus);
    resources(gpus, cluster, &mut words, &mut asked);
    let plain: Vec<_> = plain.into_iter().map(|it| rewritten(it, counts, total)).collect();
    let mut script =
        from_sbatch(plain.iter().map(|(number, name, value)| (*number, *name, value.as_deref())));
    for (line, words) in words {
        script.directives.push(tutti_wire::script::Directive { line, words });
    }
    for note in &script.notes {
        asked.quiet.push(format!("{}{}", asked.origin(note.line), note.about));
    }
    asked.script = script;
    asked
}

impl Asked {
    /// Clusters are named, of which there is one.
    fn note_clusters(&mut self, source: &Source) {
        let value = source.value.as_deref().unwrap_or_default();
        let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
        let mut unknown = names.filter_map(no_cluster);
        let own = tutti_client::slurm::cluster_name();
        let origin = &source.origin;
        match unknown.next() {
            // Scripts bring the names of other sites.
            Some(_) if !origin.is_empty() => self.notes.push(format!(
                "{origin}--clusters={} has no effect: this is cluster {own}",
                shown(value)
            )),
            Some(problem) => self.problems.push(problem),
            None => {}
        }
        self.cluster = Some(own);
    }
}

/// What is said of a partition, an account or a QOS that is not there, where these are rejected.
fn unknown(source: &Source) -> String {
    let value = shown(source.value.as_deref().unwrap_or_default());
    let what = match source.name {
        "partition" => "invalid partition specified".to_owned(),
        "qos" => format!("invalid QOS, the only one is {QOS}"),
        _ => format!("invalid account, the only one is {ACCOUNT}"),
    };
    format!("{}{what}: {value}", source.origin)
}

/// Each option where it was given last.
fn last_of_each(sources: Vec<Source>) -> Vec<Source> {
    let row = |name: &'static str| -> Vec<&'static str> {
        let row = EXCLUDE_EACH_OTHER.iter().find(|row| row.contains(&name));
        row.map_or_else(|| vec![name], |row| row.to_vec())
    };
    let mut kept: Vec<Source> = Vec::new();
    for source in sources {
        let row = row(source.name);
        kept.retain(|before| !row.contains(&before.name));
        kept.push(source);
    }
    kept
}

/// How many tasks and nodes are asked for, as far as that is plain.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    tasks: Option<u32>,
    nodes: u32,
    /// Whether the number of processors for each task was given.
    has_processors: bool,
}

impl Counts {
    fn of(sources: &[Source]) -> Self {
        let value = |name: &str| {
            let found = sources.iter().find(|source| source.name == name);
            found.and_then(|source| source.value.as_deref())
        };
        let count = |name: &str| value(name).and_then(|value| parse_count(value).ok());
        let nodes = value("nodes").and_then(|value| parse_count(least(value)).ok()).unwrap_or(1);
        let each = count("ntasks-per-node").or_else(|| count("tasks-per-node"));
        let tasks = count("ntasks").or_else(|| Some(nodes.saturating_mul(each?)));
        Self { tasks, nodes: nodes.max(1), has_processors: value("cpus-per-task").is_some() }
    }

    fn tasks(self) -> u32 {
        self.tasks.unwrap_or(self.nodes).max(1)
    }
}

/// The least of a range such as `2-4`.
fn least(value: &str) -> &str {
    value.split(['-', ':']).next().unwrap_or(value)
}

/// An option as the reader of scripts takes it.
fn rewritten(
    (number, name, value): (u32, &'static str, Option<String>),
    counts: Counts,
    gpus: u32,
) -> (u32, &'static str, Option<String>) {
    let text = value.as_deref().unwrap_or_default();
    let count = || parse_count(text).ok();
    match name {
        "nodes" => (number, name, Some(least(text).to_owned())),
        "exclusive" | "no-kill" | "requeue" => (number, name, None),
        "ntasks-per-gpu" if counts.tasks.is_none() && gpus > 0 => match count() {
            Some(each) => (number, "ntasks", Some(each.saturating_mul(gpus).to_string())),
            None => (number, "ntasks", value),
        },
        "ntasks-per-gpu" => (number, "comment", Some(String::new())),
        "cpus-per-gpu" if !counts.has_processors && gpus > 0 => match count() {
            Some(each) => {
                let all = each.saturating_mul(gpus).div_ceil(counts.tasks());
                (number, "cpus-per-task", Some(all.to_string()))
            }
            None => (number, "cpus-per-task", value),
        },
        "cpus-per-gpu" => (number, "comment", Some(String::new())),
        "mem-per-gpu" => {
            let plain = text.bytes().all(|byte| byte.is_ascii_digit());
            let bytes = parse_bytes(&if plain { format!("{text}M") } else { text.to_owned() });
            let on_a_node = u64::from(gpus.div_ceil(counts.nodes).max(1));
            match bytes {
                Ok(bytes) => {
                    let all = (bytes.saturating_mul(on_a_node) >> 10).to_string();
                    (number, "mem", Some(format!("{all}K")))
                }
                Err(_) => (number, "mem", value),
            }
        }
        _ => (number, name, value),
    }
}

/// The queue or class of the first name that is one.
fn partition(value: &str, cluster: &Cluster) -> Result<String, String> {
    let found = value.split(',').find_map(|name| cluster.partition(name.trim()));
    match found {
        Some(found) if found.is_queue => Ok(format!("--queue={}", found.name)),
        Some(found) => Ok(format!("--class={}", found.name)),
        None => Err(format!(
            "--partition={} has no effect: there is no such queue or class (`sinfo` lists them)",
            shown(value)
        )),
    }
}

fn constraint(value: &str, cluster: &Cluster) -> Result<String, String> {
    let text = value.trim_matches(['"', '\'']);
    let no_effect =
        |reason: String| format!("--constraint={} has no effect: {reason}", shown(value));
    let read = parse_constraint(text).map_err(|error| no_effect(error.to_string()))?;
    let is_known = |name: &&str| cluster.features.iter().any(|feature| feature == name);
    match read.names().find(|name| !is_known(name)) {
        None => Ok(format!("--constraint={text}")),
        Some(name) => {
            Err(no_effect(format!("no node has the feature {name} (see `tutti nodes features`)")))
        }
    }
}

/// A resource with its type, if that is named, and a count.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Want {
    name: String,
    kind: Option<String>,
    /// As many as the job needs in all.
    count: u32,
    /// The same as devices of nodes: how many, and for what.
    devices: (u32, Per),
}

/// The resources that a value names, as many as the job needs in all.
fn counted(option: &str, value: &str, counts: Counts) -> Result<Vec<Want>, String> {
    let (times, per) = match option {
        "gpus-per-task" => (counts.tasks(), Per::Task),
        "gpus" => (1, Per::Job),
        _ => (counts.nodes, Per::Node),
    };
    let mut found = Vec::new();
    let value = value.trim();
    for item in value.split(',').map(str::trim).filter(|it| !it.is_empty() && *it != "none") {
        let wrong = || format!("--{option}={}: write NAME[:TYPE][:COUNT]", shown(value));
        let item =
            item.strip_prefix("gres/").or_else(|| item.strip_prefix("gres:")).unwrap_or(item);
        let item = item.split('(').next().unwrap_or(item);
        let mut parts: Vec<&str> = item.split([':', '=']).collect();
        let count = match parts.last().and_then(|last| parse_count(last).ok()) {
            Some(count) => {
                parts.pop();
                count
            }
            None => 1,
        };
        if option != "gres" {
            parts.insert(0, "gpu");
        }
        let (name, kind) = match parts[..] {
            [name] if !name.is_empty() => (name, None),
            [name, kind] if !name.is_empty() => (name, Some(kind.to_owned())),
            _ => return Err(wrong()),
        };
        if count > 0 {
            let (devices, count) = ((count, per), count.saturating_mul(times));
            found.push(Want { name: name.to_owned(), kind, count, devices });
        }
    }
    Ok(found)
}

/// What a step asks of GPUs that its job does not have. `Err`: the job has fewer.
///
/// # Errors
/// If a value can't be read, or more is asked for than there is.
pub(super) fn gpus_of_step(
    given: &[(&'static str, &str)],
    (on_node, nodes): (Option<u32>, u32),
) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    for &(name, value) in given {
        let wants = counted(name, value, Counts { tasks: Some(1), ..Counts::default() })?;
        for want in wants.into_iter().filter(|want| want.name == "gpu") {
            let (count, per) = want.devices;
            // Where they are spread over nodes, only this one's are known.
            let is_known = nodes == 1 || per != Per::Job;
            let option = format!("--{name}={}", shown(value));
            match on_node {
                Some(has) if count > has && is_known => {
                    return Err(format!(
                        "{option}: Invalid generic resource (gres) specification: the job has \
                         {has} GPUs on this node"
                    ));
                }
                Some(_) => {}
                None => notes.push(format!("{option} has no effect: the job has no GPUs")),
            }
        }
    }
    Ok(notes)
}

/// How many GPUs are wanted in all.
fn gpu_total(wants: &[(u32, Want)]) -> u32 {
    wants
        .iter()
        .filter(|(_, want)| want.name == "gpu")
        .map(|(_, want)| want.count)
        .max()
        .unwrap_or(0)
}

/// Asks for the devices that nodes have and for the resources that the cluster counts; notes the
/// others.
fn resources(
    wants: Vec<(u32, Want)>,
    cluster: &Cluster,
    words: &mut Vec<(u32, Vec<String>)>,
    asked: &mut Asked,
) {
    // Several options about GPUs say how the same ones are spread.
    let mut most: Vec<(u32, String, u32)> = Vec::new();
    let mut devices: Vec<(u32, String, (u32, Per))> = Vec::new();
    for (number, want) in wants {
        let on_nodes = |name: &String| cluster.devices.contains(name);
        if let Some(name) =
            [want.kind.as_ref(), Some(&want.name)].into_iter().flatten().find(|it| on_nodes(it))
        {
            match devices.iter_mut().find(|(_, known, _)| known == name) {
                // How many there are on each node says the most.
                Some((.., known)) if known.1 != Per::Node => *known = want.devices,
                Some(_) => {}
                None => devices.push((number, name.clone(), want.devices)),
            }
            continue;
        }
        let has = |name: &String| cluster.resources.contains(name);
        let name = want.kind.filter(has).unwrap_or(want.name);
        if !has(&name) {
            let note = format!(
                "{}{name}:{} has no effect: no node has such a device (see `tutti nodes device`), \
                 and no such resource is counted (see `tutti resource`)",
                asked.origin(number),
                want.count
            );
            asked.notes.push(note);
            continue;
        }
        match most.iter_mut().find(|(_, known, _)| *known == name) {
            Some((_, _, count)) => *count = want.count.max(*count),
            None => most.push((number, name, want.count)),
        }
    }
    for (number, name, (count, per)) in devices {
        let per = match per {
            Per::Job => "",
            Per::Node => "/node",
            Per::Task => "/task",
        };
        words.push((number, vec![format!("--device={name}:{count}{per}")]));
    }
    for (number, name, count) in most {
        words.push((number, vec![format!("--resource={name}:{count}")]));
    }
}

fn licences(value: &str, cluster: &Cluster) -> Result<Vec<String>, String> {
    let mut options = Vec::new();
    for item in value.split([',', '|']).map(str::trim).filter(|item| !item.is_empty()) {
        let (name, count) = match item.split_once([':', '=', '*']) {
            Some((name, count)) => (name, parse_count(count).ok()),
            None => (item, Some(1)),
        };
        let name = name.split('@').next().unwrap_or(name);
        let (Some(count), true) = (count, cluster.resources.iter().any(|it| it == name)) else {
            return Err(format!(
                "--licenses={}: no resource {} is counted here (`tutti resource` lists them)",
                shown(value),
                shown(name)
            ));
        };
        options.push(format!("--resource={name}:{count}"));
    }
    Ok(options)
}

fn export(value: &str) -> Export {
    let mut all = false;
    let mut listed = Vec::new();
    for item in value.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match item {
            "ALL" => all = true,
            "NONE" | "NIL" => {}
            _ => listed.push(match item.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (item.to_owned(), None),
            }),
        }
    }
    match (all, listed.is_empty()) {
        (true, true) => Export::All,
        (true, false) => {
            let set = listed.into_iter().filter_map(|(name, value)| Some((name, value?)));
            Export::AllAnd(set.collect())
        }
        (false, _) => Export::Only(listed),
    }
}

/// Whether a user or group is the caller's.
fn is_own(option: &str, value: &str) -> bool {
    use nix::unistd::{Group, Uid, User, getegid, geteuid};
    match option {
        "uid" => {
            let named = User::from_name(value).ok().flatten().map(|user| user.uid);
            named.or_else(|| value.parse().ok().map(Uid::from_raw)) == Some(geteuid())
        }
        _ => {
            let named = Group::from_name(value).ok().flatten().map(|group| group.gid.as_raw());
            named.or_else(|| value.parse().ok()) == Some(getegid().as_raw())
        }
    }
}

/// Variables that a job gets that was not to have its submitter's.
const OF_A_LOGIN: [&[u8]; 12] = [
    b"HOME",
    b"USER",
    b"LOGNAME",
    b"SHELL",
    b"PATH",
    b"LANG",
    b"TERM",
    b"TZ",
    b"MAIL",
    b"TMPDIR",
    b"TUTTI_DIR",
    b"TUTTI_CLUSTER",
];

/// The environment that a job gets of this one.
pub(super) fn exported(all: Vec<Vec<u8>>, export: &Export) -> Vec<Vec<u8>> {
    let name_of = |pair: &[u8]| pair.split(|byte| *byte == b'=').next().unwrap_or(pair).to_vec();
    let is_slurms = |name: &[u8]| name.starts_with(b"SLURM_");
    let (mut kept, set): (Vec<Vec<u8>>, Vec<(String, String)>) = match export {
        Export::All => return all,
        Export::AllAnd(set) => (all, set.clone()),
        Export::Only(listed) => {
            let is_listed = |name: &[u8]| {
                listed.iter().any(|(it, value)| value.is_none() && it.as_bytes() == name)
            };
            let is_kept = |pair: &Vec<u8>| {
                let name = name_of(pair);
                OF_A_LOGIN.contains(&&name[..]) || is_slurms(&name) || is_listed(&name)
            };
            let set =
                listed.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
            (all.into_iter().filter(is_kept).collect(), set.collect())
        }
    };
    for (name, value) in set {
        kept.retain(|pair| name_of(pair) != name.as_bytes());
        kept.push(format!("{name}={value}").into_bytes());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::{Export, export, exported, gpus_of_step};

    fn kept(value: &str) -> String {
        let all = ["HOME=/h", "PATH=/bin", "X=1", "Y=2", "SLURM_SUBMIT_DIR=/d"];
        let all = all.iter().map(|pair| pair.as_bytes().to_vec()).collect();
        let kept = exported(all, &export(value)).into_iter();
        kept.map(|pair| String::from_utf8(pair).unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_step_has_no_more_gpus_than_its_job() {
        let said = |given, has| match gpus_of_step(&[given], has) {
            Ok(notes) => notes.join("; "),
            Err(problem) => problem,
        };
        assert_eq!(said(("gpus", "2"), (Some(2), 1)), "");
        assert_eq!(said(("gpus-per-task", "1"), (Some(2), 4)), "");
        assert_eq!(said(("gres", "license:3"), (Some(2), 1)), "");
        assert_eq!(said(("gpus", "3"), (Some(2), 2)), "", "the other node may have one");
        for (given, has) in [
            (("gpus", "3"), (Some(2), 1)),
            (("gres", "gpu:a100:3"), (Some(2), 4)),
            (("gpus-per-node", "3"), (Some(2), 4)),
        ] {
            assert!(said(given, has).contains("the job has 2 GPUs on this node"), "{given:?}");
        }
        let none = "--gpus=1 has no effect: the job has no GPUs";
        assert_eq!(said(("gpus", "1"), (None, 1)), none);
    }

    #[test]
    fn a_job_gets_the_variables_that_are_exported() {
        assert_eq!(export("ALL"), Export::All);
        assert_eq!(kept("ALL,X=3"), "HOME=/h PATH=/bin Y=2 SLURM_SUBMIT_DIR=/d X=3");
        assert_eq!(kept("NONE"), "HOME=/h PATH=/bin SLURM_SUBMIT_DIR=/d");
        assert_eq!(kept("X,Z=5"), "HOME=/h PATH=/bin X=1 SLURM_SUBMIT_DIR=/d Z=5");
    }
}
