//! Keys of a terminal.

/// One key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Press {
    /// A character.
    Char(char),
    /// One line up.
    Up,
    /// One line down.
    Down,
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
pub(super) fn presses(mut typed: &[u8]) -> Vec<Press> {
    let mut found = Vec::new();
    while let Some((&first, rest)) = typed.split_first() {
        typed = rest;
        match first {
            b'\x1b' => match SEQUENCES.iter().find(|(sequence, _)| rest.starts_with(sequence)) {
                Some((sequence, press)) => {
                    typed = &rest[sequence.len()..];
                    found.push(*press);
                }
                None if matches!(rest, [b'[' | b'O', ..]) => typed = behind_sequence(&rest[1..]),
                None => found.push(Press::Escape),
            },
            b'\n' | b'\r' => found.push(Press::Enter),
            0x7f | 0x08 => found.push(Press::Backspace),
            0..0x20 => {}
            _ => {
                let length = match first {
                    0xc0..0xe0 => 2,
                    0xe0..0xf0 => 3,
                    0xf0.. => 4,
                    _ => 1,
                };
                let all = [&[first], &rest[..rest.len().min(length - 1)]].concat();
                if let Some(character) =
                    std::str::from_utf8(&all).ok().and_then(|text| text.chars().next())
                {
                    typed = &rest[length - 1..];
                    found.push(Press::Char(character));
                }
            }
        }
    }
    found
}

/// Whether what was read may end within a key: the rest comes at once, or it was the escape key.
pub(super) fn is_torn(typed: &[u8]) -> bool {
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
