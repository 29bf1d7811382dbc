//! A diagnosis as text: short, or with all that is known.

use super::finding::{By, Diagnosis, Finding, Fix, Verdict, nodes_named};
use tutti_client::output::colours::Paint;
use tutti_client::output::fold;

/// Facts that come first, whatever their verdict.
const FACTS: [&str; 2] = ["instance", "machine"];

const WIDTH_MIN: usize = 40;

/// What stands before the text: the heading of a block.
const MARGIN: usize = 10;

/// `width`: of the terminal, if there is one.
pub(super) fn render(
    diagnosis: &Diagnosis,
    is_verbose: bool,
    width: Option<usize>,
    is_coloured: bool,
) -> String {
    let width = width.unwrap_or(usize::MAX).max(WIDTH_MIN);
    let page = Page { text: String::new(), width, is_coloured };
    match is_verbose {
        true => page.whole(diagnosis),
        false => page.short(diagnosis),
    }
}

struct Page {
    text: String,
    width: usize,
    is_coloured: bool,
}

/// The colour of a verdict.
const fn paint_of(verdict: Verdict) -> Paint {
    match verdict {
        Verdict::Good => Paint::Good,
        Verdict::Minor | Verdict::Fair => Paint::Warning,
        Verdict::Bad => Paint::Bad,
    }
}

impl Page {
    fn short(mut self, diagnosis: &Diagnosis) -> String {
        self.head(diagnosis);
        let (facts, rest): (Vec<&Finding>, Vec<&Finding>) =
            diagnosis.findings.iter().partition(|it| FACTS.contains(&it.topic));
        let rest: Vec<&Finding> = rest.into_iter().filter(|it| !it.implied).collect();
        for fact in facts {
            let is_bad = fact.verdict == Verdict::Bad;
            let heading = if is_bad { "BROKEN" } else { fact.topic };
            self.block(heading, &on(fact, &fact.text), is_bad.then_some(Paint::Bad));
        }
        let works: Vec<&str> =
            rest.iter().filter(|it| it.verdict == Verdict::Good).map(|it| it.label()).collect();
        if !works.is_empty() {
            self.block("works", &unique(works).join(", "), Some(Paint::Good));
        }
        let mut lost: Vec<&&Finding> =
            rest.iter().filter(|it| it.verdict != Verdict::Good).collect();
        lost.sort_by_key(|it| std::cmp::Reverse(it.verdict));
        let mut heading = "missing";
        for finding in lost {
            let paint = Some(paint_of(finding.verdict));
            self.block(heading, &format!("- {}", on(finding, &finding.text)), paint);
            heading = "";
        }
        self.fixes(diagnosis);
        self.text.push_str("\n`tutti doctor -v` says more\n");
        self.text
    }

    fn whole(mut self, diagnosis: &Diagnosis) -> String {
        self.head(diagnosis);
        for finding in &diagnosis.findings {
            let mark = match finding.verdict {
                Verdict::Good => "ok",
                Verdict::Minor => "minor",
                Verdict::Fair => "LOST",
                Verdict::Bad => "BAD",
            };
            let heading = format!("{mark:<6}{:<10}", finding.topic);
            let said = format!("{}\n{}", on(finding, &finding.text), finding.detail);
            self.folded(&heading, said.trim_end(), Some(paint_of(finding.verdict)));
        }
        self.fixes(diagnosis);
        self.text
    }

    fn head(&mut self, diagnosis: &Diagnosis) {
        let begin = self.text.len();
        self.folded("", &diagnosis.summary, None);
        if self.is_coloured {
            // Minor findings leave it well.
            let paint = match diagnosis.verdict {
                Verdict::Minor => Paint::Good,
                verdict => paint_of(verdict),
            };
            let summary = self.text.split_off(begin);
            let lines: Vec<String> = summary.lines().map(|line| paint.on(line)).collect();
            self.text.push_str(&format!("{}\n", lines.join("\n")));
        }
        self.text.push('\n');
    }

    fn fixes(&mut self, diagnosis: &Diagnosis) {
        for (by, heading) in [(By::You, "you can"), (By::Root, "root can")] {
            let all = diagnosis.findings.iter().flat_map(|it| &it.fixes).filter(|it| it.by == by);
            let fixes = joined(all.cloned());
            if !fixes.is_empty() {
                self.text.push('\n');
            }
            let mut heading = heading;
            for fix in fixes {
                self.block(heading, &fix.gives, None);
                for step in fix.steps.lines() {
                    // Never folded: it is to be copied.
                    self.text.push_str(&format!("{:MARGIN$}  {step}\n", ""));
                }
                heading = "";
            }
        }
    }

