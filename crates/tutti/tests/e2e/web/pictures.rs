//! The pictures of the guide: what `tutti top` and the page show of a small cluster.
//!
//! `tests/screenshots` makes them.

use super::browser::Browser;
use crate::cluster::Bed;
use crate::harness::{Running, eventually};
use serde_json::json;
use std::process::Stdio;

/// What a solver writes.
const SOLVER: &str = "i=0; while :; do i=$((i + 1)); \
    echo \"step $i: residual $(( (i * 7919) % 9000 + 1000 ))e-$((i / 9 + 4))\"; sleep 0.4; done";

/// Nodes of two processors, with jobs that take turns, wait, or have ended.
fn busy_cluster() -> Bed {
    let bed = Bed::up_with_processors(4, 2);
    bed.tutti(1, &["params", "quantum=100ms"]).expect(0);
    let submit = |words: &[&str]| {
        bed.tutti(1, &[&["submit", "--parsable"], words].concat()).expect(0).text()
    };
    let quiet = ["-o", "/dev/null", "--", "sh", "-c", "sleep $TUTTI_JOB; exit ${0}"];
    for (name, tasks, code) in [("mesh", "8", "0"), ("partition", "4", "0"), ("check", "2", "3")] {
        submit(&[&["-J", name, "-n", tasks], &quiet[..], &[code]].concat());
    }
    bed.tutti(1, &["run", "-n", "8", "sleep", "1.5"]).expect(0);
    // Those that end have no row beside the others.
    bed.tutti(1, &["wait", "3"]).expect(3);
    let solver = submit(&[
        "-J",
        "solver",
        "-n",
        "8",
        "-t",
        "5m",
        "-o",
        "out-%j-%r",
        "--",
        "sh",
        "-c",
        SOLVER,
    ]);
    let long = ["-o", "/dev/null", "--", "sleep", &bed.audit.nap];
    submit(&[&["-J", "training", "-n", "6", "-t", "30m"], &long[..]].concat());
    submit(&[&["-J", "render", "-n", "2", "-t", "10m"], &long[..]].concat());
    submit(
        &[&["-J", "report", "-n", "2", "-t", "5m", "--after", solver.trim()], &long[..]].concat(),
    );
    submit(&[&["-J", "archive", "--hold"], &long[..]].concat());
    bed
}

/// A verb of the first node in a terminal, as HTML.
fn in_terminal(bed: &Bed, (columns, rows): (u32, u32), verb: &str, until: &str) -> String {
    let socket = bed.audit.work.join("tmux");
    let tmux = |words: &[&str]| {
        let mut command = bed.node(1).command("tmux");
        command.arg("-S").arg(&socket).args(["-f", "/dev/null"]).args(words);
        command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        Running::start(command).wait().expect(0).text()
    };
    let line = format!("{} {verb}", bed.audit.program.display());
    let (x, y) = (columns.to_string(), rows.to_string());
    tmux(&["new-session", "-d", "-x", &x, "-y", &y, &line]);
    tmux(&["set-option", "status", "off"]);
    eventually(until, || tmux(&["capture-pane", "-p"]).contains(until).then_some(()));
    let screen = tmux(&["capture-pane", "-p", "-e"]);
    tmux(&["kill-server"]);
    html_of(&screen)
}

