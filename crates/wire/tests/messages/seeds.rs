//! One of each message of a process or another machine, where the fuzz targets begin.

use super::WRITE;
use crate::layout::Layouts;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use tutti_wire::attach::{FromFrontEnd, ToFrontEnd};
use tutti_wire::branch::{FromBranch, ToBranch};
use tutti_wire::handover::{FromHolder, ToHolder};
use tutti_wire::join::{Redeem, Redeemed};
use tutti_wire::keeper::{FromKeeper, ToKeeper};
use tutti_wire::local::{Reply, Request};
use tutti_wire::writer::WriterOrder;
use tutti_wire::{Hello, Role, frame};

/// The seeds of a target, by their names.
type Seeds = BTreeMap<String, Vec<u8>>;

fn framed<M: Serialize>(message: &M) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(message, &mut bytes).unwrap();
    bytes
}

/// Adds one of each message of a type, and all of them as they come over a connection.
fn add<M: Serialize + DeserializeOwned>(seeds: &mut Seeds, name: &str) {
    let frames: Vec<Vec<u8>> = Layouts::default().add::<M>().iter().map(framed).collect();
    for (number, frame) in frames.iter().enumerate() {
        seeds.insert(format!("{name}-{number:02}"), frame[size_of::<u32>()..].to_vec());
    }
    seeds.insert(format!("{name}-framed"), frames.concat());
}

fn branch() -> Seeds {
    let mut seeds = Seeds::new();
    add::<FromBranch>(&mut seeds, "from");
    add::<ToBranch>(&mut seeds, "to");
    seeds
}

fn join() -> Seeds {
    let mut seeds = Seeds::new();
    add::<Redeem>(&mut seeds, "redeem");
    add::<Redeemed>(&mut seeds, "redeemed");
    let greeting = Hello { role: Role::Agent }.to_frame();
    seeds.insert("greeting".into(), greeting[size_of::<u32>()..].to_vec());
    seeds
}

fn messages() -> Seeds {
    let mut seeds = Seeds::new();
    add::<Request>(&mut seeds, "request");
    add::<Reply>(&mut seeds, "reply");
    add::<FromFrontEnd>(&mut seeds, "from-front-end");
    add::<ToFrontEnd>(&mut seeds, "to-front-end");
    add::<WriterOrder>(&mut seeds, "writer");
    add::<ToKeeper>(&mut seeds, "to-keeper");
    add::<FromKeeper>(&mut seeds, "from-keeper");
    add::<ToHolder>(&mut seeds, "to-holder");
    add::<FromHolder>(&mut seeds, "from-holder");
    seeds
}

fn place(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target)
}

/// Writes them down, in place of those of other messages; what else is there was found by fuzzing.
fn write(place: &Path, seeds: &Seeds) {
    fs::create_dir_all(place).unwrap();
    let kinds = ["from-", "to-", "redeem-", "redeemed-", "request-", "reply-", "writer-"];
    for old in fs::read_dir(place).unwrap().map(|entry| entry.unwrap()) {
        let name = old.file_name().into_string().unwrap();
        if kinds.iter().any(|kind| name.starts_with(kind)) {
            fs::remove_file(old.path()).unwrap();
        }
    }
    for (name, bytes) in seeds {
        fs::write(place.join(name), bytes).unwrap();
    }
}

#[test]
fn there_is_a_seed_of_each_message() {
    for (target, seeds) in [("branch", branch()), ("join", join()), ("messages", messages())] {
        let place = place(target);
        if std::env::var_os(WRITE).is_some() {
            write(&place, &seeds);
        }
        for (name, bytes) in &seeds {
            let found = fs::read(place.join(name)).unwrap_or_default();
            assert!(
                found == *bytes,
                "{target}/{name} is another message: {WRITE}=1 writes it anew"
            );
        }
    }
}

#[test]
fn seeds_reach_what_is_inside_of_messages() {
    fn said<M: DeserializeOwned + Debug>() -> String {
        branch()
            .values()
            .filter_map(|bytes| frame::decode::<M>(bytes).ok())
            .fold(String::new(), |said, message| format!("{said}{message:?}\n"))
    }
    let (from, to) = (said::<FromBranch>(), said::<ToBranch>());
    for part in ["Join(Join {", "Clock {", "Renew {", "TaskEnded {", "Open(Vouch {", "Bytes(["] {
        assert!(from.contains(part), "no {part} in:\n{from}");
    }
    for part in ["Launch {", "Clock(ClockReply {", "Welcome {", "Taken {", "Candidate {"] {
        assert!(to.contains(part), "no {part} in:\n{to}");
    }
}
