//! What is stored is found again, all of it; and what is not whole is noticed.
#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use serde_bytes::ByteBuf;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tutti_core::{Action, Core, Event};
use tutti_journal::{
    Append, Difference, EndedSpan, Entry, History, Job, Journal, JournalError, Keeper, Known,
    PUBLISHED_BYTES_MAX, Row, Segment, SqliteStore, Store, cut, join, replay,
};
use tutti_types::{
    ClassName, ClusterTime, EndReason, GroupId, JobId, JobSpec, Nanos, NodeId, NodeSpec, NodeWish,
    OnBadExit, OnNodeLoss, Params, Rank, RequestId, TaskStatus, UserId, default_classes,
};
use tutti_wire::launch::{Credentials, LaunchSpec, Stdio};
use tutti_wire::usage::{NodeUsage, UsageSample};

fn blank() -> Core {
    Core::new(Params::default(), default_classes())
}

/// A new core as releases with form 4 began: jobs by arrival, and no class keeps rows.
fn blank_of_form_4() -> Core {
    let mut params = Params::default();
    params.choose("order", "arrival").unwrap();
    params.choose("migration", "off").unwrap();
    let mut classes = default_classes();
    classes.values_mut().for_each(|class| class.set("rows", 0).unwrap());
    Core::new(params, classes)
}

/// A controller with a journal, and nothing else.
struct Controller {
    core: Core,
    journal: Journal,
    at: u64,
    actions: Vec<Vec<Action>>,
}

impl Controller {
    fn at(path: &Path) -> (Self, History) {
        let (journal, mut history) = Journal::open(path, blank).unwrap();
        let core = history.core.take().unwrap_or_else(blank);
        let at = history.until.0;
        (Self { core, journal, at, actions: Vec::new() }, history)
    }

    fn apply(&mut self, event: &Event) {
        self.at += 1_000_000;
        let mut actions = Vec::new();
        self.core.apply(ClusterTime(self.at), event, &mut actions);
        self.journal.note(ClusterTime(self.at), event, &actions, &self.core);
        self.actions.push(actions);
    }

    /// Two nodes, and jobs that come and go.
    fn live(&mut self, jobs: u64) {
        for node in 0..2 {
            let processors = [0, 1, 2, 3].into_iter().collect();
            let spec = NodeSpec { name: format!("n{node}"), processors, memory_bytes: 1 << 30 };
            self.apply(&Event::NodeJoined { node: NodeId(node), spec });
        }
        for number in 1..=jobs {
            let spec = spec(1 + u32::try_from(number % 8).unwrap());
            let request = RequestId(number);
            self.apply(&Event::Submit { request, spec });
            if number > 6 {
                let job = JobId(number - 6);
                match number % 3 {
                    0 => self.apply(&Event::Suspend { job }),
                    1 => self.apply(&Event::Cancel {
                        job,
                        reason: EndReason::Cancelled,
                        at_once: true,
                    }),
                    _ => {
                        let (ranks, status) = (Vec::<Rank>::new(), TaskStatus::Exited(0));
                        self.apply(&Event::TasksEnded { job, ranks, status });
                        self.apply(&Event::JobCleared { job, nodes: Vec::new() });
                    }
                }
            }
        }
    }
}

fn spec(tasks: u32) -> JobSpec {
    JobSpec {
        owner: UserId(1000),
        group: GroupId(1000),
        class: ClassName::new("production"),
        tasks,
        processors_per_task: None,
        memory_per_task_bytes: None,
        time_limit: Some(Nanos::from_secs(60)),
        deadline: None,
        grace: Nanos::from_secs(1),
        attached: false,
        movable: false,
        weights: None,
        nodes: NodeWish::default(),
        resources: Vec::new(),
        on_bad_exit: OnBadExit::default(),
        on_node_loss: OnNodeLoss::default(),
    }
}

fn journal_in(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("journal.db")
}

#[test]
fn the_next_controller_has_the_state_of_the_last_one_bit_for_bit() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut first, history) = Controller::at(&path);
    assert!(history.replayed == 0 && history.jobs.is_empty());
    first.live(300);
    first.journal.store(&first.core);
    // Not closed: as if it was killed.
    let copy = copied(&directory);
    let (mut second, history) = Controller::at(&journal_in(&copy));
    assert_eq!(history.until, ClusterTime(first.at));
    assert_eq!(second.core.digest(), first.core.digest());
    for _ in 0..3 {
        first.apply(&Event::Tick);
        second.apply(&Event::Tick);
    }
    assert_eq!(first.actions.last(), second.actions.last());
    assert_eq!(second.core.digest(), first.core.digest());
}

