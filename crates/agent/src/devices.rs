//! Devices of the node: what is found when the agent starts, and files that an administrator names.

mod awaited;
mod cdi;
mod known;

pub(super) use awaited::Awaited;

use super::driver::Agent;
use known::Known;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use tracing::warn;
use tutti_linux::device_control::Gate;
use tutti_linux::devices::{BusPlace, DeviceFile, Gpu, Maker as Found, device_file};
use tutti_node::platform::groups::Cgroup;
use tutti_node::platform::hardware;
use tutti_types::limits::{DEVICE_FILES_MAX, DEVICES_PER_NODE_MAX, PROCESSORS_PER_NODE_MAX};
use tutti_types::{Device, DeviceId, JobId, Maker, ResourceName};
use tutti_wire::code::Code;
use tutti_wire::launch::Share;
use tutti_wire::tree::Answer;

/// The GPUs of this node, numbered in the order in which they are found.
pub(super) fn find() -> Vec<Device> {
    let Ok(name) = ResourceName::new("gpu") else { return Vec::new() };
    let found = hardware::gpus().into_iter().take(DEVICES_PER_NODE_MAX);
    let device = |(number, gpu): (u32, Gpu)| {
        let files = gpu.files.iter().filter_map(|file| file.to_str());
        let files = files.take(DEVICE_FILES_MAX).map(Into::into).collect();
        let id = DeviceId { name, number };
        at(Device { id, files, ..Device::counted(id) }, Some(gpu.maker), gpu.place)
    };
    let devices = (0..).zip(found).map(device);
    devices.filter(|device| device.is_proper() && !device.is_counted()).collect()
}

impl Agent {
    /// What named devices are. Each file is a device of its own. New ones are closed to the jobs
    /// that are here.
    pub(super) fn look_at(&self, devices: &[Device], others: &[Device]) -> Answer {
        let devices = match look(devices, others) {
            Ok(devices) => devices,
            Err(reason) => return Answer::Failed(reason),
        };
        let files = |of: &[Device]| numbers(of.iter().flat_map(|it| &it.files).map(String::as_str));
        // Those of the others are named to be remembered.
        let (_, closed) = (files(others), files(&devices));
        for (id, job) in &self.jobs {
            if let Some(group) = job.group.as_ref().filter(|_| !job.tasks.are_cleared())
                && let Err(error) = group.close_devices(&closed)
            {
                warn!(code = %Code::GoesWithout, "job {id} can open new devices: {error}");
            }
        }
        Answer::Devices(devices)
    }
}

/// Closes the devices of a node to a job that begins there, but for its own. Those that it has in
/// turns are behind a gate, which is closed. Whether the others are closed, and the gate; nothing
/// is done where there are none.
pub(super) fn close(job: JobId, group: Option<&Cgroup>, share: &Share) -> (bool, Option<Gate>) {
    let has_turns = share.in_turns && share.devices.iter().any(|it| !it.is_counted());
    let Some(group) = group.filter(|_| has_turns || !share.closed.is_empty()) else {
        return (false, None);
    };
    let own = numbers(share.devices.iter().flat_map(|it| &it.files).map(String::as_str));
    let mut closed = numbers(share.closed.iter().map(String::as_str));
    closed.retain(|numbers| !own.contains(numbers));
    if has_turns {
        match group.close_devices_by_gate(&closed, &own) {
            Ok(gate) => return (true, Some(gate)),
            Err(error) => {
                let what = "can open its devices while another has its turn with them";
                warn!(code = %Code::GoesWithout, "job {job} {what}: {error}");
            }
        }
    }
    let done = group.close_devices(&closed);
    if let Err(error) = &done {
        warn!(code = %Code::GoesWithout, "job {job} can open devices of others: {error}");
    }
    (done.is_ok(), None)
}

/// Closes all devices of a node to what serves the tasks of a job in the turns of others.
pub(super) fn close_all(job: JobId, group: &Cgroup, share: &Share) {
    let own = share.devices.iter().flat_map(|it| &it.files);
    let closed = numbers(own.chain(&share.closed).map(String::as_str));
    if !closed.is_empty()
        && let Err(error) = group.close_devices(&closed)
    {
        warn!(code = %Code::GoesWithout, "what serves job {job} can open devices: {error}");
    }
}

/// The gate of a job that an earlier agent has launched, if it has devices in turns.
pub(super) fn gate_again(job: JobId, group: Option<&Cgroup>) -> Option<Gate> {
    let found = group?.device_gate();
    found.unwrap_or_else(|error| {
        let what = "may keep its devices closed, or open out of its turns";
        warn!(code = %Code::GoesWithout, "job {job} {what}: {error}");
        None
    })
}

/// The numbers of device files, as far as they are there, or were.
fn numbers<'a>(files: impl Iterator<Item = &'a str>) -> Vec<(u32, u32)> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).numbers(files, look_up)
}

/// Those of these files, which were looked for just now, that were not there before either.
fn never_seen(files: &[String]) -> Vec<String> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    files.iter().filter(|file| !known.files.contains_key(*file)).cloned().collect()
}

/// The numbers of a device file that is there.
fn look_up(file: &str) -> Option<(u32, u32)> {
    tutti_linux::devices::device_numbers(Path::new(file)).ok()
}

/// The device files that have other numbers than before, with these.
fn renumbered() -> BTreeMap<String, (u32, u32)> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).renumbered(look_up)
}

static KNOWN: Mutex<Known> =
    Mutex::new(Known { files: BTreeMap::new(), calls: 0, changed: BTreeMap::new() });

fn look(devices: &[Device], others: &[Device]) -> Result<Vec<Device>, String> {
    let mut known: Vec<(DeviceId, (u32, u32))> = Vec::new();
    for device in others {
        known
            .extend(device.files.iter().filter_map(|file| look_up(file)).map(|it| (device.id, it)));
    }
    let mut all = Vec::with_capacity(devices.len());
    for asked in devices {
        let device = match asked.cdi() {
            Some(name) => asked.with_files(cdi::files(name)?).map_err(|error| error.to_string())?,
            None if asked.is_proper() && !asked.is_counted() => asked.clone(),
            None => continue,
        };
        let mut first: Option<DeviceFile> = None;
        for path in &device.files {
            let file = device_file(Path::new(path)).map_err(|error| error.to_string())?;
            let (major, minor) = file.numbers;
            if let Some((other, _)) = known.iter().find(|(_, numbers)| *numbers == file.numbers) {
                return Err(format!(
                    "{path} is device {major}:{minor}, as is a file of {other}; a device can't be \
                     two"
                ));
            }
            known.push((device.id, file.numbers));
            first = first.or(Some(file));
        }
        let Some(DeviceFile { maker, place, .. }) = first else { continue };
        all.push(at(device, maker, place));
    }
    Ok(all)
}

/// The device with what the kernel says of it.
fn at(device: Device, maker: Option<Found>, place: BusPlace) -> Device {
    let maker = maker.map(|maker| match maker {
        Found::Amd => Maker::Amd,
        Found::Intel => Maker::Intel,
        Found::Nvidia => Maker::Nvidia,
    });
    let near = place.processors.into_iter().filter(|&it| it < PROCESSORS_PER_NODE_MAX).collect();
    Device { maker, pci: place.pci, numa: place.numa, near, ..device }
}
