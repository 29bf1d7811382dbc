//! What messages look like changes with [`PROTOCOL_VERSION`] only.
//!
//! `messages.txt` beside this has the layout of every message, down to the last number, and the
//! version that it is of. A part of another version is refused with both versions named; one of the
//! same version with other messages would take one thing for another. What other machines say is
//! also among the seeds of the fuzz targets, one of each message.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod layout;
mod lengths;
mod seeds;

use layout::Layouts;
use std::path::Path;
use tutti_wire::limits::PROTOCOL_VERSION;
use tutti_wire::{Role, attach, branch, handover, join, keeper, local, writer};

/// Writes the layout down, once [`PROTOCOL_VERSION`] is another.
const WRITE: &str = "TUTTI_WRITE_MESSAGES";

/// Everything that travels in a frame of its own behind a greeting.
fn layouts() -> Layouts {
    let mut all = Layouts::default();
    all.add::<Role>();
    all.add::<local::Request>();
    all.add::<local::Reply>();
    all.add::<branch::ToBranch>();
    all.add::<branch::FromBranch>();
    all.add::<branch::Vouch>();
    all.add::<branch::Through>();
    all.add::<keeper::ToKeeper>();
    all.add::<keeper::FromKeeper>();
    all.add::<attach::ToFrontEnd>();
    all.add::<attach::FromFrontEnd>();
    all.add::<writer::WriterOrder>();
    all.add::<join::Redeem>();
    all.add::<join::Redeemed>();
    all.add::<handover::ToHolder>();
    all.add::<handover::FromHolder>();
    all
}

#[test]
fn messages_change_with_the_version_only() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages/messages.txt");
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    let (head, known) = known.split_once('\n').unwrap_or_default();
    let version = format!("version {PROTOCOL_VERSION}");
    let found = layouts().text();
    if version != head && std::env::var_os(WRITE).is_some() {
        return std::fs::write(&file, format!("{version}\n{found}")).unwrap();
    }
    let (gone, new) = (lines_without(known, &found), lines_without(&found, known));
    assert!(
        found == known,
        "messages are others than those of {head}; raise PROTOCOL_VERSION, and have them written down \
         with {WRITE}=1 in the environment.\nNo more:\n{gone}\nNew:\n{new}"
    );
    assert_eq!(version, head, "messages are those of {head}");
}

/// The lines of one text that the other does not have.
fn lines_without(text: &str, other: &str) -> String {
    let lines = text.lines().filter(|line| !other.lines().any(|known| known == *line));
    lines.map(|line| format!("  {line}\n")).collect()
}

mod tests {
    use super::Layouts;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its layout matters")]
    struct Letter {
        to: Option<Whom>,
        copies: Vec<(Whom, u8)>,
        prices: BTreeMap<String, Number>,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its layout matters")]
    struct Number(i64);

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its layout matters")]
    enum Whom {
        Nobody,
        House { street: String, number: Number },
        Box(u32, How),
    }

    #[derive(Deserialize)]
    enum How {
        Slowly,
        Quickly,
    }

    #[test]
    fn every_variant_is_gone_through() {
        let mut layouts = Layouts::default();
        layouts.add::<Letter>();
        let expected = "\
How::Slowly 0
How::Quickly 1
Letter { to: perhaps Whom, copies: [(Whom, u8)], prices: map(string, Number) }
Number i64
Whom::Nobody 0
Whom::House 1 { street: string, number: Number }
Whom::Box 2 (u32, How)
";
        assert_eq!(layouts.text(), expected);
    }
}
