//! The entries of a journal in words.

use tutti_client::output::{counted, plain};
use tutti_core::{
    Action, CheckpointNews, CheckpointOrder, ElementOrder, Event, HeldBy, Order, RowChoice,
    StepAction, SubmitOptions,
};
use tutti_node::calendar::local_moment;
use tutti_types::class::RULES;
use tutti_types::param::Shown;
use tutti_types::params::TABLE;
use tutti_types::{
    AfterJobs, AfterUse, BankAccount, ClassName, ClassSpec, ClusterTime, FirstStep, Grantee,
    IfAbsent, JobSpec, Nanos, NodeId, NodeSpec, Origin, Outcome, Overrides, Param, Params, Rank,
    TaskStatus, default_classes,
};
use tutti_wire::units::{format_bytes, format_duration_short};

/// What happened. Names in it are anything that users can type: control characters are shown as `?`.
pub(super) fn event(event: &Event) -> String {
    plain(&words(event))
}

fn words(event: &Event) -> String {
    of_a_node(event)
        .or_else(|| of_a_job(event))
        .or_else(|| of_an_array(event))
        .or_else(|| of_a_policy(event))
        .or_else(|| of_timed(event))
        .unwrap_or_else(|| of_settings(event))
}

fn of_a_node(event: &Event) -> Option<String> {
    Some(match event {
        Event::NodeJoined { node, spec } => format!("node {node} joined: {}", machine(spec)),
        Event::NodeOutOfReach { node } => format!("node {node} is out of reach"),
        Event::NodeLost { node } => format!("node {node} is lost"),
        Event::SetDrained { node, reason: Some(reason) } if reason.is_empty() => {
            format!("node {node} is to take no new jobs")
        }
        Event::SetDrained { node, reason: Some(reason) } => {
            format!("node {node} is to take no new jobs: {reason}")
        }
        Event::SetDrained { node, reason: None } => format!("node {node} is to take jobs again"),
        Event::NodeRemoved { node } => format!("node {node} is taken out of the cluster"),
        Event::SetNodeSet { name, nodes } if nodes.is_empty() => {
            format!("there is no set {name} any more")
        }
        Event::SetNodeSet { name, nodes } => format!("the set {name} is {}", of_nodes(nodes)),
        Event::NodeMeasured { node, figures } => format!(
            "node {node} was measured: int {}, float {}, double {}, memory {}",
            figures.int, figures.float, figures.double, figures.memory
        ),
        Event::NetworkMeasured { node, peer, figures } => {
            let (bandwidth, latency) = (figures.bandwidth_mb_s, figures.latency_us);
            format!("the network from node {node} to {peer}: {bandwidth} MB/s, {latency} us")
        }
        Event::ImagePlace { node, place: Some(place) } => {
            format!("node {node} puts images into the shared directory {place:x}")
        }
        Event::ImagePlace { node, place: None } => {
            format!("node {node} puts images into a directory of its own")
        }
        Event::NodeFeatures { node, features } => {
            let features = features.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            format!("node {node} has {features}")
        }
        Event::NodeLoad { node, averages } => {
            let [now, five, fifteen] =
                [averages.now, averages.five_minutes, averages.fifteen_minutes].map(thousandths);
            format!("node {node} has load averages of {now}, {five} and {fifteen}")
        }
        Event::Foreign { node, processors } => {
            format!("node {node}: others use the processors {processors}")
        }
        _ => return None,
    })
}

/// An event that is about changes at times.
fn of_timed(event: &Event) -> Option<String> {
    Some(match event {
        Event::SetTimed { number, entry: None } => format!("change {number} is removed"),
        Event::SetTimed { number, entry: Some((when, change, _)) } => {
            format!("change {number}: {when} {change}")
        }
        Event::SetTimedMoment { number, .. } => {
            format!("change {number} has its moment by other clocks")
        }
        Event::TimedDue { due } => {
            format!("changes happen: {}", list(due.iter().map(|it| it.number)))
        }
        _ => return None,
    })
}

