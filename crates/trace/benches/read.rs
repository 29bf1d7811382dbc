//! How fast traces are read: `cargo bench -p tutti-trace -- FILE...`. Prints, for each file, the
//! jobs, the bytes of its text, and the best of some runs (the others were disturbed).

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::{Duration, Instant};
use tutti_trace::{Clean, ReadOptions, Summary, open};

const RUNS: u32 = 7;

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo adds options of its own, such as --bench.
    let files: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    if files.is_empty() {
        println!("give it traces to read: cargo bench -p tutti-trace -- FILE...");
    }
    for file in files {
        let path = Path::new(&file);
        let mut jobs = 0;
        let mut best = Duration::MAX;
        for _ in 0..RUNS {
            let begin = Instant::now();
            jobs = read(path)?;
            best = best.min(begin.elapsed());
        }
        let bytes = text_bytes(path)? as f64;
        let seconds = best.as_secs_f64();
        println!(
            "{file}: {jobs} jobs, {:.1} MB of text, {:.1} ms, {:.0} MB/s, {:.2} M jobs/s",
            bytes / 1e6,
            seconds * 1e3,
            bytes / 1e6 / seconds,
            jobs as f64 / 1e6 / seconds,
        );
    }
    Ok(())
}

/// All the way that a simulation goes, but for the simulation: read, filter, add up.
fn read(path: &Path) -> Result<u64, Box<dyn Error>> {
    let reader = open(path, ReadOptions::default())?;
    let machine = reader.header().machine_processors().unwrap_or(u32::MAX);
    let mut clean = Clean::new(reader, machine);
    let mut summary = Summary::default();
    for job in &mut clean {
        summary.add(&job?);
    }
    Ok(summary.jobs() + clean.left_out().total())
}

fn text_bytes(path: &Path) -> Result<u64, Box<dyn Error>> {
    let mut text = BufReader::new(File::open(path)?);
    let mut packed = flate2::bufread::MultiGzDecoder::new(&mut text);
    Ok(match std::io::copy(&mut packed, &mut std::io::sink()) {
        Ok(bytes) => bytes,
        Err(_) => path.metadata()?.len(),
    })
}
