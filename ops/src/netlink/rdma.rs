//! The network devices that can do RDMA.
//!
//! The kernel shows them as files: `infiniband/DEVICE/ports/PORT/gid_attrs/ndevs/INDEX` holds the
//! name of the network device behind a GID, VLANs and bonds included. The GID of an iWARP device is
//! the link-layer address of its network device, and some kernels identify that device in no other
//! way. A software RNIC in user space has no such files; the program that opens one marks its
//! device. The kernel's own software devices (`rdma_rxe`, `siw`) are virtual devices to it: the
//! name of the RDMA device is a link into `devices/virtual`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

/// The directory of RDMA devices.
const CLASS: &str = "/sys/class/infiniband";

/// The directory of network devices.
const NET_CLASS: &str = "/sys/class/net";

/// The number of consecutive GIDs without a network device after which the table has no more. The
/// kernel adds a GID at the first free index, so only removed addresses leave such gaps. `rdma_rxe`
/// has 1,024 indices, and reading one that is free takes three system calls.
const GID_GAP_MAX: usize = 64;

/// The maximum length of a file's content, in bytes.
const TEXT_LEN_MAX: usize = 64;

/// A port of an RDMA device, behind one of its network devices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RdmaPort {
    /// Name of the network device.
    pub network_device: String,
    /// Name of the RDMA device, such as `mlx5_0`.
    pub device: String,
    /// Port number, from 1.
    pub port: u8,
    /// True if the port is active now.
    pub active: bool,
    /// True for an iWARP device, false for InfiniBand and RoCE.
    pub is_iwarp: bool,
    /// True if the kernel's processor does the work of the device (`rdma_rxe`, `siw`).
    pub is_software: bool,
}

/// RDMA ports by network device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RdmaDevices {
    ports: BTreeMap<String, BTreeSet<RdmaPort>>,
    marked: BTreeSet<String>,
}

impl RdmaDevices {
    /// Reads the devices that the kernel shows now. A machine without RDMA devices is no error.
    #[must_use]
    pub fn read() -> Self {
        Self::read_below(Path::new(CLASS), Path::new(NET_CLASS))
    }

    pub(super) fn read_below(class: &Path, net_class: &Path) -> Self {
        let mut devices = Self::default();
        for device in names(class) {
            let node_type = text(&class.join(&device).join("node_type"));
            let is_iwarp = node_type.is_some_and(|text| text.contains("RNIC"));
            let is_software = is_virtual(&class.join(&device));
            let ports = class.join(&device).join("ports");
            for port in names(&ports) {
                let path = ports.join(&port);
                let Ok(number) = port.parse() else { continue };
                let active =
                    text(&path.join("state")).is_some_and(|state| state.contains("ACTIVE"));
                let mut behind = network_devices(&class.join(&device), &path);
                if behind.is_empty() && is_iwarp {
                    behind = with_address_of_gid(&path, net_class);
                }
                for network_device in behind {
                    let found = RdmaPort {
                        network_device: network_device.clone(),
                        device: device.clone(),
                        port: number,
                        active,
                        is_iwarp,
                        is_software,
                    };
                    let ports = devices.ports.entry(network_device).or_default();
                    ports.insert(found);
                }
            }
        }
        devices
    }

    /// Marks a network device that a software RNIC uses.
    pub fn mark(&mut self, network_device: &str) {
        self.marked.insert(network_device.to_owned());
    }

    /// Returns these devices with the marks of `other`.
    pub(super) fn with_marks_of(mut self, other: &Self) -> Self {
        self.marked.clone_from(&other.marked);
        self
    }

    /// True if traffic through this network device can use RDMA now.
    #[must_use]
    pub fn can(&self, network_device: &str) -> bool {
        self.marked.contains(network_device)
            || self.ports_of(network_device).any(|port| port.active)
    }

    /// Returns the RDMA ports behind a network device, inactive ones included.
    pub fn ports_of(&self, network_device: &str) -> impl Iterator<Item = &RdmaPort> {
        self.ports.get(network_device).into_iter().flatten()
    }

    /// Returns the active RDMA ports behind a network device, or behind all with `None`.
    #[must_use]
    pub fn active_ports(&self, network_device: Option<&str>) -> Vec<RdmaPort> {
        let wanted = |name: &str| network_device.is_none_or(|wanted| wanted == name);
        let ports = self.ports.iter().filter(|(name, _)| wanted(name));
        let ports = ports.flat_map(|(_, ports)| ports);
        ports.filter(|port| port.active).cloned().collect()
    }

