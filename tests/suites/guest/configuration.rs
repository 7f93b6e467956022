//! Configurations: a `libdat2.so.2`, a provider below this library, and a device below the
//! provider. OFA's programs run with each of them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::Result;
use stack_tests::{IA_NAME, NetSpace, Registry, SOFTWARE, StackEnv, Stage, adapter_line};

/// The address of `rxe0`, as `tests/vm/enter` sets it up.
const RXE: Device = Device {
    link: "r0",
    address: Ipv4Addr::new(10, 9, 9, 1),
};

const SIW: Device = Device {
    link: "w0",
    address: Ipv4Addr::new(10, 9, 10, 1),
};

/// No RDMA device.
const LOOPBACK: Device = Device {
    link: "lo",
    address: Ipv4Addr::LOCALHOST,
};

/// A combination of library, provider and device.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) name: &'static str,
    registry: Library,
    provider: &'static str,
    device: Device,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Library {
    Ours,
    Ofas,
}

#[derive(Debug, Clone, Copy)]
struct Device {
    link: &'static str,
    address: Ipv4Addr,
}

const OFAS_PROVIDER: &str = "libdaplofa.so.2";
const IB: &str = "libdapl-ib.so.2";

pub(crate) const CONFIGURATIONS: &[Configuration] = &[
    configuration("ofa-rxe", Library::Ours, OFAS_PROVIDER, RXE),
    configuration("ofa-siw", Library::Ours, OFAS_PROVIDER, SIW),
    // The reference: no code of dat-rs is part of this configuration.
    configuration("pure-ofa-rxe", Library::Ofas, OFAS_PROVIDER, RXE),
    configuration("pure-ofa-siw", Library::Ofas, OFAS_PROVIDER, SIW),
    configuration("ib-rxe", Library::Ours, IB, RXE),
    configuration("ib-siw", Library::Ours, IB, SIW),
    configuration("ib-rxe-under-ofa", Library::Ofas, IB, RXE),
    configuration("ib-siw-under-ofa", Library::Ofas, IB, SIW),
    configuration("soft-lo", Library::Ours, SOFTWARE, LOOPBACK),
    configuration("soft-veth", Library::Ours, SOFTWARE, SIW),
];

const fn configuration(
    name: &'static str,
    registry: Library,
    provider: &'static str,
    device: Device,
) -> Configuration {
    Configuration {
        name,
        registry,
        provider,
        device,
    }
}

/// The time limit of a program over OFA's provider on siw.
const OFAS_LIMIT: Duration = Duration::from_secs(90);

impl Configuration {
    /// True if the device is siw. (The software provider uses only the link below siw.)
    pub(crate) fn is_on_siw(&self) -> bool {
        self.device.link == SIW.link && self.provider != SOFTWARE
    }

    /// True if the provider is OFA's.
    pub(crate) fn is_ofas(&self) -> bool {
        self.provider == OFAS_PROVIDER
    }

    /// True if quick runs include the configuration: it has code of dat-rs and a device. The suite
    /// `debian_tools` runs the same lines over the software provider, without the guest.
    pub(crate) fn is_quick(&self) -> bool {
        let is_reference = self.registry == Library::Ofas && self.is_ofas();
        !is_reference && self.provider != SOFTWARE
    }

    /// The environment of a program in this configuration.
    pub(crate) fn env(&self) -> Result<StackEnv> {
        let stage = Stage::find()?;
        let staged = stage.lib().join(self.provider);
        // The provider is named by its path, because OFA's library does not search the stage.
        let library = if staged.exists() {
            staged.display().to_string()
        } else {
            self.provider.to_owned()
        };
        let Device { link, address } = self.device;
        let line = adapter_line(IA_NAME, library, &format!("{link} 0"));
        let registry = Registry::with_text(&line)?;
        let mut env = StackEnv::of(stage, registry, NetSpace::stay()?);
        env.address = IpAddr::V4(address);
        env.is_emulated = true;
        if self.is_ofas() && self.is_on_siw() {
            // Programs often hang in these configurations, and never recover.
            env.limit = Some(OFAS_LIMIT);
        }
        Ok(match self.registry {
            Library::Ours => env,
            Library::Ofas => env.with_system_registry(),
        })
    }
}
