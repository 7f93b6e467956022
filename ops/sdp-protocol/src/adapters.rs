//! Selects the adapter for the connections of a network device.
//!
//! The adapter of an RDMA device is the adapter whose line in `dat.conf` names the device, its
//! network device, or an address of that network device. Without such a line, `libdapl-ib.so.2`
//! serves the device. The software provider carries sockets of every network device, if a rule or
//! `opsrun --software` selects it. `OPS_SDP_ADAPTER` restricts the choice to one adapter.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use dat_conf::{Entry, Source};
use host::locks::IgnorePoison as _;
use ops::RdmaPort;
use ops::netlink::NetStack;

use crate::RaiseDescriptor;
use crate::adapter::{Adapter, opening};

/// The environment variable with the name of the interface adapter in `dat.conf`.
pub const ADAPTER_ENV: &str = "OPS_SDP_ADAPTER";

/// The prefix of the default names of software adapters.
const SOFTWARE: &str = "iwarp-";

/// The software adapter that carries the connections of every local address.
const FIRST_CHOICE: &str = "iwarp-any";

/// The parameters of [`FIRST_CHOICE`]: an interface that is always up, and sockets of all
/// interfaces.
const FIRST_CHOICE_PARAMS: &str = "lo 0 sockets=any";

/// The line of [`FIRST_CHOICE`] in `dat.conf`.
const FIRST_CHOICE_LINE: &str = "iwarp-any u2.0 nonthreadsafe default libdapl-iwarp.so.2 \
                                 dat-rs.1.0 \"lo 0 sockets=any\" \"\"";

/// The default registry file.
const SYSTEM_FILE: &str = "/etc/dat.conf";

/// The environment variable that replaces the system's `dat.conf`. Only adapters in that file are
/// used.
const FILE_ENV: &str = "DAT_OVERRIDE";

/// The file of the software provider.
const SOFTWARE_PROVIDER: &str = "libdapl-iwarp.so.2";

/// The file of the provider for RDMA devices.
const DEVICE_PROVIDER: &str = "libdapl-ib.so.2";

/// OFA's providers with connection managers of their own, over sockets (scm) or datagrams (ucm).
/// They reach only peers that use the same provider, which the kind of an offered adapter does not
/// show. So such a provider is used only if `OPS_SDP_ADAPTER` names it.
const OWN_MANAGERS: [&str; 2] = ["libdaploscm.so", "libdaploucm.so"];

/// The directory with [`SOFTWARE_PROVIDER`] or [`DEVICE_PROVIDER`], if it was found.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// Sets the default directory of the DAT registry library and of the providers.
pub fn prefer_libraries_in(directory: &Path) {
    // Held during a fork: the child of a fork must not find a path that is being set.
    let _opening = opening();
    let registry = directory.join(dat_api::LIBRARY_NAME);
    if registry.exists() {
        dat_api::Library::prefer(registry);
    }
    let providers = [SOFTWARE_PROVIDER, DEVICE_PROVIDER];
    if providers.iter().any(|file| directory.join(file).exists()) {
        // An error means that the directory was set by an earlier call.
        let _ = DIRECTORY.set(directory.to_owned());
    }
}

/// Returns the path of a provider that may be registered without a line of `dat.conf`.
fn own_provider(name: &str) -> Option<PathBuf> {
    let file = DIRECTORY.get()?.join(name);
    (host::environment::variable(FILE_ENV).is_none() && file.exists()).then_some(file)
}

/// Returns advice for a host without a suitable adapter.
pub(crate) fn advice() -> String {
    let file = file();
    format!("add to {file}: {FIRST_CHOICE_LINE} - or name another adapter in {ADAPTER_ENV}")
}

/// Returns the name of the registry file in force.
fn file() -> String {
    let named =
        host::environment::variable(FILE_ENV).map(|file| file.to_string_lossy().into_owned());
    named.unwrap_or_else(|| SYSTEM_FILE.to_owned())
}

