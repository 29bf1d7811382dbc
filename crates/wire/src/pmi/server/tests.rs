//! Sessions as MPICH's clients hold them: recorded from MPICH 4.0.2 and 5.0.2, shortened.

use super::*;
use crate::limits::{EXCHANGE_PART_BYTES, PMI_LINE_BYTES_MAX};
use crate::pmi::{Collected, Exchange, Values, packed};
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use tutti_types::LaunchId;

/// A job with all tasks here, but for those of `elsewhere`.
fn server(job: u64, size: u32, elsewhere: u32) -> Server {
    Server::new(ServerSpec {
        job: JobId(job),
        user: UserId(1000),
        size,
        ranks: (0..size - elsewhere).map(Rank).collect(),
        space_name: format!("kvs_{job}"),
        process_mapping: crate::pmi::process_mapping((0..size).map(|_| 0)),
        attributes: vec![],
        universe: 0,
        spawned: None,
    })
}

/// Plays a session. `0> x` is a line of task 0; the lines after it, up to the next of a task, are
/// what must follow: `0< x` an answer, anything else another effect.
fn play(server: &mut Server, names: &mut Names, session: &str) {
    let mut lines = session.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        let (task, command) = line.split_once("> ").unwrap_or_else(|| panic!("unexpected: {line}"));
        let mut effects = Vec::new();
        let command = command.replace("\\n", "\n");
        server.handle(task.parse().unwrap(), command.as_bytes(), names, &mut effects);
        let mut expected = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.contains("> ")) {
            expected.push(line.to_owned());
        }
        assert_eq!(effects.iter().map(shown).collect::<Vec<_>>(), expected, "after {line}");
    }
}

fn shown(effect: &Effect) -> String {
    match effect {
        Effect::Reply { task, line } => {
            let line = String::from_utf8_lossy(line);
            let message = line.strip_suffix('\n').unwrap_or_else(|| {
                let (length, message) = line.split_at(6);
                assert_eq!(length.trim().parse(), Ok(message.len()), "{line}");
                message
            });
            format!("{task}< {message}")
        }
        Effect::Abort { task, code, message } => format!("abort {task} {code} '{message}'"),
        Effect::Finalized { task } => format!("finalized {task}"),
        Effect::BarrierComplete { barrier } => format!("complete {}", barrier.tag),
        Effect::Full { task } => format!("full {task}"),
        Effect::Spawn { task, spawned } => {
            format!("spawn {task} {} of {}", spawned.programs.len(), spawned.tasks().unwrap())
        }
        Effect::Close { task, error } => format!("close {task}: {error}"),
    }
}

#[test]
fn mpich_4_with_two_tasks() {
    let session = "
        0> cmd=init pmi_version=1 pmi_subversion=1
        0< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
        1> cmd=init pmi_version=1 pmi_subversion=1
        1< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
        0> cmd=get_maxes
        0< cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024
        0> cmd=get_appnum
        0< cmd=appnum rc=0 appnum=0
        0> cmd=get_my_kvsname
        0< cmd=my_kvsname rc=0 kvsname=kvs_7
        0> cmd=get kvsname=kvs_7 key=PMI_process_mapping
        0< cmd=get_result rc=0 value=(vector,(0,1,2))
        0> cmd=barrier_in
        1> cmd=barrier_in
        0< cmd=barrier_out rc=0 tag=0
        1< cmd=barrier_out rc=0 tag=0
        0> cmd=put kvsname=kvs_7 key=-bcast-1-0 value=2F6465762F73686D
        0< cmd=put_result rc=0
        1> cmd=barrier_in
        0> cmd=barrier_in
        0< cmd=barrier_out rc=0 tag=0
        1< cmd=barrier_out rc=0 tag=0
        1> cmd=get kvsname=kvs_7 key=-bcast-1-0
        1< cmd=get_result rc=0 value=2F6465762F73686D
        1> cmd=get kvsname=kvs_7 key=-allgather-shm-1-5
        1< cmd=get_result rc=-1 msg=key_not_found value=unknown
        1> cmd=get_universe_size
        1< cmd=universe_size rc=0 size=2
        1> cmd=finalize
        1< cmd=finalize_ack rc=0
        finalized 1
        0> cmd=finalize
        0< cmd=finalize_ack rc=0
        finalized 0
    ";
    let mut server = server(7, 2, 0);
    assert_eq!(server.state(0), TaskState::Silent);
    play(&mut server, &mut Names::new(), session);
    assert_eq!((server.state(0), server.state(9)), (TaskState::Finalized, TaskState::Silent));
    assert!(!server.has_part(), "there is no other node");
}