    /// Returns the names of network devices with an RDMA port or a mark.
    pub fn network_devices(&self) -> impl Iterator<Item = &str> {
        let names: BTreeSet<&str> = self
            .ports
            .keys()
            .chain(&self.marked)
            .map(String::as_str)
            .collect();
        names.into_iter()
    }
}

/// Returns the network devices behind a port: those of its GIDs, or, if no GID has one, those of
/// the same hardware.
fn network_devices(device: &Path, port: &Path) -> BTreeSet<String> {
    let gids = port.join("gid_attrs/ndevs");
    let mut found = BTreeSet::new();
    let mut gap = 0;
    for index in 0_u32.. {
        if let Some(name) = text(&gids.join(index.to_string())) {
            found.insert(name);
            gap = 0;
        } else {
            gap += 1;
        }
        if gap == GID_GAP_MAX {
            break;
        }
    }
    if found.is_empty() {
        return names(&device.join("device/net")).into_iter().collect();
    }
    found
}

/// Returns the network devices whose link-layer address is in the first GID of an iWARP port.
fn with_address_of_gid(port: &Path, net_class: &Path) -> BTreeSet<String> {
    let gid = text(&port.join("gids/0")).unwrap_or_default();
    let digits: String = gid.chars().filter(|it| *it != ':').take(12).collect();
    let has_it = |name: &String| {
        let address = text(&net_class.join(name).join("address")).unwrap_or_default();
        !digits.bytes().all(|digit| digit == b'0') && address.replace(':', "") == digits
    };
    names(net_class).into_iter().filter(has_it).collect()
}

/// Returns true for a device without hardware: the link of its class leads to the kernel's virtual
/// devices.
fn is_virtual(device: &Path) -> bool {
    let target = rustix::fs::readlink(device, Vec::new()).ok();
    let target = target.as_ref().and_then(|target| target.to_str().ok());
    target.is_some_and(|target| target.split('/').any(|part| part == "virtual"))
}

/// Returns the names in a directory, sorted; none if the directory does not exist.
fn names(path: &Path) -> Vec<String> {
    let open = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::new(directory)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && !name.starts_with('.')
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok::<_, Errno>(names)
    };
    open().unwrap_or_default()
}