/// An event that is about the site's own policy.
fn of_a_policy(event: &Event) -> Option<String> {
    Some(match event {
        Event::SetPolicyProgram { program: None } => "there is no policy program any more".into(),
        Event::SetPolicyProgram { program: Some(program) } => {
            let user = program.user.as_deref().map_or(String::new(), |user| format!(" as {user}"));
            let part = program.node.as_deref();
            let part = part.map_or(String::new(), |path| format!(", on nodes {path}"));
            format!("the policy program is {}{user}{part}", program.path)
        }
        Event::PolicyInCharge { on: true } => "the policy program decides".into(),
        Event::PolicyInCharge { on: false } => "the built-in policy goes on".into(),
        Event::PolicyOrder { order } => of_an_order(order),
        _ => return None,
    })
}

/// What a policy program orders.
fn of_an_order(order: &Order) -> String {
    let what = match order {
        Order::Start { job, row, places } => {
            let row = match row {
                RowChoice::Any => String::new(),
                RowChoice::New => " in a new row".into(),
                RowChoice::In(row) => format!(" in row {row}"),
            };
            let place = |(node, set): &(NodeId, _)| format!(" on {set} of node {node}");
            let places: String = places.iter().map(place).collect();
            format!("job {job} is to start{row}{places}")
        }
        Order::Decline { job, reason } => format!("job {job} is declined: {reason}"),
        Order::Move { job, before: None } => format!("job {job} comes before all in line"),
        Order::Move { job, before: Some(before) } => format!("job {job} comes before job {before}"),
        Order::Preempt { job } => format!("job {job} is to be preempted"),
        Order::Restore { job } => format!("job {job} is to come back"),
        Order::SetClass { job, class } => format!("job {job} is to be of class {class}"),
        Order::Leave { job } => format!("job {job} is left to the built-in policy"),
        Order::Arrange { node, row: Some(row), candidates } if !candidates.is_empty() => {
            let hold = |it: IfAbsent| if it == IfAbsent::Hold { " (held)" } else { "" };
            let first = candidates.iter().map(|&(job, empty)| format!("{job}{}", hold(empty)));
            format!("on node {node}, first in row {row} come the jobs {}", list(first))
        }
        Order::Arrange { node, row: Some(row), .. } => {
            format!("on node {node}, row {row} has the built-in order again")
        }
        Order::Arrange { node, row: None, .. } => {
            format!("on node {node}, all rows have the built-in order again")
        }
    };
    format!("the policy program orders: {what}")
}

/// An event that is about an array.
fn of_an_array(event: &Event) -> Option<String> {
    Some(match event {
        Event::SubmitArray { request, spec, array, .. } => {
            let count = counted(array.indices.count(), "element");
            format!("request {request}: an array of {count}, each {}", asked(spec))
        }
        Event::Elements { array, positions, order } => {
            let count = counted(positions.count(), "element");
            let what = match order {
                ElementOrder::Cancel { reason, .. } => format!("are to end: {reason}"),
                ElementOrder::Hold { by } => format!("are to be held by {}", holder(*by)),
                ElementOrder::Release { by } => format!("are to be released by {}", holder(*by)),
            };
            format!("array {array}: {count} {what}")
        }
        _ => return None,
    })
}

