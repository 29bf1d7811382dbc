//! What is hit while tasks of an MPI program wait for each other on several nodes: the job goes on
//! or ends with the reason, and another job does not notice.
//!
//! A job on the nodes n2 and n3 stands still inside a fence, a spawn or a connection when the fault
//! comes ([`Held`]). Another job stands still in a fence of its own. `tests/long e2e` goes through
//! all of it. Some cells are tried for each change.

use crate::cluster::Bed;
use crate::harness::{Done, Instance, PATIENCE, Running, eventually};
use crate::open_mpi::servers_below;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Where the job stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// A rank is not in `MPI_Init` yet. The other waits for it in there.
    Fence,
    /// The controller is stopped when a rank asks it for a spawn.
    Request,
    /// Spawned tasks are not in `MPI_Init` yet. Their parents wait for them.
    Spawn,
    /// A step waits in `MPI_Comm_accept`.
    Connect,
}

/// What is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hit {
    /// The controller is killed.
    Controller,
    /// The agent of a node is killed.
    Agent(usize),
    /// The keeper of a node is killed.
    Keeper(usize),
    /// The PMIx server of the job on a node is killed.
    Server(usize),
    /// A node loses its power.
    Power(usize),
    /// A node is off the network until its lease is over.
    Network(usize),
}

use Held::{Connect, Fence, Request, Spawn};
use Hit::{Agent, Controller, Keeper, Network, Power, Server};

const ALL_HELD: [Held; 4] = [Fence, Request, Spawn, Connect];

/// The job's first node, which has its hub, is n2.
const ALL_HIT: [Hit; 12] = [
    Controller,
    Agent(1),
    Agent(2),
    Agent(3),
    Keeper(2),
    Keeper(3),
    Server(2),
    Server(3),
    Power(2),
    Power(3),
    Network(2),
    Network(3),
];

impl Hit {
    /// The node that has nothing of the job any more.
    fn node(self) -> Option<usize> {
        match self {
            Controller | Agent(_) | Server(_) => None,
            Keeper(node) | Power(node) | Network(node) => Some(node),
        }
    }

    /// Whether the job goes on.
    fn is_survived(self) -> bool {
        matches!(self, Controller | Agent(_))
    }
}

/// Programs of an MPI library.
struct Library {
    name: &'static str,
    held: String,
    /// For connections: none if they are not tried.
    meet: Option<String>,
    /// Whether PMIx servers serve it.
    has_servers: bool,
}

fn open_mpi_4() -> Library {
    let [held, meet] = ["held", "meet"].map(crate::open_mpi_spawn::program);
    Library { name: "Open MPI 4", held, meet: Some(meet), has_servers: true }
}

fn open_mpi_5() -> Library {
    let [held, meet] = ["held.c", "meet.c"].map(crate::open_mpi_5::program);
    Library { name: "Open MPI 5", held, meet: Some(meet), has_servers: true }
}

fn mpich_5() -> Library {
    let mpich = crate::spawn::mpich_5();
    let mpicc = mpich.join("bin/mpicc").display().to_string();
    let rpath = format!("-Wl,-rpath,{}", mpich.join("lib").display());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi/held.c");
    let held = crate::harness::compile_with(&[&rpath], &mpicc, &source, "held-of-mpich-5");
    let held = held.display().to_string();
    Library { name: "MPICH 5", held, meet: None, has_servers: false }
}

/// A job that stands still, and another one.
struct Scene<'a> {
    bed: &'a Bed,
    held: Held,
    job: Running,
    other: Running,
    /// The PMIx servers that the job has on n2 and on n3.
    servers: [Vec<i32>; 2],
}

impl<'a> Scene<'a> {
    fn new(bed: &'a Bed, library: &Library, held: Held, hit: Hit) -> Self {
        for name in ["go", "start", "other", "serve", "out"] {
            let _ = std::fs::remove_file(file(bed, name));
        }
        let (nodes, count) = if hit.node() == Some(2) { ("n1", "1") } else { ("n1,n2", "2") };
        let run = ["run", "-n", "2", "-w", nodes, "-N", count, &library.held, "fence"];
        let other = bed.start(1, &[&run[..], &[&text(bed, "other")]].concat());
        other.wait_for("held");
        let servers = || [2, 3].map(|node| servers_below(bed.node(node).daemon("keeper").unwrap()));
        let before = servers();
        let job = start(bed, library, held);
        let mut servers = servers();
        for (now, before) in servers.iter_mut().zip(before) {
            now.retain(|server| !before.contains(server));
        }
        Self { bed, held, job, other, servers }
    }

    fn strike(&self, hit: Hit) {
        let bed = self.bed;
        let kill_daemon = |node: usize, role| {
            let node = bed.node(node);
            let old = node.daemon(role).unwrap();
            node.signal(role, Signal::SIGKILL).unwrap();
            eventually("another one", || node.daemon(role).filter(|&new| new != old));
        };
        match hit {
            Controller => kill_daemon(1, "controller"),
            Agent(node) => kill_daemon(node, "agent"),
            Keeper(node) => kill_daemon(node, "keeper"),
            Server(node) => {
                let server = self.servers[node - 2].first().expect("no PMIx server of the job");
                kill(Pid::from_raw(*server), Signal::SIGKILL).unwrap();
            }
            Power(node) => bed.bed().kill(bed.node(node)).unwrap(),
            Network(node) => bed.bed().cut(bed.node(node)).unwrap(),
        }
        if self.held == Request && hit != Controller {
            bed.node(1).signal("controller", Signal::SIGCONT).unwrap();
        }
    }