    fn block(&mut self, heading: &str, text: &str, paint: Option<Paint>) {
        self.folded(&format!("{heading:<MARGIN$}"), text, paint);
    }

    /// The text below each other beside its heading, the first word of which has a colour.
    fn folded(&mut self, heading: &str, text: &str, paint: Option<Paint>) {
        let begin = self.text.len();
        self.fold_beside(heading, text);
        let word = heading.split(' ').next().unwrap_or_default().len();
        if let (true, Some(paint), 1..) = (self.is_coloured, paint, word) {
            let painted = paint.on(&self.text[begin..begin + word]);
            self.text.replace_range(begin..begin + word, &painted);
        }
    }

    fn fold_beside(&mut self, heading: &str, text: &str) {
        let margin = heading.chars().count();
        let mut before = heading.to_owned();
        for line in text.lines() {
            // What follows an item of a list is below its text.
            let (mark, line) = line.strip_prefix("- ").map_or(("", line), |item| ("- ", item));
            before.push_str(mark);
            for part in fold(line, self.width.saturating_sub(margin + mark.len())) {
                self.text.push_str(format!("{before}{part}").trim_end());
                self.text.push('\n');
                before = " ".repeat(margin + mark.len());
            }
            before = " ".repeat(margin);
        }
    }
}

/// A text with the nodes that it is about.
fn on(finding: &Finding, text: &str) -> String {
    match finding.nodes.is_empty() {
        true => text.to_owned(),
        false => format!("{text} (on {})", nodes_named(&finding.nodes)),
    }
}

fn unique(names: Vec<&str>) -> Vec<&str> {
    let mut unique: Vec<&str> = Vec::new();
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    unique
}

/// What is done by the same steps is one thing to do.
fn joined(fixes: impl Iterator<Item = Fix>) -> Vec<Fix> {
    let mut joined: Vec<Fix> = Vec::new();
    for fix in fixes {
        match joined.iter_mut().find(|it| it.steps == fix.steps) {
            Some(same) if same.gives.split("; ").any(|gives| gives == fix.gives) => {}
            Some(same) => same.gives = format!("{}; {}", same.gives, fix.gives),
            None => joined.push(fix),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnosis() -> Diagnosis {
        let dropin = |gives: &str| Fix::root(gives, "mkdir it\nwrite it");
        let long = "nothing keeps a job on its CPUs, and one that leaves them is brought back within \
                    a second";
        Diagnosis::of(
            vec![
                Finding::good("instance", "private"),
                Finding::good("tracking", "tasks have cgroups").detail("in /sys/fs/cgroup/x"),
                Finding::minor("affinity", long).fix([dropin("keep jobs on their CPUs")]),
                Finding::minor("accounts", "I/O is not counted").fix([dropin("count I/O")]),
                Finding::minor("logout", "jobs end").fix([Fix::you("keep them", "loginctl x")]),
            ],
            true,
        )
    }

    #[test]
    fn the_short_form_fits_into_80_columns_and_says_each_fix_once() {
        let expected = "\
all is well: jobs are tracked, suspended and held to their limits

instance  private
works     tracking and freezing
missing   - nothing keeps a job on its CPUs, and one that leaves them is brought
            back within a second
          - I/O is not counted
          - jobs end

you can   keep them
            loginctl x

root can  keep jobs on their CPUs; count I/O
            mkdir it
            write it

`tutti doctor -v` says more
";
        let text = render(&diagnosis(), false, Some(80), false);
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn colours_change_nothing_of_the_text() {
        for is_verbose in [false, true] {
            let plain = render(&diagnosis(), is_verbose, Some(80), false);
            let mut painted = render(&diagnosis(), is_verbose, Some(80), true);
            assert!(painted.starts_with("\x1b[32mall is well"), "{painted}");
            assert!(painted.contains("\x1b[33mm"), "{painted}");
            for order in ["\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"] {
                painted = painted.replace(order, "");
            }
            assert_eq!(painted, plain);
        }
    }

    #[test]
    fn the_long_form_has_each_finding_with_its_detail() {
        let text = render(&diagnosis(), true, None, false);
        assert!(text.contains("ok    tracking  tasks have cgroups\n"), "{text}");
        assert!(text.contains("\n                in /sys/fs/cgroup/x\n"), "{text}");
        assert!(text.contains("minor accounts  I/O is not counted\n"), "{text}");
    }
}
