//! Programs of Intel MPI, from PyPI: by PMI-1, as it starts by itself, and by PMI-2.

use crate::cluster::Bed;
use crate::harness::{Instance, PATIENCE, Running, compile_with};
use crate::spawn::{mpich_5, of_pypi};
use std::path::Path;

/// A program of MPICH's interface, which is Intel's too.
fn program(source: &str, name: &str) -> String {
    let mpich = mpich_5();
    let mpicc = mpich.join("bin/mpicc").display().to_string();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/mpi").join(source);
    compile_with(&[], &mpicc, &source, name).display().to_string()
}

#[test]
#[ignore = "takes long: `tests/long e2e` runs it"]
fn programs_of_intel_mpi_meet_and_spawn() {
    let intel = of_pypi("--impi", "intel-mpi");
    let library = format!("LD_LIBRARY_PATH={}", intel.join("lib").display());
    let root = format!("I_MPI_ROOT={}", intel.display());
    let (ring, spawn) = (program("ring.c", "ring-of-impi"), program("spawn.c", "spawn-of-impi"));
    // With the fabric that it chooses by itself, a spawn may crash, also under its own `mpiexec`.
    let fabric = "I_MPI_FABRICS=shm:ofi";
    let second = ["I_MPI_PMI=pmi2", "I_MPI_PMI_LIBRARY=/usr/lib/x86_64-linux-gnu/libpmi2.so.0"];
    let instance = Instance::new().up();
    let bed = Bed::up(2, &[]);
    for version in [&[][..], &second[..]] {
        let with = [&["env", &library, &root, fabric], version].concat();
        let run = [&["run", "-n", "4"], &with[..], &[&ring]].concat();
        let done = instance.start(&run).wait_within(PATIENCE * 3).expect(0);
        assert!(done.text().contains("ring: 4 ranks"), "{version:?}: {}", done.text());
        let run = [&["run", "-N", "2", "-n", "4"], &with[..], &[&ring]].concat();
        let done = bed.start(1, &run).wait_within(PATIENCE * 3).expect(0);
        assert!(done.text().contains("ring: 4 ranks"), "{version:?}: {}", done.text());
        let run = ["run", "-n", "1", "--max-tasks", "6", &spawn, "several"];
        let mut command = instance.command(&run);
        // Spawned tasks find what the job found.
        command.envs(with[1..].iter().filter_map(|set| set.split_once('=')));
        let done = Running::start(command).wait_within(PATIENCE * 3).expect(0);
        assert!(done.text().contains("spawn: 4 together"), "{version:?}: {}", done.text());
    }
}
