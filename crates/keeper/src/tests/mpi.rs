//! Programs of a real MPI library, which is told where it is by the keeper's PMI server alone.

use super::super::fixture::{Membership, Peer, Scene, Told, hear_out, launch};
use super::in_both;
use tutti_types::{JobId, LaunchId, TaskStatus};
use tutti_wire::attach::ToFrontEnd;
use tutti_wire::keeper::ToKeeper;

/// Compiles one of the repository's MPI programs.
fn mpi_program(scene: &Scene, name: &str) -> String {
    let program = scene.directory.join(name);
    let source = format!("{}/../../tests/mpi/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let status = std::process::Command::new("mpicc.mpich")
        .args(["-O1", "-o", program.to_str().unwrap(), &source])
        .status()
        .expect("this test needs MPICH: run tests/install-deps");
    assert!(status.success());
    program.to_str().unwrap().to_owned()
}

#[test]
fn mpich_programs_find_each_other() {
    in_both(|scene| {
        for (job, name) in [(1, "init"), (2, "ring")] {
            let program = mpi_program(scene, name);
            let told = scene.run(&launch(job, 4, &[&program]));
            for rank in 0..4 {
                assert_eq!(told.status(rank), TaskStatus::Exited(0), "{told:?}");
            }
        }
    });
}

#[test]
fn an_mpi_abort_ends_the_job_with_its_status() {
    let mut scene = Scene::new(Membership::Groups);
    let program = mpi_program(&scene, "abort");
    let told = scene.run(&launch(1, 3, &[&program]));
    assert_eq!(told.status(1), TaskStatus::Aborted(7), "{told:?}");
}

/// MPICH itself would wait for ever: it goes on to wait whatever a barrier's answer says.
#[test]
fn ranks_do_not_wait_in_init_for_one_that_ended_before_it() {
    let mut scene = Scene::new(Membership::Groups);
    let program = mpi_program(&scene, "ring");
    // The one that ends does so before the others have come, or while they wait.
    for (job, ends_after) in [(1, "0"), (2, "1")] {
        let line =
            format!("[ $TUTTI_RANK = 1 ] && {{ sleep {ends_after}; exit 3; }}; exec {program}");
        let told = scene.run(&launch(job, 3, &["/bin/sh", "-c", &line]));
        assert_eq!(told.status(1), TaskStatus::Exited(3), "{told:?}");
        let said =
            |rank| told.ends[&rank].1.contains("rank 1 ended with exit code 3 before MPI_Init");
        assert!(said(0) || said(2), "{told:?}");
    }
}

/// A program that speaks PMI itself: it stores 600 values of 1,000 bytes and stays.
const STORES: &str = "
say() { echo \"cmd=$*\" >&$PMI_FD; read -r answer <&$PMI_FD; }
value=$(printf %01000d 0)
say init pmi_version=1 pmi_subversion=1
for n in $(seq 600); do say put key=k$n value=$value; done
echo \"$answer\"
exec sleep 1000
";

/// Starts a job that stores much.
fn stores(scene: &mut Scene, job: u64) -> Peer {
    scene.start(&launch(job, 1, &["/bin/bash", "-c", STORES]));
    scene.attached(job)
}

/// Reads a front end's output until this was printed.
fn hear_until(front: &mut Peer, text: &str) -> String {
    let mut said = String::new();
    while !said.contains(text) {
        match front.next::<ToFrontEnd>().expect("the keeper left its front end") {
            ToFrontEnd::Output { data, .. } => said += &String::from_utf8_lossy(&data),
            other => panic!("unexpected: {other:?}"),
        }
    }
    said
}

fn kill(scene: &mut Scene, job: u64) {
    scene.agent.send(&ToKeeper::Kill { launch: LaunchId::first(JobId(job)) });
}

#[test]
fn what_the_jobs_of_a_user_store_is_bounded_together_and_given_back() {
    let mut scene = Scene::new(Membership::Groups);
    let mut first = stores(&mut scene, 1);
    let said = hear_until(&mut first, "rc=0");
    assert!(said.contains("cmd=put_result"), "{said}");
    let mut second = stores(&mut scene, 2);
    let told = hear_out(&mut second);
    let (status, detail) = &told.ends[&0];
    assert_eq!(*status, TaskStatus::Aborted(1), "{told:?}");
    assert!(detail.contains("the jobs of its user") && detail.contains("[T"), "{detail}");
    scene.reports(2, &mut Told::default());
    // Its room is free again, and that of the first is not yet.
    let mut third = stores(&mut scene, 3);
    assert_eq!(hear_out(&mut third).ends[&0].0, TaskStatus::Aborted(1));
    scene.reports(3, &mut Told::default());
    kill(&mut scene, 1);
    scene.reports(1, &mut Told::default());
    let mut fourth = stores(&mut scene, 4);
    hear_until(&mut fourth, "rc=0");
    kill(&mut scene, 4);
    scene.reports(4, &mut Told::default());
}
