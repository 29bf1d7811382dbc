use super::*;
use alloc::vec;
use proptest::prelude::*;

fn texts(words: &[&str]) -> Vec<ByteBuf> {
    words.iter().map(|word| ByteBuf::from(word.as_bytes())).collect()
}

fn spawn() -> Spawn {
    Spawn {
        file: ByteBuf::from(*b"worker"),
        flags: 1,
        place: ByteBuf::from(*b"a"),
        count: 3,
        arguments: texts(&["-x", "", "four"]),
        sinks: [1, 2, 3, 4, 5, 6],
        environment: texts(&["PVMCTX=0x0"]),
    }
}

fn packed(spawn: &Spawn) -> Pack {
    let pack = Pack::default().text(&spawn.file).int(spawn.flags).text(&spawn.place);
    let pack = pack.int(spawn.count).texts(&spawn.arguments);
    let pack = spawn.sinks.iter().fold(pack, |pack, &sink| pack.number(sink));
    pack.texts(&spawn.environment)
}

fn read_in_pieces(bytes: &[u8], size: usize) -> Vec<Message> {
    let (mut incoming, mut found) = (Incoming::default(), Vec::new());
    for piece in bytes.chunks(size) {
        incoming.push(piece);
        while let Some(message) = incoming.next() {
            found.push(message);
        }
    }
    found
}

#[test]
fn a_message_of_many_fragments_comes_out_as_it_was_whatever_the_pieces() {
    let long = Message {
        peer: 0x4_0002,
        tag: tag::SM_SPAWN,
        context: 7,
        wait: 9,
        is_xdr: true,
        body: (0..20_000u32).flat_map(u32::to_be_bytes).collect(),
    };
    let short = Message::new(0x4_0003, tag::SM_CONFIG, Pack::default());
    let mut bytes = Vec::new();
    // The peer of what is read is the sender.
    long.write(0x4_0002, &mut bytes);
    short.write(0x4_0003, &mut bytes);
    for size in [1, 5, 4096, bytes.len()] {
        assert_eq!(read_in_pieces(&bytes, size), [long.clone(), short.clone()], "{size}");
    }
}

#[test]
fn fragments_of_two_senders_may_be_mixed() {
    let message = |from: u32| Message {
        peer: from,
        is_xdr: true,
        body: vec![from.to_be_bytes()[3]; FRAGMENT_BYTES + 4],
        ..Message::default()
    };
    let [mut one, mut two] = [Vec::new(), Vec::new()];
    message(1).write(1, &mut one);
    message(2).write(2, &mut two);
    let cut = FRAGMENT_HEADER + MESSAGE_HEADER + FRAGMENT_BYTES;
    let mixed = [&one[..cut], &two[..cut], &one[cut..], &two[cut..]].concat();
    assert_eq!(read_in_pieces(&mixed, 1000), [message(1), message(2)]);
}

#[test]
fn what_is_too_long_costs_its_own_message() {
    let mut bytes = Vec::new();
    // A fragment that is longer than any may be, and after it one that has no beginning.
    let length = FRAGMENT_BYTES_MAX + 1;
    for word in [0, 5, u32::try_from(length).unwrap(), u32::from(FIRST) << 24] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.resize(bytes.len() + length, 0xff);
    for word in [0, 5, 0, u32::from(LAST) << 24] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    // Then one of many fragments that are too long together.
    let endless = Message { body: vec![0; MESSAGE_BYTES_MAX + 4], ..Message::default() };
    endless.write(6, &mut bytes);
    let good = Message { peer: 7, is_xdr: true, ..Message::default() };
    good.write(7, &mut bytes);
    // It comes without its values, so that its sender has an answer.
    let cut = Message { peer: 6, ..Message::default() };
    assert_eq!(read_in_pieces(&bytes, 4096), [cut, good]);
}

#[test]
fn a_spawn_is_read_as_it_was_packed() {
    let message = Message::new(0, tag::SM_SPAWN, packed(&spawn()));
    assert_eq!(Heard::read(&message), Ok(Heard::Spawn(spawn())));
    for length in 0..message.body.len() {
        let cut = Message { body: message.body[..length].to_vec(), ..message.clone() };
        // The last text may be without its padding, which says nothing.
        let is_whole = message.body.len() - length < 2;
        assert_eq!(Heard::read(&cut).is_ok(), is_whole, "{length}");
    }
    let foreign = Message { is_xdr: false, ..message };
    assert_eq!(Heard::read(&foreign), Err(Malformed));
}

#[test]
fn hostile_counts_and_lengths_are_refused_at_once() {
    for count in [-1, i32::MIN, i32::MAX] {
        let lengths = Message::new(0, tag::SM_SPAWN, Pack::default().int(count));
        assert_eq!(Heard::read(&lengths), Err(Malformed), "{count}");
        let mut body = packed(&spawn()).bytes;
        // The number of arguments stands behind two texts and two integers.
        let at = 12 + 4 + 8 + 4;
        body[at..at + 4].copy_from_slice(&count.to_be_bytes());
        let arguments = Message { body, ..lengths.clone() };
        assert!(!matches!(Heard::read(&arguments), Ok(Heard::Spawn(it)) if it == spawn()));
        let wish = Pack::default().int(1).int(0).int(0).int(count);
        let notify = Heard::read(&Message::new(0, tag::SM_NOTIFY, wish));
        assert_eq!(notify.is_err(), count > 0, "{count}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_within_the_maxima(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        size in 1usize..64,
    ) {
        let whole = read_in_pieces(&bytes, bytes.len().max(1));
        prop_assert_eq!(&read_in_pieces(&bytes, size), &whole);
        for message in whole {
            let _ = Heard::read(&message);
        }
    }

    #[test]
    fn any_values_behind_any_tag_are_read_or_refused(
        number in 0u32..17,
        words in proptest::collection::vec(
            prop_oneof![0u32..20, Just(u32::MAX), Just(i32::MAX as u32), any::<u32>()], 0..80),
    ) {
        let body = words.into_iter().flat_map(u32::to_be_bytes).collect();
        let message =
            Message { tag: tag::SM_SPAWN + number, is_xdr: true, body, ..Message::default() };
        let _ = Heard::read(&message);
    }
}