#[test]
fn a_state_that_was_stored_goes_on_as_the_one_that_was_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut first, _) = Controller::at(&path);
    first.live(200);
    first.journal.close(&first.core);
    let copy = copied(&directory);
    let (mut second, history) = Controller::at(&journal_in(&copy));
    assert_eq!(history.replayed, 0);
    assert_eq!(second.core.digest(), first.core.digest());
    // What only the behaviour would show: whatever is derived, and not in the digest.
    for controller in [&mut first, &mut second] {
        controller.actions.clear();
        for job in 195..=200 {
            let job = JobId(job);
            let (reason, at_once) = (EndReason::Cancelled, true);
            controller.apply(&Event::Cancel { job, reason, at_once });
            controller.apply(&Event::JobCleared { job, nodes: Vec::new() });
            controller.apply(&Event::Tick);
        }
    }
    assert_eq!(first.actions, second.actions);
    assert_eq!(second.core.digest(), first.core.digest());
}

#[test]
fn what_was_only_noted_is_not_there_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut first, _) = Controller::at(&path);
    first.live(10);
    first.journal.store(&first.core);
    let digest = first.core.digest();
    first.live(10);
    let copy = copied(&directory);
    let (second, _) = Controller::at(&journal_in(&copy));
    assert_eq!(second.core.digest(), digest);
}

#[test]
fn old_entries_go_when_the_state_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut controller, _) = Controller::at(&path);
    for _ in 0..3 {
        for _ in 0..25_000 {
            controller.apply(&Event::Tick);
        }
        controller.journal.store(&controller.core);
    }
    controller.journal.close(&controller.core);
    drop(controller);
    let rows = SqliteStore::open_to_read(&path).unwrap().load_all().unwrap().rows;
    assert!(rows.len() <= 50_000, "{}", rows.len());
    let (_, history) = Controller::at(&path);
    assert_eq!(history.replayed, 0);
}

/// Rows as another program might have left them.
fn store_rows(path: &Path, change: impl FnOnce(&mut Vec<Row>)) {
    let mut store = SqliteStore::open(path).unwrap();
    let mut rows = store.load_all().unwrap().rows;
    store.cut_back(1).unwrap();
    change(&mut rows);
    store.append(&Append { rows, ..Append::default() }).unwrap();
}

fn with_entries(path: &Path) {
    let (mut controller, _) = Controller::at(path);
    controller.live(20);
    controller.journal.store(&controller.core);
}

#[test]
fn a_tail_that_is_not_whole_is_cut_back_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    with_entries(&path);
    store_rows(&path, |rows| rows.last_mut().unwrap().body.truncate(2));
    let (_, history) = Controller::at(&path);
    let remark = history.remark.unwrap();
    assert!(remark.contains("cut off"), "{remark}");
    let (_, history) = Controller::at(&path);
    assert_eq!(history.remark, None, "once");
}

#[test]
fn damage_in_the_middle_stops_with_what_to_do() {
    let changes: [fn(&mut Vec<Row>); 3] = [
        |rows| rows[5].body[0] ^= 1,
        |rows| drop(rows.remove(5)),
        |rows| {
            let body = rows[6].body.clone();
            rows[6].body = std::mem::replace(&mut rows[5].body, body);
        },
    ];
    for change in changes {
        let directory = tempfile::tempdir().unwrap();
        let path = journal_in(&directory);
        with_entries(&path);
        store_rows(&path, change);
        let error = Journal::open(&path, blank).err().expect("it is damaged");
        let text = error.to_string();
        assert!(matches!(error, JournalError::Damaged { .. }), "{text}");
        assert!(text.contains("tutti replay") && text.contains("move the file away"), "{text}");
    }
}

/// Three controllers' worth of transactions, in a copy as it is when the last of them is killed,
/// and what was known.
fn killed() -> (tempfile::TempDir, Known, u64) {
    let directory = tempfile::tempdir().unwrap();
    let (mut controller, _) = Controller::at(&journal_in(&directory));
    for _ in 0..10 {
        controller.live(12);
        controller.journal.store(&controller.core);
    }
    let (known, digest) = (controller.journal.known(), controller.core.digest());
    (copied(&directory), known, digest)
}

/// The files of a journal as they are at present, elsewhere.
fn copied(from: &tempfile::TempDir) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    copy
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}{ending}", path.display()))
}

