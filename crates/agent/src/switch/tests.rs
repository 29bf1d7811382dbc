use super::*;
use crate::driver::first_settings;
use std::process::{Child, Command, Stdio};
use tutti_linux::proc::ProcessStat;
use tutti_types::Nanos;

/// Ended with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    fn is_stopped(&self) -> bool {
        ProcessStat::read(self.pid()).unwrap().state == 'T'
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A switch thread that has jobs of these processes, which run and are switched by signals.
fn thread(sleepers: &[&Sleeper], freeze_deadline: Nanos) -> Thread {
    let (_orders, inbox) = channel();
    let settings = Settings { freeze_deadline, ..first_settings() };
    let parts = (ClusterClock::default(), Lease::new(true));
    let mut thread = Thread::new(inbox, Bell::new().unwrap(), settings, parts, "a test".into());
    for (job, sleeper) in (1..).zip(sleepers) {
        let grip = Grip::SignalTrees(vec![Root::whole(sleeper.pid())]);
        thread.members.insert(JobId(job), Member::new(0, grip, State::Runs, Arc::default()));
    }
    thread
}

fn suspend(thread: &mut Thread) -> Vec<JobId> {
    let jobs: Vec<(JobId, State)> =
        thread.members.keys().map(|&job| (job, State::Stands)).collect();
    thread.suspend_all(&jobs)
}

fn resume(thread: &mut Thread) {
    let settings = thread.settings;
    for member in thread.members.values_mut() {
        member.state = State::Runs;
        member.resume(settings);
    }
}

/// Asks again until all have stopped.
fn ask_until_stopped(thread: &mut Thread) {
    while thread.members.values().any(|member| member.late.is_some()) {
        for member in thread.members.values_mut() {
            if let Some(late) = &mut member.late {
                late.at_ns = 0;
            }
        }
        thread.ask_again(u64::MAX);
    }
}

#[test]
fn a_job_that_did_not_stop_in_time_stays_asked_and_is_asked_again() {
    let sleeper = Sleeper::start();
    let mut thread = thread(&[&sleeper], Nanos::ZERO);
    assert_eq!(suspend(&mut thread), [JobId(1)], "nothing stops in no time");
    let late = thread.members[&JobId(1)].late.expect("it is asked again");
    assert_eq!(thread.ask_again(u64::MAX), late.at_ns, "the thread wakes up for it");
    while !sleeper.is_stopped() {
        std::thread::yield_now();
    }
    // Something lets it run again, as another SIGCONT does, or it was born meanwhile.
    sleeper.signal(nix::sys::signal::Signal::SIGCONT);
    assert!(!sleeper.is_stopped());
    ask_until_stopped(&mut thread);
    assert!(sleeper.is_stopped());
    resume(&mut thread);
    assert!(!sleeper.is_stopped(), "what was stopped at the second attempt is not the job's own");
}

#[test]
fn what_a_job_has_stopped_itself_stays_stopped_until_it_is_to_go_on() {
    let (runs, stopped) = (Sleeper::start(), Sleeper::start());
    stopped.signal(nix::sys::signal::Signal::SIGSTOP);
    while !stopped.is_stopped() {
        std::thread::yield_now();
    }
    let mut thread = thread(&[&runs, &stopped], Nanos::from_secs(60));
    for _ in 0..2 {
        assert_eq!(suspend(&mut thread), []);
        assert!(runs.is_stopped() && stopped.is_stopped());
        resume(&mut thread);
        assert!(!runs.is_stopped() && stopped.is_stopped());
    }
    // Its user suspends it as a part of the job, and takes that back.
    let name = (stopped.pid(), ProcessStat::read(stopped.pid()).unwrap().start_time);
    for users in [BTreeSet::from([name]), BTreeSet::new()] {
        assert_eq!(suspend(&mut thread), []);
        resume(&mut thread);
        thread.members.get_mut(&JobId(2)).unwrap().spare(users);
        assert!(stopped.is_stopped());
    }
    // The job is to end while it is not its turn.
    assert_eq!(suspend(&mut thread), []);
    let settings = thread.settings;
    thread.members.get_mut(&JobId(2)).unwrap().go_on(None, settings);
    assert!(stopped.is_stopped(), "it runs out of its turn");
    resume(&mut thread);
    assert!(!stopped.is_stopped());
}
