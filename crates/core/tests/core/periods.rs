//! What holds in which hours of the week.

use crate::cluster::{Cluster, job, params};
use std::collections::BTreeMap;
use tutti_core::{Event, JobState};
use tutti_types::{
    ClassName, ClassSpec, ClusterTime, JobId, JobSpec, Nanos, Overrides, Period, TaskStatus,
};

const MINUTE: u64 = 60_000_000_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

fn period(text: &str) -> Period {
    text.parse().unwrap()
}

fn of_params(values: &[(&str, u64)]) -> Overrides {
    let params = values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    Overrides { params, ..Overrides::default() }
}

fn of_class(class: &str, values: &[(&str, u64)]) -> Overrides {
    let rules: BTreeMap<_, _> =
        values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    Overrides { classes: [(ClassName::new(class), rules)].into(), ..Overrides::default() }
}

fn set(cluster: &mut Cluster, when: &str, overrides: Overrides) {
    cluster.event(Event::SetPeriod { period: period(when), overrides });
}

fn is_resident(cluster: &Cluster, job: JobId) -> bool {
    let view = cluster.core.job(job, ClusterTime(cluster.now)).unwrap();
    matches!(view.state, JobState::Running { .. })
}

fn clocks_say(cluster: &mut Cluster, day: u64, hour: u64) {
    cluster.event(Event::Calendar { week: Nanos(day * DAY + hour * HOUR) });
}

#[test]
fn where_clocks_are_put_forward_hours_are_left_out_and_where_they_are_put_back_hold_twice() {
    let mut c = Cluster::new(params(&[("rows", 2)]));
    c.join(0, 2);
    set(&mut c, "sun 02:00-03:00", of_params(&[("rows", 1)]));
    let rows = |c: &Cluster| c.core.params().rows();
    c.event(Event::Calendar { week: Nanos(6 * DAY + 2 * HOUR - MINUTE) });
    c.advance(MINUTE - 1);
    assert_eq!(rows(&c), 2);
    // A minute before two; then it is three.
    clocks_say(&mut c, 6, 3);
    assert_eq!(rows(&c), 2);
    c.advance(6 * DAY + 22 * HOUR);
    assert_eq!(rows(&c), 2);
    c.advance(HOUR);
    assert_eq!(rows(&c), 1, "a week later there is such an hour");
    c.advance(HOUR - 1);
    clocks_say(&mut c, 6, 2);
    assert_eq!(rows(&c), 1, "it comes again");
    c.advance(HOUR - 1);
    assert_eq!(rows(&c), 1);
    c.advance(1);
    assert_eq!(rows(&c), 2);
}

#[test]
fn parameters_change_by_the_hour_without_anybody_saying_so() {
    let mut c = Cluster::new(params(&[("rows", 2), ("quantum", HOUR)]));
    c.join(0, 2);
    set(&mut c, "mon-fri 08:00-18:00", of_params(&[("rows", 1)]));
    assert_eq!(c.core.params().rows(), 2, "nobody knows what time it is");
    clocks_say(&mut c, 4, 17);
    let first = c.submit(job(2));
    let second = c.submit(job(2));
    assert_eq!(c.core.params().rows(), 1, "Friday afternoon");
    assert_eq!((is_resident(&c, first), is_resident(&c, second)), (true, false));
    c.advance(HOUR - 1);
    assert!(!is_resident(&c, second));
    c.advance(1);
    assert_eq!(c.core.params().rows(), 2);
    assert!(is_resident(&c, second), "seated as the hour strikes, by a tick alone");
    c.advance(2 * DAY);
    assert_eq!(c.core.params().rows(), 2, "Sunday");
    c.advance(14 * HOUR);
    assert_eq!(c.core.params().rows(), 1, "Monday, eight o'clock");
    assert!(is_resident(&c, second), "who is in stays in");
}

