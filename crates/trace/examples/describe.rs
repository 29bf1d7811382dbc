//! One line of a table for each trace: `cargo run -p tutti-trace --example describe -- FILE...`:
//! usable jobs, offered load, mean run time, mean processors, serial, other powers of two.

use std::error::Error;
use std::path::Path;
use tutti_trace::{Clean, ReadOptions, Summary, open};

fn main() -> Result<(), Box<dyn Error>> {
    for file in std::env::args().skip(1) {
        let reader = open(Path::new(&file), ReadOptions::default())?;
        let machine = reader.header().machine_processors().unwrap_or(u32::MAX);
        let mut clean = Clean::new(reader, machine);
        let mut summary = Summary::default();
        for job in &mut clean {
            summary.add(&job?);
        }
        println!(
            "{file}: {} {:.3} {:.1} {:.2} {:.3} {:.3} ({} left out)",
            summary.jobs(),
            summary.offered_load(machine).unwrap_or(0.0),
            summary.run_mean_s(),
            summary.processors_mean(),
            summary.serial_share(),
            summary.power_of_two_share(),
            clean.left_out().total(),
        );
    }
    Ok(())
}
