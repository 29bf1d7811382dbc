//! What the image of processes needs of a machine: its processor and its kernel.
//!
//! Processes have chosen their instructions by the processor on which they began. On another one
//! without these, they would be killed after they were restored, when no image is in their place
//! any more.

use anyhow::{Context, ensure};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// In an image: the machine that made it, in lines.
const MACHINE: &str = "tutti-machine";

/// Maximum length of that, in bytes.
const BYTES_MAX: u64 = 64 << 10;

/// Flags of x86 processors that stand for instructions or registers, by how they begin. The others
/// are about kernels, power and faults.
const INSTRUCTIONS: [&str; 38] = [
    "3dnow",
    "abm",
    "adx",
    "aes",
    "amx",
    "avx",
    "bmi",
    "cl",
    "cmov",
    "cx",
    "enqcmd",
    "erms",
    "f16c",
    "fma",
    "fsgsbase",
    "fsrm",
    "fxsr",
    "gfni",
    "lahf_lm",
    "mmx",
    "mov",
    "ospke",
    "pclmul",
    "popcnt",
    "prefetchi",
    "ptwrite",
    "rd",
    "rtm",
    "serialize",
    "sha",
    "sm3",
    "sm4",
    "sse",
    "ssse",
    "vaes",
    "vpclmul",
    "waitpkg",
    "xsave",
];

/// Most names that a refusal has.
const NAMED_MAX: usize = 5;

/// A machine, as far as its processes can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Machine {
    architecture: String,
    kernel: String,
    features: BTreeSet<String>,
}

/// Writes down what an image needs that is made on this machine.
pub(super) fn note(image: &Path) -> anyhow::Result<()> {
    Ok(fs::write(image.join(MACHINE), Machine::this().to_text())?)
}

/// Whether an image can be restored on this machine.
///
/// # Errors
/// If it can't, with what is missing.
pub(super) fn check(image: &Path) -> anyhow::Result<()> {
    let mut text = String::new();
    match File::open(image.join(MACHINE)) {
        Ok(file) => file.take(BYTES_MAX).read_to_string(&mut text)?,
        // An earlier release has made it, on this node.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context("cannot read which machine made the image"),
    };
    let made_on = Machine::from_text(&text).context("the image is damaged")?;
    Machine::this().can_restore(&made_on)
}

impl Machine {
    fn this() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            architecture: std::env::consts::ARCH.into(),
            kernel: kernel.trim().into(),
            features: features(&processors),
        }
    }

    fn to_text(&self) -> String {
        let features: Vec<&str> = self.features.iter().map(String::as_str).collect();
        let Self { architecture, kernel, .. } = self;
        format!("{architecture}\n{kernel}\n{}\n", features.join(" "))
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut line = || lines.next().map(str::to_owned);
        let (architecture, kernel, features) = (line()?, line()?, line()?);
        let features = features.split_whitespace().map(str::to_owned).collect();
        Some(Self { architecture, kernel, features })
    }

    fn can_restore(&self, made_on: &Self) -> anyhow::Result<()> {
        let (own, other) = (&self.architecture, &made_on.architecture);
        ensure!(own == other, "the image is of a machine with {other}, and this one has {own}");
        let (own, other) = (&self.kernel, &made_on.kernel);
        ensure!(
            version(own) >= version(other),
            "the image is of a machine with Linux {other}, and this one has {own}, which is older"
        );
        let missing: Vec<&String> = made_on.features.difference(&self.features).collect();
        let named: Vec<&str> = missing.iter().take(NAMED_MAX).map(|it| it.as_str()).collect();
        let more = if missing.len() > NAMED_MAX { " and more" } else { "" };
        ensure!(
            missing.is_empty(),
            "the image needs a processor that has {}{more}, and the one here has not",
            named.join(" ")
        );
        Ok(())
    }
}

/// What a processor can do, as the kernel lists it.
fn features(processors: &str) -> BTreeSet<String> {
    let list = |name: &str| {
        let line = processors.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.split_whitespace())
    };
    let is_instruction = |flag: &&str| INSTRUCTIONS.iter().any(|start| flag.starts_with(start));
    let of_x86 = list("flags").into_iter().flatten().filter(is_instruction);
    let of_others = list("Features").into_iter().flatten();
    of_x86.chain(of_others).map(str::to_owned).collect()
}

/// The first two numbers of a release of the kernel.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_needs_the_architecture_the_instructions_and_no_older_kernel() {
        let cpuinfo = "processor\t: 0\nflags\t\t: fpu sse2 avx2 hypervisor pti popcnt\n\n";
        let made_on = Machine {
            architecture: "x86_64".into(),
            kernel: "6.18.5-cloud".into(),
            features: features(cpuinfo),
        };
        assert_eq!(made_on.to_text(), "x86_64\n6.18.5-cloud\navx2 popcnt sse2\n");
        assert_eq!(Machine::from_text(&made_on.to_text()), Some(made_on.clone()));
        assert_eq!(Machine::from_text("x86_64\n6.18"), None);
        let newer = Machine { kernel: "7.0".into(), ..made_on.clone() };
        newer.can_restore(&made_on).unwrap();
        let why = |machine: &Machine| machine.can_restore(&made_on).unwrap_err().to_string();
        let older = Machine { kernel: "6.9.1".into(), ..made_on.clone() };
        assert!(why(&older).contains("has 6.9.1, which is older"), "{}", why(&older));
        let less = Machine { features: ["sse2".to_owned()].into(), ..made_on.clone() };
        assert!(why(&less).contains("that has avx2 popcnt, and"), "{}", why(&less));
        let arm = Machine { architecture: "aarch64".into(), ..made_on.clone() };
        assert!(why(&arm).contains("with x86_64, and this one has aarch64"), "{}", why(&arm));
        let here = Machine::this();
        assert!(version(&here.kernel).is_some() && !here.features.is_empty(), "{here:?}");
    }
}
