//! RDMA devices: the files through which programs use them, and their lines in the registry file.

use std::io;
use std::path::Path;

use nix::ifaddrs::getifaddrs;

use super::host::Host;
use super::item::Item;
use crate::lines::Line;

const SUBJECT: &str = "devices";

/// The directory of RDMA devices.
const CLASS: &str = "sys/class/infiniband";
/// The directory of the device files that verbs programs open.
const VERBS_CLASS: &str = "sys/class/infiniband_verbs";
/// The directory of the device files.
const FILES: &str = "dev/infiniband";

/// The provider for software iWARP, which uses no RDMA device.
const SOFTWARE_PROVIDER: &str = "libdapl-iwarp.so";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    /// The names of its network devices.
    net_devices: Vec<String>,
    /// The addresses of these network devices.
    addresses: Vec<String>,
}

#[cfg(test)]
impl Device {
    pub(super) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }
}

/// Reads the RDMA devices of the host.
pub(super) fn read(host: &Host) -> Vec<Device> {
    let devices = host.names(CLASS).into_iter();
    devices
        .map(|name| {
            let net_devices = net_devices(host, &name);
            Device {
                addresses: addresses(&net_devices),
                net_devices,
                name,
            }
        })
        .collect()
}

/// Returns the network devices of an RDMA device: those of its GIDs, of its bus device, and the one
/// that a software device was created on.
fn net_devices(host: &Host, name: &str) -> Vec<String> {
    let device = Path::new(CLASS).join(name);
    let mut found = host.names(device.join("device/net"));
    found.extend(host.text(device.join("parent")));
    let ports = device.join("ports");
    for port in host.names(&ports) {
        let of_gids = ports.join(port).join("gid_attrs/ndevs");
        let gids = host.names(&of_gids).into_iter();
        // A GID that is not in use has no readable file.
        found.extend(gids.filter_map(|gid| host.text(of_gids.join(gid))));
    }
    found.sort();
    found.dedup();
    found
}

fn addresses(net_devices: &[String]) -> Vec<String> {
    let all = getifaddrs().into_iter().flatten();
    let own = all.filter(|entry| net_devices.contains(&entry.interface_name));
    own.filter_map(|entry| {
        let address = entry.address?;
        let v4 = address.as_sockaddr_in().map(|v4| v4.ip().to_string());
        v4.or_else(|| Some(address.as_sockaddr_in6()?.ip().to_string()))
    })
    .collect()
}

pub(super) fn items(host: &Host, devices: &[Device], lines: &[Line]) -> Vec<Item> {
    if devices.is_empty() {
        return vec![Item::passed(SUBJECT, "no RDMA device")];
    }
    let mut items = vec![verbs_files(host)];
    items.push(file(host, "rdma_cm", "rdma_ucm"));
    items.extend(devices.iter().map(|device| registered(device, lines)));
    items
}

/// Checks the file of each device. If the kernel offers no such file, a module is not loaded.
fn verbs_files(host: &Host) -> Item {
    let names = host.names(VERBS_CLASS).into_iter();
    let names: Vec<String> = names.filter(|name| name.starts_with("uverbs")).collect();
    if names.is_empty() {
        return Item::problem(
            SUBJECT,
            "the kernel offers no RDMA device to programs",
            "load the module ib_uverbs (`modprobe ib_uverbs`)",
        );
    }
    let checked = names.iter().map(|name| file(host, name, "ib_uverbs"));
    let problem = checked.into_iter().find(Item::is_problem);
    problem.unwrap_or_else(|| {
        Item::passed(
            SUBJECT,
            format!("/{FILES}/{} can be opened", names.join(", ")),
        )
    })
}

