use super::hosts::{Host, Hosts, Node};
use super::manager::{ARGUMENTS_BYTES_MAX, Batch, Manager, Order, SPAWN_TASKS_MAX, WORD_BYTES_MAX};
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use tutti_wire::pvm::{DAEMON, Incoming, Message, Pack, Unpack, error, tag};

const A: u32 = 1 << 18;
const B: u32 = 2 << 18;
const MASTER: u32 = A | 2;

/// What a task may have of arguments and variables.
const ROOM: usize = 1 << 20;

fn host(tid: u32, name: &str, slots: usize) -> Host {
    let arch = ByteBuf::from(*b"LINUX64");
    let is_ready = true;
    Host { tid, name: name.into(), arch, speed: 1000, signature: 0x40_8c41, slots, is_ready }
}

fn manager() -> Manager {
    let node = |name: &str, address: &str, slots| Node {
        name: name.into(),
        address: address.into(),
        slots,
    };
    let nodes = vec![node("b", "10.0.0.2", 2), node("c", "10.0.0.3", 4)];
    let hosts = Hosts::new(vec![host(A, "a", 3), host(B, "b", 2)], nodes);
    let mut manager = Manager::new(hosts, ROOM);
    assert_eq!(manager.start_program("a"), Some(A));
    manager
}

fn from(peer: u32, tag: u32, body: Pack) -> Message {
    Message { context: 5, wait: 77, ..Message::new(peer, tag, body) }
}

fn spawn(count: i32, flags: i32, place: &str) -> Message {
    let pack = Pack::default().text(b"worker").int(flags).text(place.as_bytes()).int(count);
    let pack = pack.texts(&[ByteBuf::from(*b"-x")]);
    let pack = (0..6).fold(pack, |pack, _| pack.int(0));
    from(MASTER, tag::SM_SPAWN, pack.texts(&[]))
}

fn sent(orders: &[Order]) -> Vec<&Message> {
    let messages = orders.iter().filter_map(|order| match order {
        Order::Send(message) | Order::Report { message, .. } => Some(message),
        Order::Start(_) | Order::StartHost { .. } | Order::EndHost(_) | Order::Complain(_) => None,
    });
    messages.collect()
}

fn batches(orders: Vec<Order>) -> Vec<Batch> {
    let batches = orders.into_iter().filter_map(|order| match order {
        Order::Start(batch) => Some(batch),
        _ => None,
    });
    batches.collect()
}

fn ints(message: &Message) -> Vec<i32> {
    let mut values = Unpack::new(message).unwrap();
    std::iter::from_fn(|| values.int().ok()).collect()
}

/// What a daemon answers that makes tasks of these numbers.
fn made(exec: &Message, tasks: &[u32]) -> Message {
    let pack = Pack::default().count(tasks.len());
    let body = tasks.iter().fold(pack, |pack, &task| pack.number(task));
    Message { wait: exec.wait, ..Message::new(exec.peer, tag::SM_EXECACK, body) }
}

fn start(task: u32, cookie: &str) -> Message {
    let words = [ByteBuf::from(*b"/bin/worker"), ByteBuf::from(*b"-x")];
    let own = [cookie, "PVMSPAWNWD=/tmp"].map(|it| ByteBuf::from(it.as_bytes()));
    let body = Pack::default().number(task).int(0).text(b"/bin/worker").texts(&words).texts(&own);
    Message::new(DAEMON | A, tag::SM_STTASK, body)
}

