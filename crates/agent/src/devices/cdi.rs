//! Device files by names of the Container Device Interface (CDI), such as `nvidia.com/gpu=0`.
//!
//! Drivers describe their devices in files below `/etc/cdi` and `/var/run/cdi`, in JSON or YAML. Of
//! a device only its own files count here: what all devices of a kind share, as `/dev/nvidiactl`,
//! stays open to all jobs. Mounts, hooks and variables are for containers.

use saphyr::{LoadableYamlNode, Yaml};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where descriptions are: what the first folder has counts more.
const FOLDERS: [&str; 2] = ["/var/run/cdi", "/etc/cdi"];

/// A longer file is not read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// More files of a folder are not looked at.
const FILES_MAX: usize = 256;

/// Names that a message lists at most.
const SHOWN_MAX: usize = 16;

/// The files of a device, by its whole name.
///
/// # Errors
/// If no description has it, two of a folder do, or one can't be read.
pub(super) fn files(name: &str) -> Result<Vec<String>, String> {
    files_in(&FOLDERS.map(Path::new), name)
}

fn files_in(folders: &[&Path], name: &str) -> Result<Vec<String>, String> {
    let (kind, device) = name.split_once('=').unwrap_or((name, ""));
    let (mut known, mut unreadable) = (Vec::new(), Vec::new());
    for folder in folders {
        let mut found: Option<(PathBuf, Vec<String>)> = None;
        for path in descriptions(folder) {
            let devices = match devices_of_kind(&path, kind) {
                Ok(devices) => devices,
                Err(reason) => {
                    unreadable.push(format!("{} can't be read: {reason}", path.display()));
                    continue;
                }
            };
            for (its_name, files) in devices {
                if its_name != device {
                    known.push(format!("{kind}={its_name}"));
                } else if let Some((other, _)) = &found {
                    let (other, path) = (other.display(), path.display());
                    return Err(format!("{other} and {path} both have {name}"));
                } else {
                    found = Some((path.clone(), files));
                }
            }
        }
        match found {
            Some((path, files)) if files.is_empty() => {
                return Err(format!("{} names no device file of {name}", path.display()));
            }
            Some((_, files)) => return Ok(files),
            None => {}
        }
    }
    let folders: Vec<String> = folders.iter().map(|it| it.display().to_string()).collect();
    let mut reason = format!("{name} is in no file of {}", folders.join(" and "));
    known.truncate(SHOWN_MAX);
    if !known.is_empty() {
        reason += &format!("; there are {}", known.join(", "));
    }
    unreadable.truncate(1);
    Err(std::iter::once(reason).chain(unreadable).collect::<Vec<String>>().join("; "))
}

/// The description files of a folder, sorted.
fn descriptions(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "json" || extension == "yaml")
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_one).collect();
    paths.sort();
    paths.truncate(FILES_MAX);
    paths
}

/// The devices of a description, with their files, if it is of this kind.
fn devices_of_kind(path: &Path, kind: &str) -> Result<Vec<(String, Vec<String>)>, String> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let size = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    if size.map_err(|error| error.to_string())? as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    // JSON is YAML.
    let documents = Yaml::load_from_str(&text).map_err(|error| error.to_string())?;
    let Some(description) = documents.first() else { return Ok(Vec::new()) };
    let of = |yaml: &Yaml<'_>, name: &str| {
        yaml.as_mapping_get(name).and_then(Yaml::as_str).map(ToOwned::to_owned)
    };
    if of(description, "kind").as_deref() != Some(kind) {
        return Ok(Vec::new());
    }
    let mut devices = Vec::new();
    for device in items(description.as_mapping_get("devices")) {
        // A number is a name, too, where it has no quotes.
        let name = device.as_mapping_get("name").and_then(|name| match name.as_integer() {
            Some(number) => Some(number.to_string()),
            None => name.as_str().map(ToOwned::to_owned),
        });
        let edits = device.as_mapping_get("containerEdits");
        let nodes = items(edits.and_then(|edits| edits.as_mapping_get("deviceNodes")));
        let files = nodes.filter_map(|node| of(node, "hostPath").or_else(|| of(node, "path")));
        devices.extend(name.map(|name| (name, files.collect())));
    }
    Ok(devices)
}