fn refused(known: Known, path: &Path) -> String {
    let error = Journal::open_after(known, path, blank).err().expect("it is damaged");
    assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_byte_of_the_log_that_is_another_stops_the_next_controller_and_a_replay_says_so() {
    let (directory, known, digest) = killed();
    let path = journal_in(&directory);
    let log = beside(&path, "-wal");
    let good = std::fs::read(&log).unwrap();
    for at in [20, good.len() / 2, good.len() * 3 / 4] {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        std::fs::write(&log, &bad).unwrap();
        for _ in 0..2 {
            let text = refused(known, &path);
            assert!(text.contains("its log (-wal)") && text.contains("tutti replay"), "{text}");
            assert_eq!(std::fs::read(&log).unwrap(), bad, "it was left as it is");
        }
        match replay(&path, None, blank, |_, _, _| {}) {
            Ok(played) => assert!(played.damage.is_some() && played.difference.is_none()),
            // Nothing of it can be read.
            Err(error) => assert!(at == 20 && error.to_string().contains("the header of its log")),
        }
        assert_eq!(std::fs::read(&log).unwrap(), bad, "it was left as it is");
        refused(known, &path);
    }
    // After a loss of power that can be what was not on disk: it is said, and what is before it is
    // there.
    let (journal, history) = Journal::open(&path, blank).unwrap();
    let remark = history.remark.unwrap();
    assert!(remark.contains("loss of power"), "{remark}");
    assert!((1..known.stored).contains(&journal.noted()));
    drop(journal);
    let (directory, known, _) = killed();
    let (journal, history) = Journal::open_after(known, &journal_in(&directory), blank).unwrap();
    assert_eq!(history.remark, None);
    assert_eq!((journal.noted(), history.core.unwrap().digest()), (known.stored, digest));
}

#[test]
fn an_older_copy_or_another_journal_is_told_from_what_was_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut controller, _) = Controller::at(&path);
    controller.live(12);
    controller.journal.store(&controller.core);
    let older = copied(&directory);
    controller.live(12);
    controller.journal.store(&controller.core);
    let known = controller.journal.known();
    for _ in 0..2 {
        let text = refused(known, &journal_in(&older));
        assert!(text.contains("an older copy"), "{text}");
        assert!(beside(&journal_in(&older), "-wal").exists(), "it was left as it is");
    }
    let other = Known { seal: known.seal ^ 1, ..known };
    let text = refused(other, &journal_in(&copied(&directory)));
    assert!(text.contains("another journal"), "{text}");
    // Closed, so that only the state is there and no entry after it.
    controller.journal.close(&controller.core);
    drop(controller);
    let text = refused(other, &path);
    assert!(text.contains("another journal"), "{text}");
    assert_eq!(Journal::open_after(known, &path, blank).unwrap().1.remark, None);
}

#[test]
fn one_that_is_gone_is_made_anew_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (_, history) = Journal::open_after(Known::default(), &path, blank).unwrap();
    assert_eq!(history.remark, None, "nothing was known");
    let known = Known { stored: 7, seal: 7 };
    let (_, history) = Journal::open_after(known, &path, blank).unwrap();
    let remark = history.remark.unwrap();
    assert!(history.core.is_none() && remark.contains("is gone"), "{remark}");
    // The log alone is of no use, and SQLite would remove it.
    let (directory, ..) = killed();
    let path = journal_in(&directory);
    std::fs::remove_file(&path).unwrap();
    let text = refused(known, &path);
    assert!(text.contains("empty or gone"), "{text}");
    assert!(Journal::open(&path, blank).is_err() && !path.exists());
}

#[test]
fn a_file_that_is_none_of_ours_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let text = "no journal, but somebody's thesis".repeat(100);
    std::fs::write(&path, &text).unwrap();
    let error = Journal::open(&path, blank).err().expect("no journal").to_string();
    assert!(error.contains("journal.db"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn one_of_a_later_form_is_refused_with_both_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    with_entries(&path);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let error = Journal::open(&path, blank).err().expect("too new").to_string();
    assert!(error.contains("99") && error.contains(" 5:"), "{error}");
}

fn keeper() -> Keeper {
    Keeper {
        node: NodeId(3),
        incarnation: 17,
        attach: ByteBuf::from(b"/run/tutti/keeper".to_vec()),
        address: "n3".into(),
        is_here: true,
        since: ClusterTime(0),
    }
}

/// Rows of all kinds: jobs 1 and 2, the first of which was launched, job 3 that has ended, a
/// keeper, a state.
fn with_all_kinds(path: &Path) {
    let (mut controller, _) = Controller::at(path);
    controller.live(20);
    controller.journal.note_keeper(&keeper());
    controller.journal.close(&controller.core);
    drop(controller);
    let mut store = SqliteStore::open(path).unwrap();
    let body = |byte| vec![byte; 9];
    let accepted = vec![(JobId(1), body(1)), (JobId(2), body(2))];
    let launched = vec![(JobId(1), Some(5))];
    let ended = vec![(JobId(3), 7, 1000, body(3)), (JobId(4), 8, 1000, body(4))];
    store.append(&Append { accepted, launched, ended, ..Append::default() }).unwrap();
}

fn change(path: &Path, by: &str) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.execute_batch(by).unwrap();
}

