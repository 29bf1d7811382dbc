//! Reading small files that the kernel makes up when they are read: they have no size that could be
//! asked for, so the standard library begins with a few bytes and reads again and again.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What most such files fit into.
const FIRST_BYTES: usize = 4 << 10;

/// The whole text.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_bytes(path)?).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The same, whatever it is.
pub(crate) fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut text = vec![0; FIRST_BYTES];
    let mut length = 0;
    loop {
        match file.read(&mut text[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if length == text.len() {
            text.resize(2 * length, 0);
        }
    }
    text.truncate(length);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_whole_however_long() {
        let path = std::env::temp_dir().join(format!("tutti-text-{}", std::process::id()));
        for bytes in [0, 1, FIRST_BYTES - 1, FIRST_BYTES, FIRST_BYTES + 1, 5 * FIRST_BYTES] {
            let text = "x".repeat(bytes);
            std::fs::write(&path, &text).unwrap();
            assert!(read_text(&path).unwrap() == text, "{bytes}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(read_text(&path).is_err());
    }
}