fn of_a_job(event: &Event) -> Option<String> {
    Some(match event {
        Event::Held { job } => format!("a node holds job {job} of an earlier controller"),
        Event::Submit { request, spec } => format!("request {request}: {}", asked(spec)),
        Event::TasksEnded { job, ranks, status } => {
            format!("job {job}: {} {}", of_ranks(ranks), ended(*status))
        }
        Event::JobCleared { job, nodes } if nodes.is_empty() => {
            format!("job {job}: nothing is left of it")
        }
        Event::JobCleared { job, nodes } => {
            format!("job {job}: nothing is left of it on {}", of_nodes(nodes))
        }
        Event::JobsEnded { jobs, status } => {
            let jobs = list(jobs.iter());
            format!("jobs {jobs}: all tasks {}, and nothing is left of them", ended(*status))
        }
        Event::Cancel { job, reason, at_once } => {
            let how = if *at_once { " at once" } else { "" };
            format!("job {job} is to end{how}: {reason}")
        }
        Event::Signal { job, ranks, signal } => {
            format!("job {job}: signal {signal} for {}", of_ranks(ranks))
        }
        Event::Suspend { job } => format!("job {job} is to be suspended"),
        Event::Resume { job } => format!("job {job} is to be resumed"),
        Event::SubmitWith { request, spec, options } => {
            format!("request {request}: {}{}", asked(spec), submitted_with(options))
        }
        Event::SubmitStep { request, job, spec, .. } => {
            let beside = spec.beside.map_or(String::new(), |rank| format!(" beside rank {rank}"));
            let tasks = counted(spec.tasks, "task");
            format!("request {request}: job {job}, a step of {tasks}{beside}")
        }
        Event::StepTasksEnded { key, ranks, status } => {
            format!("job {key}: {} {}", of_ranks(ranks), ended(*status))
        }
        Event::StepCleared { key, nodes } => {
            format!("job {key}: nothing is left of it on {}", of_nodes(nodes))
        }
        Event::CancelStep { key, reason, .. } => format!("job {key} is to end: {reason}"),
        Event::StepFrontEndLost { key } => format!("job {key}: its front end is gone"),
        Event::Hold { job, by } => format!("job {job} is to be held by {}", holder(*by)),
        Event::Release { job, by } => format!("job {job} is to be released by {}", holder(*by)),
        Event::SetJobClass { job, class } => format!("job {job} is to be of class {class}"),
        Event::SetTimeLimit { job, limit: Some(limit) } => {
            format!("job {job} is to run at most {}", short(*limit))
        }
        Event::SetTimeLimit { job, limit: None } => format!("job {job} is to have no time limit"),
        Event::SetBegin { job, .. } => {
            format!("job {job}: when it begins is another moment of cluster time")
        }
        Event::MoveJob { job, before: None } => {
            format!("an administrator moves job {job} before all others in line")
        }
        Event::MoveJob { job, before: Some(before) } => {
            format!("an administrator moves job {job} before job {before}")
        }
        Event::Checkpoint { job, order } => format!("job {job} {}", of_order(*order)),
        Event::MovedOut { job } => format!("job {job} has left its processors"),
        Event::MovedIn { job } => format!("job {job} is back on processors"),
        Event::Swapped { job, node, left_bytes, took, .. } => {
            let (mib, took) = (left_bytes >> 20, short(*took));
            format!("job {job}, node {node}: memory was moved in {took}, {mib} MiB of it are out")
        }
        Event::Lend { job, lends: true } => format!("job {job}: its first task only waits"),
        Event::Lend { job, lends: false } => format!("job {job}: its first task goes on"),
        Event::FrontEndLost { job } => format!("job {job}: its front end is gone"),
        _ => return None,
    })
}

/// What a job is asked to do with its state.
const fn of_order(order: CheckpointOrder) -> &'static str {
    match order {
        CheckpointOrder::GoOn => "is to save its state and go on",
        CheckpointOrder::End { .. } => "is to save its state and end",
        CheckpointOrder::NotSaved => "could not be saved",
        CheckpointOrder::Anew => "is to start from the beginning",
        CheckpointOrder::Kept => "was saved, and goes on",
        CheckpointOrder::NotKept => "was to go on, and could not be saved",
    }
}

const fn of_checkpoint(news: CheckpointNews) -> &'static str {
    match news {
        CheckpointNews::AskedToGoOn => "is asked to save its state",
        CheckpointNews::AskedToEnd { .. } => "is asked to save its state and end",
        CheckpointNews::Saved => "has saved its state",
        CheckpointNews::Died => "died of the signal",
        CheckpointNews::Unanswered => "has not ended within its grace, and goes on",
        CheckpointNews::Forced => "has not ended within its grace, and is ended",
        CheckpointNews::NotSaved => "could not be saved, and goes on",
        CheckpointNews::NotRestored => "could not be restored, and is held",
        CheckpointNews::Damaged => "could not be saved, and goes on from its earlier image",
        CheckpointNews::Kept => "was saved, and goes on",
    }
}

