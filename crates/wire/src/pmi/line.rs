//! Lines of the protocol: cut out of a stream, and read as commands.

use crate::limits::PMI_LINE_BYTES_MAX;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// Why a task's connection can't go on. It costs that connection only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PmiError {
    /// A line does not begin as any command does.
    #[error("a PMI line does not begin with cmd= or mcmd=")]
    NotACommand,
    /// A command that is not known.
    #[error("the PMI command '{command}' is unknown")]
    UnknownCommand {
        /// Its name.
        command: String,
    },
    /// A command lacks something that it needs.
    #[error("the PMI command '{command}' lacks '{field}'")]
    NoField {
        /// Its name.
        command: &'static str,
        /// What it lacks.
        field: &'static str,
    },
    /// A number in a command is none, or too large.
    #[error("'{field}' of the PMI command '{command}' is no number")]
    BadNumber {
        /// The command's name.
        command: &'static str,
        /// The number's name.
        field: &'static str,
    },
    /// A message of PMI-2 does not begin with its length.
    #[error("a PMI-2 message does not begin with its length, six digits")]
    BadLength,
    /// A line is longer than any may be.
    #[error("a PMI line is longer than {PMI_LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// A task waits in too many barriers.
    #[error("a task waits in more than {} PMI barriers", super::BARRIERS_PER_TASK_MAX)]
    TooManyBarriers,
    /// A line came from a task that this server does not have.
    #[error("there is no task {task} on this node")]
    NoSuchTask {
        /// The number on the node.
        task: usize,
    },
}

/// A command of a task. Texts are as they came; they need not be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// The first: which version the client speaks.
    Init {
        /// The protocol: 1 or 2.
        version: u32,
        /// What MPICH announces as 1 even where it knows 2.
        subversion: u32,
    },
    /// How long names, keys and values may be.
    GetMaxes,
    /// The number of the program, of the several that a job may be made of.
    GetAppnum,
    /// How many tasks the job could have, those it may still spawn included.
    GetUniverseSize,
    /// The name of the job's own key space.
    GetMyKvsname,
    /// Store a value.
    Put {
        /// The key space; the job's own if absent.
        space: Option<&'a [u8]>,
        /// The key.
        key: &'a [u8],
        /// The value: the rest of the line, blanks and all.
        value: &'a [u8],
    },
    /// Look a value up.
    Get {
        /// The key space; the job's own if absent.
        space: Option<&'a [u8]>,
        /// The key.
        key: &'a [u8],
    },
    /// The n-th key with its value.
    GetByIndex {
        /// The key space; the job's own if absent.
        space: Option<&'a [u8]>,
        /// From 0.
        index: u32,
    },
    /// Wait until all have said so.
    BarrierIn {
        /// The members, since 1.2: `WORLD:tag`, `NODE:tag` or `rank,rank,...:tag`; everyone if
        /// absent.
        group: Option<&'a [u8]>,
    },
    /// The task needs no more.
    Finalize,
    /// End the job.
    Abort {
        /// The status to end with.
        code: i32,
        /// Why, since 1.2; may be empty.
        message: &'a [u8],
    },
    /// Let other jobs find an address by a name.
    PublishName {
        /// The name.
        service: &'a [u8],
        /// The address.
        port: &'a [u8],
    },
    /// Find it.
    LookupName {
        /// The name.
        service: &'a [u8],
    },
    /// Take it back.
    UnpublishName {
        /// The name.
        service: &'a [u8],
    },
    /// Make a further key space.
    CreateKvs,
    /// Drop it.
    DestroyKvs {
        /// Its name.
        space: &'a [u8],
    },
    /// Start more tasks; one part of several if several programs are to be started.
    Spawn {
        /// All lines of the command.
        lines: &'a [u8],
        /// Whether it is the last part, after which the client waits for the answer.
        last: bool,
    },
    /// A process that was started alone wants to become a job.
    SingletonInit,
}