#[test]
fn tasks_of_a_spawn_go_where_slots_are_free_and_start_as_one_batch() {
    let mut manager = manager();
    let asked = manager.on_message(spawn(4, 0, ""));
    let execs = sent(&asked);
    // The program has one of the three slots of the first host.
    let places: Vec<u32> = execs.iter().map(|exec| exec.peer).collect();
    assert_eq!(places, [DAEMON | A, DAEMON | B]);
    let more = manager.on_message(spawn(1, 0, ""));
    assert_eq!(ints(sent(&more)[0]), [1, error::OUT_OF_RES], "what was asked for counts");
    assert!(manager.on_message(made(execs[0], &[A | 3, A | 5])).is_empty());
    let answer = manager.on_message(made(execs[1], &[B | 1, B | 2]));
    let answer = sent(&answer);
    assert_eq!((answer[0].peer, answer[0].context, answer[0].wait), (MASTER, 5, 77));
    assert_eq!(ints(answer[0]).len(), 5);
    assert!(manager.on_message(start(A | 5, "PVMEPID=12")).is_empty(), "one is missing");
    let started = batches(manager.on_message(start(A | 3, "PVMEPID=11")));
    let own = |it: &str| ByteBuf::from(it.as_bytes());
    assert_eq!(started[0].tasks, [(A | 3, own("PVMEPID=11")), (A | 5, own("PVMEPID=12"))]);
    assert_eq!(started[0].directory, Some(own("/tmp")));
    // A process that has ended leaves its slot, and its daemon hears of it.
    let ended = manager.on_end_of_process(A | 3, 256);
    assert!(matches!(ended[0], Order::Report { host: A, .. }), "its own tasker tells the daemon");
    assert_eq!((sent(&ended)[0].peer, sent(&ended)[0].tag), (DAEMON | A, tag::SM_TASKX));
    assert_eq!(sent(&manager.on_message(spawn(1, 0, "")))[0].tag, tag::SM_EXEC);
}

#[test]
fn a_spawn_names_its_host_and_gets_an_error_for_each_task_that_has_none() {
    for (flags, place, expected) in [
        (1, "B", vec![DAEMON | B]),
        (1, ".", vec![DAEMON | A]),
        (33, "b", vec![DAEMON | A]),
        (2, "LINUX64", vec![DAEMON | A]),
        (1, "c", vec![MASTER]),
        (2, "CRAY", vec![MASTER]),
    ] {
        let mut manager = manager();
        let orders = manager.on_message(spawn(1, flags, place));
        let peers: Vec<u32> = sent(&orders).iter().map(|it| it.peer).collect();
        assert_eq!(peers, expected, "{flags} {place}");
        if peers == [MASTER] {
            assert_eq!(ints(sent(&orders)[0]), [1, error::NO_HOST]);
        }
    }
    for (count, code) in [(0, error::BAD_PARAM), (-5, error::BAD_PARAM)]
        .into_iter()
        .chain([SPAWN_TASKS_MAX + 1, i32::MAX].map(|count| (count, error::OUT_OF_RES)))
    {
        let orders = manager().on_message(spawn(count, 0, ""));
        assert_eq!(ints(sent(&orders)[0]), [code], "{count}");
    }
}

/// A spawn with these numbers of arguments and variables, each as long.
fn spawn_with(bytes: usize, arguments: usize, variables: usize) -> Message {
    let words = |count| vec![ByteBuf::from(vec![b'x'; bytes]); count];
    let pack = Pack::default().text(b"worker").int(0).text(b"").int(1).texts(&words(arguments));
    let pack = (0..6).fold(pack, |pack, _| pack.int(0));
    from(MASTER, tag::SM_SPAWN, pack.texts(&words(variables)))
}

#[test]
fn a_spawn_with_more_arguments_than_a_task_can_have_is_refused_with_the_reason() {
    for (bytes, arguments, variables) in [
        (WORD_BYTES_MAX, 1, 0),
        (1000, ARGUMENTS_BYTES_MAX / 1032 - 1, 0),
        (1000, 100, (ROOM >> 10) - 110),
    ] {
        let orders = manager().on_message(spawn_with(bytes, arguments, variables));
        assert_eq!(sent(&orders)[0].tag, tag::SM_EXEC, "{bytes} {arguments} {variables}");
    }
    for (bytes, arguments, variables) in [
        (WORD_BYTES_MAX + 1, 1, 0),
        (WORD_BYTES_MAX + 1, 0, 1),
        (1000, ARGUMENTS_BYTES_MAX / 1032 + 1, 0),
        // Many short ones take more than their bytes.
        (1, ARGUMENTS_BYTES_MAX / 33 + 1, 0),
        (1000, 100, (ROOM >> 10) + 1),
    ] {
        let orders = manager().on_message(spawn_with(bytes, arguments, variables));
        assert!(matches!(&orders[0], Order::Complain(reason) if reason.contains("is the most")));
        assert_eq!(ints(sent(&orders)[0]), [error::BAD_PARAM], "{bytes} {arguments} {variables}");
    }
}

