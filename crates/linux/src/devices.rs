//! GPUs of this machine, found where their drivers are; and what is known of other device files.
//!
//! NVIDIA: `/proc/driver/nvidia/gpus/ADDRESS/information` names the minor number, and the file is
//! `/dev/nvidiaMINOR`. AMD: with `/dev/kfd`, each `/dev/dri/renderD*` of the driver `amdgpu`. Where
//! one of the two is missing, nothing is found.

use crate::cgroup::parse_list;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// GPUs that are listed at most: more than a machine has.
const FOUND_MAX: usize = 128;

/// A maker of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// AMD.
    Amd,
    /// Intel.
    Intel,
    /// NVIDIA.
    Nvidia,
}

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its maker.
    pub maker: Maker,
    /// Its files; the first is the one that computes.
    pub files: Vec<PathBuf>,
    /// Where it is.
    pub place: BusPlace,
}

/// Where a device is in a machine, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusPlace {
    /// Its address on the PCI bus.
    pub pci: Option<String>,
    /// Its NUMA node.
    pub numa: Option<u32>,
    /// The processors of that node.
    pub processors: Vec<u32>,
}

/// What is known of a device file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFile {
    /// Its major and minor number.
    pub numbers: (u32, u32),
    /// The maker of the device, if it is a GPU.
    pub maker: Option<Maker>,
    /// Where the device is.
    pub place: BusPlace,
}

/// Why a path names no device file.
#[derive(Debug, thiserror::Error)]
pub enum DeviceFileError {
    /// It can't be looked at.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, #[source] io::Error),
    /// It, or a folder on the way, is a link.
    #[error("{} is a link, or below one; write the path that it leads to: {}", .0.display(), .1.display())]
    Link(PathBuf, PathBuf),
    /// It is something else.
    #[error("{} is no character device", .0.display())]
    Other(PathBuf),
    /// Every process needs it.
    #[error("{} is open to every process; it can't be given to jobs", .0.display())]
    Common(PathBuf),
}

/// The GPUs of this machine: those of NVIDIA by their PCI addresses, then those of AMD.
#[must_use]
pub fn gpus() -> Vec<Gpu> {
    gpus_below(Path::new("/"))
}

/// The same, in another root of all files.
fn gpus_below(root: &Path) -> Vec<Gpu> {
    let mut found = nvidia(root);
    found.extend(amd(root));
    found.truncate(FOUND_MAX);
    found
}

fn nvidia(root: &Path) -> Vec<Gpu> {
    let folder = root.join("proc/driver/nvidia/gpus");
    let mut found = Vec::new();
    for pci in names_in(&folder) {
        let text = fs::read_to_string(folder.join(&pci).join("information")).unwrap_or_default();
        let minor = text.lines().find_map(|line| line.strip_prefix("Device Minor:"));
        let Some(minor) = minor.and_then(|minor| minor.trim().parse::<u32>().ok()) else {
            continue;
        };
        let file = PathBuf::from(format!("/dev/nvidia{minor}"));
        if is_device(root, &file) {
            let place = bus_place(root, Some(pci));
            found.push(Gpu { maker: Maker::Nvidia, files: vec![file], place });
        }
    }
    found
}

fn amd(root: &Path) -> Vec<Gpu> {
    if !is_device(root, Path::new("/dev/kfd")) {
        return Vec::new();
    }
    let class = root.join("sys/class/drm");
    let mut found = Vec::new();
    for name in names_in(&class).into_iter().filter(|name| name.starts_with("renderD")) {
        let device = class.join(&name).join("device");
        let file = Path::new("/dev/dri").join(&name);
        if link_name(&device.join("driver")).as_deref() != Some("amdgpu") || !is_device(root, &file)
        {
            continue;
        }
        let mut files = vec![file];
        let cards = names_in(&device.join("drm"));
        let cards = cards.iter().filter(|name| name.starts_with("card"));
        let cards = cards.map(|name| Path::new("/dev/dri").join(name));
        files.extend(cards.filter(|file| is_device(root, file)).take(1));
        let place = bus_place(root, link_name(&device));
        found.push(Gpu { maker: Maker::Amd, files, place });
    }
    found.sort_by(|a, b| a.place.pci.cmp(&b.place.pci));
    found
}