/// Reads one line, without its end. `mcmd=spawn` is several lines, without the end of the last.
///
/// # Errors
/// If it is no command.
pub fn parse_line(line: &[u8]) -> Result<Command<'_>, PmiError> {
    if let Some(rest) = line.strip_prefix(b"mcmd=") {
        return match first_word(rest) {
            b"spawn" => spawn(line),
            other => Err(unknown(other)),
        };
    }
    let rest = line.strip_prefix(b"cmd=").ok_or(PmiError::NotACommand)?;
    let name = first_word(rest);
    let fields = &rest[name.len()..];
    match name {
        b"init" => {
            let [version, subversion] = read(fields, ["pmi_version", "pmi_subversion"]);
            Ok(Command::Init {
                version: number("init", "pmi_version", version)?,
                subversion: number("init", "pmi_subversion", subversion)?,
            })
        }
        b"get_maxes" => Ok(Command::GetMaxes),
        b"get_appnum" => Ok(Command::GetAppnum),
        b"get_universe_size" => Ok(Command::GetUniverseSize),
        b"get_my_kvsname" => Ok(Command::GetMyKvsname),
        b"put" | b"get" | b"getbyidx" => key_command(name, fields),
        b"barrier_in" => {
            let [group] = read(fields, ["group"]);
            Ok(Command::BarrierIn { group: group.map(<[u8]>::trim_ascii) })
        }
        b"finalize" => Ok(Command::Finalize),
        b"abort" => {
            let [code, message] = read(fields, ["exitcode", "message"]);
            let code = code.map_or(Ok(1), |code| number("abort", "exitcode", Some(code)))?;
            Ok(Command::Abort { code, message: message.unwrap_or_default() })
        }
        b"publish_name" => {
            let [service, port] = read(fields, ["service", "port"]);
            Ok(Command::PublishName {
                service: needed("publish_name", "service", service)?,
                port: needed("publish_name", "port", port)?,
            })
        }
        b"lookup_name" | b"unpublish_name" => name_command(name, fields),
        b"create_kvs" => Ok(Command::CreateKvs),
        b"destroy_kvs" => {
            let [space] = read(fields, ["kvsname"]);
            Ok(Command::DestroyKvs { space: needed("destroy_kvs", "kvsname", space)? })
        }
        b"singinit" => Ok(Command::SingletonInit),
        other => Err(unknown(other)),
    }
}

fn key_command<'a>(name: &[u8], fields: &'a [u8]) -> Result<Command<'a>, PmiError> {
    match name {
        b"put" => {
            let [space, key, value] = read(fields, ["kvsname", "key", "value"]);
            let (key, value) = (needed("put", "key", key)?, needed("put", "value", value)?);
            Ok(Command::Put { space, key, value })
        }
        b"get" => {
            let [space, key] = read(fields, ["kvsname", "key"]);
            Ok(Command::Get { space, key: needed("get", "key", key)?.trim_ascii_end() })
        }
        _ => {
            let [space, index] = read(fields, ["kvsname", "idx"]);
            Ok(Command::GetByIndex { space, index: number("getbyidx", "idx", index)? })
        }
    }
}

fn name_command<'a>(name: &[u8], fields: &'a [u8]) -> Result<Command<'a>, PmiError> {
    let [service] = read(fields, ["service"]);
    match name {
        b"lookup_name" => {
            Ok(Command::LookupName { service: needed("lookup_name", "service", service)? })
        }
        _ => Ok(Command::UnpublishName { service: needed("unpublish_name", "service", service)? }),
    }
}

/// The fields of a spawn stand on lines of their own.
fn spawn(lines: &[u8]) -> Result<Command<'_>, PmiError> {
    let field = |name: &str| {
        lines.split(|byte| *byte == b'\n').find_map(|line| {
            line.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
        })
    };
    // A client that does not say how many parts there are sends one.
    let part = |name| field(name).map_or(Ok(1u32), |text| number("spawn", name, Some(text)));
    let last = part("spawnssofar")? >= part("totspawns")?;
    Ok(Command::Spawn { lines, last })
}

