//! How far notifications were delivered, kept in a file: no restart of this process or of the
//! controller loses one. After a kill, one that had just been delivered is delivered again.

use anyhow::Context;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::PathBuf;
use tracing::warn;
use tutti_wire::code::Code;

/// A delivery: the number of its event, and which of the event's ways.
pub(super) type Key = (u64, u8);

/// The place.
#[derive(Default)]
pub(super) struct Place {
    file: PathBuf,
    /// The event up to which all were taken up.
    until: u64,
    /// The same, as it was when this process began.
    former: u64,
    /// What was outstanding then.
    open: BTreeSet<Key>,
    /// What the file has.
    written: Option<String>,
    has_failed: bool,
}

impl Place {
    /// The place in a file; the beginning of the stream if there is none.
    pub(super) fn read(file: PathBuf) -> anyhow::Result<Self> {
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(format!("cannot read {}", file.display())),
        };
        let (until, open) = parse(&text).unwrap_or_else(|| {
            warn!(
                code = %Code::NotNotified,
                "{} has no place in the stream of events: all that are kept are looked at",
                file.display()
            );
            (0, BTreeSet::new())
        });
        Ok(Self { file, until, former: until, open, ..Self::default() })
    }

    /// The number behind which the stream is read.
    pub(super) fn begin(&self) -> u64 {
        let first = self.open.first().map_or(self.until, |(number, _)| number.saturating_sub(1));
        first.min(self.until)
    }

    /// Whether a delivery was done before this process began.
    pub(super) fn has_done(&self, key: Key) -> bool {
        key.0 <= self.former && !self.open.contains(&key)
    }

    /// The latest event there is has this number: where that is behind the place, the journal is
    /// another one, and all begins anew.
    pub(super) fn note_last(&mut self, last: u64) {
        if last < self.former {
            (self.until, self.former) = (0, 0);
            self.open.clear();
        }
    }

    /// All events up to this number were taken up.
    pub(super) fn advance(&mut self, until: u64) {
        self.until = self.until.max(until);
    }

    /// Writes the place, if it has changed.
    pub(super) fn keep(&mut self, open: &[Key]) {
        let mut text = format!("{}\n", self.until);
        for (number, way) in open {
            text.push_str(&format!("{number} {way}\n"));
        }
        if self.written.as_deref() == Some(&text) {
            return;
        }
        // A name of its own: a process that is killed leaves no other file behind.
        let next = self.file.with_extension("next");
        let written =
            std::fs::write(&next, &text).and_then(|()| std::fs::rename(&next, &self.file));
        match written {
            Ok(()) => (self.written, self.has_failed) = (Some(text), false),
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                warn!(code = %Code::NotNotified, "notifications may be repeated: cannot write {}: {error}", self.file.display());
            }
            Err(_) => {}
        }
    }
}

fn parse(text: &str) -> Option<(u64, BTreeSet<Key>)> {
    let mut lines = text.lines();
    let Some(first) = lines.next() else { return Some((0, BTreeSet::new())) };
    let key = |line: &str| {
        let (number, way) = line.split_once(' ')?;
        Some((number.parse().ok()?, way.parse().ok()?))
    };
    Some((first.parse().ok()?, lines.map(key).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_outstanding_is_delivered_and_what_was_done_is_not() {
        let directory = std::env::temp_dir().join(format!("tutti-place-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("notified");
        let mut place = Place::read(file.clone()).unwrap();
        assert_eq!((place.begin(), place.has_done((1, 0))), (0, false));
        place.advance(20);
        place.keep(&[(12, 1), (15, 0)]);
        let place = Place::read(file.clone()).unwrap();
        assert_eq!(place.begin(), 11);
        let done = [(12, 0), (12, 1), (13, 0), (15, 0), (20, 0), (21, 0)];
        assert_eq!(done.map(|key| place.has_done(key)), [true, false, true, false, true, false]);
        let mut place = place;
        place.note_last(20);
        assert_eq!(place.begin(), 11);
        place.note_last(3);
        assert_eq!((place.begin(), place.has_done((2, 0))), (0, false));
        std::fs::write(&file, "x").unwrap();
        assert_eq!(Place::read(file).unwrap().begin(), 0);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
