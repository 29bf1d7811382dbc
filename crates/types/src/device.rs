//! Devices: numbers of a resource that belongs to one node, each with files under `/dev`.
//!
//! What a node has several of without files, such as scratch disks, is counted in the same way:
//! such a device has a number only.
//!
//! An agent finds the devices of its node, or an administrator names them. A job asks for so many
//! of a name ([`crate::resource::Amount::OnNodes`]) and gets particular ones.

use crate::ids::ProcessorSet;
use crate::limits::{DEVICE_FILES_MAX, DEVICE_PATH_BYTES_MAX, RESOURCE_COUNT_MAX};
use crate::resource::{ResourceError, ResourceName};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A device's name on its node, such as `gpu:0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId {
    /// What it is.
    pub name: ResourceName,
    /// Its number among those of the name.
    pub number: u32,
}

/// A device of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub id: DeviceId,
    /// The paths of its files: character devices. The first is the one that names it. There are
    /// none if it is only counted.
    pub files: Vec<String>,
    /// Its maker, if it is known to be a GPU.
    pub maker: Option<Maker>,
    /// Its address on the PCI bus, such as `0000:3b:00.0`, if that is known.
    pub pci: Option<String>,
    /// Its NUMA node, if that is known.
    pub numa: Option<u32>,
    /// The processors of that NUMA node; empty where it is unknown.
    pub near: ProcessorSet,
}

/// A maker of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Maker {
    /// AMD.
    Amd,
    /// Intel.
    Intel,
    /// NVIDIA.
    Nvidia,
}

/// Why a text names no device, or no files of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The name of the resource is none.
    #[error(transparent)]
    Name(#[from] ResourceError),
    /// What follows the name is no number.
    #[error(
        "invalid device {0:?}: write NAME:NUMBER with a number below {RESOURCE_COUNT_MAX}, such as \
         gpu:0"
    )]
    Number(String),
    /// A path that is too long, not absolute, or has other parts than names.
    #[error(
        "invalid device file {0:?}: write its absolute path without '..', at most \
         {DEVICE_PATH_BYTES_MAX} bytes, such as /dev/nvidia0"
    )]
    Path(String),
    /// A name that the Container Device Interface could not have.
    #[error(
        "invalid device {0:?}: write VENDOR/CLASS=NAME, such as nvidia.com/gpu=0, or a path such as \
         /dev/nvidia0"
    )]
    Cdi(String),
    /// More files than a device may have.
    #[error("{0} has {1} files; a device may have at most {DEVICE_FILES_MAX}")]
    Files(DeviceId, usize),
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.number)
    }
}

impl core::str::FromStr for DeviceId {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let wrong = || DeviceError::Number(text.chars().take(64).collect());
        let (name, number) = text.split_once(':').ok_or_else(wrong)?;
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|&number| digits && number < RESOURCE_COUNT_MAX);
        Ok(Self { name: ResourceName::new(name)?, number: number.ok_or_else(wrong)? })
    }
}

impl Device {
    /// A number of a resource that a node has without files.
    #[must_use]
    pub const fn counted(id: DeviceId) -> Self {
        let near = ProcessorSet::new();
        Self { id, files: Vec::new(), maker: None, pci: None, numa: None, near }
    }

    /// Whether it has no files.
    #[must_use]
    pub const fn is_counted(&self) -> bool {
        self.files.is_empty()
    }

    /// A device with these files, separated by `+`, or with its name in the Container Device
    /// Interface; of which nothing more is known.
    ///
    /// # Errors
    /// If there are too many, or one of the paths or the name could not be a device's.
    pub fn named(id: DeviceId, files: &str) -> Result<Self, DeviceError> {
        let device = Self::counted(id);
        if !files.starts_with('/') && files.contains('=') {
            return match is_cdi_name(files) {
                true => Ok(Self { files: [files.into()].into(), ..device }),
                false => Err(DeviceError::Cdi(files.chars().take(64).collect())),
            };
        }
        device.with_files(files.split('+').map(Into::into).collect())
    }

    /// The same device, with other files.
    ///
    /// # Errors
    /// If there are too many, or one of the paths could not be a device's.
    pub fn with_files(&self, files: Vec<String>) -> Result<Self, DeviceError> {
        if files.len() > DEVICE_FILES_MAX {
            return Err(DeviceError::Files(self.id, files.len()));
        }
        if let Some(wrong) = files.iter().find(|path| !is_proper(path)) {
            return Err(DeviceError::Path(wrong.chars().take(64).collect()));
        }
        Ok(Self { files, ..self.clone() })
    }

    /// Its name in the Container Device Interface, if it has that instead of files: its node has
    /// the files.
    #[must_use]
    pub fn cdi(&self) -> Option<&str> {
        match &self.files[..] {
            [name] if is_cdi_name(name) => Some(name),
            _ => None,
        }
    }

    /// Whether its name, number and files are such as may be.
    #[must_use]
    pub fn is_proper(&self) -> bool {
        let pci = self.pci.as_ref().is_none_or(|pci| pci.len() <= 32);
        self.id.number < RESOURCE_COUNT_MAX
            && self.files.len() <= DEVICE_FILES_MAX
            && self.files.iter().all(|path| is_proper(path))
            && pci
    }
}

/// Whether a text is `VENDOR/CLASS=NAME`, as the Container Device Interface has it.
fn is_cdi_name(text: &str) -> bool {
    let part = |part: &str, more: &[u8]| {
        let may = |byte: u8| {
            byte.is_ascii_alphanumeric() || b"_-.".contains(&byte) || more.contains(&byte)
        };
        part.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
            && part.bytes().all(may)
    };
    let Some((kind, name)) = text.split_once('=') else { return false };
    let Some((vendor, class)) = kind.split_once('/') else { return false };
    text.len() <= DEVICE_PATH_BYTES_MAX && part(vendor, b"") && part(class, b"") && part(name, b":")
}

/// Whether a path is absolute, short, in printable ASCII, and each of its parts is a name.
fn is_proper(path: &str) -> bool {
    let mut parts = path.split('/');
    let printable = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
    printable && path.len() <= DEVICE_PATH_BYTES_MAX && parts.next() == Some("") && {
        let mut names = parts.peekable();
        names.peek().is_some() && names.all(is_name)
    }
}

#[cfg(test)]
mod tests {
    use super::{Device, DeviceId};
    use alloc::string::ToString;

    #[test]
    fn a_device_is_a_name_with_a_number() {
        let id: DeviceId = "gpu:3".parse().unwrap();
        assert_eq!((id.name.as_str(), id.number, id.to_string()), ("gpu", 3, "gpu:3".into()));
        for text in ["", "gpu", "gpu:", "gpu:-1", "gpu:+1", "gpu:1024", "GPU:1", "gpu:1:2"] {
            assert!(text.parse::<DeviceId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_files_of_a_device_are_plain_absolute_paths() {
        let id: DeviceId = "gpu:0".parse().unwrap();
        let device = Device::named(id, "/dev/dri/renderD128+/dev/dri/card0").unwrap();
        assert_eq!(device.files, ["/dev/dri/renderD128", "/dev/dri/card0"]);
        assert!(device.is_proper());
        let long = alloc::format!("/{}", "x".repeat(300));
        let paths =
            ["", "/", "dev/x", "/dev/../x", "/dev//x", "/dev/x/", "/a b", "/a\n", "/a,b", &long];
        for path in paths {
            assert!(Device::named(id, path).is_err(), "{path:?}");
        }
        assert!(Device::named(id, "/a+/b+/c+/d+/e").is_err());
    }
}
