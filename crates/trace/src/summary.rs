//! The figures by which workloads are compared. For people and tables, never for decisions.

use crate::clean::CleanJob;

/// What a workload looks like as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    jobs: u64,
    first_submit_ns: u64,
    last_submit_ns: u64,
    run_ns: u128,
    /// Sum of run time x processors.
    work_ns: u128,
    processors: u128,
    serial: u64,
    powers_of_two: u64,
}

impl Summary {
    /// Takes in one job.
    pub fn add(&mut self, job: &CleanJob) {
        let (submit_ns, run_ns) = (job.submit_ns(), u128::from(job.run_ns()));
        let processors = job.processors();
        if self.jobs == 0 {
            (self.first_submit_ns, self.last_submit_ns) = (submit_ns, submit_ns);
        }
        self.jobs += 1;
        self.first_submit_ns = self.first_submit_ns.min(submit_ns);
        self.last_submit_ns = self.last_submit_ns.max(submit_ns);
        self.run_ns += run_ns;
        self.work_ns += run_ns * u128::from(processors);
        self.processors += u128::from(processors);
        self.serial += u64::from(processors == 1);
        self.powers_of_two += u64::from(processors > 1 && processors.is_power_of_two());
    }

    /// How many jobs it has.
    #[must_use]
    pub fn jobs(&self) -> u64 {
        self.jobs
    }

    /// From the first submit to the last, in ns.
    #[must_use]
    pub fn span_ns(&self) -> u64 {
        self.last_submit_ns - self.first_submit_ns
    }

    /// What the jobs ask for as a share of what a machine of this size has from the first submit
    /// to the last. Above 1 the queue grows without end. None if all were submitted at once.
    #[must_use]
    pub fn offered_load(&self, machine_processors: u32) -> Option<f64> {
        let machine_ns = u128::from(self.span_ns()) * u128::from(machine_processors);
        (machine_ns > 0).then(|| ratio(self.work_ns, machine_ns))
    }

    /// Mean run time in seconds; 0 without jobs.
    #[must_use]
    pub fn run_mean_s(&self) -> f64 {
        self.mean(self.run_ns) / 1e9
    }

    /// Mean processors of a job; 0 without jobs.
    #[must_use]
    pub fn processors_mean(&self) -> f64 {
        self.mean(self.processors)
    }

    /// The share of jobs with one processor, from 0 to 1.
    #[must_use]
    pub fn serial_share(&self) -> f64 {
        self.mean(self.serial.into())
    }

    /// The share of jobs with 2, 4, 8, ... processors, from 0 to 1.
    #[must_use]
    pub fn power_of_two_share(&self) -> f64 {
        self.mean(self.powers_of_two.into())
    }

    fn mean(&self, sum: u128) -> f64 {
        ratio(sum, u128::from(self.jobs.max(1)))
    }
}

/// Rounded to what an f64 holds, which is exact enough for a table.
fn ratio(part: u128, whole: u128) -> f64 {
    part as f64 / whole as f64
}

impl<'a> FromIterator<&'a CleanJob> for Summary {
    fn from_iter<I: IntoIterator<Item = &'a CleanJob>>(jobs: I) -> Self {
        let mut summary = Summary::default();
        jobs.into_iter().for_each(|job| summary.add(job));
        summary
    }
}
