//! Links the unwinder into the program. As a shared library of its own (`libgcc_s`) it costs every
//! start of `tutti run` an eighth of a millisecond: it is looked up, mapped and relocated, and asks
//! the processor what it can, which a virtual machine answers slowly.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let gnu = std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if gnu && let Some(directory) = directory_of("libgcc_eh.a") {
        println!("cargo::rustc-link-search=native={directory}");
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}

/// Where the compiler that links keeps a library. One that does not have it says the bare name
/// back, and then the shared library serves as well.
fn directory_of(library: &str) -> Option<String> {
    let compiler = std::env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".into());
    let asked = Command::new(compiler).arg(format!("-print-file-name={library}")).output().ok()?;
    let path = String::from_utf8(asked.stdout).ok()?;
    let directory = Path::new(path.trim()).parent()?.to_str()?;
    (!directory.is_empty()).then(|| directory.to_owned())
}
