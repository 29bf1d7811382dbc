//! The pages of program code that this process has in memory.

use crate::procfile::read_text;
use nix::libc;
use std::path::Path;

/// Unmaps the code that this process has used so far, so that what only its start needed does not
/// count as its memory. Code that is used again comes back from the page cache, which all processes
/// of the program share. Where the code is locked in memory, nothing changes.
pub fn unmap_used() {
    let Ok(maps) = read_text(Path::new("/proc/self/maps")) else { return };
    for (from, to) in maps.lines().filter_map(code_of) {
        let start = std::ptr::without_provenance_mut(from);
        // SAFETY: the range is a mapping of a file that is executed, and not written to: the next
        // access finds what the file has, as the one before did. A failure leaves all as it is.
        let _ = unsafe { libc::madvise(start, to - from, libc::MADV_DONTNEED) };
    }
}

/// The addresses of a line of `/proc/PID/maps` that is of a file's code.
fn code_of(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let is_code = words.next()? == "r-xp" && words.nth(2)? != "0";
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(from)?, number(to)?)).filter(|(from, to)| is_code && from < to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_files_have_that_may_be_executed_and_not_written() {
        let line = "7f00-7fff r-xp 00001000 fe:00 4711   /usr/bin/tutti";
        assert_eq!(code_of(line), Some((0x7f00, 0x7fff)));
        for other in ["r--p", "rw-p", "rwxp", "r-xs"] {
            assert_eq!(code_of(&line.replace("r-xp", other)), None);
        }
        assert_eq!(code_of("7f00-7fff r-xp 00000000 00:00 0   [vdso]"), None);
        assert_eq!(code_of("nonsense"), None);
    }

    #[test]
    fn a_process_goes_on_after_its_code_was_unmapped() {
        let resident = || {
            let text = read_text(Path::new("/proc/self/smaps")).unwrap();
            let (mut is_code, mut sum) = (false, 0_u64);
            for line in text.lines() {
                match line.strip_prefix("Rss:") {
                    None if line.contains(" r-xp ") => is_code = true,
                    None if line.starts_with("VmFlags:") => is_code = false,
                    Some(rss) if is_code => {
                        sum += rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
                    }
                    _ => {}
                }
            }
            sum
        };
        // Other tests map code meanwhile.
        let falls = || {
            let before = resident();
            unmap_used();
            resident() < before
        };
        assert!((0..100).any(|_| falls()));
    }
}
