//! The codes that errors, refusals and losses carry (`T021`): one table, from which messages, JSON,
//! `tutti explain` and `docs/reference/errors.md` are made.
//!
//! A code stays what it is from release to release; one that is not used any more is not given again.

use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What a reader is told of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The code.
    pub code: Code,
    /// What happened.
    pub happened: &'static str,
    /// What Tutti did about it.
    pub did: &'static str,
    /// What the reader can do.
    pub can_do: &'static str,
}

macro_rules! codes {
    ($($number:literal $name:ident $happened:literal $did:literal $can_do:literal;)*) => {
        /// A kind of error, refusal or loss.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Code {
            $(#[doc = $happened] $name = $number,)*
        }

        /// All codes there are, by number.
        pub const TABLE: &[Entry] = &[
            $(Entry { code: Code::$name, happened: $happened, did: $did, can_do: $can_do },)*
        ];
    };
}

codes! {
    1 CannotUnderstand
        "The command line can't be understood."
        "Nothing was done."
        "The message names the word; `tutti VERB --help` shows what the verb takes.";
    2 BadValue
        "A value is not one that can be taken: a length, a size, a count, a time, a parameter or a list."
        "Nothing was changed."
        "The message says what would be taken. `tutti params` lists parameters with their ranges.";
    3 BadScript
        "A line of a job script can't be understood, or the script can't be read."
        "The job was not submitted."
        "Correct the line that the message names; options are those of `tutti submit --help`.";
    4 NoProgram
        "There is no such program, or not where the task looked for it."
        "The job was not submitted, or it ended with exit code 127."
        "Give the path of the program, or correct PATH; programs must be at the same place on all nodes.";
    5 NotExecutable
        "The program is there and can't be started."
        "The job was not submitted, or it ended with exit code 126."
        "By the reason in the message: `chmod +x`; a first line that names the interpreter; a file that can be written; higher `ulimit`s.";
    6 BadFile
        "A directory or file that the job needs can't be used."
        "The job was not submitted, or it ended before its program began."
        "Make the directory or file, or correct its permissions for the job's user.";
    7 OpenMpi
        "An Open MPI program was to be started as several tasks. Each would run alone, since Tutti serves no PMIx."
        "The job was not submitted, or it was ended."
        "Start its own mpirun in one task, as `tutti run -n 1 -c N mpirun -np N PROGRAM`, or build with MPICH; TUTTI_SINGLETONS=1 starts all tasks alone.";
    8 Nested
        "A `tutti run` inside a job asked for processors or memory that are not free before that job ends."
        "The inner job was declined: it and the outer job would have waited for each other for ever."
        "Ask for less with `-n`, start the program without Tutti, or submit the outer job with more; `tutti submit` waits in line.";
    10 NoInstance
        "No instance of Tutti runs where one was looked for."
        "Nothing was done."
        "Start one with `tutti up`, or by `tutti run`. TUTTI_DIR and TUTTI_CLUSTER say where one is looked for.";
    11 ControllerAway
        "The controller went away before it answered."
        "Tutti waited for the next one; it did not come, or can't know what was asked."
        "See with `tutti ps` what was done, then ask again. The log in the state directory says why it ended.";
    12 OtherRelease
        "Two parts of Tutti do not understand each other: they are of different releases."
        "The connection was closed; jobs go on."
        "Use the release that the instance was started with, or restart it with `tutti down` and `tutti up`.";
    13 OthersInstance
        "The instance, or its state directory, belongs to another user."
        "It was told nothing."
        "Set TUTTI_DIR to a place of your own, or have the directory removed by its owner.";
    14 NotStarted
        "The instance could not be started."
        "All of it that had started was ended."
        "The message has the reason; `tutti doctor` says what of this machine works.";
    15 NotUpgraded
        "The instance was not upgraded to the other executable."
        "What ran goes on as it was, or, if the message says so, was started again."
        "The message has the reason. `tutti down` and `tutti up` change the executable too, and end all jobs.";
    20 NotAllowed
        "Only the owner, or root, may do that."
        "Nothing was done."
        "Ask the owner of the job, of the process or of the instance.";
    21 NoJob
        "There is no job of that number, or it is forgotten."
        "Nothing was done."
        "`tutti ps --all` and `tutti history` show those that are known; `tutti params keep_history` says how long.";
    22 JobEnded
        "The job has ended already."
        "Nothing was done."
        "`tutti history JOB` says how it ended.";
    23 JobNotEnded
        "The job has not ended."
        "Nothing was done."
        "`tutti wait JOB` waits for its end, `tutti ps -l JOB` shows what it has used so far.";
    24 NoPart
        "The job has no such rank or process, or it does not run now."
        "Nothing was done."
        "`tutti ps --tree JOB` shows its tasks and processes.";
    25 TooMuchAsked
        "One user asks for more than the controller keeps for one."
        "The request was refused; what was accepted before stays."
        "Wait until some jobs have ended, or give shorter names and smaller environments.";
    26 Improper
        "The request contradicts itself."
        "The job was not accepted."
        "The message names the options that do not go together.";
    27 CannotAdopt
        "The process can't be made a job."
        "The process goes on as it was."
        "Name a process of yours that runs and is in no job, and not one that started this command.";
    28 CannotChangeNode
        "The node can't be changed so while things are as they are."
        "No node was changed."
        "The message says what to do first.";
    29 NothingToWaitFor
        "There is no job to wait for: no live one, and none that was submitted in this session and has ended."
        "`tutti wait` ended at once."
        "Name the jobs, as `tutti wait 7 8` or 7-8; `tutti history` says how jobs ended.";
    30 TooLarge
        "The job asks for more processors or tasks than the machine has."
        "The job was declined; the message has the most that would be accepted."
        "Ask for less, or add nodes with `tutti join`.";
    31 TooMuchMemory
        "The job asks for more memory than the machine can ever give."
        "The job was declined; the message has the most that would be accepted."
        "Ask for less with `-m`, or spread the tasks over more nodes.";
    32 NoSuchNodes
        "The nodes or sets of nodes that are named are not there, or too few."
        "Nothing was done, or the job was declined."
        "`tutti nodes` shows the nodes and their sets.";
    33 NoNodes
        "No node has joined yet."
        "The job was declined."
        "`tutti nodes` lists the nodes; submit the job again when one has joined.";
    34 NoClass
        "There is no such class of jobs."
        "Nothing was done, or the job was declined."
        "`tutti params` lists the classes; `tutti params --class NAME` defines one.";
    35 TooManyJobs
        "As many jobs wait as the controller may know."
        "The job was declined."
        "Wait until some have ended.";
    36 DeadlineTooSoon
        "The job can't be guaranteed to end by its deadline."
        "The job was declined; the message has the earliest deadline that would be accepted, if there is one."
        "Take a later deadline or a shorter time limit.";
    37 NoDeadlines
        "A deadline needs the policy `deadline` and a time limit."
        "The job was declined."
        "Add `--time`; `tutti params policy=deadline` has deadlines promised.";
    38 ShuttingDown
        "The instance is ending."
        "The job was declined."
        "Hand it in again when the instance is up.";
    39 NoAccess
        "The access list does not allow this user to submit jobs from this machine."
        "The job was declined."
        "The message says from where, if from anywhere. `tutti access` shows the list; root can change it.";
    40 NodeLost
        "A node was lost, or what held the job's tasks there."
        "The job ended with exit code 121; its other tasks were ended."
        "Run it again. `--on-node-loss requeue` has Tutti do so, `notify` lets the other tasks go on.";
    41 TimedOut
        "The job reached its time limit."
        "It was told by SIGTERM, ended after its grace, and has exit code 124."
        "Give a longer limit with `--time`.";
    42 OutOfMemory
        "A task used more memory than it may."
        "The job was ended, with exit code 123."
        "Ask for more with `-m`; `tutti history JOB` shows the most that a task had.";
    43 InstanceEnded
        "The instance was shut down while the job was there."
        "The job was ended, with exit code 122."
        "Run it again when the instance is up.";
    44 FrontEndLost
        "The job's front end went away."
        "The job was ended after the parameter `front_end_grace`."
        "Use `tutti submit` for jobs that are to outlive their terminal.";
    45 Cancelled
        "A user ended the job."
        "Its tasks got SIGTERM, and SIGKILL after their grace."
        "It was the owner or root; nothing needs to be done.";
    46 OutputLost
        "Output of the job could not be written, or did not arrive."
        "The job was ended if its output could not be read any more; the exit code is 119."
        "Make room, or write to a file with `tutti submit`, and run it again.";
    47 ExitUnknown
        "How an adopted process ended is not known."
        "The job ended with exit code 121; nothing of it is left."
        "Look at what it was to do. From Linux 6.15 on the kernel tells how such processes end.";
    48 TooMuchStored
        "The tasks of a job stored more through PMI than a node, or all nodes together, keep for one job or one user."
        "The job was ended; no other job was touched."
        "A job may store 64 MiB, all jobs of a user 512 MiB on a node. The program may put without an end: see what it stores.";
    49 NotFinalized
        "A task ended between `MPI_Init` and `MPI_Finalize`, and the other tasks did not end."
        "The job was killed after its grace, counted in the job's own turns."
        "The message names the rank and its exit status: see what it printed last. `--keep-going` lets the others run on.";
    50 JournalUnusable
        "The journal can't be opened, read or written, or another controller has it."
        "A controller that starts does not; one that runs lets jobs go on, accepts none and sets nothing."
        "Make room, correct its permissions, or end the other instance; jobs are accepted again by themselves.";
    51 JournalDamaged
        "The journal does not hold what was written."
        "The controller did not start, and left the files as they are; or it did, without what happened last."
        "`tutti replay` says how far it is good. Put the right files back, or move all away: that forgets it all, as \
         `tutti down --forget` does for a private instance.";
    52 JournalOfOther
        "The journal was written by another release."
        "The file was left as it is."
        "Start that release; the message says which form it has. `tutti down --forget` deletes that of a private \
         instance.";
    60 Membership
        "The machine is in a cluster already, in none, or not the one that decides."
        "Nothing was changed."
        "The message says where or after what to do it: often `tutti down` or `tutti leave` first.";
    61 NotTrusted
        "A token, certificate or name was refused."
        "The machine was not let in."
        "Print a new token with `tutti invite` at the head; look whether both machines' clocks are right.";
    62 OutOfReach
        "Another machine of the cluster, or its controller, can't be reached."
        "What runs goes on; it is tried again and again."
        "See whether the machine is up, whether `tutti up` runs there, and whether firewalls let its port by.";
    63 LeaseOver
        "This machine was out of reach of the head for longer than the parameter `lease` allows."
        "Its jobs were suspended, since they may run elsewhere now."
        "When it is in reach, they go on or end, as the head says. A longer `tutti params lease` bears longer breaks.";
    64 NotUnderstood
        "A peer sent an invalid message, or one that it may not send."
        "That connection was closed; nothing else happened."
        "The message says what it was. If it comes again from a program that is not yours, see which users can reach the socket or port.";
    70 System
        "The kernel or a file system refused what was needed."
        "Nothing more was done than the message says."
        "The message has the system's reason; `tutti doctor` says what of this machine works.";
    71 PartEnded
        "A part of Tutti ended, or was ended by force."
        "It is started again and learns what there is; with a keeper its tasks are lost, and reported so."
        "The lines before may say why; only the supervisor should end it. If it happens again, look with `tutti doctor`.";
    72 ProcessStuck
        "Processes of a job can't be ended or suspended."
        "Their processors are not given to others until they are gone; other jobs go on."
        "`cat /proc/PID/wchan` says what one waits for: often a file system that does not answer. Repair that.";
    73 GoesWithout
        "A job does not get all that it should: a directory, a limit or a namespace of its own."
        "It runs without."
        "The message has what the system refused; `tutti doctor` says how to change it.";
    74 OldKernel
        "The kernel, or the filter of a container, lacks a call that Tutti can't do without."
        "No instance was started."
        "Use Linux 5.3 or later. In a container, allow the call that the message names.";
    99 Other
        "Something kept the command from being done."
        "Nothing more was done than the message says."
        "The message says what it was.";
}