/// A journal as a controller wrote it whose journal had form 4: a parameter set, jobs 1 to 6 ended,
/// 7 running, 8 and 9 queued, of which the latter has a script; a state stored at entry 18, and
/// entries after it.
const FORM_4: &[u8] = include_bytes!("form4.db");

#[test]
fn a_journal_of_form_4_is_read_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    std::fs::write(&path, FORM_4).unwrap();
    let played = replay(&path, None, blank_of_form_4, |_, _, _| {}).unwrap();
    assert_eq!((played.entries, played.damage), (29, None));
    // At entry 5 a job was asked to end: by a signal then, by an action of its own now.
    assert_eq!(played.difference, Some((5, Difference::Actions)));
    let known = Known { stored: 29, seal: 0x2cac_fe34 };
    for _ in 0..2 {
        let (mut journal, history) = Journal::open_after(known, &path, blank_of_form_4).unwrap();
        // The same again, after the state that was stored: of what a rank leaves at entry 22 while
        // another goes on, others get the processors now.
        assert_eq!((history.remark, history.differs_at), (None, Some(22)));
        let core = history.core.unwrap();
        assert_eq!(tutti_core::check::check(&core), []);
        assert_eq!(core.digest(), played.core.digest());
        let jobs: Vec<_> = history
            .jobs
            .iter()
            .map(|(job, launched)| (job.job.0, &job.name[..], launched.is_some()))
            .collect();
        assert_eq!(jobs, [(7, "running", true), (8, "queued", false), (9, "job.sh", false)]);
        let launch = |number: usize| {
            let segments = &history.jobs[number].0.launch;
            let parts = segments.iter().map(|segment| match segment {
                Segment::Own(bytes) => &bytes[..],
                Segment::Shared(chunk) => &history.chunks[chunk][..],
            });
            join(parts).unwrap()
        };
        assert_eq!(launch(0).argv, ["sleep", "1000"].map(ByteBuf::from));
        assert!(launch(2).script.unwrap().starts_with(b"#!/bin/sh\n#TUTTI -n 1\n"));
        assert!(launch(1).environment.contains(&ByteBuf::from("TUTTI_CLUSTER=form4")));
        assert_eq!(launch(1).environment, launch(2).environment);
        assert_eq!(history.keepers.len(), 1);
        let ended = journal.ended(&EndedSpan::default(), 10).unwrap();
        let ended: Vec<_> =
            ended.iter().map(|job| (job.report.job.0, job.outcome.exit_code)).collect();
        assert_eq!(ended.last(), Some(&(1, 1)));
        assert_eq!(ended.len(), 6);
        // That form had no more of a job.
        let (_, details) = journal.ended_details(JobId(1)).unwrap().unwrap();
        assert!(details.is_none());
    }
}

#[test]
fn those_of_the_forms_before_are_brought_to_this_one() {
    let without_seals =
        "ALTER TABLE snapshot DROP COLUMN own_seal; ALTER TABLE job DROP COLUMN own_seal;
        ALTER TABLE job DROP COLUMN launch_seal; ALTER TABLE keeper DROP COLUMN own_seal;
        ALTER TABLE ended DROP COLUMN own_seal; PRAGMA user_version = 3";
    let without_since =
        "UPDATE keeper SET body = substr(body, 1, length(body) - 1); PRAGMA user_version = 2";
    let mut latest = None;
    for forms in [&[][..], &[without_seals], &[without_seals, without_since]] {
        let directory = tempfile::tempdir().unwrap();
        let path = journal_in(&directory);
        std::fs::write(&path, FORM_4).unwrap();
        forms.iter().for_each(|form| change(&path, form));
        assert!(replay(&path, None, blank, |_, _, _| {}).unwrap().damage.is_none());
        for _ in 0..2 {
            let mut store = SqliteStore::open(&path).unwrap();
            let mut loaded = store.load().unwrap();
            assert_eq!((loaded.bad_job, loaded.bad_keepers.len()), (None, 0));
            // Form 2 did not say since when a keeper is there.
            loaded.keepers.clear();
            assert_eq!(latest.get_or_insert_with(|| loaded.clone()), &loaded);
            assert_eq!(store.ended(&EndedSpan::default(), 9).unwrap().len(), 6);
            assert_eq!(store.left_out(), []);
        }
    }
}

#[test]
fn a_job_of_form_4_that_is_another_stops_the_controller_and_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    std::fs::write(&path, FORM_4).unwrap();
    change(&path, "UPDATE job SET body = CAST(substr(body, 2) AS BLOB) WHERE job = 8");
    for _ in 0..2 {
        let error = Journal::open(&path, blank).err().expect("it is damaged");
        assert!(error.to_string().contains("job 8 is not what was written"), "{error}");
    }
    let form = |row: &rusqlite::Row| row.get::<_, u32>(0);
    let connection = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(connection.query_row("PRAGMA user_version", [], form).unwrap(), 4);
}

