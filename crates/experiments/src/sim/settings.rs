//! What is set on the command line or in a site's file: parameters and rules of classes, always or
//! in some hours; queues, weights, allowances, counted resources.

use super::options::Options;
use super::program::{is_program, part_of};
use crate::setting_word::{SettingWord, parse};
use anyhow::{anyhow, bail};
use tutti_client::site_file::{Part, Source};
use tutti_controller::{OtherSetting, Site};
use tutti_types::class::Overrun;
use tutti_types::{
    BankAccount, ClassName, Params, QueueName, ResourceName, ResourceSpec, ResourceWish, Settings,
    default_classes,
};
use tutti_wire::local::{Section, Setting};

/// All that is set for a simulation.
#[derive(Debug)]
pub(super) struct Scheduler {
    /// Parameters, classes, hours, queues and allowances.
    pub(super) site: Site,
    pub(super) weights: Vec<(BankAccount, u32)>,
    pub(super) resources: Vec<(ResourceName, ResourceSpec)>,
    /// What each job of a class, or of all, has of a counted resource.
    pub(super) uses: Vec<(Option<ClassName>, ResourceWish)>,
}

/// A check of a list of nodes.
pub(super) type Nodes<'a> = &'a dyn Fn(&str) -> Result<(), String>;

impl Scheduler {
    /// What holds under a policy such as `gang,rows=5`. What is set for all policies comes first,
    /// so that a policy's own settings count; a site's file comes before both.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub(super) fn of(policy: &str, options: &Options, nodes: Nodes<'_>) -> anyhow::Result<Self> {
        let mut params = Params::default();
        // Jobs of a trace stay where they were placed, as they did there.
        params.choose("migration", "off")?;
        let settings = Settings::new(params, default_classes());
        let mut all = Self {
            site: Site::new(settings),
            weights: Vec::new(),
            resources: Vec::new(),
            uses: Vec::new(),
        };
        for path in &options.site {
            all.read(&Source::read(path)?, nodes)?;
        }
        for word in &options.settings {
            all.set(word, nodes)?;
        }
        for setting in &options.classes {
            all.set_rules(setting, nodes)?;
        }
        for setting in &options.queues {
            all.set_limits(setting, nodes)?;
        }
        for setting in &options.bank {
            all.set_allowance(setting, nodes)?;
        }
        let uses = options.job_resources.iter().map(|text| usage(text));
        all.uses.extend(uses.collect::<anyhow::Result<Vec<_>>>()?);
        let mut words = policy.split(',');
        let name = words.next().unwrap_or_default();
        let name = if is_program(name) { "external" } else { name };
        tutti_sim::set_policy(&mut all.site.settings.params, name)?;
        let is_setting = |word: &&str| part_of(word).is_none();
        words.filter(is_setting).try_for_each(|word| all.set(word, nodes))?;
        all.site.check(&[]).map_err(|reason| anyhow!(reason))?;
        all.check_simulated()?;
        Ok(all)
    }

    /// Jobs of a simulation end at their time limits.
    fn check_simulated(&self) -> anyhow::Result<()> {
        let settings = &self.site.settings;
        let always = settings.classes.iter().filter(|(_, rules)| rules.overrun() != Overrun::End);
        let in_hours = settings.periods.iter().flat_map(|(_, changed)| &changed.classes);
        let in_hours =
            in_hours.filter(|(_, rules)| rules.get("overrun").is_some_and(|it| *it != 0));
        let found = always.map(|(class, _)| class).chain(in_hours.map(|(class, _)| class)).next();
        found.map_or(Ok(()), |class| {
            bail!(
                "jobs of class {class} would go on after their time limits, which is not simulated; \
                 add --class {class}:overrun=end, and take it out of hours"
            )
        })
    }

    /// Whether anything depends on the hour.
    pub(super) fn has_hours(&self) -> bool {
        let mut queues = self.site.queues.values();
        !self.site.settings.periods.is_empty() || queues.any(|spec| !spec.periods.is_empty())
    }

    fn read(&mut self, file: &Source, nodes: Nodes<'_>) -> anyhow::Result<()> {
        let mut settings = file.settings(Part::Params)?;
        settings.extend(file.settings(Part::Queues)?);
        for setting in settings {
            let at = |reason| anyhow!("{}:{}: {reason}", file.name, setting.line);
            self.site.set(&setting, nodes).map_err(at)?;
        }
        Ok(())
    }

    fn set(&mut self, word: &str, nodes: Nodes<'_>) -> anyhow::Result<()> {
        match parse(word)? {
            SettingWord::Site(setting) => self.set_one(&setting, nodes),
            SettingWord::Other(other) => {
                self.take(other);
                Ok(())
            }
        }
    }

    fn set_one(&mut self, setting: &Setting, nodes: Nodes<'_>) -> anyhow::Result<()> {
        self.site.set(setting, nodes).map_err(|reason| anyhow!(reason))
    }

    /// None of these is set from the start, so there is nothing to take back.
    fn take(&mut self, other: OtherSetting) {
        match other {
            OtherSetting::Weight(account, weight) => {
                self.weights.extend(weight.map(|weight| (account, weight)));
            }
            OtherSetting::Resource(name, spec) => self.resources.push((name, spec)),
        }
    }

    /// `[HOURS/]interactive:wait=1m,processors=64`.
    fn set_rules(&mut self, setting: &str, nodes: Nodes<'_>) -> anyhow::Result<()> {
        let (during, rest) = hours(setting);
        let Some((name, rules)) = rest.split_once(':').filter(|(name, _)| !name.is_empty()) else {
            bail!("{setting:?} sets no rule; write CLASS:RULE=VALUE, such as interactive:wait=1m");
        };
        self.set_each(&Section::Class(ClassName::new(name)), (during, rules), nodes)
    }

    /// `[HOURS/]short:user_jobs=2,job_time=1h`.
    fn set_limits(&mut self, setting: &str, nodes: Nodes<'_>) -> anyhow::Result<()> {
        let (during, rest) = hours(setting);
        let (name, limits) = rest.split_once(':').unwrap_or((rest, ""));
        if name.is_empty() {
            bail!("{setting:?} names no queue; write QUEUE:LIMIT=VALUE, such as short:user_jobs=2");
        }
        let section = Section::Queue(QueueName::new(name));
        if limits.is_empty() {
            let (during, name) = (None, String::new());
            let setting = Setting { line: 0, section, during, name, value: "new".into() };
            return self.set_one(&setting, nodes);
        }
        self.set_each(&section, (during, limits), nodes)
    }

    /// `7=100h`, `@3=2000h`.
    fn set_allowance(&mut self, setting: &str, nodes: Nodes<'_>) -> anyhow::Result<()> {
        let account = setting.split_once('=').map(|(account, _)| account);
        let number = account.map(|account| account.strip_prefix('@').unwrap_or(account));
        if number.is_none_or(|number| number.parse::<u32>().is_err()) {
            bail!("{setting:?} is no allowance; write USER=TIME or @GROUP=TIME, such as 7=100h");
        }
        self.set(&format!("bank.{setting}"), nodes)
    }

    fn set_each(
        &mut self,
        section: &Section,
        (during, settings): (Option<&str>, &str),
        nodes: Nodes<'_>,
    ) -> anyhow::Result<()> {
        for setting in settings.split(',') {
            let Some((name, value)) = setting.split_once('=') else {
                bail!("{setting:?} sets nothing; write RULE=VALUE, such as wait=1m");
            };
            let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
            let (section, during) = (section.clone(), during.map(str::to_owned));
            self.set_one(&Setting { line: 0, section, during, name, value }, nodes)?;
        }
        Ok(())
    }
}

