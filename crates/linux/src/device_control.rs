//! Closing devices to a group of processes, by a program of the kind `BPF_PROG_TYPE_CGROUP_DEVICE`
//! at a group of cgroup v2. The kernel asks it each time that a process of the group, or of one
//! below it, opens or makes a device file.
//!
//! The program is a list of comparisons, put together here. It stays at the group until the group
//! is removed, whatever becomes of the process that has put it there. What is open stays open.
//!
//! The devices of a group that has them in turns with others are behind a [`Gate`].
//!
//! Where the kernel takes no such program, `v1` closes devices.

use crate::{Error, Result};
use nix::errno::Errno;
use nix::libc;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

pub mod gate;
pub(crate) mod v1;

pub use gate::Gate;

/// `BPF_PROG_LOAD`.
const PROG_LOAD: libc::c_long = 5;
/// `BPF_PROG_ATTACH`.
const PROG_ATTACH: libc::c_long = 8;
/// `BPF_PROG_QUERY`.
const PROG_QUERY: libc::c_long = 16;
/// `BPF_PROG_TYPE_CGROUP_DEVICE`.
const CGROUP_DEVICE_PROGRAM: u32 = 15;
/// `BPF_CGROUP_DEVICE`, as a place to attach to.
const CGROUP_DEVICE: u32 = 6;
/// `BPF_F_ALLOW_MULTI`: programs of the groups above are asked, too.
const ALLOW_MULTI: u32 = 2;
/// `BPF_DEVCG_DEV_CHAR`, in the low half of the type of an access.
const CHARACTER_DEVICE: i32 = 2;

/// `BPF_PSEUDO_MAP_VALUE`, in the place of a register.
const MAP_VALUE: u8 = 2;

/// The name of programs and maps of this module.
const NAME: &[u8; 16] = b"tutti_devices\0\0\0";

/// Devices that a program compares: two instructions each, and a jump reaches over all of them.
pub const CLOSED_MAX: usize = 4096;

/// An instruction, as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// The target in the low half, the source in the high one.
    registers: u8,
    offset: i16,
    value: i32,
}

impl Instruction {
    /// Reads 32 bits of the access into a register: its type and kind (0), the major number (4) or
    /// the minor one (8).
    const fn load(target: u8, offset: i16) -> Self {
        Self { code: 0x61, registers: target | 1 << 4, offset, value: 0 }
    }

    /// Keeps these bits of a register.
    const fn and(target: u8, value: i32) -> Self {
        Self { code: 0x54, registers: target, offset: 0, value }
    }

    /// Skips so many instructions if a register has another value, which is not negative.
    const fn skip_unless(register: u8, value: i32, offset: i16) -> Self {
        Self { code: 0x55, registers: register, offset, value }
    }

    /// The same if it is this value.
    const fn skip_if(register: u8, value: i32, offset: i16) -> Self {
        Self { code: 0x15, registers: register, offset, value }
    }

    /// Sets a register.
    const fn set(target: u8, value: i32) -> Self {
        Self { code: 0xb4, registers: target, offset: 0, value }
    }

    /// Sets a register to the address of the first element of an array map, by two instructions.
    const fn address_of(target: u8, map: i32) -> [Self; 2] {
        let rest = Self { code: 0, registers: 0, offset: 0, value: 0 };
        [Self { code: 0x18, registers: target | MAP_VALUE << 4, value: map, ..rest }, rest]
    }

    /// Reads 32 bits at the address in register 1 into register 0.
    const fn load_word() -> Self {
        Self { code: 0x61, registers: 1 << 4, offset: 0, value: 0 }
    }

    /// Returns register 0.
    const fn exit() -> Self {
        Self { code: 0x95, registers: 0, offset: 0, value: 0 }
    }
}

