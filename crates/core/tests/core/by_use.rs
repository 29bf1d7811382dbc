//! Rules by use: jobs that get another class once they have used so much processor time.

use crate::cluster::{Cluster, job, params};
use tutti_core::{Event, check_rule_by_use};
use tutti_types::class::{AfterUse, AfterUseError};
use tutti_types::{BankAccount, ClassName, ClusterTime, JobId, JobSpec, Nanos, ProcessorTime};

fn class(name: &str) -> ClassName {
    ClassName::new(name)
}

fn rule(c: &mut Cluster, of: &str, after: Option<(u64, &str)>) {
    let rule = after.map(|(ms, to)| AfterUse { used: Nanos::from_millis(ms), class: class(to) });
    c.event(Event::SetClassAfter { class: class(of), rule });
}

fn of(name: &str, processors: u32) -> JobSpec {
    JobSpec { class: class(name), ..job(processors) }
}

fn class_of(c: &Cluster, job: JobId) -> String {
    c.core.job(job, ClusterTime(c.now)).unwrap().spec.class.to_string()
}

#[test]
fn a_job_gets_the_other_class_when_it_has_used_so_much() {
    for policy in ["gang", "space", "classes", "deadline"] {
        let mut params = params(&[]);
        params.choose("policy", policy).unwrap();
        let mut c = Cluster::new(params);
        c.join(0, 2);
        rule(&mut c, "interactive", Some((1000, "production")));
        let wide = c.submit(of("interactive", 2));
        // Two processors use a second in half of one.
        c.advance_ms(499);
        assert_eq!(class_of(&c, wide), "interactive", "{policy}");
        c.advance_ms(2);
        assert_eq!(class_of(&c, wide), "production", "{policy}");
        // Its user can't go round the rule.
        c.event(Event::SetJobClass { job: wide, class: class("interactive") });
        assert_eq!(class_of(&c, wide), "production", "{policy}");
        c.drain();
    }
}

#[test]
fn only_time_in_turns_counts() {
    let mut c = Cluster::new(params(&[("quantum", 100_000_000)]));
    c.join(0, 1);
    rule(&mut c, "interactive", Some((1000, "standby")));
    let [one, other] = [0; 2].map(|_| c.submit(of("interactive", 1)));
    c.advance_ms(1800);
    assert_eq!((&*class_of(&c, one), &*class_of(&c, other)), ("interactive", "interactive"));
    c.advance_ms(400);
    assert_eq!((&*class_of(&c, one), &*class_of(&c, other)), ("standby", "standby"));
    c.drain();
}

#[test]
fn rules_form_chains_and_never_circles() {
    let mut c = Cluster::new(params(&[]));
    c.join(0, 1);
    rule(&mut c, "interactive", Some((100, "production")));
    rule(&mut c, "production", Some((200, "standby")));
    rule(&mut c, "standby", Some((300, "interactive")));
    assert_eq!(c.core.rules_by_use().len(), 2, "the third would close the circle");
    rule(&mut c, "benchmark", Some((300, "nosuch")));
    rule(&mut c, "nosuch", Some((300, "standby")));
    rule(&mut c, "benchmark", Some((300, "benchmark")));
    assert_eq!(c.core.rules_by_use().len(), 2);
    let job = c.submit(of("interactive", 1));
    c.advance_ms(150);
    assert_eq!(class_of(&c, job), "production");
    c.advance_ms(100);
    assert_eq!(class_of(&c, job), "standby");
    let circle = AfterUse { used: Nanos::from_millis(1), class: class("interactive") };
    let others = |class: &ClassName| c.core.rules_by_use().get(class);
    let error = check_rule_by_use(&class("standby"), &circle, |_| true, others).unwrap_err();
    assert!(matches!(error, AfterUseError::Circle(_)));
    assert!(
        error.to_string().contains("standby -> interactive -> production -> standby"),
        "{error}"
    );
    c.drain();
}

#[test]
fn a_job_whose_owner_spent_the_allowance_goes_back_to_the_class_of_the_rule() {
    let mut c = Cluster::new(params(&[]));
    c.join(0, 1);
    rule(&mut c, "interactive", Some((1500, "benchmark")));
    let spec = of("interactive", 1);
    let account = BankAccount::User(spec.owner);
    let allowance = |s| Some(ProcessorTime::of_one(Nanos::from_secs(s)));
    c.event(Event::SetBank { account, allowance: allowance(1) });
    let job = c.submit(spec);
    c.advance_ms(2500);
    assert_eq!(class_of(&c, job), "standby");
    let view = c.core.job(job, ClusterTime(c.now)).unwrap();
    assert_eq!(view.former_class.map(ToString::to_string).as_deref(), Some("benchmark"));
    c.event(Event::SetBank { account, allowance: allowance(100) });
    assert_eq!(class_of(&c, job), "benchmark");
    c.drain();
}

#[test]
fn a_rule_that_is_dropped_or_comes_later_counts_from_then_on() {
    let mut c = Cluster::new(params(&[]));
    c.join(0, 1);
    let job = c.submit(of("interactive", 1));
    rule(&mut c, "interactive", Some((1000, "production")));
    rule(&mut c, "interactive", None);
    c.advance_ms(2000);
    assert_eq!(class_of(&c, job), "interactive");
    rule(&mut c, "interactive", Some((1000, "production")));
    assert_eq!(class_of(&c, job), "production", "it has used more already");
    c.drain();
}
