use super::manager::{Batch, Host, Manager, Order, SPAWN_TASKS_MAX};
use proptest::prelude::*;
use serde_bytes::ByteBuf;
use tutti_wire::pvm::{DAEMON, Incoming, Message, Pack, Unpack, error, tag};

const A: u32 = 1 << 18;
const B: u32 = 2 << 18;
const MASTER: u32 = A | 2;

fn host(tid: u32, name: &str, slots: usize) -> Host {
    let arch = ByteBuf::from(*b"LINUX64");
    Host { tid, name: name.into(), arch, speed: 1000, signature: 0x40_8c41, slots }
}

fn manager() -> Manager {
    Manager::new(vec![host(A, "a", 3), host(B, "b", 2)])
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
        Order::Send(message) => Some(message),
        Order::Start(_) => None,
    });
    messages.collect()
}

fn batches(orders: Vec<Order>) -> Vec<Batch> {
    let batches = orders.into_iter().filter_map(|order| match order {
        Order::Start(batch) => Some(batch),
        Order::Send(_) => None,
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

proptest! {
    #[test]
    fn any_messages_are_answered_within_bounds(
        messages in proptest::collection::vec(
            (0u32..17, prop_oneof![Just(MASTER), Just(DAEMON | A), any::<u32>()], 0u32..8,
             proptest::collection::vec(
                prop_oneof![0u32..9, Just(u32::MAX), Just(i32::MAX as u32), (A..A + 9)], 0..40)),
            0..40),
    ) {
        let mut manager = manager();
        let mut processes = Vec::new();
        for (number, peer, wait, words) in messages {
            let body: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
            let tag = tag::SM_SPAWN + number;
            let message = Message { peer, tag, wait, is_xdr: true, body, ..Message::default() };
            for order in manager.on_message(message) {
                match order {
                    Order::Send(message) => prop_assert!(message.body.len() < 1 << 20),
                    Order::Start(batch) => processes.extend(batch.tasks),
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
