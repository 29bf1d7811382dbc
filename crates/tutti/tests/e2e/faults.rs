//! A front end that is interrupted, terminated, hung up or killed.

use crate::harness::{Instance, Running, eventually, within};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

#[test]
fn an_interrupt_is_passed_on_to_the_job() {
    let instance = Instance::new().up();
    let line = "trap 'exit 42' INT; echo up; while :; do sleep 0.05; done";
    let running = instance.start(&["run", "-n", "2", "sh", "-c", line]);
    running.wait_for("up\nup\n");
    running.signal(Signal::SIGINT);
    running.wait().expect(42);
}

#[test]
fn a_second_interrupt_ends_the_job_and_a_third_kills_it() {
    let instance = Instance::new().up();
    let line = "trap '' INT; echo up; while :; do sleep 0.05; done";
    let running = instance.start(&["run", "--grace", "1h", "sh", "-c", line]);
    running.wait_for("up");
    running.signal(Signal::SIGINT);
    eventually("word of the first interrupt", || {
        running.err().contains("sent SIGINT").then_some(())
    });
    running.signal(Signal::SIGINT);
    running.wait().expect(143);
    let line = "trap '' INT TERM; echo up; while :; do sleep 0.05; done";
    let running = instance.start(&["run", "--grace", "1h", "sh", "-c", line]);
    running.wait_for("up");
    for word in ["sent SIGINT", "ending job", ""] {
        running.signal(Signal::SIGINT);
        eventually("word of an interrupt", || running.err().contains(word).then_some(()));
    }
    running.wait().expect(137);
}

#[test]
fn a_job_that_ignores_an_interrupt_is_ended_when_its_grace_is_over() {
    let instance = Instance::new().up();
    for (ignored, code) in [("INT", 143), ("INT TERM", 137)] {
        let line = format!("trap '' {ignored}; echo up; while :; do sleep 0.05; done");
        let running = instance.start(&["run", "--grace", "300ms", "sh", "-c", &line]);
        running.wait_for("up");
        running.signal(Signal::SIGINT);
        running.wait().expect(code).says("did not end of SIGINT within 300ms");
    }
}

#[test]
fn an_interrupt_takes_a_job_that_waits_out_of_the_queue() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let spinner = instance.submit_spinner(2);
    let running = instance.start(&["run", "-n", "2", "sh", "-c", "echo > ran"]);
    eventually("word of the queue", || running.err().contains("is queued").then_some(()));
    running.signal(Signal::SIGINT);
    let done = running.wait();
    assert_ne!(done.code, 0, "{}", done.err);
    done.says("is taken out of the queue");
    instance.tutti(&["cancel", &spinner.to_string()]).expect(0);
    // Had it stayed in the queue it would run before this one.
    instance.tutti(&["run", "-n", "2", "true"]).expect(0);
    assert!(!instance.work.join("ran").exists());
}

#[test]
fn a_front_end_that_is_terminated_or_hung_up_ends_the_job() {
    let instance = Instance::new().up();
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let line = "trap 'echo asked; exit 7' TERM; echo up; while :; do sleep 0.05; done";
        let running = instance.start(&["run", "-n", "2", "sh", "-c", line]);
        running.wait_for("up\nup\n");
        running.signal(signal);
        let done = running.wait().expect(7);
        assert_eq!(done.text().matches("asked").count(), 2, "{}", done.text());
    }
}

#[test]
fn a_job_that_ignores_the_request_is_killed_after_its_grace() {
    let instance = Instance::new().up();
    let line = "trap '' TERM HUP INT; echo up; while :; do sleep 0.05; done";
    let running = instance.start(&["run", "--grace", "300ms", "-n", "2", "sh", "-c", line]);
    running.wait_for("up\nup\n");
    let asked = Instant::now();
    running.signal(Signal::SIGTERM);
    running.wait().expect(137);
    let took = asked.elapsed();
    assert!(took >= Duration::from_millis(300), "killed before its grace was over: {took:?}");
    assert!(took < Duration::from_secs(5), "killed long after its grace: {took:?}");
}

#[test]
fn other_signals_are_passed_on() {
    let instance = Instance::new().up();
    let line = "trap 'echo one' USR1; trap 'exit 9' QUIT; echo up; while :; do sleep 0.05; done";
    let running = instance.start(&["run", "sh", "-c", line]);
    running.wait_for("up");
    running.signal(Signal::SIGUSR1);
    running.wait_for("one");
    running.signal(Signal::SIGQUIT);
    running.wait().expect(9);
}

#[test]
fn the_job_of_a_front_end_that_was_killed_ends_after_its_grace() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "front_end_grace=500ms"]).expect(0);
    let line = "trap '' TERM; echo up; sleep $NAP & sleep $NAP";
    let running = instance.start(&["run", "--grace", "200ms", "-n", "2", "sh", "-c", line]);
    running.wait_for("up\nup\n");
    eventually("four sleeps", || (instance.nappers().len() >= 4).then_some(()));
    let killed = Instant::now();
    running.signal(Signal::SIGKILL);
    running.wait().expect(137);
    assert!(!instance.nappers().is_empty() || killed.elapsed() > Duration::from_millis(500));
    within(Duration::from_secs(10), "the end of the job", || {
        instance.nappers().is_empty().then_some(())
    });
    let job = instance.wait_for_state(1, "ended");
    assert!(job["reason"].as_str().unwrap().contains("front end"), "{job}");
}

#[test]
fn a_front_end_that_is_killed_at_any_moment_of_its_start_leaves_nothing() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "front_end_grace=0s"]).expect(0);
    for round in 0..20u64 {
        let args = ["run", "--grace", "100ms", "-n", "4", "sh", "-c", "sleep $NAP & sleep $NAP"];
        let running: Running = instance.start(&args);
        let until = Instant::now() + Duration::from_micros(round * 700);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        running.signal(Signal::SIGKILL);
        running.wait().expect(137);
    }
    eventually("the end of all jobs", || {
        let ended = instance.jobs().iter().all(|job| job["state"] == "ended");
        (ended && instance.nappers().is_empty()).then_some(())
    });
}

#[test]
fn a_front_end_that_is_terminated_while_its_job_waits_takes_it_out_of_the_queue() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let first = instance.submit_spinner(2);
    instance.wait_for_state(first, "running");
    let waiting = instance.start(&["run", "-n", "2", "sh", "-c", "sleep $NAP"]);
    eventually("word that it waits", || waiting.err().contains("queued").then_some(()));
    waiting.signal(Signal::SIGTERM);
    waiting.wait().expect(143);
    instance.tutti(&["cancel", "--now", &first.to_string()]).expect(0);
}

#[test]
fn garbage_on_a_socket_costs_only_its_own_connection() {
    use std::io::Write;
    let instance = Instance::new().up();
    let running = instance.start(&["run", "sh", "-c", "echo up; read line; exit 3"]);
    for socket in ["controller.sock", "keeper.sock"] {
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"tutti", &[0; 100_000], b""]
        {
            let path = instance.dir.join(socket);
            let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
            // It may be closed on us while we write.
            let _ = stream.write_all(garbage);
        }
    }
    running.wait().expect(3);
    instance.tutti(&["run", "true"]).expect(0);
}
