//! `tutti slurm`: the names of Slurm's commands, and scripts that were written for it.

use crate::slurm::{check, link};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use tutti_client::output::print;
use tutti_client::slurm::{MPI_NAMES, NAMES, directory, own_directory};
use tutti_node::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  tutti slurm env               the line for PATH: eval \"$(tutti slurm env)\"
  tutti slurm link ~/bin        the same names in a directory of your choice
  tutti slurm check job.sh      lines of a script that would have no effect

The names are links to this executable. They read Slurm's options and print in
Slurm's formats; their jobs are jobs of `tutti batch` and `tutti run`.";

const ENV_EXAMPLES: &str = "\
Examples:
  tutti slurm env               the line for PATH: eval \"$(tutti slurm env)\"
  tutti slurm env --mpi         with mpiexec and mpirun, which are `tutti run`

Inside a job, they call the mpiexec and mpirun that come later in PATH.";

const LINK_EXAMPLES: &str = "\
Examples:
  tutti slurm link ~/bin        sbatch, squeue and others in ~/bin";

const CHECK_EXAMPLES: &str = "\
Examples:
  tutti slurm check job.sh      exit code 1 if sbatch would reject it";

#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SlurmArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Print the line that puts the names into PATH
    #[command(after_help = ENV_EXAMPLES)]
    Env {
        /// Also mpiexec and mpirun, from a directory of their own
        #[arg(long)]
        mpi: bool,
    },
    /// Make the names in a directory
    #[command(after_help = LINK_EXAMPLES)]
    Link {
        /// The directory; it is made if there is none
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// List the option lines of a script that would have no effect, or are wrong
    #[command(after_help = CHECK_EXAMPLES)]
    Check {
        /// The script
        #[arg(value_name = "SCRIPT")]
        script: PathBuf,
    },
}

pub(crate) fn execute(args: &SlurmArgs) -> anyhow::Result<Exit> {
    match &args.what {
        What::Env { mpi } => {
            let own = || {
                let reason = "HOME is not set; name a directory with `tutti slurm link DIR`";
                own_directory().ok_or_else(|| anyhow::anyhow!(reason))
            };
            let mut places = match directory() {
                Some(found)
                    if found.join("sbatch").exists()
                        && Some(&found) != own_directory().as_ref() =>
                {
                    vec![found]
                }
                _ => {
                    link(&own()?, &NAMES)?;
                    vec![own()?]
                }
            };
            if *mpi {
                let beside = own()?.with_file_name("mpi");
                link(&beside, &MPI_NAMES)?;
                places.push(beside);
            }
            let quoted = |place: PathBuf| {
                format!("'{}'", place.display().to_string().replace('\'', r"'\''"))
            };
            let places: Vec<String> = places.into_iter().map(quoted).collect();
            print(&format!("export PATH={}:\"$PATH\"\n", places.join(":")))?;
            Ok(Exit::OK)
        }
        What::Link { directory } => {
            let made = link(directory, &NAMES)?;
            say!("tutti: made in {}: {}", directory.display(), made.join(" "));
            Ok(Exit::OK)
        }
        What::Check { script } => check(script),
    }
}
