//! What scripts and interpreters start: the programs that their text names.
//!
//! The text is read as people write it, not as a shell does: the first words of its commands name
//! programs, and Python's text names `mpi4py`. A script that starts a program by a starter of its
//! own, such as `mpirun`, has its ranks served otherwise.

use super::{BESIDE_INTERPRETER, Libraries, open, program_at};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tutti_wire::script::interpreter;

/// The most that is read of a script, in bytes.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// How many programs are looked at, in scripts that name scripts so deep.
const PROGRAMS_MAX: u32 = 16;
const DEPTH_MAX: u32 = 3;

/// Interpreters of texts that name programs.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ksh", "zsh", "ash", "busybox"];

/// What starts ranks by itself.
const STARTERS: [&str; 9] = [
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "orterun",
    "prterun",
    "prun",
    "srun",
    "tutti",
    "torchrun",
];

/// Words before a program that are none.
const PREFIXES: [&str; 9] =
    ["exec", "time", "then", "do", "else", "if", "while", "nice", "command"];

/// By which Python programs have MPI.
const MPI_OF_PYTHON: &str = "mpi4py";

/// Reads the commands of a job.
pub(super) struct Scripts<'a> {
    pub(super) libraries: &'a mut Libraries,
    pub(super) directory: &'a Path,
    programs: u32,
}

impl<'a> Scripts<'a> {
    pub(super) const fn new(libraries: &'a mut Libraries, directory: &'a Path) -> Self {
        Self { libraries, directory, programs: 0 }
    }

    /// Whether the program `file`, called with these words, is a script or an interpreter that
    /// starts a program of Open MPI.
    pub(super) fn start_open_mpi(&mut self, file: &Path, words: &[String]) -> bool {
        self.command(file, words, 0)
    }

    fn command(&mut self, file: &Path, words: &[String], depth: u32) -> bool {
        self.programs += 1;
        if depth > DEPTH_MAX || self.programs > PROGRAMS_MAX {
            return false;
        }
        let name = name_of(file);
        if is_python(name) {
            return self.python(file, words);
        }
        if SHELLS.contains(&name) {
            let text = given(words, |path| self.text_of(path));
            return text.is_some_and(|text| self.shell(&text, depth));
        }
        let Some(text) = read(file, |first| first.starts_with(b"#!")) else {
            return depth > 0 && self.libraries.need_open_mpi(file);
        };
        self.script(&text, depth)
    }

    /// The same of a script of this text.
    pub(super) fn text_starts_open_mpi(&mut self, text: &str) -> bool {
        self.script(text, 0)
    }

    fn script(&mut self, text: &str, depth: u32) -> bool {
        // `env` starts what its argument names.
        let named = interpreter(text.as_bytes()).map(|(program, argument)| [program, argument]);
        let is_named = |path: &[u8]| is_python(name_of(Path::new(OsStr::from_bytes(path))));
        match named.is_some_and(|named| named.into_iter().any(is_named)) {
            true => text.contains(MPI_OF_PYTHON),
            false => self.shell(text, depth),
        }
    }

    fn python(&mut self, file: &Path, words: &[String]) -> bool {
        let is_module = |word: &String| word == "-m" || word.starts_with(MPI_OF_PYTHON);
        let by_module = words.windows(2).any(|pair| pair.iter().all(is_module));
        let text = given(words, |path| self.text_of(path));
        let has_mpi = by_module || text.is_some_and(|text| text.contains(MPI_OF_PYTHON));
        if let (true, Some(prefix)) = (has_mpi, file.parent().and_then(Path::parent)) {
            let beside = BESIDE_INTERPRETER.iter().map(|directory| prefix.join(directory));
            self.libraries.near_mpi.extend(beside);
        }
        has_mpi
    }

    fn shell(&mut self, text: &str, depth: u32) -> bool {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let commands: Vec<Vec<String>> = lines
            .flat_map(|line| line.split([';', '&', '|', '(', '{', '`']))
            .map(words_of_command)
            .collect();
        let first =
            |words: &Vec<String>| words.first().map(|word| name_of(Path::new(word)).to_owned());
        if commands.iter().filter_map(first).any(|name| STARTERS.contains(&&*name)) {
            return false;
        }
        commands.iter().any(|words| {
            let Some((program, rest)) = words.split_first() else { return false };
            let file = program_at(self.directory, program.as_bytes());
            file.is_some_and(|file| self.command(&file, rest, depth + 1))
        })
    }