#[test]
fn mpich_5_with_groups() {
    let session = "
        0> cmd=init pmi_version=1 pmi_subversion=1
        0< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
        0> cmd=get kvsname=kvs_7 key=PMI_hwloc_xmlfile
        0< cmd=get_result rc=-1 msg=key_not_found value=unknown
        0> cmd=barrier_in group=0,2:7
        2> cmd=barrier_in group=WORLD:0
        1> cmd=barrier_in
        2> cmd=barrier_in group=2,0:7
        0< cmd=barrier_out rc=0 tag=7
        2< cmd=barrier_out rc=0 tag=7
        0> cmd=barrier_in group=WORLD:0
        0< cmd=barrier_out rc=0 tag=0
        1< cmd=barrier_out rc=0 tag=0
        2< cmd=barrier_out rc=0 tag=0
        0> cmd=barrier_in group=1:3
        0< cmd=barrier_out rc=-1 msg=not_in_this_group tag=3
        1> cmd=barrier_in group=1:3
        1< cmd=barrier_out rc=0 tag=3
        0> cmd=barrier_in group=NODE:4
        0> cmd=barrier_in group=NODE:4
        0< cmd=barrier_out rc=-1 msg=already_in_this_barrier tag=4
        0> cmd=barrier_in group=0,3:1
        0< cmd=barrier_out rc=-1 msg=bad_group
        0> cmd=barrier_in group=
        0< cmd=barrier_out rc=-1 msg=bad_group
        0> cmd=finalize
        0< cmd=finalize_ack rc=0
        finalized 0
        0> cmd=init pmi_version=1 pmi_subversion=1
        0< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
    ";
    let mut server = server(7, 3, 0);
    play(&mut server, &mut Names::new(), session);
    assert_eq!(server.state(0), TaskState::Begun);
}

#[test]
fn a_client_of_a_later_version_and_a_lone_one_are_refused() {
    let session = "
        0> cmd=init pmi_version=3 pmi_subversion=0
        0< cmd=response_to_init rc=-1 msg=only_versions_1_and_2_are_spoken pmi_version=1 pmi_subversion=2
        0> cmd=singinit pmi_version=1 pmi_subversion=1 stdio=yes authtype=none
        0< cmd=singinit_info rc=0 versionok=no
    ";
    play(&mut server(7, 1, 0), &mut Names::new(), session);
}

/// By which a client of PMI-2 begins.
const SECOND: &str = "
    0> cmd=init pmi_version=2 pmi_subversion=0
    0< cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0
";

#[test]
fn pmi_2_beside_pmi_1() {
    let session = "
        0> cmd=fullinit;pmirank=0;threaded=FALSE;
        0< cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;debugged=FALSE;pmiverbose=FALSE;
        0> cmd=job-getid;thrid=0x7ffd;
        0< cmd=job-getid-response;thrid=0x7ffd;rc=0;jobid=kvs_7;
        0> cmd=info-getjobattr;key=PMI_process_mapping;
        0< cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,1,2));
        0> cmd=info-getjobattr;key=universeSize;
        0< cmd=info-getjobattr-response;rc=0;found=TRUE;value=2;
        0> cmd=info-getjobattr;key=physTopology;
        0< cmd=info-getjobattr-response;rc=0;found=FALSE;
        0> cmd=kvs-put;key=card-0;value=a;;b=c;
        0< cmd=kvs-put-response;rc=0;
        1> cmd=init pmi_version=1 pmi_subversion=1
        1< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
        0> cmd=kvs-fence;thrid=0x1;
        0> cmd=kvs-fence;thrid=0x2;
        0< cmd=kvs-fence-response;thrid=0x2;rc=-1;errmsg=already_in_a_fence;
        1> cmd=barrier_in
        0< cmd=kvs-fence-response;thrid=0x1;rc=0;
        1< cmd=barrier_out rc=0 tag=0
        1> cmd=get kvsname=kvs_7 key=card-0
        1< cmd=get_result rc=0 value=a;b=c
        0> cmd=kvs-get;jobid=kvs_7;srcid=-1;key=card-0;
        0< cmd=kvs-get-response;rc=0;found=TRUE;value=a;;b=c;
        0> cmd=kvs-put;key=PMI_hwloc;value=1;
        0< cmd=kvs-put-response;rc=-1;errmsg=keys_with_PMI__are_reserved;
        0> cmd=job-connect;jobid=kvs_8;
        0< cmd=job-connect-response;rc=-1;errmsg=not_served;
        0> cmd=finalize;
        0< cmd=finalize-response;rc=0;
        finalized 0
        0> cmd=init pmi_version=1 pmi_subversion=1
        0< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
        0> cmd=get_appnum
        0< cmd=appnum rc=0 appnum=0
    ";
    let mut server = server(7, 2, 0);
    play(&mut server, &mut Names::new(), SECOND);
    assert!(server.state(0) == TaskState::Begun);
    play(&mut server, &mut Names::new(), session);
}