#[test]
fn a_task_hears_of_the_end_of_others_and_at_once_of_those_that_are_gone() {
    let mut manager = manager();
    let asked = manager.on_message(spawn(1, 0, ""));
    manager.on_message(made(sent(&asked)[0], &[A | 3]));
    let wish = |flags: i32, task: u32| {
        let pack = Pack::default().int(flags).number(9).number(11).int(1).number(task);
        from(MASTER, tag::SM_NOTIFY, pack)
    };
    assert!(manager.on_message(wish(1, A | 3)).is_empty());
    let at_once = manager.on_message(wish(1, A | 8));
    let message = sent(&at_once)[0];
    assert_eq!((message.tag, message.context), (11, 9));
    let end = Pack::default().number(A | 3).int(0).int(0).int(0).int(0).int(0);
    let ended = manager.on_message(Message::new(DAEMON | A, tag::SM_TASKX, end.clone()));
    assert_eq!(ints(sent(&ended)[0]), [(A | 3) as i32]);
    let again = manager.on_message(Message::new(DAEMON | A, tag::SM_TASKX, end));
    assert!(again.is_empty(), "a task ends once");
    // A wish that is cancelled is answered at once; one of a task that is gone, never.
    let asked = manager.on_message(spawn(1, 0, ""));
    manager.on_message(made(sent(&asked)[0], &[A | 4]));
    manager.on_message(wish(1, A | 4));
    assert_eq!(sent(&manager.on_message(wish(257, A | 4))).len(), 1);
    assert!(manager.on_message(wish(257, A | 4)).is_empty());
}

#[test]
fn a_task_that_ends_before_it_starts_does_not_keep_the_others() {
    let mut manager = manager();
    let asked = manager.on_message(spawn(2, 1, "a"));
    manager.on_message(made(sent(&asked)[0], &[A | 3, A | 4]));
    assert!(manager.on_message(start(A | 3, "PVMEPID=11")).is_empty());
    let end = Pack::default().number(A | 4).int(0).int(0).int(0).int(0).int(0);
    let started = manager.on_message(Message::new(DAEMON | A, tag::SM_TASKX, end));
    assert_eq!(batches(started)[0].tasks.len(), 1);
}

#[test]
fn hosts_and_tasks_are_listed_as_the_daemons_would() {
    let mut manager = manager();
    let hosts = manager.on_message(from(MASTER, tag::SM_CONFIG, Pack::default()));
    let mut values = Unpack::new(sent(&hosts)[0]).unwrap();
    assert_eq!((values.int(), values.int(), values.number()), (Ok(2), Ok(1), Ok(A)));
    assert_eq!(values.text(), Ok(ByteBuf::from(*b"a")));
    let asked = manager.on_message(spawn(1, 0, ""));
    manager.on_message(made(sent(&asked)[0], &[A | 3]));
    for (place, count) in [(0, 1), (A, 1), (A | 3, 1), (A | 9, 0), (B, 0)] {
        let listed = manager.on_message(from(MASTER, tag::SM_TASK, Pack::default().number(place)));
        let mut values = Unpack::new(sent(&listed)[0]).unwrap();
        assert_eq!(values.int(), Ok(0));
        assert_eq!(values.number().is_ok(), count == 1, "{place:x}");
    }
    let nowhere = manager.on_message(from(MASTER, tag::SM_TASK, Pack::default().number(9 << 18)));
    assert_eq!(ints(sent(&nowhere)[0]), [error::NO_HOST]);
}

