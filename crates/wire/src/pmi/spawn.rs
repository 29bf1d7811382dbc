//! What a client asks to be started, from `mcmd=spawn`: one command for each of the programs.

use super::line::{PmiError, needed, number};
use crate::limits::{SPAWN_BYTES_MAX, SPAWN_PROGRAMS_MAX};
use crate::spawn::{Spawned, SpawnedProgram};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// How far a task's spawn is. A task has at most one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) enum Spawning {
    /// There is none.
    #[default]
    None,
    /// Parts of it have come, and others are to follow.
    Collecting(Collected),
    /// All of it has come, and the task waits for the answer.
    Waiting,
}

/// The parts of a spawn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Collected {
    spawned: Spawned,
    /// Why it is refused when its last part has come.
    refused: Option<String>,
}

impl Collected {
    /// What it takes, about, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.spawned.bytes()
    }

    /// Takes in another part.
    ///
    /// # Errors
    /// If it is no part of a spawn.
    pub(super) fn add(&mut self, lines: &[u8]) -> Result<(), PmiError> {
        self.add_part(&Part::read(lines)?, &FIRST)
    }

    fn add_part(&mut self, part: &Part<'_>, names: &Names) -> Result<(), PmiError> {
        if self.refused.is_some() {
            return Ok(());
        }
        let program = part.program(names)?;
        if self.spawned.programs.len() >= SPAWN_PROGRAMS_MAX {
            self.refuse("too_many_programs");
            return Ok(());
        }
        self.spawned.programs.push(program);
        if self.spawned.preput.is_empty() {
            // Each part has the same.
            self.spawned.preput = part.pairs(&names.preput, names.separator)?;
        }
        if self.spawned.bytes() > SPAWN_BYTES_MAX {
            self.refuse("arguments_are_too_long");
        }
        Ok(())
    }

    /// All of a spawn of PMI-2, which names the programs one after the other.
    ///
    /// # Errors
    /// If it is no spawn.
    pub(super) fn of_second(fields: &[(Vec<u8>, Vec<u8>)]) -> Result<Self, PmiError> {
        let mut collected = Self::default();
        let is_program = |(key, _): &(Vec<u8>, Vec<u8>)| key == b"subcmd";
        let first = fields.iter().position(is_program).unwrap_or(fields.len());
        let (of_all, mut rest) = fields.split_at(first);
        while let Some((_, behind)) = rest.split_first()
            && collected.refused.is_none()
        {
            let end = 1 + behind.iter().position(is_program).unwrap_or(behind.len());
            let part = Part::of_fields(&rest[..end], of_all);
            rest = &rest[end..];
            collected.add_part(&part, &SECOND)?;
        }
        Ok(collected)
    }

    /// It is not to be done. What has come of it is dropped.
    pub(super) fn refuse(&mut self, reason: &str) {
        self.spawned = Spawned::default();
        self.refused.get_or_insert_with(|| reason.to_string());
    }

    /// What is asked for, or why it is refused.
    pub(super) fn finish(self) -> Result<Spawned, String> {
        match self.refused {
            Some(reason) => Err(reason),
            None if self.spawned.tasks().is_none_or(|tasks| tasks == 0) => {
                Err("there_is_no_such_number_of_tasks".into())
            }
            None => Ok(self.spawned),
        }
    }
}

/// The fields of one part, each on a line of its own. Of a field that is repeated, the first
/// counts.
struct Part<'a>(BTreeMap<&'a [u8], &'a [u8]>);

const SPAWN: &str = "spawn";

/// What the fields of a spawn are called.
struct Names {
    /// What stands before the number of an information or a value.
    separator: &'static str,
    tasks: &'static str,
    program: &'static str,
    arguments: &'static str,
    argument: &'static str,
    infos: Pairs,
    preput: Pairs,
}

/// The fields of names and values: how many there are, and what each begins with.
struct Pairs {
    count: &'static str,
    name: &'static str,
    value: &'static str,
}

/// In PMI-1.
const FIRST: Names = Names {
    separator: "_",
    tasks: "nprocs",
    program: "execname",
    arguments: "argcnt",
    argument: "arg",
    infos: Pairs { count: "info_num", name: "info_key", value: "info_val" },
    preput: Pairs { count: "preput_num", name: "preput_key", value: "preput_val" },
};

/// In PMI-2.
const SECOND: Names = Names {
    separator: "",
    tasks: "maxprocs",
    program: "subcmd",
    arguments: "argc",
    argument: "argv",
    infos: Pairs { count: "infokeycount", name: "infokey", value: "infoval" },
    preput: Pairs { count: "preputcount", name: "ppkey", value: "ppval" },
};

impl<'a> Part<'a> {
    fn read(lines: &'a [u8]) -> Result<Self, PmiError> {
        let mut fields = BTreeMap::new();
        // The first line names the command, the last one ends it.
        for line in lines.split(|byte| *byte == b'\n').skip(1) {
            if let Some(end) = line.iter().position(|byte| *byte == b'=') {
                fields.entry(&line[..end]).or_insert(&line[end + 1..]);
            }
        }
        Ok(Self(fields))
    }