fn submitted_with(options: &SubmitOptions) -> String {
    let SubmitOptions {
        queue,
        hold,
        first,
        after,
        begin,
        warning,
        vacate,
        args,
        checkpoint,
        swap,
        no_requeue,
        never,
    } = options;
    let queue = queue.as_ref().map_or(String::new(), |queue| format!(", in queue {queue}"));
    let hold = hold.map_or(String::new(), |by| format!(", held by {}", holder(by)));
    let first = match first {
        FirstStep::EachSlot => String::new(),
        FirstStep::Once => ", with one task that starts the others".into(),
        FirstStep::Tasks(tasks) => format!(", with {tasks} tasks at first"),
    };
    let after = after.as_ref().map_or(String::new(), after_words);
    let warning = warning.map_or(String::new(), |it| {
        format!(", with signal {} {} before its limit", it.signal, short(it.before))
    });
    let checkpoint = checkpoint.map_or(String::new(), |it| {
        format!(", saves its state for signal {} within {}", it.signal, short(it.grace))
    });
    let begin =
        begin.map_or(String::new(), |it| format!(", begins at {}", local_moment(it.unix_ms)));
    let args: String =
        args.iter().map(|(name, value)| format!(", {name}={value} for the policy")).collect();
    let vacate =
        vacate.map_or(String::new(), |lead| format!(", to vacate {lead} before its turns end"));
    let swap = if *swap { ", may be swapped out" } else { "" };
    let once = if *no_requeue { ", runs once" } else { "" };
    let never = never.as_ref().map_or(String::new(), |it| match &it.elements {
        Some(elements) => format!(", {} elements never after {}", elements.count(), it.job),
        None => format!(", never after {}", it.job),
    });
    format!(
        "{queue}{hold}{first}{after}{never}{begin}{warning}{vacate}{swap}{once}{checkpoint}{args}"
    )
}

fn after_words(after: &AfterJobs) -> String {
    let each = after.jobs.iter().map(|it| format!("job {} ({})", it.job, it.what));
    let between = if after.one { " or " } else { " and " };
    let stays = if after.stays { ", kept if never" } else { "" };
    format!(", after {}{stays}", each.collect::<Vec<_>>().join(between))
}

const fn holder(by: HeldBy) -> &'static str {
    match by {
        HeldBy::Owner => "its owner",
        HeldBy::Administrator => "an administrator",
    }
}

fn of_settings(event: &Event) -> String {
    match event {
        Event::Forgot { job } => {
            format!("the latest entries may be missing; nodes may know jobs up to {job}")
        }
        Event::SetParams { params } => format!("parameters: {}", parameters(params)),
        Event::SetClass { class, spec } => format!("class {class}: {}", rules(class, spec)),
        Event::SetPeriod { period, overrides } if overrides.is_empty() => {
            format!("nothing is otherwise {period} any more")
        }
        Event::SetPeriod { period, overrides } => {
            format!("otherwise {period}: {}", otherwise(overrides))
        }
        Event::Calendar { week } => {
            format!("people's clocks say that {} of the week are over", short(*week))
        }
        Event::SetResource { name, spec } => {
            let each = counted(spec.jobs_each, "job");
            let lent = if spec.lent { ", given back when preempted" } else { "" };
            format!("resource {name}: {}, each for {each} at a time{lent}", spec.count)
        }
        Event::DevicesFound { node, devices } => {
            format!("node {node} found {}", counted(devices.len() as u64, "device"))
        }
        Event::SetDevice { node, id, device: None } => {
            format!("node {node} has no device {id} any more")
        }
        Event::SetDevice { node, id, device: Some(device) } if device.is_counted() => {
            format!("node {node} has {id}, which is counted")
        }
        Event::SetDevice { node, id, device: Some(device) } => {
            format!("device {id} of node {node}: {}", device.files.join(" "))
        }
        Event::Began => "a controller began".into(),
        Event::ShutDown => "the instance is to end".into(),
        Event::RollOut { patience } => format!("jobs are rolled out, within {}", short(*patience)),
        Event::RollIn => "jobs that were rolled out come back".into(),
        Event::GoDown => "the instance is to end; what waits stays in line".into(),
        Event::ForgetClass { class } => format!("there is no class {class} any more"),
        Event::Tick => "time passed".into(),
        // All others are of a node or a job.
        other => of_users(other).unwrap_or_else(|| format!("{other:?}")),
    }
}