fn hours(setting: &str) -> (Option<&str>, &str) {
    match setting.split_once('/') {
        Some((during, rest)) => (Some(during), rest),
        None => (None, setting),
    }
}

/// What jobs have of a counted resource: `licence:2`, or `production=licence:2` for those of a
/// class.
fn usage(text: &str) -> anyhow::Result<(Option<ClassName>, ResourceWish)> {
    let (class, wish) = match text.split_once('=') {
        Some((class, wish)) => (Some(ClassName::new(class.trim())), wish.trim()),
        None => (None, text),
    };
    Ok((class, wish.parse()?))
}

#[cfg(test)]
mod tests {
    use super::{Scheduler, usage};
    use crate::sim::options::Options;
    use clap::Parser;
    use tutti_types::{BankAccount, ClassName, GroupId, Nanos, QueueName, UserId};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn scheduler(policy: &str, words: &[&str]) -> anyhow::Result<Scheduler> {
        let line = Line::try_parse_from(["sim"].iter().chain(words)).unwrap();
        Scheduler::of(policy, &line.options, &|list| match list {
            "node1" => Ok(()),
            _ => Err(format!("no {list}")),
        })
    }

    fn says(words: &[&str]) -> String {
        scheduler("gang", words).unwrap_err().to_string()
    }

    #[test]
    fn rules_of_classes_are_set_one_after_the_other() {
        let words = ["interactive:wait=1m,share=60%", "mine:share=40%", "interactive:priority=7"];
        let words: Vec<&str> = words.iter().flat_map(|word| ["--class", word]).collect();
        let classes = scheduler("gang", &words).unwrap().site.settings.classes;
        let interactive = classes[&ClassName::new("interactive")];
        assert_eq!(interactive.wait(), Some(Nanos::from_secs(60)));
        assert_eq!((interactive.share(), interactive.priority()), (6000, 7));
        assert_eq!(classes[&ClassName::new("mine")].share(), 4000);
        assert_eq!(classes.len(), 5);
    }

