//! Programs of a real MPI library, which is told where it is by the keeper's PMI server alone.

use super::super::fixture::{Membership, Scene, launch};
use super::in_both;
use tutti_types::TaskStatus;

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