/// What is known of a device file of this machine.
///
/// # Errors
/// If it is none, or one that every process needs.
pub fn device_file(path: &Path) -> Result<DeviceFile, DeviceFileError> {
    let io = |error| DeviceFileError::Io(path.into(), error);
    let real = fs::canonicalize(path).map_err(io)?;
    if real != path {
        return Err(DeviceFileError::Link(path.into(), real));
    }
    let metadata = fs::symlink_metadata(path).map_err(io)?;
    if !metadata.file_type().is_char_device() {
        return Err(DeviceFileError::Other(path.into()));
    }
    let (major, minor) = numbers_of(metadata.rdev());
    if is_common(major, minor) {
        return Err(DeviceFileError::Common(path.into()));
    }
    if let Some(gpu) = gpus().into_iter().find(|gpu| gpu.files.iter().any(|file| file == path)) {
        let (maker, place) = (Some(gpu.maker), gpu.place);
        return Ok(DeviceFile { numbers: (major, minor), maker, place });
    }
    let device = PathBuf::from(format!("/sys/dev/char/{major}:{minor}/device"));
    let vendor = fs::read_to_string(device.join("vendor")).unwrap_or_default();
    let maker = match vendor.trim() {
        "0x1002" => Some(Maker::Amd),
        "0x10de" => Some(Maker::Nvidia),
        "0x8086" if path.starts_with("/dev/dri") => Some(Maker::Intel),
        _ => None,
    };
    let pci = link_name(&device).filter(|name| name.contains(':'));
    Ok(DeviceFile { numbers: (major, minor), maker, place: bus_place(Path::new("/"), pci) })
}

/// The major and minor number of a character device.
///
/// # Errors
/// If there is no such device.
pub fn device_numbers(path: &Path) -> io::Result<(u32, u32)> {
    let metadata = fs::symlink_metadata(path)?;
    match metadata.file_type().is_char_device() {
        true => Ok(numbers_of(metadata.rdev())),
        false => Err(io::Error::other("no character device")),
    }
}

fn numbers_of(rdev: u64) -> (u32, u32) {
    let number = |it: u64| u32::try_from(it).unwrap_or(u32::MAX);
    (number(nix::sys::stat::major(rdev)), number(nix::sys::stat::minor(rdev)))
}

/// Whether every process may need a device: `null`, random numbers, terminals.
const fn is_common(major: u32, minor: u32) -> bool {
    matches!((major, minor), (1, 3 | 8 | 9) | (5, 0 | 2) | (136..=143, _))
}

fn is_device(root: &Path, file: &Path) -> bool {
    let below = root.join(file.strip_prefix("/").unwrap_or(file));
    let metadata = fs::symlink_metadata(below);
    // Elsewhere files stand for devices.
    metadata.is_ok_and(|it| it.file_type().is_char_device() || root != Path::new("/"))
}

/// What the kernel says of a PCI device.
fn bus_place(root: &Path, pci: Option<String>) -> BusPlace {
    let Some(pci) = pci else { return BusPlace::default() };
    let folder = root.join("sys/bus/pci/devices").join(pci.to_ascii_lowercase());
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    // -1 where there is no such node.
    let numa = read("numa_node").trim().parse().ok();
    let processors = match numa {
        Some(_) => parse_list(read("local_cpulist").trim()).unwrap_or_default(),
        None => Vec::new(),
    };
    BusPlace { pci: Some(pci), numa, processors }
}

fn link_name(path: &Path) -> Option<String> {
    let real = fs::canonicalize(path).ok()?;
    real.file_name()?.to_str().map(Into::into)
}