fn whose(account: BankAccount) -> String {
    match account {
        BankAccount::User(user) => format!("user {user}"),
        BankAccount::Group(group) => format!("group {group}"),
    }
}

fn of_users(event: &Event) -> Option<String> {
    Some(match event {
        Event::SetBank { account, allowance } => {
            let whose = whose(*account);
            match allowance {
                Some(allowance) => {
                    let seconds = Nanos::from_secs(allowance.seconds());
                    format!("{whose} may use {} of processor time", short(seconds))
                }
                None => format!("{whose} may use any processor time"),
            }
        }
        Event::SetWeight { account, weight } => {
            let account = whose(*account);
            match weight {
                Some(weight) => format!("{account} has weight {weight}"),
                None => format!("{account} has no weight of its own"),
            }
        }
        Event::SetQueue { name, spec: None } => format!("there is no queue {name} any more"),
        Event::SetQueue { name, spec: Some(spec) } => {
            let limit = |(param, value): (&'static Param, u64)| {
                format!("{}={}", param.name, Shown(param, value))
            };
            format!("queue {name}: {}", list(spec.limits.iter().map(limit)))
        }
        Event::SetBankPeriod { account: of, renewal: None } => {
            format!("the allowance of {} is not renewed", whose(*of))
        }
        Event::SetBankPeriod { account: of, renewal: Some(renewal) } => {
            format!("the allowance of {} is for a {}", whose(*of), renewal.period.name())
        }
        Event::BankPeriod { period, .. } => {
            format!("a {} begins for allowances", period.name())
        }
        Event::SetClassAfter { class, rule: None } => {
            format!("jobs of class {class} keep it, whatever they use")
        }
        Event::SetClassAfter { class, rule: Some(AfterUse { used, class: to }) } => {
            format!("jobs of class {class} become of class {to} after {} of use", short(*used))
        }
        Event::SetClassUsers { class, allowed } if allowed.is_all() => {
            format!("all users may use class {class}")
        }
        Event::SetClassUsers { class, allowed } => format!(
            "class {class} is for users {} and groups {}",
            list(allowed.users.iter()),
            list(allowed.groups.iter())
        ),
        Event::SetAccess { grantee, origin } => {
            let who = match grantee {
                Grantee::Everybody => "all users".into(),
                Grantee::User(user) => format!("user {user}"),
                Grantee::Group(group) => format!("group {group}"),
            };
            match origin {
                Some(Origin::Anywhere) => format!("{who} may submit jobs from anywhere"),
                Some(Origin::Machines(list)) => format!("{who} may submit jobs from {list}"),
                None => format!("{who} is not listed any more"),
            }
        }
        _ => return None,
    })
}