const C: u32 = 3 << 18;

fn names(tag: u32, names: &[&str]) -> Message {
    let names: Vec<ByteBuf> = names.iter().map(|name| ByteBuf::from(name.as_bytes())).collect();
    from(MASTER, tag, Pack::default().texts(&names))
}

/// Has the daemon start one on node c. The part there says how that is reached.
fn start_c(manager: &mut Manager, add: &Message) {
    let command = b"/usr/bin/pvmd -s -d0x0 -nc 1 0a000001:1111 4080 3 0a000003:0000";
    let wanted = Pack::default().int(1).number(C).text(b"").text(b"10.0.0.3").text(command);
    let wanted = wanted.text(b"").text(b"");
    let wanted = Message { wait: 5, ..Message::new(DAEMON | A, tag::SM_STHOST, wanted) };
    let started = manager.on_message(wanted);
    let words = ["-s", "-d0x0", "-nc", "1", "0a000001:1111", "4080", "3", "0a000003:0000"];
    let command = words.map(str::to_owned).to_vec();
    assert_eq!(started, [Order::StartHost { host: C, node: "c".into(), command }]);
    let told = manager.on_line(C, Some(b"ddpro<2316> ...".to_vec()));
    let told = sent(&told)[0];
    assert_eq!((told.tag, told.wait, told.peer), (tag::SM_STHOSTACK, 5, DAEMON | A));
    let mut values = Unpack::new(told).unwrap();
    assert_eq!(values.int(), Ok(1));
    assert_eq!((values.number(), values.text()), (Ok(C), Ok(ByteBuf::from(*b"ddpro<2316> ..."))));
    let host = Pack::default().int(1).int(1).number(C).text(b"c").text(b"LINUX64").int(9).int(8);
    let added = Message { wait: add.wait, ..Message::new(DAEMON | A, tag::SM_ADDACK, host) };
    assert!(sent(&manager.on_message(added)).iter().all(|it| it.tag != tag::SM_ADDHOST));
}

#[test]
fn a_node_of_the_job_becomes_a_host_and_has_tasks_once_its_tasker_serves() {
    let mut manager = manager();
    let wish = Pack::default().int(3).number(9).number(11).int(-1);
    assert!(manager.on_message(from(MASTER, tag::SM_NOTIFY, wish)).is_empty());
    let asked = manager.on_message(names(tag::SM_ADDHOST, &["c ep=/x", "b", "strange", "C"]));
    let add = sent(&asked)[0].clone();
    let mut values = Unpack::new(&add).unwrap();
    assert_eq!(add.tag, tag::SM_ADD);
    assert_eq!(values.texts(), Ok(vec![ByteBuf::from(*b"c ip=10.0.0.3")]));
    // Another request does not wait.
    let refused = manager.on_message(names(tag::SM_ADDHOST, &["c"]));
    assert_eq!(ints(sent(&refused)[0])[..3], [1, 1, error::ALREADY]);
    start_c(&mut manager, &add);
    let nowhere = manager.on_message(spawn(1, 1, "c"));
    assert_eq!(ints(sent(&nowhere)[0]), [1, error::NO_HOST], "it has no tasker yet");
    let own = Message::new(DAEMON | C, tag::SM_EXECACK, Pack::default().int(1).number(C | 1));
    manager.on_message(own);
    let answer = manager.on_ready(C | 1);
    let mut values = Unpack::new(sent(&answer)[0]).unwrap();
    assert_eq!((values.int(), values.int(), values.number()), (Ok(4), Ok(1), Ok(C)));
    for code in [error::DUP_HOST, error::DENIED, error::DUP_HOST] {
        let _ = (values.text(), values.text(), values.int(), values.int());
        assert_eq!(values.int(), Ok(code));
    }
    let listed = manager.on_message(from(MASTER, tag::SM_TASK, Pack::default().number(0)));
    assert_eq!(ints(sent(&listed)[0]), [0], "a tasker is no task");
    assert_eq!(sent(&manager.on_message(spawn(1, 1, "c")))[0].peer, DAEMON | C);
}

