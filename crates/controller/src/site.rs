//! What a site sets from the command line or a file: parameters, classes, hours, queues. All of a
//! change is checked on a copy and then applied, or nothing of it is.

use super::bank::{
    Bank, account_name, bank_changes, bank_of, group_of_name, set_allowance, user_of_name,
};
use super::driver::Driver;
use super::error::Problem;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use tutti_core::{Core, Event, check_rule_by_use};
use tutti_types::class::AfterUse;
use tutti_types::limits::{QUEUES_MAX, RULE_TIME_MAX};
use tutti_types::param::Shown;
use tutti_types::queue::QueueScope;
use tutti_types::{
    Allowed, BankAccount, ClassName, GroupId, Nanos, NodeWish, Period, ProcessorTime, QueueName,
    QueueSpec, ResourceName, ResourceSpec, Settings, UserId,
};
use tutti_wire::code::Code;
use tutti_wire::launch::Credentials;
use tutti_wire::limits::NAME_BYTES_MAX;
use tutti_wire::local::{JobRequest, NodesRequest, Reply, Section, Setting};
use tutti_wire::parameter::{limit_value, override_param, override_rule, set_param, set_rule};
use tutti_wire::report::{QueueReport, QueueSetting};
use tutti_wire::units::{parse_bytes, parse_duration};

/// How all users are written.
const ALL: &str = "all";
/// How a setting is written that is not set.
const NONE: &str = "none";
/// How a limit is written that is in some hours as in all others.
const SAME: &str = "same";

/// All that a site sets, as it is to be: also for simulations, and for a journal that is replayed
/// with other settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Parameters, classes, and their values by the hours of the week.
    pub settings: Settings,
    /// The users of classes that not all may use.
    pub class_users: BTreeMap<ClassName, Allowed>,
    /// Rules by use.
    pub class_after: BTreeMap<ClassName, AfterUse>,
    /// The queues.
    pub queues: BTreeMap<QueueName, QueueSpec>,
    bank: Bank,
}

impl Site {
    /// The settings alone: no queue, no allowance, and all users may use all classes.
    #[must_use]
    pub const fn new(settings: Settings) -> Self {
        Self {
            settings,
            class_users: BTreeMap::new(),
            class_after: BTreeMap::new(),
            queues: BTreeMap::new(),
            bank: BTreeMap::new(),
        }
    }

