//! Instances of one machine see each other's jobs as external load.

use crate::harness::{Instance, eventually, own_processors};

/// The processor of a job with one task.
fn processor_of(instance: &Instance, job: u64) -> u64 {
    let job = instance.wait_for_state(job, "running");
    let place = job["placement"][0].as_str().unwrap();
    place.rsplit(':').next().unwrap().parse().unwrap()
}

/// The processors with external load that an instance knows of.
fn external(instance: &Instance) -> Vec<u64> {
    let nodes = instance.tutti(&["nodes", "--json"]).expect(0).json();
    nodes[0]["external_load"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect()
}

fn cancel(instance: &Instance, job: u64) {
    instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    instance.wait_for_state(job, "ended");
}

#[test]
fn jobs_of_two_instances_get_processors_of_their_own() {
    assert!(own_processors().len() > 1, "THIS TEST NEEDS TWO PROCESSORS");
    let private = Instance::alone().up();
    let idle = Instance::of_the_system().up();
    let first = private.submit_spinner(1);
    let taken = processor_of(&private, first);
    // An instance without jobs learns of it when that job starts.
    eventually("the idle instance knows", || external(&idle).contains(&taken).then_some(()));
    // While jobs of other tests have the other processor, it gets any.
    eventually("a processor of its own", || {
        let beside = idle.submit_spinner(1);
        let is_apart = processor_of(&idle, beside) != taken;
        cancel(&idle, beside);
        is_apart.then_some(())
    });
    drop(idle);
    // An instance that starts for a job knows before that job is placed.
    let fresh = Instance::new();
    let second = fresh.submit_spinner(1);
    let other = processor_of(&fresh, second);
    assert_ne!(taken, other);
    let table = fresh.tutti(&["nodes"]).expect(0).text();
    assert!(table.contains(&format!("({taken})")), "{table}");
    // A gang that needs all processors runs beside external load.
    fresh.tutti(&["run", "-n", "2", "true"]).expect(0);
    cancel(&private, first);
    cancel(&fresh, second);
    private.tutti(&["params", "foreign=0%"]).expect(0);
    eventually("nothing is reported", || external(&private).is_empty().then_some(()));
}
