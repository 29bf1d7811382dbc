//! Keys of a terminal.

/// One key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Press {
    /// A character.
    Char(char),
    /// One line up.
    Up,
    /// One line down.
    Down,
    /// To the left.
    Left,
    /// To the right.
    Right,
    /// Tab.
    Tab,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the first.
    Home,
    /// To the last.
    End,
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Delete the last character.
    Backspace,
}

/// Sequences that begin with an escape, without it.
const SEQUENCES: &[(&[u8], Press)] = &[
    (b"[A", Press::Up),
    (b"OA", Press::Up),
    (b"[B", Press::Down),
    (b"OB", Press::Down),
    (b"[D", Press::Left),
    (b"OD", Press::Left),
    (b"[C", Press::Right),
    (b"OC", Press::Right),
    (b"[5~", Press::PageUp),
    (b"[6~", Press::PageDown),
    (b"[H", Press::Home),
    (b"OH", Press::Home),
    (b"[1~", Press::Home),
    (b"[F", Press::End),
    (b"OF", Press::End),
    (b"[4~", Press::End),
];

/// The keys of what was read at once. Those that are not known are left out.
pub fn presses(mut typed: &[u8]) -> Vec<Press> {
    let mut found = Vec::new();
    while !typed.is_empty() {
        let (press, rest) = first_press(typed);
        found.extend(press);
        typed = rest;
    }
    found
}

/// The first key of what was read, unless it is unknown, and what follows it.
pub fn first_press(typed: &[u8]) -> (Option<Press>, &[u8]) {
    let Some((&first, rest)) = typed.split_first() else { return (None, typed) };
    match first {
        b'\x1b' => match SEQUENCES.iter().find(|(sequence, _)| rest.starts_with(sequence)) {
            Some((sequence, press)) => (Some(*press), &rest[sequence.len()..]),
            None if matches!(rest, [b'[' | b'O', ..]) => (None, behind_sequence(&rest[1..])),
            None => (Some(Press::Escape), rest),
        },
        b'\n' | b'\r' => (Some(Press::Enter), rest),
        b'\t' => (Some(Press::Tab), rest),
        0x7f | 0x08 => (Some(Press::Backspace), rest),
        0..0x20 => (None, rest),
        _ => {
            let length = match first {
                0xc0..0xe0 => 2,
                0xe0..0xf0 => 3,
                0xf0.. => 4,
                _ => 1,
            };
            let all = &typed[..typed.len().min(length)];
            match std::str::from_utf8(all).ok().and_then(|text| text.chars().next()) {
                Some(character) => (Some(Press::Char(character)), &typed[all.len()..]),
                None => (None, rest),
            }
        }
    }
}

/// Whether what was read may end within a key: the rest comes at once, or it was the escape key.
pub fn is_torn(typed: &[u8]) -> bool {
    if let Some(at) = typed.iter().rposition(|byte| *byte == b'\x1b') {
        let is_open = match &typed[at + 1..] {
            [] => true,
            [b'[' | b'O', rest @ ..] => !rest.iter().any(|byte| (0x40..0x7f).contains(byte)),
            _ => false,
        };
        if is_open {
            return true;
        }
    }
    std::str::from_utf8(typed).is_err_and(|error| error.error_len().is_none())
}

/// What follows a sequence that is not known.
fn behind_sequence(rest: &[u8]) -> &[u8] {
    let end = rest.iter().position(|byte| (0x40..0x7f).contains(byte));
    end.map_or(&[], |end| &rest[end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        use Press::{Backspace, Char, Down, End, Enter, Escape, Home, PageDown, Up};
        assert_eq!(presses(b"qj\r"), [Char('q'), Char('j'), Enter]);
        assert_eq!(presses(b"\x1b[A\x1bOB\x1b[6~"), [Up, Down, PageDown]);
        assert_eq!(presses(b"\x1b[1~\x1b[F\x7f"), [Home, End, Backspace]);
        assert_eq!(presses("é√x".as_bytes()), [Char('é'), Char('√'), Char('x')]);
        // A key with a modifier, a torn character, an escape alone.
        assert_eq!(presses(b"\x1b[1;5Cx\x1b[200"), [Char('x')]);
        assert_eq!(presses(b"\xe2\x88\x1b"), [Escape]);
        assert_eq!(presses(b"\x00\x01\xff\xfe"), []);
        for torn in [&b"\x1b"[..], b"x\x1b[", b"\x1bO", b"\x1b[1;", "é".as_bytes().split_at(1).0] {
            assert!(is_torn(torn), "{torn:?}");
        }
        for whole in [&b""[..], b"x", b"\x1b[A", b"\x1bOBx", b"\xff", "é".as_bytes()] {
            assert!(!is_torn(whole), "{whole:?}");
        }
    }
}