    /// The allowances of processor time.
    pub fn allowances(&self) -> impl Iterator<Item = (BankAccount, ProcessorTime)> + '_ {
        self.bank.iter().map(|(&account, &(allowance, _))| (account, allowance))
    }

    /// What is set in a core.
    #[must_use]
    pub fn of(core: &Core) -> Self {
        let classes = core.settings().classes.keys();
        let users = classes.filter_map(|class| Some((class.clone(), core.class_users(class)?)));
        Self {
            settings: core.settings().clone(),
            class_users: users.map(|(class, allowed)| (class, allowed.clone())).collect(),
            class_after: core.rules_by_use().clone(),
            queues: core.queues().clone(),
            bank: bank_of(core),
        }
    }

    /// Takes in what an event of a journal sets. Whether it sets any of this.
    pub fn note(&mut self, event: &Event) -> bool {
        match event {
            Event::SetParams { params } => self.settings.params = params.clone(),
            Event::SetClass { class, spec } => {
                self.settings.classes.insert(class.clone(), *spec);
            }
            Event::SetPeriod { period, overrides } => {
                self.settings.set_period(*period, overrides.clone());
            }
            Event::SetClassUsers { class, allowed } => {
                self.class_users.insert(class.clone(), allowed.clone());
            }
            Event::SetClassAfter { class, rule: Some(rule) } => {
                self.class_after.insert(class.clone(), rule.clone());
            }
            Event::SetClassAfter { class, rule: None } => {
                self.class_after.remove(class);
            }
            Event::SetQueue { name, spec: Some(spec) } => {
                self.queues.insert(name.clone(), spec.clone());
            }
            Event::SetQueue { name, spec: None } => {
                self.queues.remove(name);
            }
            Event::SetBank { account, allowance: Some(allowance) } => {
                let period = self.bank.get(account).and_then(|known| known.1);
                self.bank.insert(*account, (*allowance, period));
            }
            Event::SetBank { account, allowance: None } => {
                self.bank.remove(account);
            }
            _ => return false,
        }
        true
    }

    /// The events that make this of what was before.
    #[must_use]
    pub fn events(&self, before: &Self) -> Vec<Event> {
        changes(before, self).0
    }

    /// Sets one thing; `nodes` checks a list of nodes.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn set(
        &mut self,
        setting: &Setting,
        nodes: &dyn Fn(&str) -> Result<(), String>,
    ) -> Result<(), String> {
        let Setting { section, during, name, value, .. } = setting;
        let period = during.as_ref().map(|during| during.parse::<Period>());
        let period = period.transpose().map_err(|error| error.to_string())?;
        match (section, period) {
            (Section::Bank, None) => set_allowance(&mut self.bank, name, value),
            (Section::At, _) => Err("changes at times are no settings".into()),
            (Section::Bank, Some(_)) => Err("allowances can't be by hours; write 100h/day".into()),
            (Section::Params, None) => set_param(&mut self.settings.params, name, value),
            (Section::Class(class), None) => set_class(self, class, name, value),
            (Section::Queue(queue), period) => set_queue(self, queue, (period, name, value), nodes),
            (section @ (Section::Params | Section::Class(_)), Some(period)) => {
                let mut overrides = self.settings.period(period).cloned().unwrap_or_default();
                match section {
                    Section::Class(class) => override_rule(&mut overrides, class, name, value)?,
                    Section::Params | Section::Queue(_) | Section::Bank | Section::At => {
                        override_param(&mut overrides, name, value)?;
                    }
                }
                self.settings.set_period(period, overrides);
                Ok(())
            }
        }
    }

    /// Whether all of it can be; `settings` are those that made it, to name a line by.
    ///
    /// # Errors
    /// The line that is wrong if it is known, and what is.
    pub fn check(&self, settings: &[Setting]) -> Result<(), String> {
        let line_of = |queue: &QueueName| line_of_queue(settings, queue);
        for (queue, spec) in &self.queues {
            let fail = |reason: String| at_line(line_of(queue), format!("queue {queue}: {reason}"));
            spec.check().map_err(|error| fail(error.to_string()))?;
            if let Some(class) = &spec.class
                && !self.settings.classes.contains_key(class)
            {
                let known = self.settings.classes.keys().map(ToString::to_string);
                let known = list_of(known);
                return Err(fail(format!(
                    "there is no class {class} for default_class; the classes are {known}"
                )));
            }
        }
        let mut defaults = self.queues.iter().filter(|(_, spec)| spec.default);
        if let (Some((one, _)), Some((other, _))) = (defaults.next(), defaults.next()) {
            let line = line_of(one).max(line_of(other));
            let reason = format!(
                "queues {one} and {other} can't both be the default; set default=no for one first"
            );
            return Err(at_line(line, reason));
        }
        // What is set now comes first, so that an error names that.
        let sets = |class: &ClassName| {
            let section = Section::Class(class.clone());
            settings.iter().any(|it| it.section == section && it.name == "after")
        };
        let mut rules_by_use: Vec<_> = self.class_after.iter().collect();
        rules_by_use.sort_by_key(|(class, _)| !sets(class));
        for (class, rule) in rules_by_use {
            let known = |class: &ClassName| self.settings.classes.contains_key(class);
            let rules = |class: &ClassName| self.class_after.get(class);
            check_rule_by_use(class, rule, known, rules).map_err(|error| {
                let about = |it: &&Setting| {
                    it.section == Section::Class(class.clone()) && it.name == "after"
                };
                let line = settings.iter().filter(about).map(|it| it.line).next().unwrap_or(0);
                at_line(line, format!("class {class}: after: {error}"))
            })?;
        }
        if self.queues.len() > QUEUES_MAX {
            return Err(format!("there may be {QUEUES_MAX} queues; remove one first"));
        }
        // Of classes that can't all be, the one that is set now is to change.
        let line_of = |class: &ClassName| {
            let about = |it: &&Setting| it.section == Section::Class(class.clone());
            settings.iter().filter(about).map(|it| it.line).next_back()
        };
        let mut classes: Vec<_> = self.settings.classes.iter().collect();
        classes.sort_by_key(|(class, _)| line_of(class).is_none());
        for (class, spec) in classes {
            let checked = spec.check(class, &self.settings.classes);
            checked.map_err(|error| {
                at_line(line_of(class).unwrap_or(0), format!("class {class}: {error}"))
            })?;
        }
        self.settings.check().map_err(|error| error.to_string())
    }

    fn users_of(&self, class: &ClassName) -> Allowed {
        self.class_users.get(class).cloned().unwrap_or_default()
    }
}