fn accept(journal: &mut Journal, number: u64, uid: u32, launch: &[Segment]) {
    journal.note_job(&Job {
        job: JobId(number),
        credentials: Credentials { uid, gid: uid, groups: Vec::new() },
        key: None,
        user: "ada".into(),
        name: "job".into(),
        launch: launch.to_vec(),
        accepted: ClusterTime(1),
        accepted_ms: 1,
        notify: None,
    });
}

fn launch(script: Vec<u8>) -> LaunchSpec {
    LaunchSpec {
        name: "job".into(),
        argv: vec![ByteBuf::from("true")],
        script: Some(script.into()),
        environment: Vec::new(),
        directory: ByteBuf::from("/"),
        umask: 0o022,
        rlimits: Vec::new(),
        stdio: Stdio::Kept,
        processes_max: None,
        adopt: Vec::new(),
        nice: 0,
        slurm: false,
        resume: None,
        vacate: None,
    }
}

fn segments(journal: &mut Journal, launch: &LaunchSpec) -> Vec<Segment> {
    let segment = |piece: tutti_journal::Piece| match piece.is_shared {
        true => Segment::Shared(journal.note_chunk(&piece.bytes)),
        false => Segment::Own(piece.bytes.into()),
    };
    cut(launch).into_iter().map(segment).collect()
}

#[test]
fn what_jobs_share_is_stored_once_and_goes_with_the_last_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut controller, _) = Controller::at(&path);
    controller.live(0);
    // Some megabytes without a pattern.
    let script = (0..300_000_u64).flat_map(|number| {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().into_iter().take(5)
    });
    let launch = launch(script.collect());
    let shared = segments(&mut controller.journal, &launch);
    for job in 1..=100 {
        accept(&mut controller.journal, job, 1000, &shared);
    }
    controller.journal.store(&controller.core);
    drop(controller);
    let length = || std::fs::metadata(&path).unwrap().len();
    SqliteStore::open(&path).unwrap();
    assert!(length() < 4_000_000, "{}", length());
    let (mut controller, history) = Controller::at(&path);
    assert_eq!(history.jobs.len(), 100);
    let bytes: usize = history.chunks.values().map(Vec::len).sum();
    assert!((1_400_000..1_600_000).contains(&bytes), "{bytes}");
    for job in 1..=99 {
        controller.journal.drop_job(JobId(job));
    }
    controller.journal.store(&controller.core);
    drop(controller);
    // One that no job has any more goes when the next controller looks.
    let (mut controller, history) = Controller::at(&path);
    assert_eq!((history.jobs.len(), history.chunks.values().map(Vec::len).sum()), (1, bytes));
    controller.journal.drop_job(JobId(100));
    controller.journal.store(&controller.core);
    drop(controller);
    let (mut controller, history) = Controller::at(&path);
    assert!(history.jobs.is_empty() && history.chunks.is_empty());
    controller.apply(&Event::Tick);
    controller.journal.store(&controller.core);
    drop(controller);
    assert!(SqliteStore::open(&path).unwrap().load().unwrap().chunks.is_empty());
}

#[test]
fn the_file_shrinks_after_many_jobs_have_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut controller, _) = Controller::at(&path);
    controller.live(0);
    const JOBS: u64 = 40;
    for job in 1..=JOBS {
        let script = (0..200_000_u64).flat_map(|number| {
            (job << 32 | number)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_be_bytes()
                .into_iter()
                .take(5)
        });
        let own = segments(&mut controller.journal, &launch(script.collect()));
        accept(&mut controller.journal, job, 1000, &own);
        controller.journal.store(&controller.core);
    }
    drop(controller);
    let length = || {
        SqliteStore::open(&path).unwrap();
        std::fs::metadata(&path).unwrap().len()
    };
    let full = length();
    assert!(full > 36_000_000, "{full}");
    let (mut controller, _) = Controller::at(&path);
    for job in 1..=JOBS {
        controller.journal.drop_job(JobId(job));
    }
    controller.journal.store(&controller.core);
    drop(controller);
    let (mut controller, history) = Controller::at(&path);
    assert!(history.jobs.is_empty());
    // A megabyte goes with each.
    for _ in 0..30 {
        controller.apply(&Event::Tick);
        controller.journal.store(&controller.core);
    }
    drop(controller);
    assert!(length() < 20_000_000, "{} of {full}", length());
}