/// What was done about it; `at` is when.
pub(super) fn action(action: &Action, at: ClusterTime) -> String {
    let text = match action {
        Action::Accept { request, job } => format!("request {request} is accepted as job {job}"),
        Action::Decline { request, refusal } => format!("request {request} is declined: {refusal}"),
        Action::Timetable { node, version } => {
            format!("node {node} has another timetable, version {version}")
        }
        Action::Timetables { version } => {
            format!("all nodes have another timetable, version {version}")
        }
        Action::Launch { job, control } => format!("job {job} starts; control={control}"),
        Action::MoveOut { job } => format!("job {job} is to leave its processors"),
        Action::MoveIn { job } => format!("job {job} is to come back"),
        Action::Swap { job, node, out, .. } => {
            let way = if *out { "leave" } else { "come back" };
            format!("job {job}, node {node}: its memory is to {way}")
        }
        Action::Signal { job, node, ranks, signal } => {
            format!("job {job}, node {node}: signal {signal} for {}", of_ranks(ranks))
        }
        Action::SignalRoots { job, node, signal } => {
            format!("job {job}, node {node}: signal {signal} for the first process of each task")
        }
        Action::Terminate { job, node } => format!("job {job} is asked to end on node {node}"),
        Action::Kill { job, node } => format!("job {job} is killed on node {node}"),
        Action::Reclassed { job, class } => {
            format!("job {job} is of class {class} by what it has used")
        }
        Action::PromiseBroken { job, at: promised, by } => {
            let within = short(promised.since(at));
            format!("job {job} was promised a start within {within}, which fell to job {by}")
        }
        Action::Step(action) => of_step(action),
        Action::Requeued { job } => format!("job {job} is queued again"),
        Action::Checkpoint { job, news } => format!("job {job} {}", of_checkpoint(*news)),
        Action::RanksLost { job, node, ranks, until } => {
            let wait = short(until.since(at));
            format!("job {job}: {} lost with node {node}, to wait {wait}", of_ranks(ranks))
        }
        Action::Respawn { job, node, ranks, .. } => {
            format!("job {job}: {} started again on node {node}", of_ranks(ranks))
        }
        Action::RanksGivenUp { job, node, ranks } => {
            format!("job {job}: {} given up, lost with node {node}", of_ranks(ranks))
        }
        Action::JobDeclined { job, reason } => format!("job {job} is declined: {reason}"),
        Action::ElementMade { array, position, job } => {
            format!("array {array}: element {position} is in line as job {job}")
        }
        Action::ArrayEnded { array, outcome, .. } => {
            format!("array {array} has ended: {}, exit {}", outcome.reason, outcome.exit_code)
        }
        Action::Ended { job, outcome: Outcome { reason, exit_code, service } } => {
            format!("job {job} has ended: {reason}, exit {exit_code}, after {}", short(*service))
        }
        Action::WakeAt { at: ClusterTime::NEVER } => "nothing is due".into(),
        Action::WakeAt { at: due } => format!("something is due in {}", short(due.since(at))),
    };
    plain(&text)
}

fn of_step(action: &StepAction) -> String {
    match action {
        StepAction::Accept { request, key } => format!("request {request}: it is step {key}"),
        StepAction::Decline { request, refusal } => format!("request {request}: {refusal:?}"),
        StepAction::Launch { key } => format!("job {key} starts"),
        StepAction::Terminate { key, node } => {
            format!("job {key} is asked to end on node {node}")
        }
        StepAction::Signal { key, node, signal } => {
            format!("job {key}, node {node}: signal {signal}")
        }
        StepAction::RanksFailed { key, ranks, .. } => {
            let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
            format!("job {key}: failed, and named to the others: rank {}", ranks.join(", "))
        }
        StepAction::Kill { key, node } => format!("job {key} is killed on node {node}"),
        StepAction::Ended { key, outcome } => {
            format!("job {key} has ended: {}, exit {}", outcome.reason, outcome.exit_code)
        }
    }
}

fn short(length: Nanos) -> String {
    format_duration_short(length)
}

fn thousandths(load: u32) -> String {
    format!("{}.{:02}", load / 1000, load % 1000 / 10)
}

fn list<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

fn of_nodes<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> String {
    let nodes: Vec<&NodeId> = nodes.into_iter().collect();
    let word = if nodes.len() == 1 { "node" } else { "nodes" };
    format!("{word} {}", list(nodes.into_iter()))
}

fn of_ranks(ranks: &[Rank]) -> String {
    match ranks {
        [] => "all tasks".into(),
        [rank] => format!("rank {rank}"),
        ranks => format!("ranks {}", list(ranks.iter())),
    }
}