/// Users and groups, as people write them.
pub(super) fn allowed_text(allowed: Option<&Allowed>) -> String {
    let Some(allowed) = allowed.filter(|allowed| !allowed.is_all()) else { return ALL.into() };
    let users = allowed.users.iter().map(|&user| BankAccount::User(user));
    let groups = allowed.groups.iter().map(|&group| BankAccount::Group(group));
    users.chain(groups).map(account_name).collect::<Vec<_>>().join(",")
}

/// A rule by use, as people write it.
pub(super) fn after_text(rule: Option<&AfterUse>) -> String {
    rule.map_or(NONE.into(), |rule| format!("{}:{}", rule.used, rule.class))
}

fn after_of(text: &str) -> Result<Option<AfterUse>, String> {
    if text == NONE {
        return Ok(None);
    }
    let wrong = || format!("after={text}: write TIME:CLASS, such as 10m:production, or none");
    let (used, class) = text.split_once(':').ok_or_else(wrong)?;
    let used = parse_duration(used).map_err(|error| format!("after: {error}"))?;
    if used == Nanos::ZERO || used > RULE_TIME_MAX || class.is_empty() {
        return Err(format!("{}; TIME is more than 0 and at most a year", wrong()));
    }
    Ok(Some(AfterUse { used, class: ClassName::new(class) }))
}

fn allowed_of(text: &str) -> Result<Allowed, String> {
    let mut allowed = Allowed::default();
    if text == ALL {
        return Ok(allowed);
    }
    for name in text.split(',').map(str::trim) {
        match name.strip_prefix('@') {
            Some(group) => allowed.groups.insert(GroupId(group_of_name(group)?)),
            None => allowed.users.insert(UserId(user_of_name(name)?)),
        };
    }
    Ok(allowed)
}

/// All that is set of a queue, as it would be set again.
fn settings_of(spec: &QueueSpec) -> Vec<QueueSetting> {
    let setting = |during: Option<&Period>, name: &str, value: String| QueueSetting {
        during: during.map(ToString::to_string),
        name: name.into(),
        value,
    };
    let mut all = Vec::new();
    if !spec.allowed.is_all() {
        all.push(setting(None, "users", allowed_text(Some(&spec.allowed))));
    }
    if spec.default {
        all.push(setting(None, "default", "yes".into()));
    }
    let defaults = [
        ("nodes", spec.nodes.clone()),
        ("default_class", spec.class.as_ref().map(ToString::to_string)),
        ("default_time", spec.time.map(|time| time.to_string())),
        ("default_memory", spec.memory.map(|bytes| tutti_types::param::Bytes(bytes).to_string())),
    ];
    for (name, value) in defaults {
        all.extend(value.map(|value| setting(None, name, value)));
    }
    for (limit, value) in spec.limits.iter() {
        all.push(setting(None, limit.name, Shown(limit, value).to_string()));
    }
    for (period, limits) in &spec.periods {
        for limit in tutti_types::queue::LIMITS {
            if let Some(&value) = limits.get(limit.name) {
                all.push(setting(Some(period), limit.name, Shown(limit, value).to_string()));
            }
        }
    }
    all
}

/// All queues, for tables.
pub(super) fn queues(core: &Core) -> Reply {
    let jobs = core.jobs_of_queues();
    let report = |(name, spec): (&QueueName, &QueueSpec)| {
        let tally = core.queue_tally(name, QueueScope::All);
        let limits = core.queue_limits(name);
        let limit = |(param, value): (&'static tutti_types::Param, u64)| QueueSetting {
            during: None,
            name: param.name.into(),
            value: Shown(param, value).to_string(),
        };
        let waiting = tally.jobs_waiting();
        QueueReport {
            name: name.to_string(),
            running: (jobs.get(name).copied().unwrap_or(0) as u64).saturating_sub(waiting),
            waiting,
            processors: tally.processors(),
            limits: limits.iter().map(limit).collect(),
            settings: settings_of(spec),
        }
    };
    Reply::Queues(core.queues().iter().map(report).collect())
}