impl Code {
    /// What a reader is told of it.
    #[must_use]
    pub fn entry(self) -> &'static Entry {
        // The table has a line for each, made by the same macro.
        TABLE.iter().find(|entry| entry.code == self).unwrap_or(&TABLE[TABLE.len() - 1])
    }

    /// That of this number.
    #[must_use]
    pub fn of_number(number: u16) -> Option<Self> {
        TABLE.iter().map(|entry| entry.code).find(|code| *code as u16 == number)
    }

    /// That which is written so: `T021`, or by its number alone.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.trim_start_matches(['T', 't']);
        Self::of_number(number.parse().ok()?)
    }

    /// The message with this code behind its first line, unless one is there already.
    #[must_use]
    pub fn mark(self, message: &str) -> String {
        let (first, rest) = match message.split_once('\n') {
            Some((first, rest)) => (first, Some(rest)),
            None => (message, None),
        };
        let mut marked = String::from(first);
        if !is_marked(message.lines().last().unwrap_or_default()) && !is_marked(first) {
            marked.push_str(&alloc::format!(" [{self}]"));
        }
        if let Some(rest) = rest {
            marked.push('\n');
            marked.push_str(rest);
        }
        marked
    }
}

fn is_marked(line: &str) -> bool {
    let code = line.strip_suffix(']').and_then(|line| line.rsplit_once('['));
    code.is_some_and(|(_, code)| code.starts_with('T') && Code::parse(code).is_some())
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{:03}", *self as u16)
    }
}