/// The names in a folder, sorted.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// An empty root of all files, which goes with the value.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tutti-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn nothing_is_found_without_drivers_and_files() {
        let root = Root::new("no-gpus");
        assert_eq!(gpus_below(&root.0), []);
        // A driver without its file, and a file without its driver.
        root.file("proc/driver/nvidia/gpus/0000:3b:00.0/information", "Device Minor: \t 0\n");
        root.file("dev/nvidia1", "");
        root.file("dev/dri/renderD128", "");
        assert_eq!(gpus_below(&root.0), []);
    }

    #[test]
    fn gpus_of_nvidia_are_in_the_order_of_their_addresses() {
        let root = Root::new("nvidia");
        for (pci, minor) in [("0000:86:00.0", 0), ("0000:3b:00.0", 1)] {
            let text = format!("Model: \t\t NVIDIA H200\nDevice Minor: \t {minor}\n");
            root.file(&format!("proc/driver/nvidia/gpus/{pci}/information"), &text);
            root.file(&format!("dev/nvidia{minor}"), "");
        }
        root.file("dev/nvidiactl", "");
        root.file("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
        root.file("sys/bus/pci/devices/0000:3b:00.0/local_cpulist", "4-5,8\n");
        root.file("sys/bus/pci/devices/0000:86:00.0/numa_node", "-1\n");
        root.file("sys/bus/pci/devices/0000:86:00.0/local_cpulist", "0-9\n");
        let found = gpus_below(&root.0);
        let files: Vec<&Path> = found.iter().map(|gpu| gpu.files[0].as_path()).collect();
        assert_eq!(files, [Path::new("/dev/nvidia1"), Path::new("/dev/nvidia0")]);
        assert_eq!((found[0].place.numa, &found[0].place.processors), (Some(1), &vec![4, 5, 8]));
        assert_eq!((found[1].place.numa, &found[1].place.processors), (None, &vec![]));
    }

    #[test]
    fn a_gpu_of_amd_has_a_file_to_compute_and_one_to_draw() {
        let root = Root::new("amd");
        let pci = "sys/devices/pci0000:00/0000:03:00.0";
        root.file(&format!("{pci}/drm/card1/dev"), "226:1\n");
        root.file(&format!("{pci}/drm/renderD129/dev"), "226:129\n");
        fs::create_dir_all(root.0.join("sys/bus/pci/drivers/amdgpu")).unwrap();
        symlink(root.0.join("sys/bus/pci/drivers/amdgpu"), root.0.join(pci).join("driver"))
            .unwrap();
        fs::create_dir_all(root.0.join("sys/class/drm/renderD129")).unwrap();
        symlink(root.0.join(pci), root.0.join("sys/class/drm/renderD129/device")).unwrap();
        root.file("dev/dri/renderD129", "");
        root.file("dev/dri/card1", "");
        assert_eq!(gpus_below(&root.0), [], "without /dev/kfd it does not compute");
        root.file("dev/kfd", "");
        let found = gpus_below(&root.0);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].files, [Path::new("/dev/dri/renderD129"), Path::new("/dev/dri/card1")]);
        assert_eq!(found[0].place.pci.as_deref(), Some("0000:03:00.0"));
    }

    #[test]
    fn only_a_character_device_that_not_every_process_needs_is_a_device_file() {
        assert!(matches!(device_file(Path::new("/dev/null")), Err(DeviceFileError::Common(_))));
        assert!(matches!(device_file(Path::new("/etc/passwd")), Err(DeviceFileError::Other(_))));
        assert!(matches!(device_file(Path::new("/nowhere")), Err(DeviceFileError::Io(..))));
        let root = Root::new("links");
        let link = root.0.join("zero");
        symlink("/dev/zero", &link).unwrap();
        assert!(matches!(device_file(&link), Err(DeviceFileError::Link(..))));
        assert_eq!(device_file(Path::new("/dev/zero")).unwrap().numbers, (1, 5));
        assert_eq!(device_numbers(Path::new("/dev/zero")).unwrap(), (1, 5));
    }
}