#[test]
fn of_two_periods_the_later_named_wins_and_the_standing_values_show_again() {
    let mut c = Cluster::new(params(&[("quantum", 100_000_000)]));
    c.join(0, 2);
    clocks_say(&mut c, 2, 12);
    set(&mut c, "mon-sun", of_params(&[("quantum", 50_000_000), ("rows", 7)]));
    set(&mut c, "wed", of_params(&[("quantum", 20_000_000)]));
    let now = |c: &Cluster| (c.core.params().quantum().0 / 1_000_000, c.core.params().rows());
    assert_eq!(now(&c), (20, 7));
    c.event(Event::SetParams { params: params(&[("quantum", 10_000_000)]) });
    assert_eq!(now(&c), (20, 7), "standing values wait behind those of the hour");
    c.advance(12 * HOUR);
    assert_eq!(now(&c), (50, 7));
    set(&mut c, "mon-sun", Overrides::default());
    assert_eq!(now(&c), (10, 4));
    assert_eq!(c.core.settings().periods.len(), 1);
}

#[test]
fn clocks_that_are_put_back_are_believed() {
    let mut c = Cluster::new(params(&[("rows", 2), ("quantum", HOUR)]));
    c.join(0, 2);
    set(&mut c, "08:00-18:00", of_params(&[("rows", 1)]));
    clocks_say(&mut c, 0, 8);
    assert_eq!(c.core.params().rows(), 1);
    clocks_say(&mut c, 0, 7);
    assert_eq!(c.core.params().rows(), 2);
    c.advance(HOUR);
    assert_eq!(c.core.params().rows(), 1);
}

#[test]
fn what_can_not_be_in_some_hour_is_not_taken() {
    let mut c = Cluster::new(params(&[]));
    c.join(0, 2);
    set(&mut c, "mon", of_params(&[("rows", 0)]));
    set(&mut c, "mon", of_params(&[("moon", 1)]));
    set(&mut c, "mon", of_class("unheard-of", &[("share", 1)]));
    assert!(c.core.settings().periods.is_empty());
    set(&mut c, "mon 08:00-12:00", of_class("interactive", &[("share", 6000)]));
    set(&mut c, "mon 12:00-18:00", of_class("production", &[("share", 6000)]));
    assert_eq!(c.core.settings().periods.len(), 2, "never both at once");
    set(&mut c, "mon 11:00-13:00", of_class("benchmark", &[("share", 5000)]));
    assert_eq!(c.core.settings().periods.len(), 2, "more than the whole, at eleven");
    // The same from the other side: what stands must go with what the hours add.
    let mut spec = c.core.classes()[&ClassName::new("standby")];
    spec.set("share", 5000).unwrap();
    c.event(Event::SetClass { class: ClassName::new("standby"), spec });
    clocks_say(&mut c, 0, 3);
    assert_eq!(c.core.classes()[&ClassName::new("standby")].share(), 0);
    c.advance(6 * HOUR);
    assert_eq!(c.core.classes()[&ClassName::new("interactive")].share(), 6000);
}

#[test]
fn a_class_can_go_once_nothing_keeps_it() {
    let mut c = Cluster::new(params(&[]));
    c.join(0, 2);
    let site = ClassName::new("site");
    let is_there = |c: &Cluster| c.core.classes().contains_key(&site);
    let forget = |c: &mut Cluster, class: &str| {
        let class = ClassName::new(class);
        let why = c.core.why_class_stays(&class).map(|why| why.to_string());
        c.event(Event::ForgetClass { class });
        why.unwrap_or_default()
    };
    assert!(forget(&mut c, "site").contains("there is no class site"));
    assert!(forget(&mut c, "production").contains("from the start"));
    assert!(c.core.classes().contains_key(&ClassName::new("production")));
    let spec = ClassSpec::default().with("share", 5000).unwrap();
    c.event(Event::SetClass { class: site.clone(), spec });
    let one = c.submit(JobSpec { class: site.clone(), ..job(1) });
    assert!(forget(&mut c, "site").contains("the class site has 1 job;"));
    c.end_tasks(one, TaskStatus::Exited(0));
    c.clear(one);
    set(&mut c, "mon", of_class("site", &[("share", 6000)]));
    assert!(forget(&mut c, "site").contains("otherwise mon"));
    assert!(is_there(&c));
    set(&mut c, "mon", Overrides::default());
    assert_eq!(forget(&mut c, "site"), "");
    assert!(!is_there(&c));
    // What it had is anybody's again.
    let all = ClassSpec::default().with("share", 10_000).unwrap();
    c.event(Event::SetClass { class: ClassName::new("standby"), spec: all });
    assert_eq!(c.core.classes()[&ClassName::new("standby")].share(), 10_000);
}