/// What a list has; nothing, if there is no list.
fn items<'a, 'b>(yaml: Option<&'a Yaml<'b>>) -> impl Iterator<Item = &'a Yaml<'b>> {
    yaml.and_then(Yaml::as_sequence).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::files_in;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Two folders, which go with the value.
    struct Folders([PathBuf; 2]);

    impl Folders {
        fn new(name: &str) -> Self {
            let root =
                std::env::temp_dir().join(format!("tutti-cdi-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            let folders = ["run", "etc"].map(|folder| root.join(folder));
            for folder in &folders {
                fs::create_dir_all(folder).unwrap();
            }
            Self(folders)
        }

        fn files(&self, name: &str) -> Result<Vec<String>, String> {
            files_in(&self.0.each_ref().map(PathBuf::as_path), name)
        }

        fn write(folder: &Path, name: &str, text: &str) {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    impl Drop for Folders {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0[0].parent().unwrap());
        }
    }

    /// As `nvidia-ctk cdi generate` writes it, shortened.
    const NVIDIA: &str = "---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/dri/card1
    - hostPath: /dev/dri/renderD128
      path: /dev/dri/renderD0
  name: \"0\"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: GPU-8dba89a7
- name: 2
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
";

    #[test]
    fn a_device_has_its_own_files_by_their_paths_on_the_host() {
        let folders = Folders::new("own");
        Folders::write(&folders.0[1], "nvidia.yaml", NVIDIA);
        let own = ["/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD128"].map(String::from);
        assert_eq!(folders.files("nvidia.com/gpu=0"), Ok(own.to_vec()));
        let named = folders.files("nvidia.com/gpu=GPU-8dba89a7");
        assert_eq!(named, Ok(vec!["/dev/nvidia1".into()]));
        let without = folders.files("nvidia.com/gpu=2").unwrap_err();
        assert!(without.contains("names no device file"), "{without}");
        let missing = folders.files("nvidia.com/gpu=7").unwrap_err();
        assert!(missing.contains("there are nvidia.com/gpu=0, nvidia.com/gpu=GPU-"), "{missing}");
    }

    #[test]
    fn the_folder_of_what_runs_counts_more_and_two_in_one_are_wrong() {
        let folders = Folders::new("two");
        let json = |file: &str| {
            format!(
                "{{\"cdiVersion\": \"0.6.0\", \"kind\": \"acme.com/fpga\", \"devices\": [{{\"name\": \"a\", \
                 \"containerEdits\": {{\"deviceNodes\": [{{\"path\": \"{file}\"}}]}}}}]}}"
            )
        };
        Folders::write(&folders.0[1], "acme.json", &json("/dev/old"));
        Folders::write(&folders.0[0], "acme.json", &json("/dev/new"));
        assert_eq!(folders.files("acme.com/fpga=a"), Ok(vec!["/dev/new".into()]));
        Folders::write(&folders.0[0], "acme2.json", &json("/dev/other"));
        assert!(folders.files("acme.com/fpga=a").unwrap_err().contains("both have"));
    }

    #[test]
    fn what_can_t_be_read_is_named_and_the_rest_counts() {
        let folders = Folders::new("bad");
        Folders::write(&folders.0[1], "a.yaml", "kind: [\n");
        Folders::write(&folders.0[1], "b.yaml", NVIDIA);
        Folders::write(&folders.0[1], "c.txt", NVIDIA);
        assert!(folders.files("nvidia.com/gpu=0").is_ok());
        let said = folders.files("acme.com/fpga=a").unwrap_err();
        assert!(said.contains("a.yaml can't be read"), "{said}");
        for odd in ["", "[]", "kind: nvidia.com/gpu", "kind: nvidia.com/gpu\ndevices: 3", "- - -"] {
            Folders::write(&folders.0[1], "b.yaml", odd);
            assert!(folders.files("nvidia.com/gpu=0").is_err(), "{odd}");
        }
    }
}
