//! `tutti logs` of a file on another node, against `cat` there, and while a job writes the file.

use super::{Bench, Figure, NS_PER_MS, median};

/// What the file has that is read as a whole.
const BYTES: usize = 150_000_000;

/// Submits a job that writes this much on the second node, and waits for its end: its number.
const WRITE: &str = "job=$(tutti submit --parsable -w $1 -o $2 -- sh -c \"yes 0123456789012345678901234567890123456789 | \
                     head -c $3\"); tutti wait $job; echo $job";

/// How long a command with an output of $1 bytes takes.
const TIME: &str = "size=$1; shift; a=$(date +%s%N); \"$@\" | wc -c | grep -qx $size; b=$(date +%s%N); echo $((b - a))";

/// A job on the second node writes 10 MB ten times a second, $3 times. While `tutti logs -f` prints
/// it, unless $4 is 0, the time of another job on the first node is taken, and printed. Then the
/// time from the job's end to that of `logs -f`.
const FOLLOW: &str = "
    job=$(tutti submit --parsable -w $1 -o $2 -- bash -c '
        next=$(date +%s%N)
        for ((i = 0; i < '$3'; i++)); do
            yes 0123456789012345678901234567890123456789 | head -c 10000000
            next=$((next + 100000000)); left=$((next - $(date +%s%N)))
            ((left < 0)) || sleep $(printf 0.%09d $left)
        done')
    if (($4)); then tutti logs -f $job | wc -c >$2.count & fi
    sleep 0.5
    a=$(date +%s%N)
    tutti run -w n1 bash -c 'for ((i = 0; i < 200000; i++)); do :; done'
    b=$(date +%s%N); echo $((b - a))
    tutti wait $job
    a=$(date +%s%N); wait; b=$(date +%s%N); echo $((b - a))
    (($4 == 0)) || grep -qx $(($3 * 10000000)) $2.count";

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let file = bench.bed.directory().join("logs").display().to_string();
    let node = bench.bed.nodes().last().map(|node| node.name().to_owned()).unwrap_or_default();
    let mut figures = vec![whole(bench, &node, &file)?];
    figures.extend(follow(bench, &node, &file)?);
    Ok(figures)
}

fn whole(bench: &Bench, node: &str, file: &str) -> anyhow::Result<Figure> {
    let bytes = BYTES.to_string();
    let job = bench.script(WRITE, &[node, file, &bytes])?;
    let job = job.trim();
    let (mut ratios, mut logs, mut cat) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds(15, 3) {
        let time = |line: &[&str]| -> anyhow::Result<f64> {
            Ok(bench.script(TIME, &[&[bytes.as_str()], line].concat())?.trim().parse()?)
        };
        let by_cat = time(&["tutti", "run", "-w", node, "cat", file])?;
        let by_logs = time(&["tutti", "logs", job])?;
        ratios.push(by_cat / by_logs);
        logs.push(by_logs);
        cat.push(by_cat);
    }
    let rate = |ns: Vec<f64>| f64::from(u32::try_from(BYTES).unwrap_or(0)) * 1e3 / median(ns);
    let ratio = median(ratios);
    let measured = format!("{ratio:.2} ({:.0} MB/s; `run cat` {:.0} MB/s)", rate(logs), rate(cat));
    let what = "`logs` of a file on another node, speed over that of `run cat` there";
    Ok(Figure::goal(what, measured, "0.5", ratio >= 0.5))
}

/// A job writes 100 MB/s; what another job takes meanwhile, with `logs -f` and without.
fn follow(bench: &Bench, node: &str, file: &str) -> anyhow::Result<[Figure; 2]> {
    let (mut late, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds(10, 2) {
        let time = |with: &str| -> anyhow::Result<(f64, f64)> {
            let said = bench.script(FOLLOW, &[node, file, "30", with])?;
            let mut lines = said.lines().map(str::parse);
            let mut next = || lines.next().unwrap_or_else(|| "".parse());
            Ok((next()?, next()?))
        };
        let (without, _) = time("0")?;
        let (with, ended) = time("1")?;
        ratios.push(with / without);
        late.push(ended / NS_PER_MS);
    }
    let what = "`logs -f` of a job on another node that writes 100 MB/s: its end after the job's";
    Ok([
        Figure::shown(what, format!("{:.0} ms", median(late))),
        Figure::shown(
            "another job beside both, over beside the writer alone",
            format!("{:.2}", median(ratios)),
        ),
    ])
}
