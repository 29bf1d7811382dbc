//! The first load of the page: what a browser without a cache fetches before it shows anything.

use super::super::contend::{median, micros, ms};
use super::super::figures::Figure;
use super::super::{Bench, progress};
use super::http::Web;
use std::collections::BTreeSet;
use std::time::Instant;
use tutti_client::scratch::ScratchInstance;

/// What the first load came to.
struct Load {
    /// Of heads and bodies.
    bytes: usize,
    requests: usize,
    took_us: u64,
}

/// Loads the page again and again, each time over one new connection.
pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    progress("faces: first loads of the page");
    let own = ScratchInstance::start("bench")?;
    let web = Web::start(&own)?;
    let rounds = if bench.quick { 5 } else { 51 };
    let loads = (0..rounds).map(|_| load(&web)).collect::<anyhow::Result<Vec<Load>>>()?;
    drop(web);
    own.end()?;
    let mut times: Vec<u64> = loads.iter().map(|load| load.took_us).collect();
    let took_us = median(&mut times);
    let slowest_us = times.last().copied().unwrap_or_default();
    let (bytes, requests) = loads.first().map_or((0, 0), |load| (load.bytes, load.requests));
    Ok(vec![
        Figure::goal(
            "page, first load",
            format!("{}.{} KB", bytes / 1000, bytes % 1000 / 100),
            "100 KB",
            bytes <= 100_000,
        ),
        Figure::shown("page, first load: requests, one for each file", requests.to_string()),
        Figure::goal(
            "page, first load: time, one file after the other",
            format!("{}; {} at most", ms(took_us), ms(slowest_us)),
            "100 ms",
            took_us <= 100_000,
        ),
    ])
}

/// Fetches the page, what it names, and what that names.
fn load(web: &Web) -> anyhow::Result<Load> {
    let begin = Instant::now();
    let mut connection = web.connect()?;
    let (mut known, mut wanted) = (BTreeSet::new(), vec![String::new()]);
    let mut load = Load { bytes: 0, requests: 0, took_us: 0 };
    while let Some(name) = wanted.pop() {
        let reply = connection.get(&format!("{}/{name}", web.path))?;
        load.bytes += reply.bytes();
        load.requests += 1;
        for file in files_in(&String::from_utf8_lossy(&reply.body)) {
            if known.insert(file.clone()) {
                wanted.push(file);
            }
        }
    }
    load.took_us = micros(begin.elapsed());
    Ok(load)
}

/// The files of the page that a text names in quotes.
fn files_in(text: &str) -> Vec<String> {
    let words = text.split(['"', '\'']).map(|word| word.strip_prefix("./").unwrap_or(word));
    let is_name = |word: &&str| {
        let (name, end) = word.rsplit_once('.').unwrap_or_default();
        let is_plain = !name.is_empty() && name.chars().all(|it| it.is_ascii_lowercase());
        is_plain && ["js", "css", "svg"].contains(&end)
    };
    words.filter(is_name).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::files_in;

    #[test]
    fn files_are_found_in_html_and_scripts() {
        let html =
            r#"<link href="style.css"><script src="app.js"></script><a href="openapi.json">"#;
        assert_eq!(files_in(html), ["style.css", "app.js"]);
        assert_eq!(files_in("import * as job from './job.js';"), ["job.js"]);
        assert!(files_in("a.b('svg'), \"http://x/y.js\"").is_empty());
    }
}