#[test]
fn a_chunk_that_is_another_gone_or_another_users_stops_the_next_controller() {
    for by in [
        "UPDATE chunk SET body = CAST(body || x'00' AS BLOB) WHERE number = 2",
        "UPDATE chunk SET number = 99 WHERE number = 2",
        "DELETE FROM chunk WHERE number = 2",
        "",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = journal_in(&directory);
        let (mut controller, _) = Controller::at(&path);
        controller.live(3);
        let shared = segments(&mut controller.journal, &launch(vec![b'#'; 10_000]));
        accept(&mut controller.journal, 2, 1000, &shared);
        if by.is_empty() {
            accept(&mut controller.journal, 3, 1001, &shared);
        }
        controller.journal.store(&controller.core);
        drop(controller);
        change(&path, by);
        let error = Journal::open(&path, blank).err().expect("it is damaged").to_string();
        let job = if by.is_empty() { 3 } else { 2 };
        let what = format!("what job {job} is to run is not what was written");
        assert!(error.contains(&what), "{by}: {error}");
    }
}

#[test]
fn an_entry_that_is_whole_and_is_not_understood_is_not_taken_for_a_torn_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    with_entries(&path);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let last = "SELECT number, seal FROM entry ORDER BY number DESC LIMIT 1";
    let (number, before): (u32, u32) =
        connection.query_row(last, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    // An event that is not known, as a later release may have one.
    let body = [1, 0xff, 0x7f, 0, 0];
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(&u64::from(number + 1).to_le_bytes());
    hasher.update(&body);
    let row = rusqlite::params![number + 1, hasher.finalize(), &body[..]];
    connection.execute("INSERT INTO entry VALUES (?, ?, ?)", row).unwrap();
    drop(connection);
    for _ in 0..2 {
        let error = Journal::open(&path, blank).err().expect("it is not cut off").to_string();
        assert!(error.contains(&format!("entry {} can't be read", number + 1)), "{error}");
    }
}

#[test]
fn a_state_or_a_job_that_is_another_stops_the_next_controller_and_a_replay_says_so() {
    for by in [
        "UPDATE snapshot SET body = x'00'",
        "UPDATE snapshot SET seal = seal + 1",
        "UPDATE snapshot SET own_seal = NULL",
        "UPDATE job SET body = x'00' WHERE job = 2",
        "UPDATE job SET body = 'text' WHERE job = 2",
        "UPDATE job SET job = 9 WHERE job = 2",
        "UPDATE job SET launched = launched + 1 WHERE job = 1",
        "UPDATE job SET launched = NULL WHERE job = 1",
        "UPDATE job SET launched = 1 WHERE job = 2",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = journal_in(&directory);
        with_all_kinds(&path);
        change(&path, &format!("{by}; DELETE FROM entry WHERE number = 1"));
        let error = Journal::open(&path, blank).err().expect("it is damaged");
        let is_told = by.contains("'text'") || error.to_string().contains("not what was written");
        assert!(is_told && matches!(error, JournalError::Damaged { .. }), "{by}: {error}");
        match replay(&path, None, blank, |_, _, _| {}) {
            Ok(replay) => assert!(replay.damage.unwrap().contains("of job "), "{by}"),
            Err(error) => assert!(matches!(error, JournalError::Damaged { .. }), "{by}: {error}"),
        }
    }
}

#[test]
fn a_keeper_or_an_ended_job_that_is_another_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    with_all_kinds(&path);
    change(&path, "UPDATE keeper SET body = CAST(substr(body, 2) AS BLOB)");
    change(
        &path,
        "UPDATE ended SET body = 'text' WHERE job = 4; UPDATE job SET own_seal = own_seal",
    );
    let mut store = SqliteStore::open(&path).unwrap();
    let loaded = store.load().unwrap();
    assert_eq!((loaded.keepers, loaded.bad_keepers), (vec![], vec![NodeId(3)]));
    assert_eq!((loaded.jobs.len(), loaded.bad_job), (2, None));
    for bad in [&[JobId(4)][..], &[]] {
        // A page is full all the same.
        assert_eq!(store.ended(&EndedSpan::default(), 1).unwrap(), [vec![3; 9]]);
        assert_eq!(store.ended_job(JobId(4)).unwrap(), None);
        assert_eq!(store.left_out(), bad, "each is told once");
    }
    drop(store);
    change(&path, "UPDATE ended SET uid = 1001 WHERE job = 3");
    let mut store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.ended_job(JobId(3)).unwrap(), None);
    assert_eq!(store.left_out(), [JobId(3)]);
}

#[test]
fn a_journal_has_one_controller_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut controller, _) = Controller::at(&path);
    controller.live(5);
    let error = Journal::open(&path, blank).err().expect("it is in use");
    assert!(matches!(error, JournalError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("tutti down"), "{error}");
    controller.journal.store(&controller.core);
    // Readers are not held up.
    assert!(replay(&path, None, blank, |_, _, _| {}).unwrap().entries > 5);
    drop(controller);
    Controller::at(&path);
}

