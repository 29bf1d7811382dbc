//! Any bytes as a program and as the linker's cache: `tests/fuzz elf`.
#![no_main]

#[path = "../checks/elf.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::elf(input));
