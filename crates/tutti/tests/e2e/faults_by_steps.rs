//! One table: every step of a job's life, every part, every fault; and whether the promises held.
//!
//! Each cell has an instance of its own with a job of two tasks, and short jobs that are handed in
//! one after the other. The fault comes while the job is at that step; then it is looked at from
//! outside: each task ran at most once; the job ended as its tasks said, with all of its output, or
//! it is reported otherwise, with the code of the reason, where the part that was hit may cost it;
//! each short job that was accepted ran once; and nothing of all that is left (see [`Instance`]).
//!
//! `TUTTI_FAULTS=all cargo test -p tutti --test e2e faults_by_steps -- --nocapture` goes through
//! all of it in some minutes and prints the table. Without the variable some cells are tried.

use crate::harness::{Done, Instance, Running, eventually, player, status_of, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Accepted,
    Queued,
    Starting,
    Launched,
    Running,
    Turns,
    Suspended,
    Ending,
    Clearing,
    Output,
    Input,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Controller,
    Agent,
    Keeper,
    Supervisor,
    FrontEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT a while later.
    Stop,
    /// SIGTERM: a daemon that ended in good order is started again, but for supervisor and front
    /// end.
    Restart,
}

use Fault::{Kill, Restart, Stop};
use Part::{Agent, Controller, FrontEnd, Keeper, Supervisor};

const STEPS: [Step; 11] = [
    Step::Accepted,
    Step::Queued,
    Step::Starting,
    Step::Launched,
    Step::Running,
    Step::Turns,
    Step::Suspended,
    Step::Ending,
    Step::Clearing,
    Step::Output,
    Step::Input,
];
const PARTS: [Part; 5] = [Controller, Agent, Keeper, Supervisor, FrontEnd];
const FAULTS: [Fault; 3] = [Kill, Stop, Restart];

/// What its tasks return.
const CODE: i32 = 5;

/// How long a part stands still.
const STANDS: Duration = Duration::from_millis(150);

/// How many short jobs have been accepted when the fault comes, and how many are tried after it.
const SHORT_BEFORE: usize = 3;
const SHORT_AFTER: usize = 3;

/// Whether it takes the instance down: a supervisor that is told to end does so.
fn ends_instance(part: Part, fault: Fault) -> bool {
    (part, fault) == (Supervisor, Restart)
}

/// Says that the fault has come, or never will.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// One that leaves a mark when it runs.
struct ShortJob {
    number: u64,
    mark: String,
}

/// What may become of the job, by exit code, beside what its tasks return.
fn may_end_with(step: Step, part: Part, fault: Fault) -> &'static [i32] {
    match (part, fault) {
        (_, Stop) | (Controller | Agent, _) => &[],
        // The tasks are the keeper's children: 121, and 125 where it was asked for them just then.
        (Keeper, Kill) => &[121, 125],
        // It ends them itself.
        (Keeper, Restart) => &[121, 125, 137],
        // What it held goes on; told to end, it ends the instance with its jobs.
        (Supervisor, Kill) => &[],
        (Supervisor, Restart) => &[122, 125, 120],
        (FrontEnd, Kill) => &[137],
        // It passes the end on to its job.
        (FrontEnd, Restart) if step == Step::Ending => &[143, 7],
        (FrontEnd, Restart) => &[143],
    }
}

/// A job at a step.
struct Scene {
    instance: Instance,
    front: Option<Running>,
    /// The job, once it has a number, where that is not told by the front end.
    job: Option<u64>,
    /// What it would write, if that is known.
    output: Option<Vec<String>>,
    code: i32,
    blocker: Option<u64>,
}

const RAN: &str = "echo >> ran-$TUTTI_RANK; echo up";
const GO: &str = "while [ ! -e go ]; do sleep 0.01; done; seq 1000";

