//! What the machine's processors can do: names that jobs ask for by `--constraint`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

/// Beginnings of the kernel's words for instructions that programs are built for; of all others
/// (there are more than a hundred) no program is built that asks for it by name.
const WORDS: [&str; 14] = [
    "sse4_2", "avx", "amx", "fma", "f16c", "bmi2", "aes", "sha_ni", "asimd", "sve", "sme", "bf16",
    "i8mm", "pclmul",
];

/// The levels of x86-64, as compilers name them, with what each needs beyond the one before.
const LEVELS: [(&str, &[&str]); 3] = [
    ("x86-64-v2", &["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"]),
    ("x86-64-v3", &["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"]),
    ("x86-64-v4", &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
];

/// More than the kernel says of one processor, in bytes.
const FIRST_BYTES: u64 = 16 << 10;

/// The machine's architecture, the maker of its processors, and instructions that programs may
/// need. Where the kernel says nothing, the architecture alone.
#[must_use]
pub fn features() -> BTreeSet<String> {
    let architecture = nix::sys::utsname::uname()
        .map_or_else(|_| String::new(), |name| name.machine().to_string_lossy().into_owned());
    // The first processor stands for all: what one lacks, the kernel says of none. It takes longer
    // for each that is read.
    let mut bytes = Vec::new();
    if let Ok(file) = File::open("/proc/cpuinfo") {
        // What was read before an error counts.
        let _ = file.take(FIRST_BYTES).read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    let first = text.split("\n\n").next().unwrap_or_default();
    features_of(&architecture, first)
}

fn features_of(architecture: &str, processor: &str) -> BTreeSet<String> {
    let field = |name: &str| {
        let lines = processor.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next()
    };
    let words: BTreeSet<&str> =
        field("flags").or_else(|| field("Features")).unwrap_or_default().split(' ').collect();
    let mut features: BTreeSet<String> = [architecture.to_ascii_lowercase()].into();
    let maker = match field("vendor_id") {
        Some("GenuineIntel") => Some("intel"),
        Some("AuthenticAMD") => Some("amd"),
        _ => None,
    };
    features.extend(maker.map(String::from));
    let mut levels =
        LEVELS.iter().take_while(|(_, needs)| needs.iter().all(|need| words.contains(need)));
    features.extend(levels.by_ref().map(|(level, _)| String::from(*level)));
    let wanted = words.iter().filter(|word| WORDS.iter().any(|it| word.starts_with(it)));
    features.extend(wanted.map(|word| String::from(*word)));
    features.remove("");
    features
}

#[cfg(test)]
mod tests {
    use super::features_of;

    #[test]
    fn levels_are_those_whose_instructions_are_all_there() {
        let flags = "flags\t\t: fpu cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 abm avx avx2 bmi1 bmi2 f16c \
                     fma movbe xsave avx512f";
        let found = features_of("x86_64", &format!("vendor_id\t: GenuineIntel\n{flags}\n"));
        let has = |name: &str| found.contains(name);
        assert!(has("x86_64") && has("intel") && has("x86-64-v2") && has("x86-64-v3"));
        assert!(has("avx512f") && has("avx2") && !has("x86-64-v4") && !has("fpu"));
        let no_fma = features_of("x86_64", &flags.replace("fma ", ""));
        assert!(!no_fma.contains("x86-64-v3") && no_fma.contains("x86-64-v2"));
    }

    #[test]
    fn other_architectures_have_their_own_words() {
        let arm = features_of("aarch64", "BogoMIPS\t: 50\nFeatures\t: fp asimd aes sve\n");
        let expected = ["aarch64", "aes", "asimd", "sve"].map(String::from);
        assert_eq!(arm, expected.into());
        assert_eq!(features_of("riscv64", ""), ["riscv64".to_owned()].into());
    }
}