/// The program that refuses these character devices, by major and minor number, and nothing else;
/// `gated`: those that it refuses while the element of this map is zero.
fn program(closed: &[(u32, u32)], gated: Option<(&[(u32, u32)], i32)>) -> Vec<Instruction> {
    let offset = |count: usize| i16::try_from(count).unwrap_or(i16::MAX);
    let (own, map) = gated.unwrap_or((&[], -1));
    let compared = closed.len() + own.len();
    // The kernel takes no program with a part to which nothing jumps.
    let mut refusal = vec![Instruction::set(0, 0), Instruction::exit()];
    refusal.truncate(if closed.is_empty() { 0 } else { 2 });
    let mut program = vec![
        Instruction::load(2, 0),
        Instruction::and(2, 0xffff),
        // To what allows.
        Instruction::skip_unless(2, CHARACTER_DEVICE, offset(2 + 2 * compared)),
        Instruction::load(3, 4),
        Instruction::load(4, 8),
    ];
    for (place, (major, minor)) in closed.iter().chain(own).enumerate() {
        let left = 2 * (compared - place - 1);
        program.push(Instruction::skip_unless(3, major.cast_signed(), 1));
        // Over those that are left, and over what allows; for one of its own, over what refuses.
        let over = if place < closed.len() { left + 2 } else { left + 2 + refusal.len() };
        program.push(Instruction::skip_if(4, minor.cast_signed(), offset(over)));
    }
    program.extend([Instruction::set(0, 1), Instruction::exit()]);
    program.extend(refusal);
    if !own.is_empty() {
        program.extend(Instruction::address_of(1, map));
        program.push(Instruction::load_word());
        // What is returned is 0 or 1, for the kernel to see.
        program.push(Instruction::skip_if(0, 0, 1));
        program.push(Instruction::set(0, 1));
        program.push(Instruction::exit());
    }
    program
}

/// What `BPF_PROG_LOAD` gets.
#[repr(C)]
#[derive(Default)]
struct LoadRequest {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    network_index: u32,
    expected_attach_type: u32,
}

/// What `BPF_PROG_ATTACH` gets.
#[repr(C)]
struct AttachRequest {
    target: i32,
    program: i32,
    place: u32,
    flags: u32,
    replaced: i32,
}

/// What `BPF_PROG_QUERY` gets, and fills in.
#[repr(C)]
#[derive(Default)]
struct Query {
    target: i32,
    place: u32,
    query_flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    padding: u32,
}

fn bpf<T>(command: libc::c_long, request: &mut T) -> std::result::Result<i64, Errno> {
    let (request, size) = (std::ptr::from_mut(request), size_of::<T>());
    // SAFETY: the commands only read and write the request, of which the size is passed, and read
    // the memory that it points to, which the callers keep until they return.
    Errno::result(unsafe { libc::syscall(libc::SYS_bpf, command, request, size) })
}

fn call(errno: Errno) -> Error {
    Error::Call { call: "bpf", source: errno.into() }
}