/// The values of some fields, in the order in which clients write them. A value goes on until
/// another of the fields begins, so it may hold blanks and `=`; the last field's is the whole rest:
/// names of services and ports hold anything, and clients do not escape them.
fn read<'a, const N: usize>(fields: &'a [u8], names: [&str; N]) -> [Option<&'a [u8]>; N] {
    let mut values = [None; N];
    // The field that is being read, and where its value begins.
    let mut open: Option<(usize, usize)> = None;
    let mut at = 0;
    while at < fields.len() {
        let begins = fields[at..].strip_prefix(b" ").and_then(|rest| {
            (0..N).find(|index| {
                let is_new = values[*index].is_none() && open.is_none_or(|(o, _)| o != *index);
                let behind = rest.strip_prefix(names[*index].as_bytes());
                is_new && behind.is_some_and(|behind| behind.starts_with(b"="))
            })
        });
        let Some(index) = begins else {
            at += 1;
            continue;
        };
        close(&mut values, open, &fields[..at]);
        at += 1 + names[index].len() + 1;
        open = Some((index, at));
        if index + 1 == N {
            break;
        }
    }
    close(&mut values, open, fields);
    values
}

fn close<'a>(values: &mut [Option<&'a [u8]>], open: Option<(usize, usize)>, text: &'a [u8]) {
    if let Some((index, begin)) = open {
        values[index] = Some(&text[begin..]);
    }
}

pub(super) fn needed<'a>(
    command: &'static str,
    field: &'static str,
    value: Option<&'a [u8]>,
) -> Result<&'a [u8], PmiError> {
    value.ok_or(PmiError::NoField { command, field })
}

pub(super) fn number<T: core::str::FromStr>(
    command: &'static str,
    field: &'static str,
    value: Option<&[u8]>,
) -> Result<T, PmiError> {
    let text = needed(command, field, value)?.trim_ascii();
    core::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(PmiError::BadNumber { command, field })
}

fn first_word(text: &[u8]) -> &[u8] {
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    &text[..end]
}

fn unknown(command: &[u8]) -> PmiError {
    PmiError::UnknownCommand { command: crate::units::shown(&String::from_utf8_lossy(command)) }
}

/// What the length of a PMI-2 message takes, which stands before it.
pub(super) const LENGTH_BYTES: usize = 6;

/// Room that is kept when all lines are taken.
const ROOM_KEPT_BYTES: usize = 8 << 10;

/// Collects the bytes of a task's connection and hands out whole lines.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Where the next line begins.
    begin: usize,
    /// How far its end was looked for, so that a slow writer does not cost a new search each time.
    searched: usize,
}

