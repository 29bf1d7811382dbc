//! Processes that ran before `tutti adopt` made them a job.

use crate::harness::{
    Done, Instance, NOBODY, Running, eventually, needs_root, player, stands, status_of,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A shell outside of any job, with a child, and a grandchild whose parent has ended. It reads a
/// line and exits with 5.
struct Outsider(Child);

impl Outsider {
    fn start(instance: &Instance, user: Option<u32>) -> Self {
        let mut command = Command::new("setsid");
        let line = "sleep $NAP & sh -c 'sleep $NAP & true'; echo up >&2; read x; exit 5";
        command.args(["sh", "-c", line]).env("NAP", &instance.nap).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        if let Some(user) = user {
            needs_root("a process of another user");
            command.uid(user).gid(user);
        }
        let mut child = command.spawn().unwrap();
        let mut up = [0; 3];
        std::io::Read::read_exact(child.stderr.as_mut().unwrap(), &mut up).unwrap();
        Self(child)
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }

    /// Has it end with 5.
    fn end(&mut self) {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Outsider {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn adopt(instance: &Instance, outsider: &Outsider) -> u64 {
    let pid = outsider.pid().to_string();
    let done = instance.tutti(&["adopt", "--parsable", &pid]).expect(0);
    let job = done.text().trim().parse().unwrap();
    instance.wait_for_state(job, "running");
    eventually("its processes", || {
        let done = instance.tutti(&["ps", "--tree", "--json", &format!("{job}")]);
        let tasks = (done.code == 0).then(|| done.json())?;
        // The orphan was gone from the tree before it was adopted.
        (tasks[0]["processes"].as_array()?.len() == 2).then_some(())
    });
    job
}

/// Its daemons are children of the system's first process then, as many others are.
#[test]
fn an_instance_that_has_lost_its_supervisor_adopts_processes_but_not_its_own_daemons() {
    let instance = Instance::new().up();
    let lock = std::fs::read_to_string(instance.dir.join("lock")).unwrap();
    let supervisor: i32 = lock.trim().parse().unwrap();
    let controller = instance.daemon("controller");
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
    eventually("another parent", || {
        let parent = status_of(controller, "PPid")?;
        (parent != supervisor.to_string()).then_some(())
    });
    let keeper = instance.daemon("keeper").to_string();
    instance.tutti(&["adopt", &keeper]).expect(1).says("belongs to tutti already");
    let mut outsider = Outsider::start(&instance, None);
    let job = adopt(&instance, &outsider).to_string();
    outsider.end();
    instance.tutti(&["wait", &job]).expect(5);
    // What it had lost before was never the job's.
    for left in instance.nappers() {
        kill(Pid::from_raw(left), Signal::SIGKILL).unwrap();
    }
}

/// The sleep that is the outsider's child.
fn child_of(instance: &Instance, outsider: &Outsider) -> i32 {
    let parent = outsider.pid().to_string();
    let is_it = |pid: &i32| status_of(*pid, "PPid").as_ref() == Some(&parent);
    eventually("a sleep below it", || instance.nappers().into_iter().find(is_it))
}

fn comes_goes_and_ends(instance: &Instance, user: Option<u32>) {
    let mut outsider = Outsider::start(instance, user);
    let child = child_of(instance, &outsider);
    let job = adopt(instance, &outsider).to_string();
    assert_eq!(instance.job(1)["name"], "sh");
    instance.tutti(&["suspend", &job]).expect(0);
    eventually("both to stand still", || (stands(outsider.pid()) && stands(child)).then_some(()));
    instance.tutti(&["resume", &job]).expect(0);
    eventually("both to go on", || (!stands(outsider.pid()) && !stands(child)).then_some(()));
    outsider.end();
    instance.tutti(&["wait", &job]).expect(5);
    eventually("the end of its child", || status_of(child, "Name").is_none().then_some(()));
    // What it had lost before was never the job's.
    for left in instance.nappers() {
        kill(Pid::from_raw(left), Signal::SIGKILL).unwrap();
    }
}

#[test]
fn an_adopted_process_takes_turns_and_ends_like_a_task() {
    comes_goes_and_ends(&Instance::new().up(), None);
}

#[test]
fn also_where_no_cgroup_can_be_written() {
    comes_goes_and_ends(&Instance::of_nobody().up(), Some(NOBODY));
}

#[test]
fn an_adopted_process_can_be_ended_with_all_that_it_has_made_since() {
    let instance = Instance::new().up();
    let mut outsider = Outsider::start(&instance, None);
    adopt(&instance, &outsider);
    let player = player();
    let mut other = Command::new("setsid");
    let line = format!("read x; {} daemon $NAP; sleep $NAP", player.display());
    other.args(["sh", "-c", &line]).env("NAP", &instance.nap).stdin(Stdio::piped());
    let mut other = other.spawn().unwrap();
    let pid = other.id().to_string();
    instance.tutti(&["adopt", "-J", "late", "-c", "1", &pid]).expect(0);
    eventually("the shell to be in it", || {
        let done = instance.tutti(&["ps", "--tree", "2"]);
        (done.code == 0 && done.text().contains(&pid)).then_some(())
    });
    other.stdin.take().unwrap().write_all(b"\n").unwrap();
    eventually("a daemon and a sleep", || (instance.nappers().len() == 4).then_some(()));
    // Its agent is another one then; its end is seen all the same.
    kill(Pid::from_raw(instance.daemon("agent")), Signal::SIGKILL).unwrap();
    eventually("another agent that knows it", || {
        let done = instance.tutti(&["ps", "--tree", "2"]);
        (done.code == 0 && done.text().contains(&instance.nap)).then_some(())
    });
    instance.tutti(&["cancel", "2"]).expect(0);
    instance.tutti(&["wait", "2"]).expect(143);
    other.wait().unwrap();
    eventually("the first two", || (instance.nappers().len() == 2).then_some(()));
    instance.tutti(&["cancel", "--now", "1"]).expect(0);
    instance.tutti(&["wait", "1"]).expect(137);
    outsider.0.wait().unwrap();
    for left in instance.nappers() {
        kill(Pid::from_raw(left), Signal::SIGKILL).unwrap();
    }
}

#[test]
fn two_processes_are_one_job_until_both_have_ended() {
    let instance = Instance::new().up();
    let spawn = |line: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::piped()).spawn().unwrap()
    };
    let (mut one, mut other) = (spawn("read x; exit 3"), spawn("read x; exit 4"));
    let pids = [one.id().to_string(), other.id().to_string()];
    instance.tutti(&["adopt", &pids[0], &pids[1], &pids[0]]).expect(0);
    instance.wait_for_state(1, "running");
    let at_the_top = |count: usize| {
        eventually("so many at the top", || {
            let tasks = instance.tutti(&["ps", "--tree", "--json", "1"]).expect(0).json();
            let processes = tasks[0]["processes"].as_array()?.clone();
            processes.iter().all(|it| it["parent"].is_null()).then_some(())?;
            (processes.len() == count).then_some(())
        });
    };
    at_the_top(2);
    drop(other.stdin.take());
    other.wait().unwrap();
    // The keeper is to hear of this end before that of the other one.
    at_the_top(1);
    assert_eq!(instance.job(1)["state"], "running");
    drop(one.stdin.take());
    instance.tutti(&["wait", "1"]).expect(4);
    one.wait().unwrap();
}

#[test]
fn only_ones_own_processes_can_be_adopted_and_only_once() {
    let instance = Instance::of_the_system().up();
    let as_nobody = |args: &[&str]| -> Done {
        let mut command = instance.command_as(Some(NOBODY), args);
        command.current_dir("/");
        Running::start(command).wait()
    };
    let (roots, own) = (Outsider::start(&instance, None), Outsider::start(&instance, Some(NOBODY)));
    as_nobody(&["adopt", &roots.pid().to_string()]).expect(1).says("runs as root; only its owner");
    as_nobody(&["adopt", "1"]).expect(1).says("only its owner");
    instance.tutti(&["adopt", "1"]).expect(1).says("the system's own");
    instance.tutti(&["adopt", "2147483647"]).expect(1).says("there is no process 2147483647");
    instance.tutti(&["adopt", "0"]).expect(2);
    let me = std::process::id().to_string();
    instance.tutti(&["adopt", &me]).expect(1).says("is an ancestor of this tutti");
    let keeper = instance.daemon("keeper").to_string();
    instance.tutti(&["adopt", &keeper]).expect(1).says("belongs to tutti already");
    // Of two that ask at the same moment, one may be refused by the keeper only: it is told so,
    // too.
    let start = || {
        let pid = own.pid().to_string();
        let mut command = instance.command_as(Some(NOBODY), &["adopt", "--parsable", &pid]);
        command.current_dir("/");
        Running::start(command)
    };
    let both = [start(), start()].map(Running::wait);
    let refused = both.iter().find(|done| done.code != 0).expect("one is refused");
    let taken = both.iter().find(|done| done.code == 0).expect("and one is not");
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("[T027]"), "{}", refused.err);
    assert_eq!(refused.text(), "", "it is no job for scripts");
    let own_job: u64 = taken.text().trim().parse().unwrap();
    as_nobody(&["adopt", &own.pid().to_string()]).expect(1).says("belongs to tutti already");
    // Root has others' adopted for itself.
    let adopted = instance.tutti(&["adopt", "--parsable", &roots.pid().to_string()]).expect(0);
    let roots_job: u64 = adopted.text().trim().parse().unwrap();
    for job in [own_job, roots_job] {
        instance.wait_for_state(job, "running");
        instance.tutti(&["cancel", "--now", &job.to_string()]).expect(0);
        instance.tutti(&["wait", &job.to_string()]).expect(137);
    }
    for left in instance.nappers() {
        kill(Pid::from_raw(left), Signal::SIGKILL).unwrap();
    }
}

#[test]
fn what_may_not_be_adopted_as_a_whole_goes_on_as_it_is() {
    let instance = Instance::of_the_system().up();
    // With a child that is another user's.
    let line = format!("sleep $NAP & exec setpriv --reuid={NOBODY} sleep $NAP");
    let mut command = Command::new("sh");
    let mut mixed = command.args(["-c", &line]).env("NAP", &instance.nap).spawn().unwrap();
    let pid = mixed.id().cast_signed();
    let uid = |pid: i32| status_of(pid, "Uid").map(|uids| uids.starts_with(&NOBODY.to_string()));
    eventually("both", || (uid(pid) == Some(true) && instance.nappers().len() == 2).then_some(()));
    let mut command = instance.command_as(Some(NOBODY), &["adopt", &pid.to_string()]);
    command.current_dir("/");
    let done = Running::start(command).wait().expect(1);
    done.says("job 1 has ended").says("runs as another user").says("[T027]");
    instance.tutti(&["wait", "1"]).expect(126).says("runs as another user");
    let both = instance.nappers();
    assert_eq!(both.len(), 2, "neither has ended");
    both.into_iter().for_each(|it| kill(Pid::from_raw(it), Signal::SIGKILL).unwrap());
    mixed.wait().unwrap();
}

#[test]
fn what_has_ended_before_its_turn_came_is_told_honestly() {
    let instance = Instance::new().up();
    instance.tutti(&["params", "rows=1"]).expect(0);
    let processors = std::thread::available_parallelism().unwrap().to_string();
    let first = instance.submit(&["-n", &processors, "-o", "/dev/null", "sleep", &instance.nap]);
    instance.wait_for_state(first, "running");
    let mut short = Command::new("sleep").arg(&instance.nap).spawn().unwrap();
    let done = instance.tutti(&["adopt", &short.id().to_string()]).expect(0);
    assert!(done.text().contains("until then that goes on as before"), "{}", done.text());
    short.kill().unwrap();
    short.wait().unwrap();
    instance.tutti(&["cancel", "--now", &first.to_string()]).expect(0);
    instance.tutti(&["wait", "2"]).expect(121).says("ended before it was adopted");
}
