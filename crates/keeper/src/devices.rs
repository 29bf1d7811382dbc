//! Devices of a job in its tasks' environment.
//!
//! All GPUs of the job are visible to each of its tasks: libraries of communication need them. CUDA
//! numbers the GPUs that a process can open, by their PCI addresses. So the numbers begin with 0
//! where the others are closed to the job, as they do under Slurm.

use tutti_types::{Device, Maker};
use tutti_wire::launch::{Launch, Share};

/// What a GPU is called.
const GPU: &str = "gpu";

/// The variables that say which GPUs a process sees, and for which maker's.
const VISIBLE: [(&str, Maker); 3] = [
    ("CUDA_VISIBLE_DEVICES", Maker::Nvidia),
    ("ROCR_VISIBLE_DEVICES", Maker::Amd),
    ("ZE_AFFINITY_MASK", Maker::Intel),
];

/// Whether a variable of the submitter's is about GPUs of another place: the node has devices, and
/// jobs are told which are theirs.
pub(super) fn replaces(launch: &Launch, name: &[u8]) -> bool {
    let has_files = |device: &Device| !device.is_counted();
    let has_devices = launch.share.devices.iter().any(has_files) || !launch.share.closed.is_empty();
    has_devices && !launch.id().is_further() && VISIBLE.iter().any(|(it, _)| it.as_bytes() == name)
}

/// The files that what serves a job outside of its group must not open in its name.
pub(super) fn closed_files(share: &Share) -> Vec<String> {
    if !share.is_closed {
        return Vec::new();
    }
    // What serves it does not take turns.
    let own = share.devices.iter().filter(|_| share.in_turns).flat_map(|it| &it.files);
    own.chain(&share.closed).cloned().collect()
}

/// The part that is the same for all tasks of a job on a node.
pub(super) fn of_job(launch: &Launch) -> Vec<(String, String)> {
    let devices = &launch.share.devices;
    let mut all = Vec::new();
    if devices.is_empty() {
        return all;
    }
    let files: Vec<&str> = devices.iter().flat_map(|it| &it.files).map(String::as_str).collect();
    if !files.is_empty() {
        all.push(("TUTTI_DEVICES".to_owned(), files.join(",")));
    }
    let mut names: Vec<_> = devices.iter().map(|device| device.id.name).collect();
    names.dedup();
    for name in names {
        let of_name = devices.iter().filter(|device| device.id.name == name);
        all.push((name.variable(), numbers(of_name)));
    }
    for (variable, maker) in VISIBLE {
        let is_seen = |device: &&Device| {
            device.id.name.as_str() == GPU && device.maker.is_none_or(|it| it == maker)
        };
        let seen = || devices.iter().filter(is_seen);
        let count = seen().count();
        if count == 0 {
            continue;
        }
        let value = match launch.share.is_closed {
            true => (0..count).map(|it| it.to_string()).collect::<Vec<_>>().join(","),
            false => numbers(seen()),
        };
        all.push((variable.to_owned(), value));
        if maker == Maker::Nvidia {
            all.push(("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned()));
        }
    }
    all
}

/// The GPUs of a job in Slurm's words.
pub(super) fn slurm(launch: &Launch) -> Vec<(&'static str, String)> {
    let gpus = || launch.share.devices.iter().filter(|it| it.id.name.as_str() == GPU);
    let count = gpus().count();
    if count == 0 {
        return Vec::new();
    }
    let of_step = if launch.id().is_further() { "SLURM_STEP_GPUS" } else { "SLURM_JOB_GPUS" };
    vec![(of_step, numbers(gpus())), ("SLURM_GPUS_ON_NODE", count.to_string())]
}

fn numbers<'a>(devices: impl Iterator<Item = &'a Device>) -> String {
    devices.map(|device| device.id.number.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::launch;
    use tutti_types::{DeviceId, ResourceName};

    fn device(name: &str, number: u32, maker: Option<Maker>) -> Device {
        let id = DeviceId { name: ResourceName::new(name).unwrap(), number };
        let mut device = Device::named(id, &format!("/dev/{name}{number}")).unwrap();
        device.maker = maker;
        device
    }

    fn found(devices: Vec<Device>, is_closed: bool) -> Vec<String> {
        let mut launch = launch(1, 1, &["true"]);
        launch.share.devices = devices;
        launch.share.is_closed = is_closed;
        of_job(&launch).into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn a_job_finds_its_devices_and_which_of_them_cuda_sees() {
        assert_eq!(found(Vec::new(), true), [] as [String; 0]);
        let nvidia = |number| device("gpu", number, Some(Maker::Nvidia));
        let open = [
            "TUTTI_DEVICES=/dev/gpu1,/dev/gpu3",
            "TUTTI_RESOURCE_GPU=1,3",
            "CUDA_VISIBLE_DEVICES=1,3",
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        ];
        assert_eq!(found(vec![nvidia(1), nvidia(3)], false), open);
        let closed = found(vec![nvidia(1), nvidia(3)], true);
        assert_eq!(closed[2], "CUDA_VISIBLE_DEVICES=0,1", "it sees no others");
        let amd = found(vec![device("gpu", 2, Some(Maker::Amd))], false);
        assert_eq!(amd[2..], ["ROCR_VISIBLE_DEVICES=2"]);
        let other = found(vec![device("fpga", 0, None)], true);
        assert_eq!(other, ["TUTTI_DEVICES=/dev/fpga0", "TUTTI_RESOURCE_FPGA=0"]);
    }
}