fn ended(status: TaskStatus) -> String {
    match status {
        TaskStatus::Exited(status) => format!("ended with exit status {status}"),
        TaskStatus::Signaled(signal) => format!("died of signal {signal}"),
        TaskStatus::Aborted(status) => format!("aborted the job with status {status}"),
        TaskStatus::NotFound => "had no program".into(),
        TaskStatus::NotExecutable => "had a program that can't be executed".into(),
        TaskStatus::OutOfMemory => "ran out of memory".into(),
        TaskStatus::Lost => "were lost".into(),
        TaskStatus::Unknown => "ended, how is unknown".into(),
        TaskStatus::Saved => "were saved to an image".into(),
        TaskStatus::NotRestored => "could not be restored from their image".into(),
        TaskStatus::Damaged => "could not be saved, and were ended".into(),
        TaskStatus::Unfinalized(status) => {
            format!("ended with exit status {status} before MPI_Finalize")
        }
    }
}

fn machine(spec: &NodeSpec) -> String {
    format!(
        "{}, processors {}, {} of memory",
        spec.name,
        spec.processors,
        format_bytes(spec.memory_bytes)
    )
}

/// What was asked for, and the user.
fn asked(spec: &JobSpec) -> String {
    let mut text = format!("user {}, {}, {}", spec.owner, spec.class, counted(spec.tasks, "task"));
    let mut add = |what: Option<String>| {
        if let Some(what) = what {
            text.push_str(", ");
            text.push_str(&what);
        }
    };
    add(spec.processors_per_task.map(|each| format!("{} each", counted(each, "processor"))));
    add(spec.memory_per_task_bytes.map(|bytes| format!("{} of memory each", format_bytes(bytes))));
    add(spec.time_limit.map(|limit| format!("at most {}", short(limit))));
    add(spec.deadline.map(|deadline| format!("done in {}", short(deadline))));
    add(spec.nodes.count.map(|count| format!("on {}", counted(count, "node"))));
    add(spec.attached.then(|| "with a front end".into()));
    text
}

/// What is set otherwise than it is by default.
fn parameters(params: &Params) -> String {
    let changed = params.iter().filter(|(param, value)| *value != param.default);
    or_default(list(
        changed.map(|(param, value)| format!("{}={}", param.name, Shown(param, value))),
    ))
}

fn rules(class: &ClassName, spec: &ClassSpec) -> String {
    let usual = default_classes().get(class).copied().unwrap_or_default();
    let changed = spec.iter().zip(usual.iter()).filter(|((_, value), (_, usual))| value != usual);
    or_default(list(
        changed.map(|((rule, value), _)| format!("{}={}", rule.name, Shown(rule, value))),
    ))
}

fn or_default(text: String) -> String {
    if text.is_empty() { "as by default".into() } else { text }
}

fn otherwise(overrides: &Overrides) -> String {
    let shown = |table: &'static [tutti_types::Param], name: &str, value: u64| {
        let param = table.iter().find(|param| param.name == name);
        param.map_or_else(|| format!("{name}={value}"), |it| format!("{name}={}", Shown(it, value)))
    };
    let params = overrides.params.iter().map(|(name, value)| shown(TABLE, name, *value));
    let rules = overrides.classes.iter().flat_map(|(class, rules)| {
        rules.iter().map(move |(name, value)| format!("{class} {}", shown(RULES, name, *value)))
    });
    list(params.chain(rules))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tutti_types::JobId;

    #[test]
    fn entries_are_told_in_words_that_move_no_cursor() {
        let mut params = Params::default();
        params.set("quantum", 20_000_000).unwrap();
        let told = event(&Event::SetParams { params });
        assert_eq!(told, "parameters: quantum=20ms");
        let spec = ClassSpec::default();
        let told = event(&Event::SetClass { class: ClassName::new("a\x1b[2J"), spec });
        assert_eq!(told, "class a?[2J: as by default");
        let (job, ranks) = (JobId(7), vec![Rank(0), Rank(2)]);
        let told = event(&Event::TasksEnded { job, ranks, status: TaskStatus::Signaled(9) });
        assert_eq!(told, "job 7: ranks 0, 2 died of signal 9");
        let at = ClusterTime(5_000_000_000);
        let due = Action::WakeAt { at: ClusterTime(5_100_000_000) };
        assert_eq!(action(&due, at), "something is due in 100ms");
        assert_eq!(action(&Action::WakeAt { at: ClusterTime::NEVER }, at), "nothing is due");
    }
}
