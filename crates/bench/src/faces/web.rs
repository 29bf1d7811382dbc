//! `tutti web`: memory, how late events come to a reader, and what readers cost a launch.

use super::super::contend::{Contender, Expects, Ratio, micros, ms, timings};
use super::super::figures::Figure;
use super::super::idle::{kilobytes, megabytes, status_line};
use super::super::{Bench, progress};
use super::http::Web;
use super::load::ShortJobs;
use super::readers::{Readers, Watch};
use std::time::Duration;
use tutti_client::scratch::{ScratchInstance, percentile};

/// Readers of events at once.
const READERS: usize = 100;

/// Launches in a row with readers, and then without.
const LAUNCHES: usize = 5;

/// Between two jobs of a machine that has little to do.
const SELDOM: Duration = Duration::from_millis(20);

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let own = ScratchInstance::start("bench")?;
    let web = Web::start(&own)?;
    std::thread::sleep(Duration::from_secs(2));
    let (rss, pss) = (kilobytes(web.pid(), "Rss:")?, kilobytes(web.pid(), "Pss:")?);
    let mut figures = vec![Figure::goal(
        "web, no reader: memory",
        format!("{} resident (PSS {})", megabytes(rss), megabytes(pss)),
        "10 MB",
        rss <= 10_000,
    )];
    progress("faces: events, a job every 20 ms");
    figures.extend(lateness(bench, &own, &web, 0)?);
    progress("faces: launches without other jobs");
    figures.extend(launches(bench, &own, &web, false)?);
    progress("faces: launches beside short jobs");
    figures.extend(launches(bench, &own, &web, true)?);
    progress("faces: events beside short jobs");
    figures.extend(lateness(bench, &own, &web, READERS)?);
    let peak = status_line(&format!("/proc/{}/status", web.pid()), "VmHWM:")?;
    figures.push(Figure::goal(
        &format!("web, {READERS} readers beside short jobs: memory"),
        format!("{} resident at most", megabytes(peak)),
        "60 MB",
        peak <= 60_000,
    ));
    drop(web);
    own.end()?;
    Ok(figures)
}

/// How late events come: of a job now and then, or of as many as the machine does, with so many
/// other readers.
fn lateness(
    bench: &Bench,
    own: &ScratchInstance,
    web: &Web,
    others: usize,
) -> anyhow::Result<Vec<Figure>> {
    let readers = Readers::open(web, others)?;
    let watch = Watch::open(web)?;
    let jobs = ShortJobs::start(own, (others == 0).then_some(SELDOM))?;
    let (before, begin) = jobs.done();
    std::thread::sleep(Duration::from_secs(if bench.quick { 2 } else { 20 }));
    let (after, end) = jobs.done();
    jobs.end()?;
    let late_us = watch.end()?;
    drop(readers);
    let [half, most] = [50, 99].map(|percent| percentile(&late_us, percent));
    let rate = per_second(after - before, end - begin);
    let what = match others {
        0 => format!("event to a reader of the page's stream, {rate} jobs/s"),
        _ => format!("the same, with {others} other readers, {rate} jobs/s"),
    };
    let measured = format!("{} at 99 % of {}; median {}", ms(most), late_us.len(), ms(half));
    Ok(vec![Figure::goal(&what, measured, "20 ms at 99 %", most <= 20_000)])
}

/// Launches with and without readers, in turns, alone or beside short jobs.
fn launches(
    bench: &Bench,
    own: &ScratchInstance,
    web: &Web,
    is_busy: bool,
) -> anyhow::Result<Vec<Figure>> {
    let run =
        Contender::verb("tutti run", own.directory(), ["run", "/bin/true"], Expects::Lines(0))?;
    let jobs = is_busy.then(|| ShortJobs::start(own, None)).transpose()?;
    let mut took_us = [const { Vec::new() }; 2];
    let mut ended = [(0, Duration::ZERO); 2];
    for _ in 0..if bench.quick { 2 } else { 20 } {
        for (with, (took_us, ended)) in took_us.iter_mut().zip(&mut ended).enumerate() {
            let readers = Readers::open(web, with * READERS)?;
            let before = jobs.as_ref().map(ShortJobs::done);
            for _ in 0..LAUNCHES {
                took_us.push(micros(run.run()?));
            }
            if let (Some(jobs), Some((before, begin))) = (&jobs, before) {
                let (after, end) = jobs.done();
                *ended = (ended.0 + after - before, ended.1 + (end - begin));
            }
            drop(readers);
        }
    }
    jobs.map_or(Ok(()), ShortJobs::end)?;
    let named = ["without", "with"].into_iter().zip(&took_us);
    let times = timings(named);
    let Ratio { median, half: [low, high] } = times[1].over(&times[0]);
    let rates = ended.map(|(count, length)| per_second(count, length));
    let what = match is_busy {
        false => format!("`run true` with {READERS} readers, over none; no other jobs"),
        true => format!("the same beside {} jobs/s with readers, {} without", rates[1], rates[0]),
    };
    let measured = format!(
        "{median:.2} ({low:.2} to {high:.2} in half of the launches): {}, {} without",
        ms(times[1].median_us),
        ms(times[0].median_us)
    );
    Ok(vec![Figure::shown(&what, measured)])
}

/// Whole ones in a second.
fn per_second(count: u64, length: Duration) -> u64 {
    let ns = u128::from(count) * 1_000_000_000 / length.as_nanos().max(1);
    u64::try_from(ns).unwrap_or(u64::MAX)
}