#[test]
fn a_lost_host_takes_its_tasks_with_it_and_those_who_wait_hear_of_both() {
    let mut manager = manager();
    let asked = manager.on_message(spawn(2, 1, "b"));
    manager.on_message(made(sent(&asked)[0], &[B | 3, B | 4]));
    let unanswered = manager.on_message(spawn(1, 0, ""));
    assert_eq!(sent(&unanswered)[0].peer, DAEMON | A);
    for (flags, about) in [(1, B | 3), (2, B)] {
        let wish = Pack::default().int(flags).number(9).number(11).int(1).number(about);
        assert!(manager.on_message(from(MASTER, tag::SM_NOTIFY, wish)).is_empty());
    }
    let lost = manager.on_end_of_host(B);
    assert!(lost.contains(&Order::EndHost(B)));
    let told: Vec<&Message> = sent(&lost);
    let about: Vec<Vec<i32>> = told[..2].iter().map(|message| ints(message)).collect();
    assert_eq!(about, [vec![(B | 3) as i32], vec![B as i32]]);
    assert_eq!(told[2].tag, tag::TM_DELHOST, "the daemons would take minutes");
    assert!(manager.on_end_of_host(B).is_empty(), "a host is lost once");
    let hosts = manager.on_message(from(MASTER, tag::SM_CONFIG, Pack::default()));
    assert_eq!(ints(sent(&hosts)[0])[0], 1);
    assert_eq!(manager.nodes_without(), ["b", "c"]);
    // The first has the manager: without it there is no virtual machine.
    let first = Message::new(DAEMON | A, tag::SM_HOSTX, Pack::default().number(DAEMON | A));
    assert!(manager.on_message(first).is_empty());
}

#[test]
fn a_spawn_on_a_host_that_is_lost_meanwhile_is_answered() {
    let mut manager = manager();
    let asked = manager.on_message(spawn(4, 0, ""));
    let execs: Vec<Message> = sent(&asked).into_iter().cloned().collect();
    assert!(manager.on_message(made(&execs[0], &[A | 3, A | 5])).is_empty());
    let lost = Message::new(DAEMON | A, tag::SM_HOSTX, Pack::default().number(DAEMON | B));
    let answer = manager.on_message(lost);
    let codes = ints(sent(&answer)[0]);
    assert_eq!(codes.iter().filter(|&&code| code == error::HOST_FAIL).count(), 2, "{codes:?}");
}

#[test]
fn hosts_are_removed_by_the_first_daemon_and_that_of_the_manager_never() {
    let mut manager = manager();
    let asked = manager.on_message(names(tag::SM_DELHOST, &["b", "a", "x"]));
    let order = sent(&asked)[0].clone();
    assert_eq!((order.tag, order.peer), (tag::TM_DELHOST, DAEMON));
    let codes = Pack::default().int(1).int(0);
    let done = Message { wait: order.wait, ..Message::new(DAEMON | A, tag::TM_DELHOST, codes) };
    let answer = manager.on_message(done);
    assert_eq!(sent(&answer)[0].tag, tag::SM_DELHOST);
    assert_eq!(ints(sent(&answer)[0]), [3, 0, error::BAD_PARAM, error::NO_HOST]);
    let none = manager.on_message(names(tag::SM_DELHOST, &["a"]));
    assert_eq!(ints(sent(&none)[0]), [1, error::BAD_PARAM]);
}