    fn text_of(&self, path: &str) -> Option<String> {
        read(&self.directory.join(path), |_| true)
    }
}

/// The words of a command of a shell, from its program on: without the variables that are set for
/// it, and without words that a command follows.
#[must_use]
pub fn words_of_command(command: &str) -> Vec<String> {
    let plain = |word: &str| word.trim_matches(['"', '\'']).to_owned();
    let is_before = |word: &String| {
        PREFIXES.contains(&word.as_str())
            || word.split('/').next().is_some_and(|it| it.contains('='))
    };
    command.split_whitespace().map(plain).skip_while(is_before).collect()
}

/// The text that an interpreter is given: after `-c`, or that of its script.
fn given(words: &[String], read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let place = words.iter().position(|word| is_text_option(word) || !word.starts_with('-'))?;
    match is_text_option(&words[place]) {
        true => words.get(place + 1).cloned(),
        false => read(&words[place]),
    }
}

/// `-c`, also among others: `-lc`.
fn is_text_option(word: &str) -> bool {
    let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
    letters.is_some_and(|letters| letters.ends_with('c'))
}

fn is_python(name: &str) -> bool {
    ["python", "pypy", "ipython"].iter().any(|python| name.starts_with(python))
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// The text of a file, if its first bytes are as wanted.
fn read(path: &Path, is_wanted: impl Fn(&[u8]) -> bool) -> Option<String> {
    let mut file = open(path)?.take(TEXT_BYTES_MAX);
    let mut first = [0; 2];
    let count = file.read(&mut first).ok()?;
    let mut bytes = first[..count].to_vec();
    if !is_wanted(&bytes) {
        return None;
    }
    file.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn starts(directory: &Path, file: &str, words: &[&str]) -> bool {
        let mut libraries = Libraries::until(Instant::now() + Duration::from_secs(60));
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Scripts::new(&mut libraries, directory).start_open_mpi(Path::new(file), &words)
    }

    #[test]
    fn python_has_mpi_where_its_text_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        std::fs::write(at.join("with.py"), "import os\nfrom mpi4py import MPI\n").unwrap();
        std::fs::write(at.join("without.py"), "import os\n").unwrap();
        let script = at.join("each.sh");
        std::fs::write(&script, "#!/bin/sh\ncd .\nexec /usr/bin/env python3 x\n").unwrap();
        for words in [
            &["with.py", "7"][..],
            &["-u", "with.py"],
            &["-c", "from mpi4py import MPI"],
            &["-m", "mpi4py.bench"],
            &["-m", "mpi4py", "w.py"],
        ] {
            assert!(starts(at, "/usr/bin/python3.11", words), "{words:?}");
        }
        for words in [&["without.py"][..], &["-c", "print()"], &["missing.py"], &[]] {
            assert!(!starts(at, "/usr/bin/python3.11", words), "{words:?}");
        }
        assert!(!starts(at, script.to_str().unwrap(), &[]));
        assert!(!starts(at, "/bin/cat", &["with.py"]), "it runs nothing");
    }

    #[test]
    fn a_shell_starts_what_its_commands_name_unless_by_a_starter() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        std::fs::write(at.join("with.py"), "#!/usr/bin/python3\nimport mpi4py\n").unwrap();
        for (text, expected) in [
            ("./with.py 20; true", true),
            ("[ $R = 1 ] && exit 3; exec ./with.py", true),
            ("N=4 exec './with.py'", true),
            ("mpirun -n 2 ./with.py", false),
            ("echo ./with.py", false),
            ("# ./with.py", false),
            ("true", false),
        ] {
            assert_eq!(starts(at, "/bin/sh", &["-c", text]), expected, "{text}");
        }
        // One that names itself.
        let own = at.join("own.sh");
        std::fs::write(&own, format!("#!/bin/sh\n{}\n", own.display())).unwrap();
        assert!(!starts(at, own.to_str().unwrap(), &[]));
    }
}