/// Names in a row.
fn list_of(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A reason with the line that it is about.
fn at_line(line: u32, reason: impl std::fmt::Display) -> String {
    match line {
        0 => reason.to_string(),
        line => format!("{line}: {reason}"),
    }
}

impl Driver {
    pub(super) fn reply_queues(&mut self, token: u64) {
        let reply = queues(&self.core);
        self.reply(token, &reply);
    }

    pub(super) fn reply_standing_params(&mut self, token: u64) {
        let reply = super::report::settings(&self.core);
        self.reply(token, &reply);
    }

    pub(super) fn on_configure(
        &mut self,
        token: u64,
        uid: u32,
        settings: &[Setting],
        dry_run: bool,
    ) {
        if settings.iter().any(|setting| setting.section == Section::At) {
            return match self.configure_timed(uid, settings, dry_run) {
                Ok(changes) => self.reply(token, &Reply::Configured { changes }),
                Err(problem) => self.fail(token, problem),
            };
        }
        if let Some(changes) = self.configure(token, uid, settings, dry_run) {
            self.reply(token, &Reply::Configured { changes });
        }
    }

    /// Sets all of it, or nothing and replies why. What was changed, or would be.
    pub(super) fn configure(
        &mut self,
        token: u64,
        uid: u32,
        settings: &[Setting],
        dry_run: bool,
    ) -> Option<Vec<String>> {
        let before = Site::of(&self.core);
        let planned = self.admin(uid).map_err(Problem::from).and_then(|()| {
            let mut site = before.clone();
            let mut seen = HashSet::new();
            for setting in settings {
                if !seen.insert((&setting.section, &setting.during, &setting.name)) {
                    let twice = format!("{} is set twice; write it once", setting.name);
                    return Err(at_line(setting.line, twice).into());
                }
                let nodes =
                    |list: &str| self.named(list).map(drop).map_err(|error| error.to_string());
                site.set(setting, &nodes).map_err(|reason| at_line(setting.line, reason))?;
            }
            self.check_site(&before, &site, settings)?;
            Ok(site)
        });
        match planned {
            Ok(site) => {
                let (events, changes) = changes(&before, &site);
                if !dry_run {
                    for event in &events {
                        self.apply(event);
                    }
                    self.watch_calendar();
                    self.due.history_due = self.now();
                }
                Some(changes)
            }
            Err(problem) => {
                self.fail(token, problem);
                None
            }
        }
    }

    /// Whether all of it can be; names the line of what can't.
    fn check_site(&self, before: &Site, site: &Site, settings: &[Setting]) -> Result<(), Problem> {
        let line_of = |queue: &QueueName| line_of_queue(settings, queue);
        for queue in before.queues.keys().filter(|queue| !site.queues.contains_key(queue)) {
            let jobs = self.core.queue_jobs(queue);
            if jobs > 0 {
                return Err(at_line(
                    line_of(queue),
                    format!(
                        "queue {queue} has {jobs} job(s); it can go when nothing of it is left \
                         (tutti ps)"
                    ),
                )
                .into());
            }
        }
        site.check(settings)?;
        self.check_slots(&site.settings)?;
        Ok(self.check_clock(&site.settings)?)
    }

    /// Fills in the defaults of the job's queue; whether its owner may use the queue and the class.
    pub(super) fn apply_queue(
        &self,
        request: &mut JobRequest,
        who: &Credentials,
    ) -> Result<(), Problem> {
        let groups = || who.groups.iter().copied().chain([who.gid]).map(GroupId);
        let user = UserId(who.uid);
        match &request.queue {
            Some(name) if &*name.0 == NONE => request.queue = None,
            Some(_) => {}
            None => {
                let usable = |spec: &QueueSpec| spec.default && spec.allowed.allows(user, groups());
                let mut queues = self.core.queues().iter();
                request.queue = queues.find(|(_, spec)| usable(spec)).map(|(name, _)| name.clone());
            }
        }
        let niced = self.core.params().niced_are_standby() && request.launch.nice > 0;
        if niced && !request.names_class {
            request.class = ClassName::new("standby");
            request.names_class = true;
        }
        let queue = request.queue.as_ref();
        // The core declines a queue that is unknown.
        if let Some((name, spec)) = queue.and_then(|name| self.core.queues().get_key_value(name)) {
            if !spec.allowed.allows(user, groups()) {
                let usable = self.core.queues().iter();
                let usable = usable.filter(|(_, spec)| spec.allowed.allows(user, groups()));
                let usable = list_of(usable.map(|(name, _)| name.to_string()));
                let user = super::report::user_name(who.uid);
                let instead = match usable.is_empty() {
                    true => "leave out -q".to_owned(),
                    false => format!("the queues that {user} may use are {usable}"),
                };
                let reason = format!("{user} may not use queue {name}; {instead}");
                return Err(Problem::new(Code::NoAccess, reason));
            }
            if let Some(class) = spec.class.as_ref().filter(|_| !request.names_class) {
                request.class = class.clone();
            }
            request.time_limit = request.time_limit.or(spec.time);
            request.memory_per_task_bytes = request.memory_per_task_bytes.or(spec.memory);
        }
        self.may_use_class(&request.class, who)
    }

    /// Whether a user may use a class.
    pub(super) fn may_use_class(
        &self,
        class: &ClassName,
        who: &Credentials,
    ) -> Result<(), Problem> {
        let groups = || who.groups.iter().copied().chain([who.gid]).map(GroupId);
        let may = |class: &ClassName| {
            let allowed = self.core.class_users(class);
            allowed.is_none_or(|allowed| allowed.allows(UserId(who.uid), groups()))
        };
        if may(class) {
            return Ok(());
        }
        let usable = self.core.classes().keys().filter(|class| may(class));
        let usable = list_of(usable.map(ToString::to_string));
        let user = super::report::user_name(who.uid);
        let reason = format!(
            "{user} may not use class {class}; the classes that {user} may use are {usable} (--class)"
        );
        Err(Problem::new(Code::NoAccess, reason))
    }

    /// A wish of nodes, kept to those of the queue.
    pub(super) fn nodes_of_queue(
        &self,
        queue: Option<&QueueName>,
        wish: NodeWish,
    ) -> Result<NodeWish, Problem> {
        let spec = queue.and_then(|queue| Some((queue, self.core.queues().get(queue)?)));
        let Some((queue, Some(list))) = spec.map(|(queue, spec)| (queue, spec.nodes.clone()))
        else {
            return Ok(wish);
        };
        let of_queue = NodesRequest { only: Some(list.clone()), ..NodesRequest::default() };
        let of_queue = self.node_wish(&of_queue)?.among.unwrap_or_default();
        let among: BTreeSet<_> = match &wish.among {
            Some(among) => among.intersection(&of_queue).copied().collect(),
            None => of_queue,
        };
        if among.is_empty() {
            let reason = format!(
                "jobs of queue {queue} run on {list} only, and none of these nodes was asked for; \
                 name some of them, or leave out --nodes"
            );
            return Err(Problem::new(Code::NoSuchNodes, reason));
        }
        Ok(NodeWish { among: Some(among), ..wish })
    }
}

/// The first line about a queue; 0 if there is none.
fn line_of_queue(settings: &[Setting], queue: &QueueName) -> u32 {
    let about = |it: &&Setting| it.section == Section::Queue(queue.clone());
    settings.iter().find(about).map_or(0, |it| it.line)
}

/// Sets one thing of a queue.
fn set_queue(
    site: &mut Site,
    queue: &QueueName,
    (period, name, value): (Option<Period>, &str, &str),
    nodes: &dyn Fn(&str) -> Result<(), String>,
) -> Result<(), String> {
    check_name(&queue.0)?;
    if &*queue.0 == NONE {
        return Err("-q none stands for no queue; give the queue another name".into());
    }
    if name.is_empty() && value == "remove" {
        let known = site.queues.remove(queue).is_some();
        return if known { Ok(()) } else { Err(no_queue(&site.queues, queue)) };
    }
    let spec = site.queues.entry(queue.clone()).or_default();
    let set = |text: &str| (text != NONE).then(|| text.to_owned());
    let fail = |error: tutti_wire::units::UnitError| format!("{name}: {error}");
    match (name, period) {
        ("", _) => *spec = QueueSpec::default(),
        (name, Some(period)) => set_hours(spec, period, name, value)?,
        ("users", None) => spec.allowed = allowed_of(value)?,
        ("nodes", None) => {
            spec.nodes = set(value);
            if let Some(list) = &spec.nodes {
                nodes(list).map_err(|error| format!("nodes: {error}"))?;
            }
        }
        ("default", None) => {
            spec.default = match value {
                "yes" => true,
                "no" | NONE => false,
                _ => return Err(format!("default={value}: write yes or no")),
            }
        }
        ("default_class", None) => spec.class = set(value).map(|class| ClassName::new(&class)),
        ("default_time", None) => {
            let time = set(value).map(|text| parse_duration(&text)).transpose();
            spec.time = time.map_err(fail)?;
            if spec.time == Some(Nanos::ZERO) {
                return Err("default_time leaves no time; give one such as 1h, or none".into());
            }
        }
        ("default_memory", None) => {
            let memory = set(value).map(|text| parse_bytes(&text)).transpose();
            spec.memory = memory.map_err(fail)?;
            if spec.memory == Some(0) {
                return Err("default_memory leaves no memory; give some such as 1G, or none".into());
            }
        }
        (name, None) => {
            let (name, value) = limit_value(name, value)?;
            spec.limits.set(name, value).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Sets a limit in some hours.
fn set_hours(spec: &mut QueueSpec, period: Period, name: &str, value: &str) -> Result<(), String> {
    let known = spec.periods.iter().position(|(known, _)| *known == period);
    if value == SAME {
        let (name, _) = limit_value(name, NONE)?;
        if let Some(place) = known {
            spec.periods[place].1.remove(name);
            spec.periods.retain(|(_, limits)| !limits.is_empty());
        }
        return Ok(());
    }
    let (name, value) = limit_value(name, value)?;
    let place = known.unwrap_or_else(|| {
        spec.periods.push((period, BTreeMap::new()));
        spec.periods.len() - 1
    });
    spec.periods[place].1.insert(name.to_owned(), value);
    Ok(())
}

fn set_class(site: &mut Site, class: &ClassName, name: &str, value: &str) -> Result<(), String> {
    check_name(&class.0)?;
    let spec = site.settings.classes.entry(class.clone()).or_default();
    match name {
        "" => Ok(()),
        "users" => {
            let allowed = allowed_of(value)?;
            let listed = allowed.users.len() + allowed.groups.len();
            if listed > tutti_types::limits::ALLOWED_MAX {
                return Err(tutti_types::QueueError::TooManyAllowed.to_string());
            }
            site.class_users.insert(class.clone(), allowed);
            Ok(())
        }
        "after" => {
            match after_of(value)? {
                Some(rule) => site.class_after.insert(class.clone(), rule),
                None => site.class_after.remove(class),
            };
            Ok(())
        }
        name => set_rule(spec, name, value),
    }
}

/// A name that a file and a command line can have.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let good = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(fits);
    match good && name.len() <= NAME_BYTES_MAX {
        true => Ok(()),
        false => Err(format!(
            "{name:?} can't be a name; take letters, digits, _ - and ., at most {NAME_BYTES_MAX}"
        )),
    }
}

fn no_queue(queues: &BTreeMap<QueueName, QueueSpec>, queue: &QueueName) -> String {
    match queues.is_empty() {
        true => format!("there is no queue {queue}, and no other"),
        false => {
            let known = list_of(queues.keys().map(ToString::to_string));
            format!("there is no queue {queue}; the queues are {known}")
        }
    }
}

/// A setting that is no part of a [`Site`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherSetting {
    /// `weight.7`: how much more a user or group may use.
    Weight(BankAccount, Option<u32>),
    /// `resource.licence`: how many there are of a counted resource.
    Resource(ResourceName, ResourceSpec),
}

impl OtherSetting {
    /// The setting of that name; `None`: the name is none of these.
    #[must_use]
    pub fn of(name: &str, value: &str) -> Option<Result<Self, String>> {
        let (kind, of) = name.split_once('.')?;
        Some(match kind {
            "weight" => {
                let order = super::weight::order(of, value);
                order.map(|(account, weight)| Self::Weight(account, weight))
            }
            "resource" => {
                let order = super::resources::order(of, value, (1, false));
                order.map(|(name, spec)| Self::Resource(name, spec))
            }
            _ => return None,
        })
    }

    /// The event that sets it.
    #[must_use]
    pub const fn event(self) -> Event {
        match self {
            Self::Weight(account, weight) => Event::SetWeight { account, weight },
            Self::Resource(name, spec) => Event::SetResource { name, spec },
        }
    }
}

/// What makes one of the other, and lines that say so.
fn changes(before: &Site, after: &Site) -> (Vec<Event>, Vec<String>) {
    let (mut events, mut lines) = (Vec::new(), Vec::new());
    let (old, new) = (&before.settings, &after.settings);
    if old.params != new.params {
        events.push(Event::SetParams { params: new.params.clone() });
        for ((param, was), (_, is)) in old.params.iter().zip(new.params.iter()) {
            if was != is {
                let (was, is) = (Shown(param, was), Shown(param, is));
                lines.push(format!("{} was {was} and is {is} now", param.name));
            }
        }
    }
    let mut classes: Vec<_> =
        new.classes.iter().filter(|(name, spec)| old.classes.get(name) != Some(spec)).collect();
    // Shares that become less make room for those that become more.
    let growth = |name: &ClassName, share: u32| {
        i64::from(share) - i64::from(old.classes.get(name).map_or(0, |spec| spec.share()))
    };
    classes.sort_by_key(|(name, spec)| growth(name, spec.share()));
    for (class, spec) in classes {
        events.push(Event::SetClass { class: class.clone(), spec: *spec });
        let was = old.classes.get(class).copied().unwrap_or_default();
        if !old.classes.contains_key(class) {
            lines.push(format!("class {class} is new"));
        }
        for ((rule, was), (_, is)) in was.iter().zip(spec.iter()).filter(|(a, b)| a.1 != b.1) {
            let (was, is) = (Shown(rule, was), Shown(rule, is));
            lines.push(format!("class {class}: {} was {was} and is {is} now", rule.name));
        }
    }
    for class in new.classes.keys() {
        let (was, is) = (before.users_of(class), after.users_of(class));
        if was != is {
            let shown = [allowed_text(Some(&was)), allowed_text(Some(&is))];
            lines.push(format!("class {class}: users was {} and is {} now", shown[0], shown[1]));
            events.push(Event::SetClassUsers { class: class.clone(), allowed: is });
        }
    }
    after_changes(before, after, &mut events, &mut lines);
    for (period, overrides) in &new.periods {
        if old.period(*period) != Some(overrides) {
            lines.push(format!("values during {period} change"));
            events.push(Event::SetPeriod { period: *period, overrides: overrides.clone() });
        }
    }
    queue_changes(before, after, &mut events, &mut lines);
    bank_changes((&before.bank, &after.bank), &mut events, &mut lines);
    (events, lines)
}

/// Rules by use: those that go come first, so that no circle is made on the way.
fn after_changes(before: &Site, after: &Site, events: &mut Vec<Event>, lines: &mut Vec<String>) {
    let (old, new) = (&before.class_after, &after.class_after);
    let names: BTreeSet<&ClassName> = old.keys().chain(new.keys()).collect();
    let changed = names.into_iter().filter(|name| old.get(*name) != new.get(*name));
    let mut sets = Vec::new();
    for class in changed {
        let (was, is) = (after_text(old.get(class)), after_text(new.get(class)));
        lines.push(format!("class {class}: after was {was} and is {is} now"));
        if old.contains_key(class) {
            events.push(Event::SetClassAfter { class: class.clone(), rule: None });
        }
        if let Some(rule) = new.get(class).cloned() {
            sets.push(Event::SetClassAfter { class: class.clone(), rule: Some(rule) });
        }
    }
    events.append(&mut sets);
}

fn queue_changes(before: &Site, after: &Site, events: &mut Vec<Event>, lines: &mut Vec<String>) {
    let names: BTreeSet<&QueueName> = before.queues.keys().chain(after.queues.keys()).collect();
    for name in names {
        let (was, is) = (before.queues.get(name), after.queues.get(name));
        if was == is {
            continue;
        }
        events.push(Event::SetQueue { name: name.clone(), spec: is.cloned() });
        match (was, is) {
            (_, None) => lines.push(format!("queue {name} is removed")),
            (None, Some(_)) => lines.push(format!("queue {name} is new")),
            (Some(_), Some(_)) => {}
        }
        let all = |spec: Option<&QueueSpec>| -> BTreeMap<String, String> {
            let settings = spec.map(settings_of).unwrap_or_default().into_iter();
            let key = |it: &QueueSetting| match &it.during {
                Some(during) => format!("{} during {during}", it.name),
                None => it.name.clone(),
            };
            settings.map(|it| (key(&it), it.value)).collect()
        };
        let (was, now) = (all(was), all(is));
        let keys: BTreeSet<&String> = was.keys().chain(now.keys()).collect();
        for key in keys.into_iter().filter(|key| is.is_some() && was.get(*key) != now.get(*key)) {
            let shown = |values: &BTreeMap<String, String>| {
                values.get(key).map_or(NONE, String::as_str).to_owned()
            };
            lines.push(format!(
                "queue {name}: {key} was {} and is {} now",
                shown(&was),
                shown(&now)
            ));
        }
    }
}
