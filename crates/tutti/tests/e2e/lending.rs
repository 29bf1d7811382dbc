//! Idle slots of allocations: other jobs run there until a step starts.

use crate::harness::{Instance, Running, eventually, own_processors, status_of, within};
use crate::recovery::kill_daemon;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// A command for `tutti alloc`: a step for each file `step-N`, until there is a file `end-N`.
fn allocation(instance: &Instance, slots: usize) -> Running {
    let program = instance.program.display();
    let line = format!(
        "for n in 1 2 3; do while ! test -s step-$n; do test -e over && exit 5; sleep 0.02; done; \
         {program} run -n $(cat step-$n) sh -c \
         \"echo \\$\\$ > pid-$n-\\$TUTTI_RANK; while ! test -e end-$n; do :; done\" & \
         done; wait; while ! test -e over; do sleep 0.02; done; exit 5"
    );
    instance.start(&["alloc", "-n", &slots.to_string(), "sh", "-c", &line])
}

fn lent(instance: &Instance, job: u64) -> Option<u64> {
    instance.job(job)["lent_processors"].as_u64()
}

/// The percentage of the time that jobs had turns in, over a second or more.
fn percent_of(instance: &Instance, jobs: &[u64]) -> Vec<u64> {
    let service = |job: &u64| instance.job(*job)["service_ms"].as_u64().unwrap();
    let begin = Instant::now();
    let before: Vec<u64> = jobs.iter().map(service).collect();
    std::thread::sleep(Duration::from_millis(1500));
    let after: Vec<u64> = jobs.iter().map(service).collect();
    let took = u64::try_from(begin.elapsed().as_millis()).unwrap();
    before.iter().zip(after).map(|(before, after)| (after - before) * 100 / took).collect()
}

/// An instance with an allocation of all its processors, and how many these are.
fn with_allocation() -> (Instance, usize, Running) {
    let instance = Instance::of_the_system_alone().up();
    instance.tutti(&["params", "quantum=50ms"]).expect(0);
    let all = own_processors().len();
    let alloc = allocation(&instance, all);
    alloc.wait_for_err("has its processors");
    (instance, all, alloc)
}

fn pid_of(instance: &Instance, name: &str) -> i32 {
    let read = || std::fs::read_to_string(instance.work.join(name)).ok()?.trim().parse().ok();
    within(Duration::from_secs(20), name, read)
}

#[test]
fn a_busy_job_has_all_time_while_an_allocation_is_idle_and_shares_with_its_step() {
    let (instance, all, alloc) = with_allocation();
    assert_eq!(lent(&instance, 1), None, "nothing else wants the time");
    let busy = instance.submit_spinner(u32::try_from(all).unwrap());
    instance.wait_for_state(busy, "running");
    let is_lent = || (lent(&instance, 1) == Some(all as u64)).then_some(());
    eventually("all is lent", is_lent);
    let shown = instance.tutti(&["ps"]).expect(0).text();
    assert!(shown.contains("to other jobs until a step starts"), "{shown}");
    let had = percent_of(&instance, &[busy])[0];
    assert!(had >= 95, "{had}%");
    // Whichever daemon is another, it goes on like this.
    for role in ["agent", "controller"] {
        kill_daemon(&instance, role);
        eventually("all is lent still", is_lent);
    }
    instance.script("step-1", &all.to_string());
    pid_of(&instance, "pid-1-0");
    assert_eq!(lent(&instance, 1), None);
    let had = percent_of(&instance, &[busy])[0];
    assert!((30..=70).contains(&had), "{had}%");
    instance.script("end-1", "");
    eventually("all is lent again", is_lent);
    let had = percent_of(&instance, &[busy])[0];
    assert!(had >= 95, "{had}%");
    // Its task has turns again for its end.
    instance.script("over", "");
    let begin = Instant::now();
    alloc.wait().expect(5);
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    for name in ["step-1", "end-1", "over"] {
        std::fs::remove_file(instance.work.join(name)).unwrap();
    }
    let killed = allocation(&instance, all);
    killed.wait_for_err("has its processors");
    eventually("all is lent", || (lent(&instance, 3) == Some(all as u64)).then_some(()));
    killed.signal(Signal::SIGKILL);
    within(Duration::from_secs(4), "the end of the job", || {
        let over = |job: &serde_json::Value| job["job"] != 3 || job["state"] == "ended";
        instance.jobs().iter().all(over).then_some(())
    });
    // Its command goes on without it.
    instance.script("over", "");
    std::thread::sleep(Duration::from_millis(200));
    instance.tutti(&["cancel", "--now", &busy.to_string()]).expect(0);
}

#[test]
fn a_guest_runs_on_a_slot_that_a_step_leaves_idle_and_leaves_it_to_the_next_step() {
    let (instance, all, alloc) = with_allocation();
    instance.script("step-1", &(all - 1).to_string());
    pid_of(&instance, "pid-1-0");
    let jobs: Vec<u64> = (0..all).map(|_| instance.submit_spinner(1)).collect();
    jobs.iter().for_each(|&job| drop(instance.wait_for_state(job, "running")));
    eventually("one is lent", || (lent(&instance, 1) == Some(1)).then_some(()));
    let mut had = percent_of(&instance, &jobs);
    had.sort_unstable();
    assert!(had[all - 1] >= 95, "the one that fits: {had:?}");
    assert!(had[..all - 1].iter().all(|had| (30..=70).contains(had)), "{had:?}");
    let mask = |pid| status_of(pid, "Cpus_allowed_list").unwrap();
    let first: Vec<String> =
        (0..all - 1).map(|rank| mask(pid_of(&instance, &format!("pid-1-{rank}")))).collect();
    kill_daemon(&instance, "agent");
    // The processor that was lent is the step's own, at once.
    instance.script("step-2", "1");
    let second = mask(pid_of(&instance, "pid-2-0"));
    assert!(second.parse::<usize>().is_ok() && !first.contains(&second), "{first:?}, {second}");
    for (rank, before) in first.iter().enumerate() {
        assert_eq!(mask(pid_of(&instance, &format!("pid-1-{rank}"))), *before);
    }
    let had = percent_of(&instance, &jobs);
    assert!(had.iter().all(|had| (30..=70).contains(had)), "{had:?}");
    for name in ["end-1", "end-2", "over"] {
        instance.script(name, "");
    }
    instance.script("step-3", "1");
    instance.script("end-3", "");
    alloc.wait().expect(5);
    assert!(!instance.log().contains("T073"), "{}", instance.log());
    for job in jobs {
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
    }
}