/// A screen of a terminal as HTML: its colours and bold text.
fn html_of(screen: &str) -> String {
    const COLOURS: [&str; 16] = [
        "#4b5563", "#f87171", "#4ade80", "#facc15", "#60a5fa", "#e879f9", "#22d3ee", "#d1d5db",
        "#6b7280", "#fca5a5", "#86efac", "#fde047", "#93c5fd", "#f0abfc", "#67e8f9", "#ffffff",
    ];
    let mut body = String::new();
    let mut style = String::new();
    for (number, part) in screen.trim_end().split('\x1b').enumerate() {
        let (order, text) = match (number, part.split_once('m')) {
            (1.., Some((order, text))) if order.starts_with('[') => (Some(&order[1..]), text),
            _ => (None, part),
        };
        let orders: Vec<&str> = order.map(|it| it.split(';').collect()).unwrap_or_default();
        let mut orders = orders.into_iter().map(|it| it.parse::<usize>().unwrap_or(0));
        while let Some(order) = orders.next() {
            let colour = |index: usize| COLOURS[index.min(15)];
            match order {
                0 => style.clear(),
                1 => style.push_str("font-weight:bold;"),
                2 => style.push_str("opacity:.6;"),
                7 => style.push_str("background:#d1d5db;color:#111827;"),
                30..=37 => style.push_str(&format!("color:{};", colour(order - 30))),
                90..=97 => style.push_str(&format!("color:{};", colour(order - 82))),
                38 => {
                    let index = orders.nth(1).unwrap_or(7);
                    style.push_str(&format!("color:{};", colour(index)));
                }
                39 => style.push_str("color:inherit;"),
                _ => {}
            }
        }
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        body.push_str(&format!("<span style='{style}'>{text}</span>"));
    }
    format!(
        "<!doctype html><meta charset=utf-8><style>body{{margin:0;background:#111827}}\
         pre{{display:inline-block;margin:0;padding:14px 18px;color:#e5e7eb;\
         font:14px/1.35 'DejaVu Sans Mono',monospace}}</style><pre>{body}</pre>"
    )
}

/// Shows HTML, as large as it is.
fn show(browser: &Browser, html: &str) {
    browser.go("about:blank");
    browser.resize(1600, 1000);
    browser.run(&format!("document.open(); document.write({}); document.close()", json!(html)));
    let size = "const r = document.querySelector('pre').getBoundingClientRect(); return Math.ceil";
    let of = |side: &str| {
        let pixels = browser.run(&format!("{size}(r.{side})")).as_u64().unwrap();
        u32::try_from(pixels).unwrap()
    };
    let (width, height) = (of("width"), of("height"));
    browser.resize(width, height);
}

/// Takes a picture of a view, from its top to its end.
fn take(browser: &Browser, name: &str, (width, scheme): (u32, &str), height_max: u32) {
    browser.prefer(scheme);
    browser.resize(width, 600);
    browser.run("window.scrollTo(0, 0)");
    let height = browser.run("return Math.ceil(document.body.getBoundingClientRect().bottom)");
    let height = u32::try_from(height.as_u64().unwrap()).unwrap();
    browser.resize(width, height.clamp(300, height_max));
    // Lists are drawn anew once they have more room.
    std::thread::sleep(std::time::Duration::from_millis(400));
    browser.picture(name);
}

#[test]
#[ignore = "makes the pictures of the guide: tests/screenshots runs this"]
fn pictures_of_the_guide() {
    let bed = busy_cluster();
    let mut web = bed.node(1).tutti(&["web"]);
    web.stdin(Stdio::null());
    let web = Running::start(web);
    web.wait_for("\n");
    let browser = Browser::on_node(&bed.audit, bed.node(1));
    let top = in_terminal(&bed, (116, 16), "top", "archive");
    show(&browser, &top);
    browser.picture("top");
    browser.hide_scrollbars();
    browser.resize(1000, 900);
    browser.go(web.out().trim());
    browser.wait("return document.querySelector('#live').textContent === 'live'");
    browser.wait("return document.querySelector('#waiting').innerText.includes('archive')");
    browser.wait("return document.querySelector('#matrix .row.turn')?.dataset.row === '1'");
    take(&browser, "web-matrix", (1000, "light"), 900);
    browser.wait("return document.querySelector('#matrix .row.turn')?.dataset.row === '2'");
    take(&browser, "web-phone", (390, "dark"), 800);
    browser.resize(1000, 900);
    browser.run("location.hash = '#/history'");
    browser.wait("return document.querySelector('#gantt svg')");
    take(&browser, "web-history", (1000, "light"), 900);
    browser.run("location.hash = '#/job/5'");
    browser.wait("return document.body.innerText.includes('residual')");
    browser.run(
        "const ranks = document.querySelector('[aria-label=\"Rank\"]'); ranks.value = '3'; \
         ranks.dispatchEvent(new Event('change'))",
    );
    browser.wait("return document.querySelector('pre.output').innerText.includes('residual')");
    take(&browser, "web-job", (1000, "light"), 800);
}