impl Scene {
    fn at(step: Step) -> Self {
        let instance = Instance::new().up();
        let turns = step == Step::Turns;
        let quantum = if turns { "quantum=5ms" } else { "quantum=50ms" };
        instance.tutti(&["params", quantum, "front_end_grace=0s"]).expect(0);
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let counted: String = (1..=1000).map(|n| format!("{n}\n")).collect();
        let usual = [lines("up"), lines("up"), lines(&counted), lines(&counted)].concat();
        let mut scene = Self {
            instance,
            front: None,
            job: None,
            output: Some(usual),
            code: CODE,
            blocker: None,
        };
        match step {
            Step::Accepted => scene.submit(),
            Step::Queued => scene.queue(),
            Step::Starting | Step::Launched => scene.run(&format!("{RAN}; {GO}; exit {CODE}")),
            Step::Running | Step::Suspended | Step::Clearing => scene.run_up(GO),
            Step::Turns => {
                scene.blocker = Some(scene.instance.submit_spinner(2));
                scene.run_up(GO);
            }
            Step::Ending => {
                scene.run(&format!(
                    "trap 'sleep 0.2; exit 7' TERM; {RAN}; while :; do sleep 0.01; done"
                ));
                scene.front.as_ref().unwrap().wait_for("up\nup\n");
                (scene.code, scene.output) = (7, Some(lines("up\nup")));
            }
            Step::Output => {
                scene.run_up(&format!("{GO}; {} lines 3000", player().display()));
                scene.output = None;
            }
            Step::Input => scene.type_to_cat(),
        }
        scene
    }

    fn submit(&mut self) {
        let line = format!("{RAN}; {GO}; exit {CODE}");
        let words = ["-n", "2", "-o", "out-%r", "sh", "-c", &line];
        self.job = Some(self.instance.submit(&words));
    }

    fn run(&mut self, line: &str) {
        self.front = Some(self.instance.start(&["run", "-n", "2", "sh", "-c", line]));
    }

    fn run_up(&mut self, then: &str) {
        self.run(&format!("{RAN}; {then}; exit {CODE}"));
        self.front.as_ref().unwrap().wait_for("up\nup\n");
    }

    fn queue(&mut self) {
        self.instance.tutti(&["params", "rows=1"]).expect(0);
        self.blocker = Some(self.instance.submit_spinner(2));
        self.instance.wait_for_state(self.blocker.unwrap(), "running");
        self.run(&format!("{RAN}; {GO}; exit {CODE}"));
        let front = self.front.as_ref().unwrap();
        eventually("word that it waits", || front.err().contains("queued").then_some(()));
    }

    fn type_to_cat(&mut self) {
        let line = format!("echo >> ran-$TUTTI_RANK; echo up; cat; exit {CODE}");
        let words = ["run", "-n", "2", "-i", "0", "sh", "-c", &line];
        let mut front = self.instance.start_typing(&words);
        front.wait_for("up\nup\n");
        let typed: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
        // Half of it is under way when the fault comes, the other half comes after it.
        front.type_in(&typed.as_bytes()[..typed.len() / 2]);
        let all = format!("up\nup\n{typed}");
        self.output = Some(all.lines().map(str::to_owned).collect());
        self.front = Some(front);
    }

    /// The job's number.
    fn job(&self) -> u64 {
        self.job.unwrap_or_else(|| 1 + u64::from(self.blocker.is_some()))
    }

