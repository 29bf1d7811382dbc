//! Models give the same jobs on every machine, as a trace that is read back.

use crate::read;
use flate2::Crc;
use tutti_trace::model::{
    Estimates, Lublin, LublinModel, Poisson, PoissonModel, Service, Sizes, Staff, T3dMix, T3dUsers,
};
use tutti_trace::{Header, Job, ReadOptions, Writer};

const COUNT: usize = 10_000;

/// Writes the jobs, reads them back, and compares the first lines and the checksum of all with
/// those that every machine must give. They change only with the models themselves, and then
/// results of older simulations can't be repeated.
fn check(header: &Header, jobs: impl Iterator<Item = Job>, first: &[&str], checksum: u32) {
    let jobs: Vec<Job> = jobs.take(COUNT).collect();
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    for job in &jobs {
        writer.write(job).unwrap();
    }
    let text = writer.finish().unwrap();
    assert_eq!(read(&text, ReadOptions::default()).unwrap(), jobs);

    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(';')).collect();
    let mut found = Crc::new();
    found.update(text.as_bytes());
    assert_eq!((&lines[..first.len()], found.sum()), (first, checksum));
}

fn poisson(service: Service, sizes: Sizes) -> Poisson {
    let estimates = Estimates::UpTo(5.0);
    let model =
        PoissonModel { machine_processors: 64, arrival_mean_s: 9.0, service, sizes, estimates };
    Poisson::new(model, 1).unwrap()
}

#[test]
fn lublin_with_both_streams() {
    let jobs = Lublin::new(&LublinModel::both(128), 1).unwrap();
    let first = [
        "1 39 -1 78 32 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1",
        "2 101 -1 3 4 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1",
    ];
    check(&jobs.header(), jobs, &first, 0x7519_7b37);
}

#[test]
fn lublin_without_types() {
    let jobs = Lublin::new(&LublinModel::typeless(100), 1).unwrap();
    let first = [
        "1 102 -1 10648 8 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1",
        "2 259 -1 6 8 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1",
    ];
    check(&jobs.header(), jobs, &first, 0x9a5c_30bf);
}

#[test]
fn poisson_with_exponential_run_times() {
    let jobs = poisson(Service::Exponential { mean_s: 60.0 }, Sizes::PowersOfTwo { most: 64 });
    let first = [
        "1 15.023272108 -1 99.30158601 32 -1 -1 -1 138.624595 -1 1 -1 -1 -1 -1 -1 -1 -1",
        "2 27.396290072 -1 3.275129779 8 -1 -1 -1 13.949663651 -1 1 -1 -1 -1 -1 -1 -1 -1",
    ];
    check(&jobs.header(), jobs, &first, 0x9a8f_7ecd);
}

#[test]
fn poisson_with_hyperexponential_run_times() {
    let service = Service::HyperExponential { mean_s: 60.0, scv: 4.0 };
    let jobs = poisson(service, Sizes::Weighted(vec![(1, 5), (64, 1)]));
    let first = [
        "1 15.023272108 -1 1.845562902 64 -1 -1 -1 2.576398022 -1 1 -1 -1 -1 -1 -1 -1 -1",
        "2 27.396290072 -1 30.966934831 1 -1 -1 -1 131.896552005 -1 1 -1 -1 -1 -1 -1 -1 -1",
    ];
    check(&jobs.header(), jobs, &first, 0x322e_7486);
}

#[test]
fn the_t3d_mix() {
    let jobs = T3dMix::new(1);
    let first = [
        "1 4748.461274287 -1 237.884271644 64 -1 -1 64 3600 -1 1 -1 -1 -1 0 -1 -1 -1",
        "2 7699.597518677 -1 5219.024329795 8 -1 -1 8 14400 -1 1 -1 -1 -1 1 -1 -1 -1",
    ];
    check(&jobs.header(), jobs, &first, 0xbfd3_615a);
}

#[test]
fn the_t3d_users() {
    let jobs = T3dUsers::new(Staff::default(), 1);
    let first = [
        "1 28808.968360523 -1 5823.068518714 64 -1 -1 64 14400 -1 1 17 -1 -1 3 -1 -1 -1",
        "2 28825.932441843 -1 1111.447549561 32 -1 -1 32 3600 -1 1 6 -1 -1 0 -1 -1 -1",
    ];
    check(&jobs.header(), jobs, &first, 0x4d0e_ffd0);
}
