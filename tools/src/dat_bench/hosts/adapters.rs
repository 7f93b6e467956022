//! The adapters of a measurement between hosts.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use host::netlink::interfaces::{Interface, interfaces};
use tempfile::NamedTempFile;

use crate::setup;

/// The adapter that the caller named, or an adapter of the software provider for each address of
/// this host, in a registry that this program wrote.
pub(crate) enum Adapters {
    Named(String),
    Own {
        addresses: BTreeSet<IpAddr>,
        _registry: NamedTempFile,
    },
}

impl Adapters {
    /// Must be called while the process has one thread and has not loaded the registry library.
    pub(crate) fn prepare(named: Option<&str>) -> Result<Self> {
        if let Some(name) = named {
            return Ok(Self::Named(name.to_owned()));
        }
        let all = interfaces().context("listing the addresses of this host")?;
        let lines = all.iter().map(|it| (name(it.address), settings(it)));
        Ok(Self::Own {
            _registry: setup::use_registry(lines)?,
            addresses: all.iter().map(|it| it.address).collect(),
        })
    }

    /// The name of the adapter for connections of this address.
    pub(crate) fn at(&self, address: IpAddr) -> Result<String> {
        match self {
            Self::Named(name) => Ok(name.clone()),
            Self::Own { addresses, .. } => {
                let address = address.to_canonical();
                let is_known = addresses.contains(&address);
                ensure!(
                    is_known,
                    "{address} was no address of this host at the start"
                );
                Ok(name(address))
            }
        }
    }
}

fn name(address: IpAddr) -> String {
    format!("iwarp-{address}")
}

fn settings(interface: &Interface) -> String {
    match interface.scope_id {
        0 => format!("{} 0", interface.address),
        _ => format!("{}%{} 0", interface.address, interface.name),
    }
}