/// The RDMA devices that a socket or a service may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsableDevices {
    None,
    /// Devices other than the kernel's software devices (rxe, siw).
    Hardware,
    All,
}

impl UsableDevices {
    pub(crate) fn contains(self, port: &RdmaPort) -> bool {
        match self {
            Self::None => false,
            Self::Hardware => !port.is_software,
            Self::All => true,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Adapters {
    raise: RaiseDescriptor,
    inner: Mutex<Inner>,
    network: OnceLock<Option<NetStack>>,
}

/// The adapters that were chosen so far.
#[derive(Debug, Default)]
struct Inner {
    software: Option<Arc<Adapter>>,
    devices: BTreeMap<RdmaPort, Arc<Adapter>>,
    /// The lines of `dat.conf` for RDMA devices.
    lines: Option<Vec<Line>>,
}

/// A line of `dat.conf`.
#[derive(Debug)]
struct Line {
    ia_name: String,
    params: String,
}

impl Adapters {
    pub(crate) fn new(raise: RaiseDescriptor) -> Self {
        Self {
            raise,
            inner: Mutex::default(),
            network: OnceLock::new(),
        }
    }

    /// Returns the function that moves a descriptor out of the range that programs use.
    pub(crate) fn raise(&self) -> RaiseDescriptor {
        self.raise
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().ignore_poison()
    }

    /// Returns the adapter of the software provider, without opening it.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) fn software(&self) -> Result<Arc<Adapter>, String> {
        let _opening = opening();
        let mut inner = self.inner();
        if let Some(chosen) = &inner.software {
            return Ok(Arc::clone(chosen));
        }
        let lines = inner.lines.get_or_insert_with(read_lines);
        if host::environment::text(ADAPTER_ENV).is_some()
            && let Some(line) = lines.first()
        {
            return Err(format!("{} is the adapter of a device", line.ia_name));
        }
        let name = choose_software()?;
        let adapter = Arc::new(Adapter::new(name.clone(), name));
        inner.software = Some(Arc::clone(&adapter));
        Ok(adapter)
    }

    /// Returns the adapter of the software provider, if it carries connections of this local
    /// address. Without `may_open`, an adapter that is not open counts as usable.
    ///
    /// # Errors
    /// The reason why the adapter cannot be used.
    pub(crate) fn software_at(
        &self,
        local: IpAddr,
        may_open: bool,
    ) -> Result<Arc<Adapter>, String> {
        let adapter = self.software()?;
        let stack = match may_open {
            true => Some(adapter.stack()),
            false => adapter.known(),
        };
        let stack = stack.transpose().map_err(|error| error.to_string())?;
        let Some(stack) = stack.filter(|stack| !stack.takes_sockets_of(local)) else {
            return Ok(adapter);
        };
        let own = stack.address().map(|own| own.ip().to_string());
        let own = own.unwrap_or_default();
        Err(format!(
            "{} carries connections of {own} alone, not of {local}",
            adapter.shown()
        ))
    }

    /// Returns the adapter of an RDMA device, without opening it.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(crate) fn device(&self, port: &RdmaPort) -> Result<Arc<Adapter>, String> {
        let _opening = opening();
        let mut inner = self.inner();
        if let Some(chosen) = inner.devices.get(port) {
            return Ok(Arc::clone(chosen));
        }
        let addresses = self.addresses_of(&port.network_device);
        let lines = inner.lines.get_or_insert_with(read_lines);
        let name = choose_for(port, lines, &addresses)?;
        // Several network devices, such as VLANs, may use one port.
        let same = inner.devices.values().find(|it| it.ia_name() == name);
        let adapter = match same {
            Some(adapter) => Arc::clone(adapter),
            None => Arc::new(Adapter::new(name, port.device.clone())),
        };
        inner.devices.insert(port.clone(), Arc::clone(&adapter));
        Ok(adapter)
    }

    /// Returns the usable RDMA ports behind the network device that has this address of the host.
    /// The unspecified address selects all usable ports.
    pub(crate) fn ports_at(&self, own: IpAddr, usable: UsableDevices) -> Vec<RdmaPort> {
        if usable == UsableDevices::None {
            return Vec::new();
        }
        let own = own.to_canonical();
        let _opening = opening();
        let ports = self.network().map(|stack| match own.is_unspecified() {
            true => stack.rdma().map(|devices| devices.active_ports(None)),
            false => stack.rdma_ports_at(own),
        });
        let mut ports = ports.and_then(Result::ok).unwrap_or_default();
        ports.retain(|port| usable.contains(port));
        ports
    }

    fn addresses_of(&self, network_device: &str) -> Vec<IpAddr> {
        let found = self.network().map(|stack| {
            let addresses = stack.addresses()?;
            let is_there = |index| {
                stack
                    .device(index)
                    .is_ok_and(|it| it.name == network_device)
            };
            let own = addresses.into_iter().filter(|own| is_there(own.device));
            Ok::<_, host::netlink::Error>(own.map(|own| own.ip).collect())
        });
        found.and_then(Result::ok).unwrap_or_default()
    }

    /// Returns the network stack. [`opening`] must be held.
    fn network(&self) -> Option<&NetStack> {
        self.network.get_or_init(|| NetStack::open().ok()).as_ref()
    }

    /// Waits until the kernels of the peers have all written bytes. Returns early if no byte was
    /// acknowledged for `patience`.
    pub(crate) fn settle(&self, patience: Duration) {
        let all: Vec<Arc<Adapter>> = {
            let _opening = opening();
            let inner = self.inner();
            let devices = inner.devices.values();
            devices.chain(&inner.software).cloned().collect()
        };
        for stack in all.iter().filter_map(|adapter| adapter.opened()) {
            stack.settle(patience);
        }
    }
}

fn choose_software() -> Result<String, String> {
    if let Some(name) = host::environment::text(ADAPTER_ENV) {
        return Ok(name);
    }
    let listed = dat_api::list_providers().map_err(|error| error.to_string())?;
    let names = listed.into_iter().map(|provider| provider.ia_name);
    let mut usable: Vec<String> = names.filter(|name| name.starts_with(SOFTWARE)).collect();
    if usable.iter().any(|name| name == FIRST_CHOICE) {
        return Ok(FIRST_CHOICE.to_owned());
    }
    // There is no file, or the file has lines for single interfaces only. Such an adapter would
    // leave connections of all other addresses on TCP, so an adapter for all addresses is
    // registered.
    if let Some(library) = own_provider(SOFTWARE_PROVIDER) {
        dat_api::register_provider(&library, FIRST_CHOICE, FIRST_CHOICE_PARAMS)
            .map_err(|error| error.to_string())?;
        return Ok(FIRST_CHOICE.to_owned());
    }
    // If the file has several adapters, an adapter for other hosts is preferred to the loopback
    // adapter.
    usable.sort_by_key(|name| name == "iwarp-lo");
    let none = || format!("{} lists no adapter of the software provider", file());
    usable.into_iter().next().ok_or_else(none)
}

/// Returns the lines of the file in force, except those of the software provider and of providers
/// that may not reach the peer's provider.
fn read_lines() -> Vec<Line> {
    let Source::File { content, .. } = Source::of_process() else {
        return Vec::new();
    };
    let only = host::environment::text(ADAPTER_ENV);
    let entries = dat_conf::parse(&content).entries;
    let is_named = only.is_some();
    let lines = entries
        .iter()
        .filter(|entry| is_for_devices(entry, is_named));
    let lines = lines.map(|entry| Line {
        ia_name: entry.ia_name.to_string_lossy().into_owned(),
        params: entry.ia_params.to_string_lossy().into_owned(),
    });
    lines
        .filter(|line| only.as_ref().is_none_or(|only| *only == line.ia_name))
        .collect()
}

fn is_for_devices(entry: &Entry, is_named: bool) -> bool {
    let library = entry.lib_path.to_string_lossy();
    let file = library.rsplit('/').next().unwrap_or_default();
    let has_own_manager = OWN_MANAGERS.iter().any(|name| file.starts_with(name));
    entry.is_registered() && file != SOFTWARE_PROVIDER && (is_named || !has_own_manager)
}

/// Returns the name of the adapter for a device.
fn choose_for(port: &RdmaPort, lines: &[Line], addresses: &[IpAddr]) -> Result<String, String> {
    let listed = lines.iter().find(|line| line.is_of(port, addresses));
    if let Some(line) = listed {
        return Ok(line.ia_name.clone());
    }
    let RdmaPort { device, port, .. } = port;
    let is_named = host::environment::text(ADAPTER_ENV).is_some();
    let Some(library) = own_provider(DEVICE_PROVIDER).filter(|_| !is_named) else {
        return Err(format!("{} lists no adapter for {device}", file()));
    };
    let name = format!("ib-{device}-{port}");
    dat_api::register_provider(&library, &name, &format!("{device} {port}"))
        .map_err(|error| error.to_string())?;
    Ok(name)
}

impl Line {
    /// Returns true if the parameters name the port: by its device and number, its network device,
    /// or an address of that network device.
    fn is_of(&self, port: &RdmaPort, addresses: &[IpAddr]) -> bool {
        let mut words = self.params.split_whitespace();
        let Some(first) = words.next() else {
            return false;
        };
        if first == port.device {
            let number = words.next().and_then(|word| word.parse::<u8>().ok());
            return number.is_none_or(|number| number == 0 || number == port.port);
        }
        let is_own = |address: IpAddr| addresses.contains(&address);
        first == port.network_device || first.parse().is_ok_and(is_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_devices_are_usable_only_where_all_are() {
        let port = |is_software| RdmaPort {
            network_device: "eth0".to_owned(),
            device: "rxe0".to_owned(),
            port: 1,
            active: true,
            is_iwarp: false,
            is_software,
        };
        for (usable, hardware, software) in [
            (UsableDevices::None, false, false),
            (UsableDevices::Hardware, true, false),
            (UsableDevices::All, true, true),
        ] {
            assert_eq!(usable.contains(&port(false)), hardware, "{usable:?}");
            assert_eq!(usable.contains(&port(true)), software, "{usable:?}");
        }
    }

    #[test]
    fn lines_of_providers_with_another_connection_manager_are_not_used() {
        let lines = [
            "libdaplofa.so.2",
            "libdaploscm.so.2",
            "/usr/lib/libdaploucm.so.2",
        ];
        let content = lines.map(|library| {
            format!("a-{library} u2.0 nonthreadsafe default {library} dapl.2.0 \"mlx5_0 1\" \"\"\n")
        });
        let entries = dat_conf::parse(content.concat().as_bytes()).entries;
        let used = entries.iter().filter(|entry| is_for_devices(entry, false));
        let names: Vec<_> = used.map(|entry| entry.ia_name.to_string_lossy()).collect();
        assert_eq!(names, ["a-libdaplofa.so.2"]);
        assert!(entries.iter().all(|entry| is_for_devices(entry, true)));
    }

    #[test]
    fn a_line_names_its_port_in_one_of_four_ways() {
        let port = RdmaPort {
            is_software: false,
            network_device: "eth1".to_owned(),
            device: "mlx5_0".to_owned(),
            port: 1,
            active: true,
            is_iwarp: false,
        };
        let addresses = [IpAddr::from([192, 0, 2, 1])];
        for (params, is_of) in [
            ("mlx5_0 1", true),
            ("mlx5_0 0", true),
            ("mlx5_0", true),
            ("eth1 0", true),
            ("192.0.2.1 0", true),
            ("mlx5_0 2", false),
            ("mlx5_1 1", false),
            ("eth2 0", false),
            ("192.0.2.2 0", false),
            ("", false),
        ] {
            let line = Line {
                ia_name: "any".to_owned(),
                params: params.to_owned(),
            };
            assert_eq!(line.is_of(&port, &addresses), is_of, "{params}");
        }
    }
}