    /// The last thing before the fault.
    fn come_to(&self, step: Step) {
        let job = self.job().to_string();
        match step {
            Step::Launched => {
                let is_there = |it: &serde_json::Value| it["job"] == self.job();
                eventually("the job", || self.instance.jobs().into_iter().find(is_there));
            }
            Step::Starting => {
                let until = Instant::now() + Duration::from_millis(4);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
            Step::Suspended => drop(self.instance.tutti(&["suspend", &job]).expect(0)),
            Step::Ending => drop(self.instance.tutti(&["cancel", &job]).expect(0)),
            Step::Clearing | Step::Output => self.go(),
            Step::Accepted | Step::Queued | Step::Running | Step::Turns | Step::Input => {}
        }
    }

    fn go(&self) {
        std::fs::write(self.instance.work.join("go"), "").unwrap();
    }

    fn process_of(&self, part: Part) -> Option<i32> {
        match part {
            Controller => Some(self.instance.daemon("controller")),
            Agent => Some(self.instance.daemon("agent")),
            Keeper => Some(self.instance.daemon("keeper")),
            Supervisor => {
                let keeper = self.instance.daemon("keeper");
                Some(status_of(keeper, "PPid").unwrap().parse().unwrap())
            }
            FrontEnd => self.front.as_ref().map(Running::pid),
        }
    }

    fn strike(&self, process: i32, fault: Fault) {
        // It may have ended by itself.
        let send = |signal| {
            let _ = kill(Pid::from_raw(process), signal);
        };
        match fault {
            Kill => send(Signal::SIGKILL),
            Restart => send(Signal::SIGTERM),
            Stop => {
                send(Signal::SIGSTOP);
                let until = Instant::now() + STANDS;
                within(Duration::from_secs(5), "a while", || {
                    (Instant::now() > until).then_some(())
                });
                send(Signal::SIGCONT);
            }
        }
    }

    /// The fault, while short jobs are handed in: which were accepted.
    fn strike_under_load(
        &self,
        step: Step,
        part: Part,
        fault: Fault,
        process: i32,
    ) -> Vec<ShortJob> {
        if ends_instance(part, fault) {
            // A submit after that would start another.
            let jobs = (0..SHORT_BEFORE).filter_map(|_| self.hand_in_short()).collect();
            self.strike(process, fault);
            return jobs;
        }
        let (struck, accepted) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                let mut jobs = Vec::new();
                // Some before it, and some after it.
                let mut left = SHORT_AFTER;
                while left > 0 {
                    left -= usize::from(struck.load(Ordering::SeqCst));
                    let Some(job) = self.hand_in_short() else { continue };
                    jobs.push(job);
                    accepted.store(jobs.len(), Ordering::SeqCst);
                }
                jobs
            });
            let ends = Ends(&struck);
            // Elsewhere the step would be over by then.
            if !matches!(step, Step::Starting | Step::Launched | Step::Clearing | Step::Output) {
                eventually("short jobs", || {
                    (accepted.load(Ordering::SeqCst) >= SHORT_BEFORE).then_some(())
                });
            }
            self.strike(process, fault);
            drop(ends);
            load.join().unwrap()
        })
    }

    fn hand_in_short(&self) -> Option<ShortJob> {
        static SHORT_JOBS: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("short-{}", SHORT_JOBS.fetch_add(1, Ordering::SeqCst));
        let line = format!("echo >> {mark}");
        let done =
            self.instance.tutti(&["submit", "--parsable", "-o", "/dev/null", "sh", "-c", &line]);
        let number = done.text().trim().parse().ok()?;
        (done.code == 0).then_some(ShortJob { number, mark })
    }

    /// Each that was accepted ran once, or was lost with the keeper that had it, and that is told.
    fn check_short(&self, jobs: &[ShortJob], part: Part, fault: Fault) {
        if ends_instance(part, fault) {
            return;
        }
        for job in jobs {
            let number = job.number.to_string();
            let code = within(Duration::from_secs(20), "the end of a short job", || {
                let done = self.instance.tutti(&["wait", &number]);
                // The controller is being started again.
                (!done.err.contains("[T010]")).then_some(done.code)
            });
            let ran = std::fs::read_to_string(self.instance.work.join(&job.mark));
            let ran = ran.unwrap_or_default().lines().count();
            let is_lost = part == Keeper && fault != Stop && code != 0 && ran <= 1;
            assert!((code, ran) == (0, 1) || is_lost, "a short job: exit {code}, ran {ran} times");
        }
    }

    /// Lets the job come to its end, which must be its own, or one that the fault may cost.
    fn end(mut self, short: &[ShortJob], (step, part, fault): (Step, Part, Fault)) -> &'static str {
        let others = may_end_with(step, part, fault);
        let job = self.job().to_string();
        if step == Step::Suspended {
            self.ask(&["resume", &job]);
        }
        if let Some(blocker) = self.blocker {
            self.ask(&["cancel", "--now", &blocker.to_string()]);
        }
        self.go();
        let (done, output) = self.done(step);
        let own = done.code == self.code;
        assert!(own || others.contains(&done.code), "exit {}: {}", done.code, done.err);
        // A signal says it all.
        assert!(own || done.code > 128 || done.err.contains("[T"), "no reason: {}", done.err);
        self.check_runs(own);
        if own {
            self.check_output(output);
        }
        self.check_short(short, part, fault);
        within(Duration::from_secs(20), "the end of its processes", || {
            self.instance.nappers().is_empty().then_some(())
        });
        if ends_instance(part, fault) {
            within(Duration::from_secs(20), "the end of the instance", || {
                (!self.instance.dir.exists()).then_some(())
            });
        }
        if own { "ran" } else { "told" }
    }

    /// Asks until there is a controller that answers, or no instance.
    fn ask(&self, words: &[&str]) {
        // No instance, no such job, one that has ended.
        let is_over = |done: &Done| ["T010", "T021", "T022"].iter().any(|it| done.err.contains(it));
        eventually("an answer", || {
            let done = self.instance.tutti(words);
            (done.code == 0 || is_over(&done)).then_some(())
        });
    }

    fn done(&mut self, step: Step) -> (Done, String) {
        let Some(mut front) = self.front.take() else {
            let job = self.job().to_string();
            let done = self.instance.tutti(&["wait", &job]);
            let read =
                |rank| std::fs::read_to_string(self.instance.work.join(format!("out-{rank}")));
            let output = [0, 1].map(|rank| read(rank).unwrap_or_default()).concat();
            return (done, output);
        };
        if step == Step::Input {
            let typed: String = (10_000..20_000).map(|n| format!("line {n}\n")).collect();
            let all: String =
                (0..10_000).map(|n| format!("line {n}\n")).collect::<String>() + &typed;
            // A killed process reads no more.
            let _ = front.try_type_in(&all.as_bytes()[all.len() / 2..]);
        }
        let done = front.wait();
        let output = done.text();
        (done, output)
    }

    /// No task ran twice, and each did if the job is said to have.
    fn check_runs(&self, own: bool) {
        for rank in 0..2 {
            let ran = std::fs::read_to_string(self.instance.work.join(format!("ran-{rank}")));
            let times = ran.unwrap_or_default().lines().count();
            assert!(times == 1 || (times == 0 && !own), "rank {rank} ran {times} times");
        }
    }

    fn check_output(&self, output: String) {
        let mut lines: Vec<String> = output.lines().map(str::to_owned).collect();
        let Some(mut expected) = self.output.clone() else {
            let of_player = lines.iter().filter(|line| line.split(' ').count() == 4).count();
            assert_eq!((lines.len(), of_player), (2 + 2000 + 6000, 6000), "output is lost");
            return;
        };
        lines.sort();
        expected.sort();
        assert!(lines == expected, "{} lines of {}", lines.len(), expected.len());
    }
}

