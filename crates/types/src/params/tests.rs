use super::{Discipline, LineOrder, Params, TABLE, Traversal};
use crate::param::{ParamError, ParamKind};
use crate::time::Nanos;
use std::collections::BTreeMap;

#[test]
fn defaults_are_within_their_ranges_and_the_accessors_agree_with_the_table() {
    let params = Params::default();
    assert_eq!(params.check(), Ok(()));
    assert_eq!(params.get("quantum"), Some(params.quantum().0));
    assert_eq!(params.get("rows"), Some(u64::from(params.rows())));
    assert_eq!(params.get("lead"), Some(params.lead().0));
    assert_eq!(params.get("front_end_grace"), Some(params.front_end_grace().0));
    assert_eq!(params.get("lease"), Some(params.lease().0));
    assert_eq!(params.get("freeze_deadline"), Some(params.freeze_deadline().0));
    assert_eq!(params.get("retry_interval"), Some(params.retry_interval().0));
    assert_eq!(params.get("idle_exit"), params.idle_exit().map(|idle| idle.0));
    assert_eq!(params.traversal(), Traversal::default());
    assert_eq!(params.iter().count(), TABLE.len());
}

#[test]
fn a_value_out_of_range_names_the_range_and_changes_nothing() {
    let mut params = Params::default();
    let error = params.set("quantum", 1_000_000).unwrap_err();
    assert_eq!(error.to_string(), "quantum can't be 1ms; it may be 2ms to 1d");
    let error = params.set("rows", 0).unwrap_err();
    assert_eq!(error.to_string(), "rows can't be 0; it may be 1 to 1024");
    assert_eq!(params, Params::default());
}

#[test]
fn an_unknown_name_gets_the_nearest_or_all() {
    let mut params = Params::default();
    let error = params.set("quantm", 1).unwrap_err();
    assert_eq!(error.to_string(), "there is no parameter quantm; did you mean quantum?");
    let error = params.set("colour", 1).unwrap_err();
    assert!(matches!(error, ParamError::Unknown { nearest: None, .. }));
    assert!(error.to_string().contains("quantum, rows, lead"));
    assert!(params.set(&"q".repeat(100_000), 1).is_err());
}

#[test]
fn choices_are_words_and_a_policy_may_name_its_discipline() {
    let mut params = Params::default();
    assert_eq!((params.policy(), params.discipline()), (0, Discipline::Fcfs));
    params.choose("policy", "space:sjbf").unwrap();
    assert_eq!(params.policy(), 1);
    assert_eq!(params.discipline(), Discipline::Sjbf);
    params.choose("policy", "gang").unwrap();
    assert_eq!((params.policy(), params.discipline()), (0, Discipline::Sjbf));
    let before = params.clone();
    let says = |name, word| params.clone().choose(name, word).unwrap_err().to_string();
    assert_eq!(
        says("policy", "spice"),
        "policy can't be \"spice\"; it may be gang, space, classes, deadline, external or dhc"
    );
    assert_eq!(
        says("policy", "space:best"),
        "discipline can't be \"best\"; it may be fcfs, easy, sjbf or conservative"
    );
    assert_eq!(says("polcy", "gang"), "there is no parameter polcy; did you mean policy?");
    assert_eq!(params, before);
    assert_eq!(
        params.set("discipline", 4).unwrap_err().to_string(),
        "discipline can't be 4; it may be fcfs, easy, sjbf or conservative"
    );
    for param in TABLE {
        if let ParamKind::Choice(words) = param.kind {
            assert_eq!((param.min, param.max), (0, words.len() as u64 - 1));
        }
    }
}

#[test]
fn a_map_lacking_a_name_gets_its_default() {
    let map = |name: &str, value: u64| BTreeMap::from([(name.to_owned(), value)]);
    let params = Params::try_from(map("quantum", 5_000_000)).unwrap();
    assert_eq!(params.quantum(), Nanos::from_millis(5));
    assert_eq!(params.rows(), 4);
    assert!(Params::try_from(map("rows", 0)).is_err());
    // It was the only one before the parameter existed.
    assert_eq!(params.order(), LineOrder::Arrival);
    assert_eq!(Params::try_from(map("order", 0)).unwrap().order(), LineOrder::Users);
    let all = BTreeMap::from(Params::default());
    assert_eq!(Params::try_from(all), Ok(Params::default()));
    let former = Params::try_from(map("queue", 1)).unwrap();
    assert_eq!(former.discipline(), Discipline::Easy);
}

#[test]
fn idle_exit_zero_means_never() {
    let mut params = Params::default();
    params.set("idle_exit", 0).unwrap();
    assert_eq!(params.idle_exit(), None);
}