#[test]
fn what_is_wanted_on_disk_comes_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut controller, _) = Controller::at(&path);
    controller.live(5);
    controller.journal.store(&controller.core);
    let wanted = controller.journal.noted();
    controller.journal.want_on_disk();
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while controller.journal.on_disk().0 < wanted {
        assert!(std::time::Instant::now() < patience, "{:?}", controller.journal.on_disk());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn what_is_not_stored_yet_is_not_said_to_be_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let store = Box::new(SqliteStore::open(&path).unwrap());
    let (journal, _) = Journal::by_hand(store, &path, blank).unwrap();
    let mut controller = Controller { core: blank(), journal, at: 0, actions: Vec::new() };
    controller.apply(&Event::Tick);
    controller.journal.store(&controller.core);
    controller.apply(&Event::Tick);
    let noted = controller.journal.noted();
    controller.journal.want_on_disk();
    assert!(controller.journal.bring_to_disk());
    assert_eq!(controller.journal.on_disk().0, noted - 1);
    controller.journal.store(&controller.core);
    controller.journal.want_on_disk();
    assert!(controller.journal.bring_to_disk());
    assert_eq!(controller.journal.on_disk().0, noted);
}

#[test]
fn digests_tell_actions_apart() {
    let one = Action::Kill { job: JobId(1), node: NodeId(0) };
    let other = Action::Kill { job: JobId(0), node: NodeId(1) };
    assert_ne!(
        Entry::digest_of(std::slice::from_ref(&one)),
        Entry::digest_of(std::slice::from_ref(&other))
    );
    let both = Entry::digest_of(&[one.clone(), other.clone()]);
    assert_ne!(both, Entry::digest_of(&[other, one]));
}

#[test]
fn what_is_otherwise_than_it_was_is_found_by_a_replay_and_by_the_next_controller() {
    let other = || Core::new(Params::default(), BTreeMap::new());
    // A state is compared at every thousandth entry; the actions are at all.
    for (number, what) in [(7, Difference::Actions), (1_000, Difference::State)] {
        let directory = tempfile::tempdir().unwrap();
        let path = journal_in(&directory);
        let (mut controller, _) = Controller::at(&path);
        for entry in 1..=1_200 {
            let (at, mut actions) = (ClusterTime(entry * 1_000_000), Vec::new());
            controller.core.apply(at, &Event::Tick, &mut actions);
            let is_it = entry == number;
            if is_it && what == Difference::Actions {
                actions.push(Action::WakeAt { at });
            }
            let core = if is_it { &other() } else { &controller.core };
            controller.journal.note(at, &Event::Tick, &actions, core);
        }
        controller.journal.store(&controller.core);
        drop(controller);
        let played = replay(&path, None, blank, |_, _, _| {}).unwrap();
        assert_eq!((played.difference, played.states), (Some((number, what)), 1));
        let before = replay(&path, Some(number - 1), blank, |_, _, _| {}).unwrap();
        assert_eq!((before.difference, before.entries), (None, number - 1));
        let (_, history) = Controller::at(&path);
        assert_eq!((history.differs_at, history.remark), (Some(number), None));
    }
}

/// Numbers, entries and bodies of what is published behind a number.
fn published(controller: &mut Controller, after: u64) -> Vec<(u64, u64, u64)> {
    controller.journal.published(after, 10_000).unwrap()
}

#[test]
fn published_events_are_stored_with_their_entries_and_keep_their_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut first, _) = Controller::at(&path);
    for event in 1..=5_u64 {
        first.apply(&Event::Tick);
        assert_eq!(first.journal.publish(event, &(event * 10)), event);
    }
    assert_eq!(first.journal.published_until(), 0, "what is not stored is not shown");
    first.journal.store(&first.core);
    assert_eq!(first.journal.published_until(), 5);
    // One that is noted when the controller is killed is gone, with its entry.
    first.apply(&Event::Tick);
    first.journal.publish(6, &60_u64);
    let (mut second, _) = Controller::at(&journal_in(&copied(&directory)));
    assert_eq!(second.journal.published_until(), 5);
    assert_eq!(published(&mut second, 2), [(3, 3, 30), (4, 4, 40), (5, 5, 50)]);
    assert_eq!(second.journal.published_first().unwrap(), Some(1));
    // After a loss of power numbers are left out.
    second.journal.skip_published(1000);
    assert_eq!(second.journal.publish(5, &70_u64), 1006);
    second.journal.store(&second.core);
    assert_eq!(published(&mut second, 5), [(1006, 5, 70)]);
}