/// What a cell comes to: `ran`, `told` (it ended otherwise, and that was said) or what is wrong.
fn cell(step: Step, part: Part, fault: Fault) -> Result<&'static str, String> {
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let scene = Scene::at(step);
        let Some(process) = scene.process_of(part) else { return "-" };
        scene.come_to(step);
        let short = scene.strike_under_load(step, part, fault, process);
        scene.end(&short, (step, part, fault))
    }));
    lived.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}

/// Without being asked for all: what is most often hit, and each step and each part once.
fn is_among_some(step: Step, part: Part, fault: Fault) -> bool {
    let (s, p) = (step as usize, part as usize);
    match fault {
        Kill => matches!(part, Controller | Agent) || (s + p).is_multiple_of(5),
        Stop => (s + p).is_multiple_of(7),
        Restart => (s + 2 * p) % 11 == 3,
    }
}

#[test]
fn whatever_is_hit_at_whatever_step_the_promises_hold() {
    let all = std::env::var("TUTTI_FAULTS").is_ok_and(|which| which == "all");
    let mut failures = Vec::new();
    let mut table = format!("{:10} {:8}", "", "");
    PARTS.iter().for_each(|part| table.push_str(&format!(" {:10}", format!("{part:?}"))));
    for step in STEPS {
        for fault in FAULTS {
            table.push_str(&format!("\n{:10} {:8}", format!("{step:?}"), format!("{fault:?}")));
            for part in PARTS {
                let came = match all || is_among_some(step, part, fault) {
                    true => cell(step, part, fault),
                    false => Ok(""),
                };
                table.push_str(&format!(" {:10}", came.as_ref().map_or("FAILED", |word| word)));
                if let Err(error) = came {
                    failures.push(format!("{step:?} {part:?} {fault:?}: {error}"));
                }
            }
        }
    }
    println!("{table}\n");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