#[test]
fn values_of_a_node_are_waited_for() {
    let begin = SECOND.replace("0>", "1>").replace("0<", "1<");
    let session = "
        0> cmd=info-getnodeattr;key=shm;wait=FALSE;
        0< cmd=info-getnodeattr-response;rc=0;found=FALSE;
        0> cmd=info-getnodeattr;thrid=9;key=shm;wait=TRUE;
        1> cmd=info-putnodeattr;key=shm;value=/dev/shm/x;
        0< cmd=info-getnodeattr-response;thrid=9;rc=0;found=TRUE;value=/dev/shm/x;
        1< cmd=info-putnodeattr-response;rc=0;
        1> cmd=info-getnodeattr;key=shm;wait=TRUE;
        1< cmd=info-getnodeattr-response;rc=0;found=TRUE;value=/dev/shm/x;
        0> cmd=info-getnodeattr;key=never;wait=TRUE;
    ";
    let mut server = server(7, 2, 0);
    play(&mut server, &mut Names::new(), SECOND);
    play(&mut server, &mut Names::new(), &begin);
    let before = server.bytes();
    play(&mut server, &mut Names::new(), session);
    let mut effects = Vec::new();
    server.give_up_barriers(|_| false, &mut effects);
    assert!(effects.is_empty(), "task 1 may put it yet: {effects:?}");
    play(
        &mut server,
        &mut Names::new(),
        "1> cmd=finalize;\n1< cmd=finalize-response;rc=0;\nfinalized 1",
    );
    server.give_up_barriers(|task| task == 1, &mut effects);
    let said: Vec<String> = effects.iter().map(shown).collect();
    assert_eq!(said, ["0< cmd=info-getnodeattr-response;rc=0;found=FALSE;"]);
    // The value stays, the waits don't.
    assert_eq!(server.bytes(), before + entry_bytes(b"shm", b"/dev/shm/x"));
    for _ in 0..BARRIERS_PER_TASK_MAX {
        play(&mut server, &mut Names::new(), "0> cmd=info-getnodeattr;key=never;wait=TRUE;");
    }
    let too_many = "
        0> cmd=info-getnodeattr;key=never;wait=TRUE;
        0< cmd=info-getnodeattr-response;rc=-1;errmsg=it_waits_for_too_much;
    ";
    play(&mut server, &mut Names::new(), too_many);
    play(&mut server, &mut Names::new(), SECOND);
    assert_eq!(server.bytes(), before + entry_bytes(b"shm", b"/dev/shm/x"), "it begins anew");
}

#[test]
fn names_aborts_and_spawns_of_pmi_2() {
    let session = "
        0> cmd=name-publish;name=a;;b;port=tag#0$x;infokeycount=0;
        0< cmd=name-publish-response;rc=0;
        0> cmd=name-publish;name=a;;b;port=other;
        0< cmd=name-publish-response;rc=-1;errmsg=key_already_present;
        0> cmd=name-lookup;name=a;;b;infokeycount=0;
        0< cmd=name-lookup-response;rc=0;value=tag#0$x;port=tag#0$x;
        0> cmd=name-unpublish;name=a;;b;
        0< cmd=name-unpublish-response;rc=0;
        0> cmd=name-unpublish;name=a;;b;
        0< cmd=name-unpublish-response;rc=-1;errmsg=service_not_found;
        0> cmd=abort;exitcode=-1;message=MPI_Init failed;
        abort 0 -1 'MPI_Init failed'
        0> cmd=abort;isworld=TRUE;msg=;
        abort 0 1 ''
        0> cmd=spawn;thrid=0xa;ncmds=2;preputcount=1;ppkey0=k;ppval0=v;subcmd=./a;maxprocs=2;\
        argc=1;argv0=x;subcmd=./b;maxprocs=1;argc=1;argv1=y;infokeycount=1;infokey0=wdir;infoval0=/;
        spawn 0 2 of 3
        0> cmd=spawn;ncmds=1;subcmd=./a;maxprocs=1;
        0< cmd=spawn-response;rc=-1;errmsg=another_spawn_is_under_way;
    ";
    let (mut server, mut names) = (server(7, 1, 0), Names::new());
    play(&mut server, &mut names, SECOND);
    play(&mut server, &mut names, session);
    let mut effects = Vec::new();
    server.answer_spawn(0, None, &mut effects);
    let said: Vec<String> = effects.iter().map(shown).collect();
    assert_eq!(said, ["0< cmd=spawn-response;thrid=0xa;rc=0;jobid=7;nerrs=0;"]);
    let hostile = "
        0> cmd=spawn;ncmds=1;
        0< cmd=spawn-response;rc=-1;errmsg=there_is_no_such_number_of_tasks;
        0> cmd=spawn;ncmds=1;subcmd=./a;maxprocs=1;argc=4000000000;argv0=x;
        close 0: the PMI command 'spawn' lacks 'argv'
        0> cmd=kvs-put;key=a;
        close 0: the PMI command 'kvs-put' lacks 'value'
        0> cmd=;
        close 0: the PMI command '' is unknown
    ";
    play(&mut server, &mut names, hostile);
    assert_eq!(server.bytes(), 0);
}

