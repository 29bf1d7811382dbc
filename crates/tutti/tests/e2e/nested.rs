//! Jobs of their own that a task of another job starts and waits for.

use crate::harness::{Instance, own_processors};

/// A job with as many tasks as there are processors, rank 0 of which runs this line; the others
/// stay until that is done.
fn on_all(instance: &Instance, line: &str) -> crate::harness::Done {
    let all = own_processors().len().to_string();
    let line = format!(
        "over=over-$TUTTI_JOB; if [ $TUTTI_RANK = 0 ]; then {line}; code=$?; touch $over; exit $code; fi; \
         until [ -e $over ]; do sleep 0.02; done"
    );
    instance.tutti(&["run", "-n", &all, "sh", "-c", &line])
}

#[test]
fn a_run_inside_a_job_is_declined_if_it_can_only_start_after_that_job() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "policy=space"]).expect(0);
    let run = format!("{} run --outside", instance.program.display());
    let done = on_all(&instance, &format!("{run} echo inner"));
    let done = done.expect(120).says("is inside job 1").says("[T008]");
    assert_eq!(done.text(), "");
    // Two levels: neither of the outer ones ends before the innermost.
    let all = own_processors().len();
    if all > 1 {
        let less = (all - 1).to_string();
        let line = format!("{run} sh -c '{run} echo innermost'");
        instance.tutti(&["run", "-n", &less, "sh", "-c", &line]).expect(120).says("[T008]");
        let done = instance.tutti(&["run", "sh", "-c", &format!("{run} echo inner")]).expect(0);
        assert_eq!(done.text(), "inner\n");
    }
    // Other tasks of the outer job have ended: the inner one gets their processors.
    if all > 1 {
        // It is declined as long as they are not known to have ended.
        let tries = format!("for i in $(seq 100); do {run} echo inner && exit; sleep 0.1; done");
        let line = format!("[ $TUTTI_RANK = 0 ] || exit 0; {tries}; exit 1");
        let done = instance.tutti(&["run", "-n", &all.to_string(), "sh", "-c", &line]).expect(0);
        assert_eq!(done.text(), "inner\n");
    }
    // In line it may wait: nothing waits for it.
    on_all(&instance, &format!("{} submit -o /dev/null true", instance.program.display()))
        .expect(0);
    instance.tutti(&["params", "policy=gang"]).expect(0);
    let done = on_all(&instance, &format!("{run} echo in turns")).expect(0);
    assert_eq!(done.text(), "in turns\n");
}