/// Reads a short file without its line end. Reading a GID that is not set fails.
fn text(path: &PathBuf) -> Option<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = [0; TEXT_LEN_MAX];
    let len = rustix::io::read(&file, &mut bytes).ok()?;
    let text = std::str::from_utf8(&bytes[..len]).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use stack_tests::{rows, tree};

    use super::*;

    #[test]
    fn network_devices_are_those_of_the_gids() {
        let dir = tree(&[
            ("mlx5_0/ports/1/state", "4: ACTIVE\n"),
            ("mlx5_0/ports/1/gid_attrs/ndevs/0", "eth1\n"),
            ("mlx5_0/ports/1/gid_attrs/ndevs/1", "eth1\n"),
            ("mlx5_0/ports/1/gid_attrs/ndevs/2", "eth1.7\n"),
            ("mlx5_0/ports/1/gid_attrs/ndevs/3", ""),
            ("mlx5_0/device/net/other/mtu", ""),
            ("mlx5_1/ports/1/state", "1: DOWN\n"),
            ("mlx5_1/ports/1/gid_attrs/ndevs/0", "eth2\n"),
        ])
        .unwrap();
        let devices = RdmaDevices::read_below(dir.path(), &dir.path().join("net"));
        let names: Vec<&str> = devices.network_devices().collect();
        assert_eq!(names, ["eth1", "eth1.7", "eth2"]);
        let active = |name| {
            let ports = devices.active_ports(name);
            let names = ports.into_iter().map(|port| port.network_device);
            names.collect::<Vec<_>>()
        };
        assert_eq!(active(None), ["eth1", "eth1.7"]);
        assert_eq!(active(Some("eth1.7")), ["eth1.7"]);
        assert!(active(Some("eth2")).is_empty() && active(Some("eth")).is_empty());
        assert!(devices.can("eth1.7") && !devices.can("eth2") && !devices.can("other"));
        let ports: Vec<_> = devices.ports_of("eth2").collect();
        assert_eq!(
            (ports[0].device.as_str(), ports[0].port, ports[0].active),
            ("mlx5_1", 1, false)
        );
    }

    #[test]
    fn a_table_of_gids_is_read_up_to_a_long_gap() {
        let last = GID_GAP_MAX + 1;
        let files: Vec<(String, &str)> = (0..=2 * last)
            .map(|index| match index {
                0 => "eth0\n",
                _ if index == GID_GAP_MAX => "eth0.1\n",
                _ if index == 2 * last => "never read\n",
                _ => "",
            })
            .enumerate()
            .map(|(index, name)| (format!("a/ports/1/gid_attrs/ndevs/{index}"), name))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, name)| (&**path, *name)).collect();
        let dir = tree(&files).unwrap();
        let devices = RdmaDevices::read_below(dir.path(), &dir.path().join("net"));
        let names: Vec<&str> = devices.network_devices().collect();
        assert_eq!(names, ["eth0", "eth0.1"]);
    }

    #[test]
    fn a_device_below_virtual_is_software() {
        let dir = tree(&rows! {
            "devices/pci0000:00/mlx5_0/ports/1/state", "4: ACTIVE\n";
            "devices/pci0000:00/mlx5_0/device/net/eth0/mtu", "";
            "devices/virtual/infiniband/rxe0/ports/1/state", "4: ACTIVE\n";
            "devices/virtual/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth0\n";
        })
        .unwrap();
        let class = dir.path().join("class/infiniband");
        fs::create_dir_all(&class).unwrap();
        for name in ["pci0000:00/mlx5_0", "virtual/infiniband/rxe0"] {
            let link = class.join(Path::new(name).file_name().unwrap());
            std::os::unix::fs::symlink(format!("../../devices/{name}"), link).unwrap();
        }
        let devices = RdmaDevices::read_below(&class, &dir.path().join("net"));
        let found = devices.active_ports(Some("eth0")).into_iter();
        let found: Vec<_> = found.map(|port| (port.device, port.is_software)).collect();
        assert_eq!(
            found,
            [("mlx5_0".to_owned(), false), ("rxe0".to_owned(), true)]
        );
    }

    #[test]
    fn a_device_without_gids_is_that_of_its_hardware() {
        let dir = tree(&[
            ("siw0/node_type", "4: RNIC\n"),
            ("siw0/ports/1/state", "4: ACTIVE\n"),
            ("siw0/device/net/eth0/mtu", ""),
        ])
        .unwrap();
        let devices = RdmaDevices::read_below(dir.path(), &dir.path().join("net"));
        assert!(devices.can("eth0"));
        assert!(devices.active_ports(None)[0].is_iwarp);
    }

    #[test]
    fn an_iwarp_device_is_that_of_the_link_layer_address_in_its_gid() {
        let dir = tree(&rows! {
            "siw0/node_type", "4: RNIC\n";
            "siw0/ports/1/state", "4: ACTIVE\n";
            "siw0/ports/1/gids/0", "5254:0012:3456:0000:0000:0000:0000:0000\n";
            "siw1/node_type", "4: RNIC\n";
            "siw1/ports/1/state", "4: ACTIVE\n";
            "siw1/ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n";
            "net/eth0/address", "52:54:00:12:34:57\n";
            "net/eth1/address", "52:54:00:12:34:56\n";
            "net/lo/address", "00:00:00:00:00:00\n";
        })
        .unwrap();
        let devices = RdmaDevices::read_below(dir.path(), &dir.path().join("net"));
        let names: Vec<&str> = devices.network_devices().collect();
        assert_eq!(names, ["eth1"]);
    }

    #[test]
    fn odd_files_are_ignored() {
        let dir = tree(&[
            ("a", "a file where a directory should be"),
            ("b/ports/none/state", "4: ACTIVE"),
            ("c/ports/1/gid_attrs/ndevs/0", "\u{fffd}\n"),
            ("d/ports", "a file"),
        ])
        .unwrap();
        fs::write(dir.path().join("c/ports/1/gid_attrs/ndevs/1"), [0xff, 0xfe]).unwrap();
        let devices = RdmaDevices::read_below(dir.path(), &dir.path().join("net"));
        assert_eq!(devices.network_devices().collect::<Vec<_>>(), ["\u{fffd}"]);
        let nothing = RdmaDevices::read_below(Path::new("/nonexistent"), Path::new("/nonexistent"));
        assert_eq!(nothing, RdmaDevices::default());
    }

    #[test]
    fn a_software_rnic_marks_its_device() {
        let mut devices = RdmaDevices::default();
        assert!(!devices.can("eth0"));
        devices.mark("eth0");
        assert!(devices.can("eth0"));
        assert!(RdmaDevices::default().with_marks_of(&devices).can("eth0"));
    }
}