/// Loads a program that refuses these devices, and its own by a map.
fn load(closed: &[(u32, u32)], gated: Option<(&[(u32, u32)], BorrowedFd<'_>)>) -> Result<OwnedFd> {
    let closed = &closed[..closed.len().min(CLOSED_MAX)];
    let own = |own: &[(u32, u32)]| own.len().min(CLOSED_MAX - closed.len());
    let gated = gated.map(|(devices, map)| (&devices[..own(devices)], map.as_raw_fd()));
    let instructions = program(closed, gated);
    let license = c"Apache-2.0";
    let mut request = LoadRequest {
        kind: CGROUP_DEVICE_PROGRAM,
        count: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        name: *NAME,
        ..LoadRequest::default()
    };
    let loaded = bpf(PROG_LOAD, &mut request).map_err(call)?;
    let loaded = i32::try_from(loaded).map_err(|_| call(Errno::EBADF))?;
    // SAFETY: the kernel has just opened it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(loaded) })
}

/// Whether programs that close devices can be loaded here, or why not.
///
/// # Errors
/// What the kernel says: `EPERM` without privileges, `EINVAL` or `ENOSYS` without such programs.
pub fn check() -> Result<()> {
    load(&[], None).map(drop)
}

/// Closes character devices, by major and minor number, to all processes of a group and of the
/// groups below it, now and later.
///
/// # Errors
/// As [`check`]; and if the group is none, or one above it allows no further program.
pub fn close(group: BorrowedFd<'_>, path: &Path, closed: &[(u32, u32)]) -> Result<()> {
    attach(group, path, &load(closed, None)?)
}

/// Puts a program at a group.
fn attach(group: BorrowedFd<'_>, path: &Path, program: &OwnedFd) -> Result<()> {
    let mut request = AttachRequest {
        target: group.as_raw_fd(),
        program: program.as_raw_fd(),
        place: CGROUP_DEVICE,
        flags: ALLOW_MULTI,
        replaced: 0,
    };
    let attached = bpf(PROG_ATTACH, &mut request);
    attached.map(drop).map_err(|errno| Error::file("close devices to", path)(errno.into()))
}

/// Whether a program at the group itself looks at devices.
#[must_use]
pub fn closes(group: BorrowedFd<'_>) -> bool {
    programs_of(group, &mut []).is_ok_and(|count| count > 0)
}

/// How many programs at the group itself look at devices, and the numbers of the first of them.
fn programs_of(group: BorrowedFd<'_>, numbers: &mut [u32]) -> std::result::Result<usize, Errno> {
    let mut query = Query { target: group.as_raw_fd(), place: CGROUP_DEVICE, ..Query::default() };
    if !numbers.is_empty() {
        query.programs = numbers.as_mut_ptr() as u64;
        query.count = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    }
    match bpf(PROG_QUERY, &mut query) {
        // There are more than were asked for.
        Ok(_) | Err(Errno::ENOSPC) => Ok(query.count as usize),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program says of an access, by the kernel's rules for the instructions used here.
    /// `gate`: whether its gate is open, if it has one.
    fn allows(program: &[Instruction], access: [u32; 3], gate: Option<bool>) -> bool {
        let mut registers = [0_u32; 5];
        let is_open = gate.is_some_and(|is_open| is_open);
        let mut place = 0;
        loop {
            let Instruction { code, registers: named, offset, value } = program[place];
            let target = usize::from(named & 0xf);
            place += 1;
            let jump = usize::try_from(offset).unwrap();
            match code {
                0x61 if named >> 4 == 1 && target == 0 => registers[0] = u32::from(is_open),
                0x61 => registers[target] = access[jump / 4],
                // The half of an address that says which map it is of, and the other half.
                0x18 => assert_eq!((named, value, gate.is_some()), (MAP_VALUE << 4 | 1, 7, true)),
                0 => {}
                0x54 => registers[target] &= value.cast_unsigned(),
                0xb4 => registers[target] = value.cast_unsigned(),
                0x55 if registers[target] != value.cast_unsigned() => place += jump,
                0x15 if registers[target] == value.cast_unsigned() => place += jump,
                0x55 | 0x15 => {}
                0x95 => return registers[0] == 1,
                other => panic!("{other:#x}"),
            }
        }
    }

    #[test]
    fn a_program_refuses_what_is_closed_and_nothing_else() {
        let character = 2 | 6 << 16;
        let closed: Vec<(u32, u32)> = (0..100).map(|minor| (195, minor)).collect();
        let program_of = |count: usize| program(&closed[..count], None);
        for count in [0, 1, 2, 99, 100] {
            let program = program_of(count);
            for minor in 0..101 {
                let is_closed = (minor as usize) < count;
                assert_eq!(allows(&program, [character, 195, minor], None), !is_closed, "{minor}");
                // To make such a file is no way around it.
                assert_eq!(allows(&program, [2 | 1 << 16, 195, minor], None), !is_closed);
                assert!(allows(&program, [character, 194, minor], None));
                assert!(allows(&program, [1 | 6 << 16, 195, minor], None), "a block device");
            }
        }
        let highest = (4095, (1 << 20) - 1);
        assert!(!allows(&program(&[highest], None), [character, highest.0, highest.1], None));
    }

    #[test]
    fn a_gate_is_for_the_own_devices_alone() {
        let character = 2 | 6 << 16;
        let all: Vec<(u32, u32)> = (0..6).map(|minor| (195, minor)).collect();
        for count in 0..=6 {
            let (closed, own) = all.split_at(count);
            let program = program(closed, Some((own, 7)));
            for minor in 0..8 {
                for is_open in [false, true] {
                    let access = [character, 195, minor];
                    let expected = minor >= 6 || (is_open && minor as usize >= count);
                    assert_eq!(allows(&program, access, Some(is_open)), expected, "{minor}");
                    let other = [character, 196, minor];
                    assert!(allows(&program, other, Some(is_open)));
                }
            }
        }
    }
}