#[test]
fn nodes_whose_daemons_do_not_start_are_left_out() {
    let mut manager = manager();
    let asked = manager.begin();
    let add = sent(&asked)[0].clone();
    assert!(!manager.is_settled());
    let wanted = Pack::default().int(1).number(C).text(b"").text(b"10.0.0.3").text(b"pvmd -s");
    let wanted = wanted.text(b"").text(b"");
    manager.on_message(Message::new(DAEMON | A, tag::SM_STHOST, wanted));
    // Its front end has ended.
    let told = manager.on_end_of_host(C);
    let mut values = Unpack::new(sent(&told)[0]).unwrap();
    assert_eq!(values.int(), Ok(1));
    assert_eq!((values.number(), values.text()), (Ok(C), Ok(ByteBuf::from(*b"PvmCantStart"))));
    let failed = Pack::default().int(1).int(1).int(error::HOST_FAIL).text(b"").text(b"");
    let body = failed.int(0).int(0);
    let added = Message { wait: add.wait, ..Message::new(DAEMON | A, tag::SM_ADDACK, body) };
    assert!(manager.on_message(added).is_empty());
    assert!(manager.is_settled());
    assert_eq!(manager.nodes_without(), ["c"]);
}

proptest! {
    #[test]
    fn any_messages_are_answered_within_bounds(
        messages in proptest::collection::vec(
            (prop_oneof![4 => tag::SM_SPAWN..tag::SM_SPAWN + 17, 1 => Just(tag::TM_DELHOST)],
             prop_oneof![Just(MASTER), Just(DAEMON | A), any::<u32>()], 0u32..8,
             proptest::collection::vec(
                prop_oneof![0u32..9, Just(u32::MAX), Just(i32::MAX as u32), (A..A + 9)], 0..40)),
            0..40),
    ) {
        let mut manager = manager();
        let mut processes = Vec::new();
        for (tag, peer, wait, words) in messages {
            let body: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
            let message = Message { peer, tag, wait, is_xdr: true, body, ..Message::default() };
            for order in manager.on_message(message) {
                match order {
                    Order::Send(message) | Order::Report { message, .. } => {
                        prop_assert!(message.body.len() < 1 << 20);
                    }
                    Order::Start(batch) => processes.extend(batch.tasks),
                    Order::StartHost { .. } | Order::EndHost(_) | Order::Complain(_) => {}
                }
            }
        }
        for (task, cookie) in processes {
            prop_assert!(cookie.starts_with(b"PVMEPID="));
            manager.on_end_of_process(task, 0);
        }
    }

    #[test]
    fn any_bytes_of_a_daemon_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let (mut incoming, mut manager) = (Incoming::default(), manager());
        incoming.push(&bytes);
        while let Some(message) = incoming.next() {
            manager.on_message(message);
        }
    }
}

#[test]
fn the_end_of_a_task_that_left_is_told_when_its_slot_is_free() {
    let mut manager = manager();
    let asked = manager.on_message(spawn(1, 1, "a"));
    manager.on_message(made(sent(&asked)[0], &[A | 3]));
    assert_eq!(batches(manager.on_message(start(A | 3, "PVMEPID=11"))).len(), 1);
    let wish = |tag: u32| {
        let pack = Pack::default().int(1).number(9).number(tag).int(1).number(A | 3);
        from(MASTER, tag::SM_NOTIFY, pack)
    };
    assert!(manager.on_message(wish(11)).is_empty());
    let end = Pack::default().number(A | 3).int(0).int(0).int(0).int(0).int(0);
    let left = manager.on_message(Message::new(DAEMON | A, tag::SM_TASKX, end.clone()));
    assert!(left.is_empty(), "its process runs: {left:?}");
    assert!(manager.on_message(wish(12)).is_empty(), "it has not ended");
    let ended = manager.on_end_of_process(A | 3, 0);
    let tags: Vec<u32> = sent(&ended).iter().map(|it| it.tag).collect();
    assert_eq!(tags, [11, 12, tag::SM_TASKX]);
    let again = manager.on_message(Message::new(DAEMON | A, tag::SM_TASKX, end));
    assert!(again.is_empty(), "a task ends once");
}
