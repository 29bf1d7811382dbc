//! How the time of a job grows with the machine, and with the number of jobs.

use super::process::simulate;
use crate::figures::Figure;
use crate::{Bench, progress};
use std::path::Path;
use tutti_sim::picture::{Curve, Growth, check, save};

const POLICIES: [&str; 2] = ["space:easy", "gang:easy"];
/// While one of them grows, the other stays.
const NODES: u32 = 1000;
const JOBS: u32 = 100_000;
/// A short run tells little of one job: the best of several counts.
const LEAST_S: f64 = 2.0;
const ROUNDS_MAX: u32 = 5;

/// Measures, draws, and shows.
///
/// # Errors
/// If a simulation fails, or the picture can't be written.
pub(super) fn draw(bench: &Bench, file: &Path) -> anyhow::Result<Vec<Figure>> {
    check(file)?;
    let most = if bench.quick { 4 } else { 5 };
    let mut figures = Vec::new();
    let (mut by_nodes, mut by_jobs) = (Vec::new(), Vec::new());
    for policy in POLICIES {
        let nodes = (2..=most).map(|power| 10u32.pow(power));
        let curve =
            nodes.map(|nodes| Ok((nodes, per_job_us((nodes, JOBS), policy, &mut figures)?)));
        by_nodes.push(Curve { name: policy.to_owned(), points: points(curve)? });
        let jobs = (3..=most + 1).map(|power| 10u32.pow(power));
        let curve = jobs.map(|jobs| Ok((jobs, per_job_us((NODES, jobs), policy, &mut figures)?)));
        by_jobs.push(Curve { name: policy.to_owned(), points: points(curve)? });
    }
    save(&Growth { by_nodes, jobs: JOBS, by_jobs, nodes: NODES }, file)?;
    Ok(figures)
}

fn points(
    curve: impl Iterator<Item = anyhow::Result<(u32, f64)>>,
) -> anyhow::Result<Vec<(f64, f64)>> {
    curve.map(|point| point.map(|(size, us)| (f64::from(size), us))).collect()
}

/// Microseconds for each job, start and end of the program included.
fn per_job_us(
    (nodes, jobs): (u32, u32),
    policy: &str,
    figures: &mut Vec<Figure>,
) -> anyhow::Result<f64> {
    let what = format!("{jobs} jobs on {nodes} nodes of 64, {policy}");
    progress(&what);
    let args = format!(
        "--generate lublin:processors=6400,estimates=3 --load 0.8 --jobs {jobs} --nodes {nodes} \
         --processors-per-node 64 --policy {policy}"
    );
    let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
    let mut best = f64::MAX;
    for _ in 0..ROUNDS_MAX {
        best = best.min(simulate(&args)?.seconds);
        if best > LEAST_S {
            break;
        }
    }
    let us = best * 1e6 / f64::from(jobs);
    figures.push(Figure::shown(&what, format!("{us:.1} us for each job")));
    Ok(us)
}
