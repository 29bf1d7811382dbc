//! Exit codes of `tutti`: one table, for the code and for the manual.

/// What `tutti` exits with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit(u8);

impl Exit {
    /// All went well.
    pub const OK: Self = Self(0);
    /// A verb other than `run` failed.
    pub const FAILED: Self = Self(1);
    /// The job was declined; the message says what would be accepted.
    pub const DECLINED: Self = Self(120);
    /// The job ran, but its output could not be written.
    pub const OUTPUT_LOST: Self = Self(119);
    /// Tutti itself failed: no instance, lost connection.
    pub const TUTTI_FAILED: Self = Self(125);
    /// The output has no reader any more: as if SIGPIPE had ended it.
    pub const READER_GONE: Self = Self(141);

    /// Codes by which Tutti tells how a job ended, with those of signals. A program may exit with
    /// one too.
    pub const OF_TUTTI: std::ops::RangeInclusive<u8> = 119..=192;

    /// The exit code of a job, as its outcome has it.
    pub const fn of_job(code: u8) -> Self {
        Self(code)
    }

    /// The command line could not be understood, or asked for help only.
    pub const fn usage(code: u8) -> Self {
        Self(code)
    }

    /// A signal ended it.
    pub const fn of_signal(signal: nix::sys::signal::Signal) -> Self {
        Self(128u8.saturating_add(signal as u8))
    }

    /// The number.
    pub const fn code(self) -> u8 {
        self.0
    }
}

/// What verbs but `run` and `wait` exit with.
pub const OTHER: [(Exit, &str); 5] = [
    (Exit::OK, "success"),
    (Exit::FAILED, "failure: the message says what to do"),
    (Exit::usage(2), "a command line that can't be understood"),
    (Exit::DECLINED, "the job was declined: the message says what would be accepted"),
    (Exit::READER_GONE, "the reader of the output is gone, as in `tutti ps \\| head`"),
];

/// The table, as `tutti run --help` shows it.
pub const TABLE: &str = "\
Exit codes of run:
  0-118    the highest exit status of the tasks; 2 is also
           a command line that can't be understood
  119      the job ran, but its output could not be written
  120      declined: the message says what would be accepted;
           or a job before it did not end as --after asks
  121      a node, or what held the tasks there, was lost; or
           how an adopted process ended is unknown
  122      the instance shut down
  123      a task used more memory than it may
  124      the time limit was reached
  125      Tutti itself failed
  126      the program could not be started
  127      the program was not found
  128+N    a task was ended by signal N
  119-192  a program may exit with these too; a line on
           standard error says so";