#[test]
fn the_earliest_published_events_go_when_there_are_too_many() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut controller, _) = Controller::at(&path);
    controller.journal.keep_published(100);
    for event in 1..=350_u64 {
        controller.journal.publish(0, &event);
        controller.journal.store(&controller.core);
        let kept = published(&mut controller, 0).len();
        assert!(kept <= 110 && (event < 100 || kept >= 100), "{kept} after {event}");
    }
    drop(controller);
    let (mut next, _) = Controller::at(&path);
    next.journal.keep_published(100);
    let first = next.journal.published_first().unwrap().unwrap();
    assert!((241..=251).contains(&first), "{first}");
    assert_eq!(next.journal.publish(0, &0_u64), 351);
}

#[test]
fn the_earliest_published_events_go_when_they_have_too_many_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut controller, _) = Controller::at(&path);
    let long = "x".repeat(3 << 20);
    let kept = |controller: &mut Controller| {
        let kept = controller.journal.published::<String>(0, 10_000).unwrap();
        let bytes: usize = kept.iter().map(|(.., text)| text.len()).sum();
        (kept[0].0, bytes as u64)
    };
    for number in 1..=30 {
        // The sizes are counted anew by a controller that takes over.
        if number == 20 {
            drop(controller);
            (controller, _) = Controller::at(&path);
        }
        assert_eq!(controller.journal.publish(0, &long), number);
        controller.journal.store(&controller.core);
        let (first, bytes) = kept(&mut controller);
        assert!(bytes <= PUBLISHED_BYTES_MAX, "{bytes} after {number}");
        let all_fit = number * (3 << 20) < PUBLISHED_BYTES_MAX - (2 << 20);
        assert!(first == 1 || !all_fit && bytes > PUBLISHED_BYTES_MAX - (6 << 20), "{first}");
        assert_eq!(controller.journal.published_first().unwrap(), Some(first));
    }
    assert!(kept(&mut controller).0 > 9);
}

#[test]
fn published_events_of_entries_that_are_cut_off_go_with_them_and_damaged_ones_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let (mut controller, _) = Controller::at(&path);
    for event in 1..=20_u64 {
        controller.apply(&Event::Tick);
        controller.journal.publish(event, &event);
    }
    controller.journal.store(&controller.core);
    drop(controller);
    change(&path, "UPDATE entry SET body = x'00' WHERE number = 20");
    let (mut next, _) = Controller::at(&path);
    assert_eq!(published(&mut next, 18), [(19, 19, 19)]);
    drop(next);
    change(&path, "UPDATE published SET body = x'07' WHERE number = 5");
    let (mut next, _) = Controller::at(&path);
    assert_eq!(published(&mut next, 5).len(), 14);
    let error = next.journal.published::<u64>(0, 10).unwrap_err();
    assert!(error.to_string().contains("event 5 is not what was written"), "{error}");
}

/// The ends of the intervals of the use of processors that are kept, in seconds.
fn used(controller: &mut Controller) -> Vec<u64> {
    let found = controller.journal.used(0, u64::MAX, 10_000).unwrap();
    found.iter().map(|sample| sample.until_ms / 1000).collect()
}

#[test]
fn the_use_of_processors_is_kept_until_it_is_too_old_or_too_much() {
    let directory = tempfile::tempdir().unwrap();
    let path = journal_in(&directory);
    let sample = |until_s: u64| UsageSample {
        until_ms: until_s * 1000,
        interval_ms: 1000,
        nodes: vec![NodeUsage {
            node: "n".repeat(100),
            processors: 4,
            busy_milli: 2500,
            jobs_milli: Some(2000),
            carried: None,
        }],
    };
    let (mut first, _) = Controller::at(&path);
    (1..=5).for_each(|until_s| first.journal.note_used(&sample(until_s)));
    first.journal.store(&first.core);
    drop(first);
    let (mut second, _) = Controller::at(&path);
    assert_eq!(used(&mut second), [1, 2, 3, 4, 5]);
    assert_eq!(second.journal.used(2000, 4000, 10_000).unwrap(), [sample(2), sample(3)]);
    assert_eq!(second.journal.used(0, u64::MAX, 150).unwrap().len(), 2, "until there is enough");
    second.journal.forget_used(2000, u64::MAX).unwrap();
    assert_eq!(used(&mut second), [2, 3, 4, 5]);
    // Two have more than 100 bytes each, and fit.
    second.journal.forget_used(0, 300).unwrap();
    assert_eq!(used(&mut second), [4, 5]);
    drop(second);
    change(&path, "UPDATE used SET body = zeroblob(9) WHERE until_ms = 4000");
    let (mut third, _) = Controller::at(&path);
    assert_eq!(used(&mut third), [5], "what is not what was written is left out");
}