    /// Lets both jobs go on, and sees how they end.
    fn end(self, hit: Hit) {
        let Self { bed, job, other, .. } = self;
        if hit.is_survived() {
            touch(bed, "go");
        }
        let done = job.wait_within(PATIENCE);
        // Of a batch job.
        let of_script = std::fs::read_to_string(file(bed, "out")).unwrap_or_default();
        check(&done, &of_script, hit);
        touch(bed, "other");
        let other = other.wait_within(PATIENCE).expect(0);
        assert!(other.text().contains("held: 2 together"), "{} {}", other.text(), other.err);
        if let Some(node) = hit.node() {
            let node = bed.node(node);
            if matches!(hit, Power(_) | Network(_)) {
                bed.bed().heal(node).unwrap();
            }
            if matches!(hit, Power(_)) {
                node.tutti(&["up"]).status().unwrap();
            }
            let is_up = || bed.states().get(node.name()).is_some_and(|state| state == "up");
            eventually("its node takes jobs", || is_up().then_some(()));
        }
    }
}

/// What the job came to.
fn check(done: &Done, of_script: &str, hit: Hit) {
    let (said, err) = (done.text() + of_script, &done.err);
    if hit.is_survived() {
        assert_eq!(done.code, 0, "{said} {err}");
        assert!(said.contains("together"), "{said} {err}");
        return;
    }
    assert_ne!(done.code, 0, "{said} {err}");
    let reason = match hit.node() {
        Some(node) => format!("n{node}"),
        None => "the PMIx server was ended by signal 9".into(),
    };
    assert!(err.contains(&reason) || said.contains(&reason), "no reason: {said} {err}");
}

fn file(bed: &Bed, name: &str) -> PathBuf {
    bed.audit.work.join(name)
}

fn text(bed: &Bed, name: &str) -> String {
    file(bed, name).display().to_string()
}

fn touch(bed: &Bed, name: &str) {
    std::fs::write(file(bed, name), "").unwrap();
}

/// The job, when it stands still.
fn start(bed: &Bed, library: &Library, held: Held) -> Running {
    let options = ["-w", "n2,n3", "-N", "2", "--grace", "300ms"];
    // With room for children, both ranks are on n2.
    let slots: &[&str] = if held == Fence { &[] } else { &["--max-tasks", "4"] };
    let run = [&["run", "-n", "2"], slots, &options[..], &[&library.held]].concat();
    let [go, start] = ["go", "start"].map(|name| text(bed, name));
    match held {
        Fence => {
            let job = bed.start(1, &[&run[..], &["fence", &go]].concat());
            job.wait_for("held");
            job
        }
        Request | Spawn => {
            let job = bed.start(1, &[&run[..], &["spawn", &go, &start]].concat());
            job.wait_for("ready");
            if held == Request {
                bed.node(1).signal("controller", Signal::SIGSTOP).unwrap();
            }
            touch(bed, "start");
            if held == Spawn {
                eventually("children", || (job.out().matches("held").count() == 2).then_some(()));
            } else {
                std::thread::sleep(std::time::Duration::from_millis(300));
            }
            job
        }
        Connect => {
            let meet = library.meet.as_ref().unwrap();
            let tutti = bed.audit.program.display().to_string();
            let text = format!(
                "#!/bin/sh\n{tutti} run -N 2 -n 2 {meet} serve ocean > serve & serve=$!\n\
                 while [ ! -e go ] && kill -0 $serve; do sleep 0.05; done\n\
                 [ -e go ] && {tutti} run --overlap -N 2 -n 2 {meet} join ocean\n\
                 wait $serve\n"
            );
            bed.audit.script("job.sh", &text);
            let batch =
                [&["batch", "--wait"], &options[..2], &["-n", "4", "-o", "out", "job.sh"]].concat();
            let job = bed.start(1, &batch);
            eventually("a published name", || {
                std::fs::read_to_string(file(bed, "serve"))
                    .ok()?
                    .contains("published")
                    .then_some(())
            });
            job
        }
    }
}

/// Tries a cell of the table; what is wrong, if anything is.
fn cell(bed: &Bed, library: &Library, (held, hit): (Held, Hit)) -> Result<(), String> {
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let scene = Scene::new(bed, library, held, hit);
        scene.strike(hit);
        scene.end(hit);
    }));
    lived.map_err(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        format!("{}: {held:?} {hit:?}: {}", library.name, said.unwrap_or_default())
    })
}

fn bed() -> Bed {
    Bed::up_with(3, &[], &["lease=2s"])
}

#[test]
fn a_job_held_inside_mpi_goes_on_or_ends_with_the_reason_and_no_other_notices() {
    let _alone = Instance::alone();
    let (bed, library) = (bed(), open_mpi_4());
    for what in [(Fence, Agent(3)), (Request, Controller), (Spawn, Server(3)), (Connect, Power(3))]
    {
        cell(&bed, &library, what).unwrap();
    }
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn whatever_is_hit_a_job_held_inside_mpi_goes_on_or_ends_with_the_reason() {
    let _alone = Instance::alone();
    // Only cells of which the line has this text.
    let only = std::env::var("TUTTI_CELLS").unwrap_or_default();
    let mut failures = Vec::new();
    for library in [open_mpi_4(), open_mpi_5(), mpich_5()] {
        let mut bed = bed();
        for held in ALL_HELD {
            for hit in ALL_HIT {
                // No task is on n3 before the spawn.
                let is_there = (library.meet.is_some() || held != Connect)
                    && (held, hit) != (Request, Server(3));
                let name = format!("{} {held:?} {hit:?}", library.name);
                let is_served = library.has_servers || !matches!(hit, Server(_));
                if !is_there || !is_served || !name.contains(&only) {
                    continue;
                }
                let came = cell(&bed, &library, (held, hit));
                println!("{name}: {}", if came.is_ok() { "as it should" } else { "FAILED" });
                if let Err(error) = came {
                    failures.push(error);
                    bed = self::bed();
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
