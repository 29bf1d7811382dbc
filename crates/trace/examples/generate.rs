//! A trace from a model, on standard output:
//! `cargo run -p tutti-trace --example generate -- lublin|typeless|poisson|t3d JOBS SEED [PROCESSORS]`.

use std::error::Error;
use std::io::{BufWriter, stdout};
use tutti_trace::model::{
    Estimates, Lublin, LublinModel, Poisson, PoissonModel, Service, Sizes, T3dMix,
};
use tutti_trace::{Header, Job, Writer};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, jobs, seed, rest @ ..] = arguments.as_slice() else {
        return Err("give a model, a number of jobs and a seed".into());
    };
    let (count, seed) = (jobs.parse()?, seed.parse()?);
    let machine_processors = rest.first().map_or(Ok(128), |text| text.parse())?;
    match model.as_str() {
        "lublin" => {
            let jobs = Lublin::new(&LublinModel::both(machine_processors), seed)?;
            write(&jobs.header(), jobs.take(count))
        }
        "typeless" => {
            let jobs = Lublin::new(&LublinModel::typeless(machine_processors), seed)?;
            write(&jobs.header(), jobs.take(count))
        }
        "poisson" => {
            let model = PoissonModel {
                machine_processors,
                arrival_mean_s: 1.0,
                service: Service::HyperExponential { mean_s: 600.0, scv: 4.0 },
                sizes: Sizes::PowersOfTwo { most: machine_processors },
                estimates: Estimates::Exact,
            };
            let jobs = Poisson::new(model.with_load(0.7), seed)?;
            write(&jobs.header(), jobs.take(count))
        }
        "t3d" => {
            let jobs = T3dMix::new(seed);
            write(&jobs.header(), jobs.take(count))
        }
        _ => {
            Err(format!("{model}: no such model; there are lublin, typeless, poisson, t3d").into())
        }
    }
}

fn write(header: &Header, jobs: impl Iterator<Item = Job>) -> Result<(), Box<dyn Error>> {
    let mut writer = Writer::new(BufWriter::new(stdout().lock()), header)?;
    for job in jobs {
        writer.write(&job)?;
    }
    writer.finish()?;
    Ok(())
}