#[test]
fn aborts_and_what_breaks_the_protocol() {
    let session = "
        1> cmd=abort exitcode=7
        abort 1 7 ''
        1> cmd=abort exitcode=-1 message=PMI_Init failed
        abort 1 -1 'PMI_Init failed'
        0> nonsense
        close 0: a PMI line does not begin with cmd= or mcmd=
        0> cmd=frobnicate
        close 0: the PMI command 'frobnicate' is unknown
        5> cmd=get_maxes
        close 5: there is no task 5 on this node
    ";
    play(&mut server(7, 2, 0), &mut Names::new(), session);
}

#[test]
fn a_spawn_is_passed_on_after_its_last_part_and_one_at_a_time() {
    let session = "
        0> mcmd=spawn\\nnprocs=2\\nexecname=./a\\ntotspawns=2\\nspawnssofar=1\\nendcmd
        0> mcmd=spawn\\nnprocs=1\\nexecname=./b\\ntotspawns=2\\nspawnssofar=2\\nendcmd
        spawn 0 2 of 3
        0> mcmd=spawn\\nnprocs=1\\nexecname=./a\\nendcmd
        0< cmd=spawn_result rc=-1 msg=another_spawn_is_under_way
    ";
    let mut server = server(7, 1, 0);
    play(&mut server, &mut Names::new(), session);
    let answer = |server: &mut Server, refused| {
        let mut effects = Vec::new();
        server.answer_spawn(0, refused, &mut effects);
        effects.iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(answer(&mut server, None), ["0< cmd=spawn_result rc=0"]);
    assert!(answer(&mut server, None).is_empty(), "it is answered");
    let one = "
        0> mcmd=spawn\\nnprocs=1\\nexecname=./a\\nendcmd
        spawn 0 1 of 1
    ";
    play(&mut server, &mut Names::new(), one);
    let long = "no room\nat all".repeat(99);
    let said = answer(&mut server, Some(&long)).remove(0);
    assert!(said.starts_with("0< cmd=spawn_result rc=-1 msg=no_room_at_all"), "{said}");
    assert!(said.len() < 400 && server.bytes() == 0);
    // A program that begins anew has none under way.
    play(&mut server, &mut Names::new(), one);
    let anew = "
        0> cmd=init pmi_version=1 pmi_subversion=1
        0< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
    ";
    play(&mut server, &mut Names::new(), anew);
    assert!(answer(&mut server, None).is_empty());
}

#[test]
fn parts_of_spawns_are_counted_until_they_are_passed_on() {
    let mut server = server(7, 1, 0);
    let part = |number: u32| {
        let name = "a".repeat(60 << 10);
        format!("mcmd=spawn\nnprocs=1\nexecname={name}\ntotspawns=9\nspawnssofar={number}\nendcmd")
    };
    let mut effects = Vec::new();
    let mut most = 0;
    for number in 1..=9 {
        server.handle(0, part(number).as_bytes(), &mut Names::new(), &mut effects);
        most = most.max(server.bytes());
    }
    assert!(most > 100 << 10 && most <= crate::limits::SPAWN_BYTES_MAX, "{most}");
    let said: Vec<String> = effects.iter().map(shown).collect();
    assert_eq!(said, ["0< cmd=spawn_result rc=-1 msg=arguments_are_too_long"]);
    assert_eq!(server.bytes(), 0);
}

#[test]
fn spawned_tasks_find_what_was_put_for_them_and_their_program() {
    let text = |text: &str| serde_bytes::ByteBuf::from(text.as_bytes());
    let program =
        |tasks| crate::spawn::SpawnedProgram { tasks, argv: vec![text("p")], ..Default::default() };
    let mut server = Server::new(ServerSpec {
        job: JobId(7),
        user: UserId(1000),
        size: 3,
        ranks: vec![Rank(0), Rank(2)],
        space_name: "kvs_7_1".into(),
        process_mapping: None,
        attributes: vec![],
        universe: 6,
        spawned: Some(Spawned {
            programs: vec![program(2), program(1)],
            preput: vec![(text("PARENT_ROOT_PORT_NAME"), text("tag#0$x"))],
            parent: None,
        }),
    });
    let session = "
        0> cmd=get kvsname=kvs_7_1 key=PARENT_ROOT_PORT_NAME
        0< cmd=get_result rc=0 value=tag#0$x
        0> cmd=get_appnum
        0< cmd=appnum rc=0 appnum=0
        1> cmd=get_appnum
        1< cmd=appnum rc=0 appnum=1
        0> cmd=get_universe_size
        0< cmd=universe_size rc=0 size=6
    ";
    play(&mut server, &mut Names::new(), session);
}

#[test]
fn jobs_find_each_other_by_names() {
    let mut names = Names::new();
    let (mut ocean, mut air) = (server(1, 1, 0), server(2, 1, 0));
    play(
        &mut ocean,
        &mut names,
        "
        0> cmd=publish_name service=ocean model port=tag#0$description#a b$
        0< cmd=publish_result rc=0 info=ok
        0> cmd=publish_name service=ocean model port=x
        0< cmd=publish_result rc=-1 msg=key_already_present info=key_already_present
        ",
    );
    play(
        &mut air,
        &mut names,
        "
        0> cmd=lookup_name service=ocean model
        0< cmd=lookup_result rc=0 info=ok port=tag#0$description#a b$
        0> cmd=lookup_name service=ocean
        0< cmd=lookup_result rc=-1 msg=service_not_found info=service_not_found
        0> cmd=unpublish_name service=ocean model
        0< cmd=unpublish_result rc=0 info=ok
        0> cmd=unpublish_name service=ocean model
        0< cmd=unpublish_result rc=-1 msg=service_not_found info=service_not_found
        ",
    );
}

#[test]
fn key_spaces_and_their_limits() {
    let session = "
        0> cmd=create_kvs
        0< cmd=newkvs rc=0 kvsname=kvs_7_1
        0> cmd=put kvsname=kvs_7_1 key=k value=a b=c
        0< cmd=put_result rc=0
        0> cmd=put kvsname=kvs_7_1 key=l value=
        0< cmd=put_result rc=0
        0> cmd=getbyidx kvsname=kvs_7_1 idx=0
        0< cmd=getbyidx_results rc=0 nextidx=1 key=k val=a b=c
        0> cmd=getbyidx kvsname=kvs_7_1 idx=2
        0< cmd=getbyidx_results rc=-2 reason=no_more_keyvals
        0> cmd=get kvsname=kvs_7 key=k
        0< cmd=get_result rc=-1 msg=key_not_found value=unknown
        0> cmd=get key=pmiPrivateLocalRanks_1
        0< cmd=get_result rc=0 value=0,1
        0> cmd=put kvsname=nosuch key=k value=v
        0< cmd=put_result rc=-1 msg=kvsname_not_found
        0> cmd=put key=PMI_process_mapping value=(vector,(0,2,1))
        0< cmd=put_result rc=-1 msg=keys_with_PMI__are_reserved
        0> cmd=destroy_kvs kvsname=kvs_7
        0< cmd=kvs_destroyed rc=-1 msg=the_job_needs_it
        0> cmd=destroy_kvs kvsname=kvs_7_1
        0< cmd=kvs_destroyed rc=0
        0> cmd=get kvsname=kvs_7_1 key=k
        0< cmd=get_result rc=-1 msg=kvsname_not_found
    ";
    play(&mut server(7, 2, 0), &mut Names::new(), session);
}

#[test]
fn a_greedy_task_is_told_so() {
    let mut names = Names::new();
    let mut server = server(7, 2, 0);
    let mut effects = Vec::new();
    for n in 0..=BARRIERS_PER_TASK_MAX {
        let line = format!("cmd=barrier_in group=WORLD:{n}");
        server.handle(0, line.as_bytes(), &mut names, &mut effects);
    }
    assert_eq!(effects, [Effect::Close { task: 0, error: PmiError::TooManyBarriers }]);
    let value = "x".repeat(PMI_LINE_BYTES_MAX / 2);
    let mut answer = String::new();
    for n in 0..=STORE_BYTES_MAX / value.len() {
        answer = say(&mut server, 1, &format!("cmd=put key=k{n} value={value}"));
        if answer.contains("full") {
            break;
        }
    }
    assert_eq!(answer, "full 1\n1< cmd=put_result rc=-1 msg=no_room_for_more_keys");
    effects.clear();
    server.handle(1, format!("cmd=put key=z value={value}").as_bytes(), &mut names, &mut effects);
    assert_eq!(shown(&effects[0]), "1< cmd=put_result rc=-1 msg=no_room_for_more_keys", "once");
    play(&mut server, &mut names, "1> cmd=put key=k0 value=\n1< cmd=put_result rc=0");
    for _ in 0..=SPACES_MAX {
        effects.clear();
        server.handle(1, b"cmd=create_kvs", &mut names, &mut effects);
    }
    assert_eq!(shown(&effects[0]), "1< cmd=newkvs rc=-1 msg=too_many_kvs");
}

#[test]
fn a_barrier_that_waits_for_a_task_that_has_ended_is_given_up() {
    let mut names = Names::new();
    let mut server = server(7, 3, 0);
    let begin = "0> cmd=init pmi_version=1 pmi_subversion=2
        0< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
        1> cmd=barrier_in
        2> cmd=init pmi_version=1 pmi_subversion=2
        2< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2";
    play(&mut server, &mut names, begin);
    let give_up = |server: &mut Server, ended: usize| -> Vec<String> {
        let mut effects = Vec::new();
        server.give_up_barriers(|task| task == ended, &mut effects);
        effects.iter().map(shown).collect()
    };
    assert_eq!(give_up(&mut server, 1), [] as [&str; 0], "it waits itself");
    assert_eq!(give_up(&mut server, 2), [] as [&str; 0], "that is reported otherwise");
    play(&mut server, &mut names, "2> cmd=finalize\n2< cmd=finalize_ack rc=0\nfinalized 2");
    let told = "1< cmd=barrier_out rc=-1 msg=a_rank_that_takes_part_has_ended tag=0";
    assert_eq!(give_up(&mut server, 2), [told]);
    assert_eq!(give_up(&mut server, 2), [] as [&str; 0]);
}

#[test]
fn a_program_that_begins_anew_is_in_no_barrier() {
    let mut names = Names::new();
    let mut server = server(7, 2, 0);
    let lines = "
        0> cmd=barrier_in
        0> cmd=init pmi_version=1 pmi_subversion=2
        0< cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
        1> cmd=barrier_in
        0> cmd=barrier_in
        0< cmd=barrier_out rc=0 tag=0
        1< cmd=barrier_out rc=0 tag=0";
    play(&mut server, &mut names, lines);
}

#[test]
fn a_barrier_of_several_nodes_waits_for_the_others() {
    let mut names = Names::new();
    let mut server = server(7, 3, 1);
    play(
        &mut server,
        &mut names,
        "
        0> cmd=put kvsname=kvs_7 key=a value=1
        0< cmd=put_result rc=0
        0> cmd=barrier_in group=NODE:1
        1> cmd=barrier_in group=NODE:1
        0< cmd=barrier_out rc=0 tag=1
        1< cmd=barrier_out rc=0 tag=1
        0> cmd=barrier_in
        1> cmd=barrier_in
        complete 0
        ",
    );
    let part = server.next_part(LAUNCH).unwrap();
    assert_eq!((part.number, part.is_last, part.bytes), (0, true, part.values.bytes()));
    assert_eq!(part.values[..], [pair("a", "1")]);
    assert_eq!(server.next_part(LAUNCH), None);
    let answer = |round, values: &[(&str, &str)]| {
        let barrier = Barrier { group: BarrierGroup::World, tag: 0, round };
        let values: Vec<_> = values.iter().map(|(key, value)| pair(key, value)).collect();
        let values = Values::from(values);
        let bytes = values.bytes();
        Exchange { launch: LAUNCH, barrier, number: 0, is_last: true, bytes, values }
    };
    let mut effects = Vec::new();
    server.hear(&answer(0, &[("b", "2")]), &mut effects);
    let shown: Vec<_> = effects.iter().map(shown).collect();
    assert_eq!(shown, ["0< cmd=barrier_out rc=0 tag=0", "1< cmd=barrier_out rc=0 tag=0"]);
    play(&mut server, &mut names, "1> cmd=get key=b\n1< cmd=get_result rc=0 value=2");
    effects.clear();
    server.hear(&answer(0, &[]), &mut effects);
    assert_eq!(effects, [], "nobody waits any more");
    // The next of the same name is another, which an answer to this one does not open.
    let both = "0> cmd=barrier_in\n1> cmd=barrier_in\ncomplete 0";
    play(&mut server, &mut names, both);
    server.hear(&answer(0, &[]), &mut effects);
    assert_eq!(effects, [], "they wait for the next");
    server.hear(&answer(1, &[]), &mut effects);
    assert_eq!(effects.len(), 2);
}

const LAUNCH: LaunchId = LaunchId::first(JobId(7));

fn pair(key: &str, value: &str) -> (ByteBuf, ByteBuf) {
    (ByteBuf::from(key.as_bytes()), ByteBuf::from(value.as_bytes()))
}

/// Has a task say something that is answered by one line.
fn say(server: &mut Server, task: usize, line: &str) -> String {
    let mut effects = Vec::new();
    server.handle(task, line.as_bytes(), &mut Names::new(), &mut effects);
    effects.iter().map(shown).collect::<Vec<_>>().join("\n")
}

/// A server with a task on each of two nodes, for node 0 or 1.
fn one_of_two(node: u32) -> Server {
    Server::new(ServerSpec {
        job: JobId(7),
        user: UserId(1000),
        size: 2,
        ranks: vec![Rank(node)],
        space_name: "kvs_7".into(),
        process_mapping: None,
        attributes: vec![],
        universe: 0,
        spawned: None,
    })
}

#[test]
fn cards_of_many_tasks_travel_in_parts_and_open_the_barrier_when_all_are_there() {
    let mut servers = [one_of_two(0), one_of_two(1)];
    let card = "x".repeat(1000);
    for (node, server) in servers.iter_mut().enumerate() {
        for n in 0..500 {
            say(server, 0, &format!("cmd=put key=card-{node}-{n} value={card}"));
        }
        assert_eq!(say(server, 0, "cmd=barrier_in"), "complete 0");
    }
    // What the controller does with it.
    let mut parts = Vec::new();
    for server in &mut servers {
        let mut collected = Collected::default();
        let mut announced = BTreeSet::new();
        while let Some(part) = server.next_part(LAUNCH) {
            announced.insert(part.bytes);
            // What a task puts meanwhile is of the next barrier, and changes nothing that was
            // announced.
            let key = part.values[0].0.clone();
            let key = core::str::from_utf8(&key).unwrap();
            say(server, 0, &format!("cmd=put key={key} value={card}{card}"));
            let mut frame = Vec::new();
            crate::frame::encode(&part, &mut frame).unwrap();
            assert!(frame.len() < 2 * EXCHANGE_PART_BYTES, "{} bytes", frame.len());
            assert!(part.number > 0 || part.bytes > 500 * 1000);
            collected.take_in(part);
        }
        assert!(collected.is_whole());
        assert!(collected.bytes() > 500 * 1000);
        assert_eq!(announced.len(), 1, "each part announces the same");
        parts.extend(collected.into_parts());
    }
    let parts = packed(parts);
    assert!(parts.len() > 10);
    let barrier = Barrier { group: BarrierGroup::World, tag: 0, round: 0 };
    for server in &mut servers {
        for (number, values) in (0..).zip(&parts) {
            let is_last = number + 1 == u32::try_from(parts.len()).unwrap();
            let part = Exchange {
                launch: LAUNCH,
                barrier: barrier.clone(),
                number,
                is_last,
                bytes: 0,
                values: values.clone(),
            };
            let mut effects = Vec::new();
            server.hear(&part, &mut effects);
            assert_eq!(effects.len(), usize::from(is_last), "part {number}");
        }
        for key in ["card-0-0", "card-0-499", "card-1-0", "card-1-499"] {
            let answer = say(server, 0, &format!("cmd=get key={key}"));
            assert_eq!(answer, format!("0< cmd=get_result rc=0 value={card}"));
        }
    }
}

#[test]
fn parts_that_are_missed_come_again() {
    let mut server = one_of_two(0);
    for n in 0..200 {
        say(&mut server, 0, &format!("cmd=put key=k{n} value={}", "x".repeat(1000)));
    }
    say(&mut server, 0, "cmd=barrier_in");
    let mut collected = Collected::default();
    collected.take_in(server.next_part(LAUNCH).unwrap());
    drop(server.next_part(LAUNCH));
    server.send_nothing();
    assert!(!server.has_part());
    server.send_again();
    let mut parts = Vec::new();
    while let Some(part) = server.next_part(LAUNCH) {
        parts.push(part);
    }
    // One that was under way is of no use behind a gap.
    collected.take_in(parts[2].clone());
    for part in &parts {
        collected.take_in(part.clone());
    }
    assert!(collected.is_whole());
    let values: usize = collected.into_parts().iter().map(|values| values.len()).sum();
    assert_eq!(values, 200);
    // The answer, with a part that is lost and then all of it.
    let mut effects = Vec::new();
    let order = [0, 2, 0, 1, 2, 3];
    for number in order {
        server.hear(&Exchange { is_last: number == 3, ..parts[number].clone() }, &mut effects);
    }
    assert_eq!(effects.len(), 1, "the barrier opens once: {effects:?}");
}

#[test]
fn a_key_that_is_put_again_and_again_takes_no_more_room() {
    let mut server = one_of_two(0);
    let value = "x".repeat(1000);
    for _ in 0..2_000 {
        say(&mut server, 0, &format!("cmd=put key=k value={value}"));
    }
    assert!(server.bytes() < 2_000, "{} bytes", server.bytes());
    say(&mut server, 0, "cmd=barrier_in");
    assert_eq!(server.next_part(LAUNCH).unwrap().values.len(), 1);
}

#[test]
fn what_is_remembered_of_barriers_has_a_bound() {
    let mut server = server(7, 3, 0);
    let mut said = String::new();
    let mut opened = 0;
    while !said.contains("full") {
        said = say(&mut server, 0, &format!("cmd=barrier_in group=0:{opened}"));
        opened += 1;
        assert!(opened < 1_000_000, "{} bytes", server.bytes());
    }
    assert!(opened > 10_000 && server.bytes() <= STORE_BYTES_MAX);
    assert_eq!(say(&mut server, 0, "cmd=barrier_in group=0:7"), "0< cmd=barrier_out rc=0 tag=7");
}

#[test]
fn values_of_other_nodes_that_find_no_room_fill_the_job() {
    let mut server = one_of_two(0);
    say(&mut server, 0, "cmd=barrier_in");
    let value = "x".repeat(PMI_LINE_BYTES_MAX - 100);
    let mut effects = Vec::new();
    for number in 0..2_000 {
        let barrier = Barrier { group: BarrierGroup::World, tag: 0, round: 0 };
        let values = Values::from(vec![pair(&format!("k{number}"), &value)]);
        let part = Exchange { launch: LAUNCH, barrier, number, is_last: false, bytes: 0, values };
        server.hear(&part, &mut effects);
    }
    assert_eq!(effects, [Effect::Full { task: 0 }]);
    assert!(server.bytes() <= STORE_BYTES_MAX);
}

#[test]
fn a_whole_node_of_large_cards_has_room() {
    let mut server = one_of_two(0);
    let card = "x".repeat(1024);
    for n in 0..4_096 * 4 {
        let answer = say(&mut server, 0, &format!("cmd=put key=-allgather-shm-1-{n} value={card}"));
        assert_eq!(answer, "0< cmd=put_result rc=0");
    }
}

#[test]
fn keys_by_index_come_in_their_order_to_each_task_by_itself() {
    let mut server = server(7, 2, 0);
    for key in ["a", "b", "c"] {
        say(&mut server, 0, &format!("cmd=put key={key} value=v"));
    }
    let mut ask = |task: usize, index: u32, wanted: &str| {
        let answer = say(&mut server, task, &format!("cmd=getbyidx kvsname=kvs_7 idx={index}"));
        assert!(answer.contains(wanted), "{task}: {index}: {answer}");
    };
    let none = "rc=-2 reason=no_more_keyvals";
    ask(0, 0, "key=a ");
    ask(1, 1, none);
    ask(1, 0, "key=a ");
    for (index, wanted) in [(1, "key=b "), (1, "key=b "), (2, "key=c ")] {
        ask(0, index, wanted);
    }
    ask(1, 1, "key=b ");
    ask(0, 3, none);
    // Not in order: none is counted up to.
    for (index, wanted) in [(0, "key=a "), (2, none), (1, none), (0, "key=a ")] {
        ask(0, index, wanted);
    }
}

/// Lines that are mostly commands, some with fields that belong to them.
fn line() -> impl Strategy<Value = String> {
    let command = "m?cmd=(init|put|get|getbyidx|barrier_in|publish_name|lookup_name|create_kvs|\
                   destroy_kvs|abort|finalize|spawn)";
    let field = "kvsname=kvs_7|key=[ab]|value=[ab =]{0,3}|service=s|port=p|idx=[0-9]|nprocs=2|\
                 group=(WORLD|NODE|[0-4](,[0-4])?)(:[0-2])?";
    (command, proptest::collection::vec(field, 0..4))
        .prop_map(|(command, fields)| format!("{command} {}", fields.join(" ")))
}

/// The same in PMI-2.
fn message() -> impl Strategy<Value = String> {
    let command = "cmd=(fullinit|job-getid|kvs-put|kvs-get|kvs-fence|info-putnodeattr|abort|spawn|\
                   info-getnodeattr|info-getjobattr|name-publish|name-lookup|finalize|ring);";
    let field = "(key=[ab]|value=[ab =]{0,3}(;;)?|wait=TRUE|name=s|port=p|thrid=0x[0-9]|ncmds=2|\
                 subcmd=x|maxprocs=[0-9]|argc=[0-2]|argv[01]=a|exitcode=[0-9]);?";
    (command, proptest::collection::vec(field, 0..6))
        .prop_map(|(command, fields)| format!("{command}{}", fields.concat()))
}

proptest! {
    #[test]
    fn any_messages_are_answered_within_bounds(
        messages in proptest::collection::vec((0usize..3, message()), 0..60),
        junk in proptest::collection::vec(any::<u8>(), 0..50),
    ) {
        let mut server = server(7, 4, 1);
        let mut names = Names::new();
        let mut effects = Vec::new();
        // Task 2 says the same as PMI-1, which closes its connection.
        for task in 0..2 {
            server.handle(task, b"cmd=init pmi_version=2 pmi_subversion=0", &mut names, &mut effects);
        }
        server.handle(0, &junk, &mut names, &mut effects);
        for (task, message) in messages {
            effects.clear();
            server.handle(task, message.as_bytes(), &mut names, &mut effects);
            prop_assert!(effects.len() <= 62, "no more than one for each that came");
            prop_assert!(server.bytes() <= STORE_BYTES_MAX);
            for effect in &effects {
                if let Effect::Reply { line, .. } = effect {
                    let mut lines = crate::pmi::LineBuffer::new();
                    lines.extend(line);
                    prop_assert!(lines.next_line().unwrap().is_some(), "an answer is one message");
                    prop_assert_eq!(lines.next_line().unwrap(), None, "an answer is one message");
                }
            }
        }
        for task in 0..3 {
            server.handle(task, b"cmd=init pmi_version=1 pmi_subversion=1", &mut names, &mut effects);
        }
        let kept = server.second.bytes() + server.spaces.values().flatten().map(|(key, value)| entry_bytes(key, value)).sum::<usize>();
        prop_assert!(server.bytes() >= kept, "{} of {kept}", server.bytes());
        prop_assert_eq!(server.second.is_waited_for(), false);
    }

    #[test]
    fn any_lines_are_answered_within_bounds(
        lines in proptest::collection::vec((0usize..4, line()), 0..30),
        junk in proptest::collection::vec(any::<u8>(), 0..50),
    ) {
        let mut server = server(7, 4, 1);
        let mut names = Names::new();
        let mut effects = Vec::new();
        server.handle(0, &junk, &mut names, &mut effects);
        for (task, line) in lines {
            effects.clear();
            server.handle(task, line.as_bytes(), &mut names, &mut effects);
            prop_assert!(effects.len() <= 4, "{effects:?}");
            prop_assert!(server.bytes() <= STORE_BYTES_MAX);
            for effect in &effects {
                if let Effect::Reply { line, .. } = effect {
                    let end = line.iter().position(|byte| *byte == b'\n');
                    prop_assert_eq!(end, Some(line.len() - 1), "an answer is one line");
                }
            }
        }
    }
}