    /// The fields of one program, and those that all programs share.
    fn of_fields(own: &'a [(Vec<u8>, Vec<u8>)], of_all: &'a [(Vec<u8>, Vec<u8>)]) -> Self {
        let mut fields = BTreeMap::new();
        for (key, value) in own.iter().chain(of_all) {
            fields.entry(&key[..]).or_insert(&value[..]);
        }
        Self(fields)
    }

    fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.0.get(name.as_bytes()).copied()
    }

    /// How many of something there are; none if nothing is said. A line bounds them.
    fn count(&self, field: &'static str) -> Result<u32, PmiError> {
        self.get(field).map_or(Ok(0), |text| number(SPAWN, field, Some(text)))
    }

    /// Names and values that are numbered from 0.
    fn pairs(&self, pairs: &Pairs, separator: &str) -> Result<Vec<(ByteBuf, ByteBuf)>, PmiError> {
        let of = |field: &'static str, index: u32| {
            needed(SPAWN, field, self.get(&alloc::format!("{field}{separator}{index}")))
                .map(ByteBuf::from)
        };
        let both = |index| Ok((of(pairs.name, index)?, of(pairs.value, index)?));
        (0..self.count(pairs.count)?).map(both).collect()
    }

    fn program(&self, names: &Names) -> Result<SpawnedProgram, PmiError> {
        let tasks = number(SPAWN, names.tasks, self.get(names.tasks))?;
        let mut argv = Vec::new();
        argv.push(ByteBuf::from(needed(SPAWN, names.program, self.get(names.program))?));
        // Those of PMI-2 are numbered from 0, as its clients do, or from 1, as its table says.
        let argument = |index: u64| self.get(&alloc::format!("{}{index}", names.argument));
        let first = u64::from(argument(0).is_none());
        for index in 0..u64::from(self.count(names.arguments)?) {
            argv.push(ByteBuf::from(needed(SPAWN, names.argument, argument(first + index))?));
        }
        let infos = self.pairs(&names.infos, names.separator)?;
        let info = |key: &[u8]| {
            let found = infos.iter().find(|(name, _)| name.as_slice() == key);
            found.map(|(_, value)| value.clone())
        };
        let (directory, path) = (info(b"wdir"), info(b"path"));
        Ok(SpawnedProgram { tasks, argv, directory, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec;

    fn collected(parts: &[&str]) -> Result<Spawned, String> {
        let mut all = Collected::default();
        for part in parts {
            all.add(part.replace(' ', "\n").as_bytes()).map_err(|error| error.to_string())?;
        }
        all.finish()
    }

    #[test]
    fn a_program_is_read_with_its_arguments_values_and_keys() {
        let first = "mcmd=spawn nprocs=2 execname=./a totspawns=2 spawnssofar=1 arg1=x=1 arg2= \
                     argcnt=2 preput_num=1 preput_key_0=K preput_val_0=v=2 info_num=2 \
                     info_key_0=host info_val_0=n1 info_key_1=wdir info_val_1=/tmp endcmd";
        let second = "mcmd=spawn nprocs=1 execname=b totspawns=2 spawnssofar=2 argcnt=0 \
                      preput_num=0 info_num=0 endcmd";
        let spawned = collected(&[first, second]).unwrap();
        let text = |text: &str| ByteBuf::from(text.as_bytes());
        let expected = Spawned {
            programs: vec![
                SpawnedProgram {
                    tasks: 2,
                    argv: vec![text("./a"), text("x=1"), text("")],
                    directory: Some(text("/tmp")),
                    path: None,
                },
                SpawnedProgram { tasks: 1, argv: vec![text("b")], ..Default::default() },
            ],
            preput: vec![(text("K"), text("v=2"))],
            parent: None,
        };
        assert_eq!(spawned, expected);
    }

    #[test]
    fn what_lies_about_its_numbers_is_refused() {
        for (part, reason) in [
            ("mcmd=spawn endcmd", "the PMI command 'spawn' lacks 'nprocs'"),
            ("mcmd=spawn nprocs=1 endcmd", "the PMI command 'spawn' lacks 'execname'"),
            (
                "mcmd=spawn nprocs=1 execname=a argcnt=4000000000 endcmd",
                "the PMI command 'spawn' lacks 'arg'",
            ),
            (
                "mcmd=spawn nprocs=1 execname=a preput_num=2 preput_key_0=k preput_val_0=v endcmd",
                "the PMI command 'spawn' lacks 'preput_key'",
            ),
            (
                "mcmd=spawn nprocs=-1 execname=a endcmd",
                "'nprocs' of the PMI command 'spawn' is no number",
            ),
            ("mcmd=spawn nprocs=0 execname=a endcmd", "there_is_no_such_number_of_tasks"),
        ] {
            assert_eq!(collected(&[part]).unwrap_err(), reason, "{part}");
        }
        let part = "mcmd=spawn nprocs=4000000000 execname=a endcmd";
        assert_eq!(collected(&[part; 2]).unwrap_err(), "there_is_no_such_number_of_tasks");
        assert_eq!(collected(&[part; SPAWN_PROGRAMS_MAX + 1]).unwrap_err(), "too_many_programs");
        let long = format!("mcmd=spawn nprocs=1 execname={} endcmd", "a".repeat(60 << 10));
        assert_eq!(collected(&[&*long; 9]).unwrap_err(), "arguments_are_too_long");
    }
}
