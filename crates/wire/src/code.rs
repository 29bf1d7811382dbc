//! The codes that errors, refusals and losses carry (`T021`): one table, from which messages, JSON,
//! `tutti explain` and `docs/reference/errors.md` are made.
//!
//! A code stays what it is from release to release; one that is not used any more is not given
//! again.

use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What `tutti explain` prints of a code.
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
        "A value is invalid: a length, a size, a count, a time, a parameter or a list."
        "Nothing was changed."
        "The message says what is valid. `tutti params` lists parameters with their ranges.";
    3 BadScript
        "A line of a job script can't be understood, or the script can't be read."
        "The job was not submitted."
        "Correct the line that the message names; options are those of `tutti submit --help`.";
    4 NoProgram
        "The program was not found."
        "The job was not submitted, or it ended with exit code 127."
        "Give the path of the program, or correct PATH; programs must be at the same place on all nodes.";
    5 NotExecutable
        "The program was found, but can't be started."
        "The job was not submitted, or it ended with exit code 126."
        "The message has the reason. Often it is a missing `chmod +x`, a wrong interpreter in the first line, or a low `ulimit`.";
    6 BadFile
        "A directory or file that the job needs can't be used."
        "The job was not submitted, or it ended before its program began."
        "Create the directory or file, or correct its permissions for the job's user.";
    7 OpenMpi
        "Tasks of an Open MPI program can't be served by PMIx: each would run alone."
        "The job was not submitted, or it was ended."
        "Install libpmix or give its path by TUTTI_LIBPMIX; what no script names needs TUTTI_PMIX=1. TUTTI_SINGLETONS=1 starts all tasks alone.";
    8 Nested
        "A `tutti run` inside a job asked for processors or memory that are not free before that job ends."
        "The inner job was declined: it and the outer job would have waited for each other for ever."
        "Ask for less with `-n`, start the program without Tutti, or submit the outer job with more; `tutti submit` waits in line.";
    10 NoInstance
        "No instance of Tutti runs at the expected place."
        "Nothing was done."
        "Start one with `tutti up`, or by `tutti run`. TUTTI_DIR and TUTTI_CLUSTER set the place.";
    11 ControllerAway
        "The controller went away before it answered."
        "Tutti waited for the next controller; it did not start, or does not know the request."
        "See with `tutti ps` what was done, then try again. The log in the state directory says why it ended.";
    12 OtherRelease
        "Two parts of Tutti are of different releases, and their protocols differ."
        "The connection was closed; jobs go on."
        "Use the release that the instance was started with, or restart it with `tutti down` and `tutti up`.";
    13 OthersInstance
        "The instance, or its state directory, belongs to another user."
        "No request was sent to it."
        "Set TUTTI_DIR to a place of your own, or have the directory removed by its owner.";
    14 NotStarted
        "The instance could not be started."
        "The parts that had started were ended."
        "The message has the reason; `tutti doctor` shows what does not work on this machine.";
    15 NotUpgraded
        "The instance was not upgraded to the other executable."
        "The instance goes on as before, or, if the message says so, was started again."
        "The message has the reason. `tutti down` and `tutti up` also change the executable, but end all jobs.";
    20 NotAllowed
        "Only the owner, or root, may do that."
        "Nothing was done."
        "Ask the owner of the job, of the process or of the instance.";
    21 NoJob
        "There is no job with that number, or its history has been deleted."
        "Nothing was done."
        "`tutti ps --all` and `tutti history` list the known jobs; `tutti params keep_history` shows how long.";
    22 JobEnded
        "The job has ended already."
        "Nothing was done."
        "`tutti history JOB` says how it ended.";
    23 JobNotEnded
        "The job has not ended."
        "Nothing was done."
        "`tutti wait JOB` waits for its end, `tutti ps -l JOB` shows what it has used so far.";
    24 NoPart
        "The job has no such rank or process, or it is not running."
        "Nothing was done."
        "`tutti ps --tree JOB` shows its tasks and processes.";
    25 TooMuchAsked
        "A user's requests exceed the memory that the controller keeps for one user."
        "The request was refused; what was accepted before stays."
        "Wait until some jobs have ended, or give shorter names and smaller environments.";
    26 Improper
        "The request contradicts itself."
        "The job was not accepted."
        "The message names the options that conflict.";
    27 CannotAdopt
        "The process can't be made a job."
        "The process goes on as before."
        "Name a running process of yours that is in no job and did not start this command.";
    28 CannotChangeNode
        "The node can't be changed in this way now."
        "No node was changed."
        "The message says what to do first.";
    29 NothingToWaitFor
        "There is no job to wait for: none is live, and none of this session has ended."
        "`tutti wait` ended at once."
        "Name the jobs, as `tutti wait 7 8` or 7-8; `tutti history` says how jobs ended.";
    30 TooLarge
        "The job asks for more processors or tasks than the machine has."
        "The job was declined; the message has the most that would be accepted."
        "Ask for less, or add nodes with `tutti join`.";
    31 TooMuchMemory
        "The job asks for more memory than the machine has."
        "The job was declined; the message has the most that would be accepted."
        "Ask for less with `-m`, or spread the tasks over more nodes.";
    32 NoSuchNodes
        "The named nodes or sets of nodes do not exist, or are too few."
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
        "The queue is full."
        "The job was declined."
        "Wait until some jobs have ended.";
    36 DeadlineTooSoon
        "The job can't be guaranteed to end by its deadline."
        "The job was declined; the message has the earliest deadline that would be accepted, if there is one."
        "Choose a later deadline or a shorter time limit.";
    37 NoDeadlines
        "A deadline needs the policy `deadline` and a time limit."
        "The job was declined."
        "Add `--time`; `tutti params policy=deadline` selects the policy.";
    38 ShuttingDown
        "The instance is ending."
        "The job was declined."
        "Submit it again when the instance is up.";
    39 NoAccess
        "The access list does not allow this user to submit jobs from this machine."
        "The job was declined."
        "The message names the allowed machines, if any. `tutti access` shows the list; root can change it.";
    40 NodeLost
        "A node was lost, or its keeper with the job's tasks."
        "The job ended with exit code 121; its other tasks were ended."
        "Run it again. With `--on-node-loss requeue` Tutti does so; with `notify` the other tasks go on.";
    41 TimedOut
        "The job reached its time limit."
        "The job got SIGTERM, was killed after its grace, and has exit code 124."
        "Give a longer limit with `--time`.";
    42 OutOfMemory
        "A task exceeded its memory limit."
        "The job was ended, with exit code 123."
        "Ask for more with `-m`; `tutti history JOB` shows the most that a task had.";
    43 InstanceEnded
        "The instance was shut down before the job had ended."
        "The job was ended, with exit code 122."
        "Run it again when the instance is up.";
    44 FrontEndLost
        "The job's front end went away."
        "The job was ended after the parameter `front_end_grace`."
        "Use `tutti submit` for jobs that must outlive their terminal.";
    45 Cancelled
        "A user ended the job."
        "Its tasks got SIGTERM, and SIGKILL after their grace."
        "Nothing; the owner or root did it.";
    46 OutputLost
        "Output of the job could not be written or delivered."
        "The job was ended if its output could not be read any further; the exit code is 119."
        "Make room, or write to a file with `tutti submit`, and run it again.";
    47 ExitUnknown
        "The exit status of an adopted process is unknown."
        "The job ended with exit code 121; nothing of it is left."
        "Check the process's results. From Linux 6.15 on the kernel reports such exit statuses.";
    48 TooMuchStored
        "The tasks of a job stored more through PMI than is kept for one job or one user."
        "The job was ended; no other job was touched."
        "A job may store 64 MiB, all jobs of a user 512 MiB on a node. Check whether the program stores values in an endless loop.";
    49 NotFinalized
        "A task ended between `MPI_Init` and `MPI_Finalize`, or before `MPI_Init`, and others wait for it."
        "The job was killed after its grace, counted in the job's own turns."
        "The message names the rank and its exit status: check its last output. `--keep-going` lets the others run on.";
    50 JournalUnusable
        "The journal can't be opened, read or written, or another controller has it."
        "A controller does not start. A running one lets jobs go on, but accepts no jobs and no changes."
        "Make room, correct the permissions, or end the other instance. Jobs are then accepted again.";
    51 JournalDamaged
        "The journal is damaged."
        "The controller did not start and left the files unchanged, or it started without the latest entries."
        "`tutti replay` shows the last good entry. Restore the files from a backup, or move them away to begin with an \
         empty journal; `tutti down --forget` deletes that of a private instance.";
    52 JournalOfOther
        "The journal was written by another release."
        "The file was not changed."
        "Start that release; the message has the form of the journal. `tutti down --forget` deletes that of a private \
         instance.";
    55 NoOutput
        "The output of the job can't be shown: there is no file of it, or not yet, or not on this machine."
        "Nothing was printed."
        "`tutti show JOB` has the files and the nodes of the job; `tutti logs -f JOB` waits for one that has not started.";
    60 Membership
        "The machine is in a cluster already, in none, or is not the head."
        "Nothing was changed."
        "The message says what to do first, or on which machine: often `tutti down` or `tutti leave`.";
    61 NotTrusted
        "A token, certificate or name was refused."
        "The machine did not join or connect."
        "Print a new token with `tutti invite` at the head; check the clocks of both machines.";
    62 OutOfReach
        "Another machine of the cluster, or its controller, can't be reached."
        "Running jobs go on; Tutti tries to reconnect."
        "Check that the machine is up, that its instance runs, and that firewalls pass its port.";
    63 LeaseOver
        "This machine was out of reach of the head for longer than the parameter `lease` allows."
        "Its jobs were suspended, since they may run on other nodes now."
        "Reconnect the machine: its jobs go on or end, as the head decides. A longer `tutti params lease` tolerates longer breaks.";
    64 NotUnderstood
        "A peer sent an invalid message, or one that it may not send."
        "The connection was closed; nothing else happened."
        "The message has the details. If an unknown program repeats it, check which users can reach the socket or port.";
    70 System
        "The kernel or a file system refused an operation."
        "Nothing more was done than the message says."
        "The message has the system's reason; `tutti doctor` shows what does not work on this machine.";
    71 PartEnded
        "A daemon of Tutti ended or was killed."
        "It is started again and recovers its state. With a keeper its tasks are lost, and reported as lost."
        "The log lines before it may have the reason. If it happens again, run `tutti doctor`.";
    72 ProcessStuck
        "Processes of a job can't be ended or suspended."
        "Their processors are not given to others until they are gone; other jobs go on."
        "`cat /proc/PID/wchan` shows what a process waits for: often a file system that does not answer. Repair that.";
    73 GoesWithout
        "A job runs without a directory, a limit or a namespace that it should have."
        "The job runs without it."
        "The message has what the system refused; `tutti doctor` shows how to change that.";
    74 OldKernel
        "The kernel, or the filter of a container, lacks a system call that Tutti needs."
        "No instance was started."
        "Use Linux 5.3 or later. In a container, allow the call that the message names.";
    76 NotVacated
        "A program had not vacated when its turn ended, or none has registered (`--vacate`)."
        "The job was suspended on time, as always; what the program holds, it still holds."
        "Ask for a longer `--vacate TIME`, or find what delays the program; see the page on vacating.";
    78 NoQueue
        "There is no such queue."
        "The job was declined, or nothing was done."
        "`tutti queue` lists the queues; `tutti queue NAME LIMIT=VALUE` makes one.";
    79 QueueLimit
        "The job exceeds a limit of its queue."
        "The job was declined."
        "Ask for what the message names, or for another queue; `tutti queue NAME` shows the limits.";
    80 NotInThatState
        "The job is not in the state that the order needs, such as waiting or held."
        "Nothing was done."
        "`tutti ps JOB` shows the job's state; the message names the verb for it, if there is one.";
    81 NoResource
        "There is no such resource, or less of it than the job asks for."
        "The job was declined; the message has the most that would be accepted."
        "`tutti resource` lists the resources; `tutti resource NAME=COUNT` sets one.";
    86 EventsGone
        "Events that were asked for are not kept any more, or never were in this journal."
        "Nothing was printed."
        "`tutti events` prints those that are kept. The message has the number from which a reader can go on.";
    87 NeverStarted
        "A job never started: one before it did not end as `--after` asks, or the site's policy program declined it."
        "The job ended without a start; `tutti wait` exits with 120."
        "The message names the job before, or has what the program said. `--if-never keep` keeps a job in line, and \
         `--after JOB:any` does not ask how the job before ends.";
    88 NotNotified
        "A notification about a job could not be delivered."
        "It was tried again with growing pauses, and then given up; the job is not affected."
        "The log line says why. Correct the command, address or URL of `--notify-...`; see the page on notifications.";
    89 NotSaved
        "The processes of a job could not be saved to an image."
        "The job goes on as it was; or its processes were ended, and it goes on from its earlier image."
        "The message has the reason; `tutti doctor` says whether CRIU works. `tutti requeue JOB` starts the job again.";
    90 NotRestored
        "The processes of a job could not be restored from their image."
        "The job is held in line. Its image is kept."
        "The message has the reason; `tutti release JOB` tries again, `tutti requeue --from-start JOB` starts anew.";
    99 Other
        "The command failed for a reason without a code of its own."
        "Nothing more was done than the message says."
        "The message has the reason.";
}

impl Code {
    /// What `tutti explain` prints of it.
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