    #[test]
    fn jobs_that_go_on_after_their_limits_are_refused() {
        let overrun = ["--class", "production:overrun=standby"];
        assert!(says(&overrun).contains("--class production:overrun=end"), "{}", says(&overrun));
        let in_hours = ["--class", "mon-fri 08:00-18:00/standby:overrun=standby"];
        assert!(says(&in_hours).contains("jobs of class standby would go on"));
        let taken_back = [&overrun[..], &["--class", "production:overrun=end"]].concat();
        scheduler("gang", &taken_back).unwrap();
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(says(&["--class", "interactive"]).contains("CLASS:RULE=VALUE"));
        assert!(says(&["--class", ":wait=1m"]).contains("CLASS:RULE=VALUE"));
        assert!(says(&["--class", "interactive:wait"]).contains("RULE=VALUE"));
        assert!(says(&["--class", "interactive:colour=red"]).contains("no parameter colour"));
        let over = ["--class", "a:share=60%", "--class", "b:share=60%"];
        assert!(says(&over).contains("at most 40%"), "{}", says(&over));
        assert!(says(&["--queue", ":jobs=1"]).contains("names no queue"));
        assert!(says(&["--queue", "a:colour=1"]).contains("a queue has no \"colour\""));
        assert!(says(&["--queue", "a:nodes=node7"]).contains("no node7"));
        assert!(says(&["--queue", "a:jobs=0"]).contains("no job could ever run"));
        assert!(says(&["--queue", "a:default_class=none-such"]).contains("there is no class"));
    }

    #[test]
    fn allowances_are_of_users_and_groups() {
        let says = |setting: &str| says(&["--bank", setting]);
        assert!(says("ada=1h").contains("such as 7=100h") && says("7").contains("such as 7=100h"));
        assert!(says("7=much").contains("much"));
        let all = scheduler("gang", &["--bank", "7=100h", "--bank", "@3=1m"]).unwrap();
        let allowances: Vec<_> = all.site.allowances().collect();
        assert_eq!(allowances[0].0, BankAccount::User(UserId(7)));
        assert_eq!(allowances[1].0, BankAccount::Group(GroupId(3)));
        assert_eq!(allowances[0].1.seconds(), 360_000);
    }

    #[test]
    fn what_holds_in_some_hours_is_kept_apart() {
        let day = "mon-fri 08:00-18:00/";
        let (rows, shares) = (format!("{day}rows=3"), format!("{day}standby:share=2%,empty=hold"));
        let limits = format!("{day}short:jobs=9");
        let words = [
            ["--set", "rows=2"],
            ["--set", &rows],
            ["--set", "sat/policy=space:easy"],
            ["--class", "standby:share=1%"],
            ["--class", &shares],
            ["--queue", "short:jobs=1,nodes=node1"],
            ["--queue", &limits],
        ];
        let scheduler = scheduler("gang", words.as_flattened()).unwrap();
        assert!(scheduler.has_hours());
        let settings = &scheduler.site.settings;
        assert_eq!(settings.params.rows(), 2);
        assert_eq!(settings.classes[&ClassName::new("standby")].share(), 100);
        let (hours, by_day) = &settings.periods[0];
        assert_eq!(hours.to_string(), "mon-fri 08:00-18:00");
        assert_eq!(by_day.params["rows"], 3);
        assert_eq!(by_day.classes[&ClassName::new("standby")]["share"], 200);
        assert_eq!(settings.periods[1].1.params.len(), 2, "a policy and its discipline");
        let queue = &scheduler.site.queues[&QueueName::new("short")];
        assert_eq!((queue.limits.get("jobs"), queue.periods[0].1["jobs"]), (Some(1), 9));
    }

    #[test]
    fn a_word_sets_everything_that_there_is() {
        let words = [
            ["--set", "order=arrival"],
            ["--set", "half_life=2h"],
            ["--set", "class.interactive.rows=3"],
            ["--set", "queue.short.user_jobs=2"],
            ["--set", "weight.7=3"],
            ["--set", "bank.@3=1h"],
            ["--set", "resource.licence=4"],
            ["--job-resource", "production=licence:2"],
        ];
        let policy = "gang:easy,class.interactive.rows=1,weight.@3=5";
        let all = scheduler(policy, words.as_flattened()).unwrap();
        assert_eq!(all.site.settings.params.half_life(), Some(Nanos::from_secs(7200)));
        assert_eq!(all.site.settings.classes[&ClassName::new("interactive")].rows(), 1);
        assert_eq!(all.site.queues.len(), 1);
        let groups = BankAccount::Group(GroupId(3));
        assert_eq!(all.weights, [(BankAccount::User(UserId(7)), 3), (groups, 5)]);
        assert_eq!(all.site.allowances().next().map(|it| it.0), Some(groups));
        assert_eq!(all.resources[0].1.count, 4);
        assert_eq!(all.uses, [usage("production=licence:2").unwrap()]);
    }
}