impl LineBuffer {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), begin: 0, searched: 0 }
    }

    /// Takes in what was read from the connection. To be followed by [`Self::next_line`] until it
    /// gives nothing: that is what bounds the buffer.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.begin == self.bytes.len() && self.bytes.capacity() > ROOM_KEPT_BYTES {
            // A line was long once; thousands of tasks may have sent one.
            self.bytes = Vec::new();
        }
        self.bytes.drain(..self.begin.min(self.bytes.len()));
        self.searched -= self.begin;
        self.begin = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// What was taken in and not handed out.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }

    /// The next whole line, without its end; several lines for a command that begins with `mcmd=`.
    /// A message of PMI-2 comes without the length before it: no line begins as a length does.
    ///
    /// # Errors
    /// If it is longer than any may be, or its length is none; the connection can't be read on.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, PmiError> {
        while self.begin < self.bytes.len() {
            let found = match self.bytes[self.begin] {
                b' ' | b'0'..=b'9' => self.message()?,
                _ => self.line()?,
            };
            match found {
                None => return Ok(None),
                Some(found) if found.is_empty() => {}
                Some(found) => return Ok(Some(&self.bytes[found])),
            }
        }
        Ok(None)
    }

    /// Takes a line, if it is whole.
    fn line(&mut self) -> Result<Option<Range<usize>>, PmiError> {
        let begin = self.begin;
        let end = self.line_end();
        if end.unwrap_or(self.bytes.len()) - begin > PMI_LINE_BYTES_MAX {
            return Err(PmiError::LineTooLong);
        }
        let Some(end) = end else { return Ok(None) };
        self.begin = end + 1;
        self.searched = self.begin;
        Ok(Some(begin..end))
    }

    /// Takes a message of PMI-2, if it is whole.
    fn message(&mut self) -> Result<Option<Range<usize>>, PmiError> {
        let Some((digits, rest)) = self.bytes[self.begin..].split_first_chunk::<LENGTH_BYTES>()
        else {
            return Ok(None);
        };
        let digits = core::str::from_utf8(digits).map_err(|_| PmiError::BadLength)?;
        let length: usize = digits.trim().parse().map_err(|_| PmiError::BadLength)?;
        if length > PMI_LINE_BYTES_MAX {
            return Err(PmiError::LineTooLong);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let begin = self.begin + LENGTH_BYTES;
        self.begin = begin + length;
        self.searched = self.begin;
        Ok(Some(begin..self.begin))
    }

    /// Where the line end is that ends the next command.
    fn line_end(&mut self) -> Option<usize> {
        loop {
            let unseen = &self.bytes[self.searched..];
            let end = match unseen.iter().position(|byte| *byte == b'\n') {
                Some(length) => self.searched + length,
                None => {
                    self.searched = self.bytes.len();
                    return None;
                }
            };
            self.searched = end + 1;
            let command = &self.bytes[self.begin..end];
            if !command.starts_with(b"mcmd=") || command.ends_with(b"\nendcmd") {
                return Some(end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn commands_are_read() {
        let text: &[u8] = b"name with = and  blanks ";
        let first_of_two = "mcmd=spawn\nnprocs=3\nexecname=./x\ntotspawns=2\nspawnssofar=1\nendcmd";
        let only = "mcmd=spawn\nnprocs=3\narg1=nprocs=4\nendcmd";
        for (line, command) in [
            (
                "cmd=init pmi_version=1 pmi_subversion=1",
                Command::Init { version: 1, subversion: 1 },
            ),
            ("cmd=get_maxes", Command::GetMaxes),
            ("cmd=get_maxes ", Command::GetMaxes),
            (
                "cmd=put kvsname=kvs_0 key=a value=v=1 key=2 ",
                Command::Put { space: Some(b"kvs_0"), key: b"a", value: b"v=1 key=2 " },
            ),
            ("cmd=put key=a value=", Command::Put { space: None, key: b"a", value: b"" }),
            ("cmd=get kvsname= key=k", Command::Get { space: Some(b""), key: b"k" }),
            (
                "cmd=getbyidx kvsname=kvs_0 idx=7",
                Command::GetByIndex { space: Some(b"kvs_0"), index: 7 },
            ),
            ("cmd=barrier_in", Command::BarrierIn { group: None }),
            ("cmd=barrier_in group=0,2:9", Command::BarrierIn { group: Some(b"0,2:9") }),
            ("cmd=abort exitcode=7", Command::Abort { code: 7, message: b"" }),
            ("cmd=abort", Command::Abort { code: 1, message: b"" }),
            (
                "cmd=abort exitcode=-1 message=PMI_Init failed",
                Command::Abort { code: -1, message: b"PMI_Init failed" },
            ),
            (
                "cmd=publish_name service=a b port=tag#0$x=1 service=2",
                Command::PublishName { service: b"a b", port: b"tag#0$x=1 service=2" },
            ),
            (
                "cmd=lookup_name service=name with = and  blanks ",
                Command::LookupName { service: text },
            ),
            (first_of_two, Command::Spawn { lines: first_of_two.as_bytes(), last: false }),
            (only, Command::Spawn { lines: only.as_bytes(), last: true }),
        ] {
            assert_eq!(parse_line(line.as_bytes()), Ok(command), "{line}");
        }
    }

    #[test]
    fn what_is_no_command() {
        for (line, message) in [
            ("", "a PMI line does not begin with cmd= or mcmd="),
            ("    30cmd=fullinit;pmirank=0;", "a PMI line does not begin with cmd= or mcmd="),
            ("cmd=", "the PMI command '' is unknown"),
            ("cmd=gets key=a", "the PMI command 'gets' is unknown"),
            ("cmd=put kvsname=k value=v", "the PMI command 'put' lacks 'key'"),
            ("cmd=put key=k", "the PMI command 'put' lacks 'value'"),
            ("cmd=init pmi_version=1", "the PMI command 'init' lacks 'pmi_subversion'"),
            (
                "cmd=init pmi_version=one pmi_subversion=1",
                "'pmi_version' of the PMI command 'init' is no number",
            ),
            ("cmd=getbyidx kvsname=k idx=-1", "'idx' of the PMI command 'getbyidx' is no number"),
            (
                "cmd=abort exitcode=99999999999",
                "'exitcode' of the PMI command 'abort' is no number",
            ),
            (
                "mcmd=spawn\ntotspawns=x\nendcmd",
                "'totspawns' of the PMI command 'spawn' is no number",
            ),
            ("mcmd=sp\nendcmd", "the PMI command 'sp' is unknown"),
        ] {
            assert_eq!(parse_line(line.as_bytes()).unwrap_err().to_string(), message, "{line}");
        }
    }

    #[test]
    fn a_stream_cut_anywhere_gives_the_same_lines() {
        let stream = b"cmd=init\n\ncmd=get_maxes\nmcmd=spawn\nnprocs=1\nendcmd\ncmd=finalize\nrest";
        for step in [1, 2, 5, stream.len()] {
            let mut buffer = LineBuffer::new();
            let mut lines: Vec<Vec<u8>> = Vec::new();
            for piece in stream.chunks(step) {
                buffer.extend(piece);
                while let Some(line) = buffer.next_line().unwrap() {
                    lines.push(line.to_vec());
                }
            }
            let expected: [&[u8]; 4] =
                [b"cmd=init", b"cmd=get_maxes", b"mcmd=spawn\nnprocs=1\nendcmd", b"cmd=finalize"];
            assert_eq!(lines, expected, "in pieces of {step}");
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        for piece in [vec![b'x'; 4096], b"mcmd=spawn\n".repeat(400)] {
            let mut buffer = LineBuffer::new();
            let mut taken = 0;
            let error = loop {
                buffer.extend(&piece);
                taken += piece.len();
                match buffer.next_line() {
                    Ok(line) => assert_eq!(line, None),
                    Err(error) => break error,
                }
            };
            assert_eq!(error, PmiError::LineTooLong);
            assert!(taken <= PMI_LINE_BYTES_MAX + 4400);
        }
    }

    proptest! {
        #[test]
        fn any_line_is_a_command_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            name in "m?cmd=(put|get|init|abort|publish_name|getbyidx|spawn)[ \n]",
            fields in "((kvsname|key|value|service|port|idx|nprocs)=|[ \na-z0-9=-]){0,12}",
        ) {
            let _ = parse_line(&bytes);
            let _ = parse_line((name + &fields).as_bytes());
        }

        #[test]
        fn any_stream_is_cut_or_refused(
            pieces in proptest::collection::vec("(m?cmd=[a-z]{0,3}|endcmd|\n){0,8}", 0..12)
        ) {
            let mut buffer = LineBuffer::new();
            for piece in pieces {
                buffer.extend(piece.as_bytes());
                while let Some(line) = buffer.next_line().unwrap() {
                    prop_assert!(!line.is_empty());
                }
            }
        }
    }
}
