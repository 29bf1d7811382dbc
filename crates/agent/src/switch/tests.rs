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

    fn name(&self) -> Name {
        (self.pid(), ProcessStat::read(self.pid()).unwrap().start_time)
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
        thread.members.get_mut(&JobId(2)).unwrap().spare(users, Learns::Yes);
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

#[test]
fn what_a_user_stops_by_a_signal_stays_stopped_until_the_user_continues_it() {
    let sleeper = Sleeper::start();
    let names = || BTreeSet::from([sleeper.name()]);
    let mut thread = thread(&[&sleeper], Nanos::from_secs(60));
    let settings = thread.settings;
    // Out of the job's turn, and in it.
    for is_its_turn in [false, true] {
        if !is_its_turn {
            assert_eq!(suspend(&mut thread), []);
        }
        let member = thread.members.get_mut(&JobId(1)).unwrap();
        member.halt(names(), nix::libc::SIGSTOP);
        for _ in 0..2 {
            assert_eq!(suspend(&mut thread), []);
            resume(&mut thread);
            assert!(sleeper.is_stopped());
        }
        thread.members.get_mut(&JobId(1)).unwrap().go_on(Some(&names()), settings);
        assert!(!sleeper.is_stopped());
    }
}

#[test]
fn a_stop_that_a_program_may_handle_comes_when_it_is_the_jobs_turn() {
    let line = "trap 'exit 7' TSTP; echo; while :; do sleep 0.01; done";
    let mut shell = Command::new("sh");
    let mut shell = Sleeper(shell.args(["-c", line]).stdout(Stdio::piped()).spawn().unwrap());
    let mut byte = [0];
    std::io::Read::read_exact(shell.0.stdout.as_mut().unwrap(), &mut byte).unwrap();
    let mut thread = thread(&[&shell], Nanos::from_secs(60));
    assert_eq!(suspend(&mut thread), []);
    let names = BTreeSet::from([shell.name()]);
    thread.members.get_mut(&JobId(1)).unwrap().halt(names, nix::libc::SIGTSTP);
    resume(&mut thread);
    assert_eq!(shell.0.wait().unwrap().code(), Some(7));
}

#[test]
fn a_part_that_could_not_be_stopped_goes_on_only_in_its_turn() {
    let sleeper = Sleeper::start();
    let names = BTreeSet::from([sleeper.name()]);
    let mut thread = thread(&[&sleeper], Nanos::from_secs(60));
    assert_eq!(suspend(&mut thread), []);
    thread.members[&JobId(1)].let_go_on(&names);
    assert!(sleeper.is_stopped(), "it runs out of its turn");
    resume(&mut thread);
    sleeper.signal(nix::sys::signal::Signal::SIGSTOP);
    while !sleeper.is_stopped() {
        std::thread::yield_now();
    }
    // Born during the walk of a part, and stopped by that: not the job's own.
    let member = thread.members.get_mut(&JobId(1)).unwrap();
    member.spare(names, Learns::No);
    member.spare(BTreeSet::new(), Learns::No);
    assert!(!sleeper.is_stopped());
}