/// In JSON a code is what messages have, `"T021"`; between parts it is its number.
impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_u16(*self as u16)
        }
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = if deserializer.is_human_readable() {
            Self::parse(&String::deserialize(deserializer)?)
        } else {
            Self::of_number(u16::deserialize(deserializer)?)
        };
        found.ok_or_else(|| de::Error::custom("no such code"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn codes_are_in_order_and_read_as_written() {
        assert!(TABLE.windows(2).all(|pair| pair[0].code < pair[1].code));
        for entry in TABLE {
            assert_eq!(Code::parse(&entry.code.to_string()), Some(entry.code));
            assert_eq!(entry.code.entry(), entry);
            for text in [entry.happened, entry.did, entry.can_do] {
                assert!(text.ends_with('.') && text.len() > 10, "{}: {text}", entry.code);
            }
        }
        assert_eq!(Code::parse("T000"), None);
    }

    #[test]
    fn a_message_is_marked_once_behind_its_first_line() {
        assert_eq!(Code::NoJob.mark("no job 7"), "no job 7 [T021]");
        assert_eq!(Code::NoJob.mark("no job 7\nlook"), "no job 7 [T021]\nlook");
        assert_eq!(Code::Other.mark("no job 7 [T021]"), "no job 7 [T021]");
        assert_eq!(Code::Other.mark("no start\nno job 7 [T021]"), "no start\nno job 7 [T021]");
        assert_eq!(Code::Other.mark("a list [T9999]"), "a list [T9999] [T099]");
    }
}