/// Checks that the device file `name`, which belongs to the kernel module `module`, can be opened.
fn file(host: &Host, name: &str, module: &str) -> Item {
    let path = Path::new(FILES).join(name);
    match host.may_use(&path) {
        Ok(()) => Item::passed(SUBJECT, format!("/{} can be opened", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Item::problem(
            SUBJECT,
            format!("/{} does not exist", path.display()),
            format!(
                "load the module {module} (`modprobe {module}`); in a container, pass the \
                 directory /{FILES} to it"
            ),
        ),
        Err(error) => Item::problem(
            SUBJECT,
            format!("/{} cannot be opened: {error}", path.display()),
            format!(
                "install rdma-core, whose udev rules set mode 0666, or run `chmod 0666 /{}`",
                path.display()
            ),
        ),
    }
}

/// Checks that a line of a provider for RDMA devices names the device.
fn registered(device: &Device, lines: &[Line]) -> Item {
    let is_for_device = |line: &&Line| {
        let Some(word) = line.params.split_ascii_whitespace().next() else {
            return false;
        };
        let is_one_of = |names: &[String]| names.iter().any(|name| name == word);
        line.is_used()
            && !is_software(line)
            && (word == device.name
                || is_one_of(&device.net_devices)
                || is_one_of(&device.addresses))
    };
    match lines.iter().find(is_for_device) {
        Some(line) => Item::passed(
            SUBJECT,
            format!("line {} registers {}", line.number, device.name),
        ),
        None => Item::problem(
            SUBJECT,
            format!("no line of the registry file names {}", device.name),
            format!(
                "add the line `ib-{0} u2.0 nonthreadsafe default libdapl-ib.so.2 dat-rs.1.0 \
                 \"{0} 1\" \"\"` to the registry file",
                device.name
            ),
        ),
    }
}

/// Returns true for a line of the software provider, which uses no RDMA device.
fn is_software(line: &Line) -> bool {
    let file = Path::new(&line.library).file_name();
    file.is_some_and(|name| name.to_string_lossy().starts_with(SOFTWARE_PROVIDER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines;

    const MLX: (&str, &str) = (
        "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0",
        "eth7\n",
    );

    fn problems(host: &Host, registry: &str) -> Vec<String> {
        let lines = lines::lines_of(registry.as_bytes());
        let items = items(host, &read(host), &lines);
        let problems = items.iter().filter(|item| item.is_problem());
        problems.map(ToString::to_string).collect()
    }

    #[test]
    fn a_host_without_devices_needs_nothing() {
        let (_dir, host) = Host::of(&[]);
        assert!(problems(&host, "").is_empty());
    }

    #[test]
    fn missing_files_and_lines_are_problems() {
        let (_dir, host) = Host::of(&[MLX, ("sys/class/infiniband_verbs/abi_version", "6")]);
        let problems = problems(&host, "");
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].contains("modprobe ib_uverbs"), "{problems:?}");
        assert!(problems[1].contains("/dev/infiniband/rdma_cm does not exist"));
        assert!(problems[1].contains("modprobe rdma_ucm"));
        assert!(problems[2].contains("names mlx5_0; fix: add the line `ib-mlx5_0 u2.0"));
        // The line that the problem suggests is a good one.
        let line = problems[2].split('`').nth(1).unwrap();
        let parsed = dat_conf::parse(line.as_bytes());
        assert_eq!((parsed.entries.len(), parsed.diagnostics.len()), (1, 0));
    }

    #[test]
    fn a_line_names_a_device_by_its_name_or_its_network_device() {
        let (_dir, host) = Host::of(&[
            MLX,
            ("sys/class/infiniband_verbs/uverbs0/dev", "231:192"),
            ("dev/infiniband/uverbs0", ""),
            ("dev/infiniband/rdma_cm", ""),
        ]);
        let line = |library: &str, params: &str| {
            format!("a u2.0 nonthreadsafe default {library} x.1.0 \"{params}\" \"\"\n")
        };
        for params in ["mlx5_0 1", "eth7 0"] {
            assert_eq!(problems(&host, &line("libdapl-ib.so.2", params)).len(), 0);
            assert_eq!(problems(&host, &line("libdaplofa.so.2", params)).len(), 0);
            let software = line("/usr/lib/libdapl-iwarp.so.2", params);
            assert_eq!(problems(&host, &software).len(), 1);
        }
        assert_eq!(problems(&host, &line("libdapl-ib.so.2", "eth8 0")).len(), 1);
    }

    #[test]
    fn a_file_that_may_not_be_opened_is_a_problem() {
        let (dir, host) = Host::of(&[
            MLX,
            ("sys/class/infiniband_verbs/uverbs0/dev", "231:192"),
            ("dev/infiniband/rdma_cm", ""),
        ]);
        let file = dir.path().join("dev/infiniband/uverbs0");
        // A link to itself cannot be opened, not even by the superuser.
        std::os::unix::fs::symlink(&file, &file).unwrap();
        let device_line = "a u2.0 nonthreadsafe default libdapl-ib.so.2 x.1.0 \"mlx5_0 1\" \"\"\n";
        let problems = problems(&host, device_line);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("uverbs0 cannot be opened: "));
        assert!(problems[0].contains("chmod 0666 /dev/infiniband/uverbs0"));
    }
}
