//! `tutti-bench stdio`: how fast the output of eight ranks gets through to a pipe.

use super::contend::{Contender, Expects, NOT_INSTALLED, Timing, alternate, find_program};
use super::figures::Figure;
use super::mpi::HYDRA;
use super::{Bench, progress};
use serde::Serialize;
use std::ffi::OsString;
use tutti_client::output::{Align, Table, print, print_json};
use tutti_client::scratch::ScratchInstance;
use tutti_client::work::BLOCK_BYTES;

/// Ranks that write at once.
const RANKS: u64 = 8;

/// What each rank writes: 50 MB.
const BLOCKS: u64 = 50_000_000_u64.div_ceil(BLOCK_BYTES);

/// What came out.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Bytes of each rank.
    bytes_per_rank: u64,
    /// Plain output: `run`, hydra where it is installed, and the same programs without a starter,
    /// whose lines get mixed: nothing can be faster than that.
    plain: Vec<Rate>,
    /// Each line begins with its rank.
    labelled: Vec<Rate>,
}

#[derive(Debug, Serialize)]
struct Rate {
    #[serde(flatten)]
    timing: Timing,
    /// Millions of bytes of the ranks' own output a second.
    mb_per_s: u64,
}

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Report> {
    let own = ScratchInstance::start("bench")?;
    let blocks = if bench.quick { BLOCKS / 5 } else { BLOCKS };
    let bytes = blocks * BLOCK_BYTES;
    // Lines from memory: what is measured is the way of the output, not how a program comes by it.
    let program = std::env::current_exe()?;
    let writer: [OsString; 4] =
        [program.into(), "work".into(), "0".into(), format!("--print={blocks}").into()];
    let mut rates = Vec::new();
    for (what, ours, theirs) in
        [("plain", None, None), ("labelled", Some("--label"), Some("-prepend-rank"))]
    {
        progress(&format!("stdio: {what}"));
        let mut contenders = contenders(&own, &writer, bytes, ours, theirs)?;
        if ours.is_none() {
            contenders.push(no_starter(&writer, bytes));
        }
        // Hydra's speed differs by more than half from one round to the next; and with labels it
        // takes most of the time.
        let rounds = match (bench.quick, ours) {
            (true, _) => 3,
            (false, None) => 25,
            (false, Some(_)) => 5,
        };
        let timings = alternate(&contenders, rounds)?;
        let rate = |timing: Timing| {
            let mb_per_s = bytes * RANKS / timing.median_us.max(1);
            Rate { timing, mb_per_s }
        };
        rates.push(timings.into_iter().map(rate).collect::<Vec<_>>());
    }
    own.end()?;
    let labelled = rates.pop().unwrap_or_default();
    Ok(Report { bytes_per_rank: bytes, plain: rates.pop().unwrap_or_default(), labelled })
}

fn contenders(
    own: &ScratchInstance,
    writer: &[OsString],
    bytes: u64,
    ours: Option<&str>,
    theirs: Option<&str>,
) -> anyhow::Result<Vec<Contender>> {
    let ranks = RANKS.to_string();
    let expects = Expects::Bytes(bytes * RANKS);
    let words = |begin: &[&str], option: Option<&str>| {
        begin
            .iter()
            .copied()
            .chain(option)
            .map(OsString::from)
            .chain(writer.iter().cloned())
            .collect::<Vec<_>>()
    };
    let run = words(&["run", "-n", &ranks], ours);
    let mut contenders = vec![Contender::verb(TUTTI, own.directory(), run, expects)?];
    if find_program(HYDRA).is_some() {
        let hydra = words(&[HYDRA, "-n", &ranks], theirs);
        contenders.push(Contender::command(HYDRA, hydra, expects));
    }
    Ok(contenders)
}

/// The shell starts as many copies of the program, which write into the pipe themselves.
fn no_starter(writer: &[OsString], bytes: u64) -> Contender {
    let script = format!("for rank in $(seq {RANKS}); do \"$0\" \"$@\" & done; wait");
    let shell: [OsString; 3] = ["sh".into(), "-c".into(), script.into()];
    let argv = shell.into_iter().chain(writer.iter().cloned());
    Contender::command(NO_STARTER, argv, Expects::Bytes(bytes * RANKS))
}

const TUTTI: &str = "tutti run";
const NO_STARTER: &str = "no starter, lines mixed";

fn find<'a>(rates: &'a [Rate], name: &str) -> Option<&'a Rate> {
    rates.iter().find(|rate| rate.timing.what == name)
}

impl Report {
    /// For people, or for programs.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return print_json(self);
        }
        let mut table = Table::new(&[
            ("OUTPUT", Align::Left),
            ("BY", Align::Left),
            ("MB/S", Align::Right),
            ("TIME, RATIO TO THE FIRST", Align::Right),
        ]);
        for (what, rates) in [("plain", &self.plain), ("labelled", &self.labelled)] {
            for rate in rates {
                let ratio = format!("{:.2}", rate.timing.ratio);
                let speed = rate.mb_per_s.to_string();
                table.row([what.into(), rate.timing.what.clone(), speed, ratio]);
            }
            if find(rates, HYDRA).is_none() {
                table.row([what.into(), HYDRA.into(), NOT_INSTALLED.into()]);
            }
        }
        print(&format!(
            "{RANKS} ranks x {} MB of lines to a pipe that is read\n\n{}",
            self.bytes_per_rank / 1_000_000,
            table.render()
        ))
    }

    /// The lines of the table of figures.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let figure = |what: &str, rates: &[Rate], goal: &str| {
            let what = format!("stdout of {RANKS} ranks to a pipe, {what}");
            let (Some(tutti), Some(hydra)) = (find(rates, TUTTI), find(rates, HYDRA)) else {
                return Figure::missing(&what, &format!("{HYDRA} is {NOT_INSTALLED}"), goal);
            };
            let times = hydra.timing.ratio;
            let most = find(rates, NO_STARTER)
                .map(|one| format!(" (without any starter: {})", one.mb_per_s))
                .unwrap_or_default();
            let [low, high] = hydra.timing.ratio_half;
            let measured = format!(
                "{} MB/s{most}: {times:.2} x hydra's ({low:.2} to {high:.2} in half of the rounds)",
                tutti.mb_per_s
            );
            match goal {
                "" => Figure::shown(&what, measured),
                _ => Figure::goal(&what, measured, goal, times >= 2.0),
            }
        };
        vec![
            figure("plain", &self.plain, "at least 2 x hydra's"),
            figure("labelled", &self.labelled, ""),
        ]
    }
}
