//! State that the RNICs of one network share: services, sockets and memory.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use host::locks::IgnorePoison as _;

use super::held_upcalls::HeldUpcalls;
use super::qp::QpInner;
use super::{Node, lock};
use crate::rnic::{Access, ListenToken, RegisterMr, RnicError, Sge};

static NETWORKS: OnceLock<Mutex<HashMap<String, Arc<Network>>>> = OnceLock::new();

#[derive(Debug, Default)]
pub(super) struct Network {
    ids: AtomicU64,
    /// Listening services, by address and port.
    pub(super) services: Mutex<HashMap<(IpAddr, u16), Service>>,
    pub(super) armed: Mutex<Vec<ArmedSocket>>,
    pub(super) waiting: Mutex<Vec<WaitingSocket>>,
    regions: RwLock<HashMap<u32, Region>>,
    pub(super) held: Arc<HeldUpcalls>,
}

/// A listener, and the RNIC to which it belongs.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) token: ListenToken,
    pub(super) node: Weak<Node>,
}

/// A socket that waits for a request.
#[derive(Debug)]
pub(super) struct ArmedSocket {
    pub(super) service: Service,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

/// A request whose socket no service point has armed yet.
#[derive(Debug)]
pub(super) struct WaitingSocket {
    pub(super) attempt: Attempt,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

/// The connecting side of an attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) qp: Arc<QpInner>,
    pub(super) number: u64,
    pub(super) private_data: Vec<u8>,
}

/// The memory of a key.
#[derive(Debug, Clone, Copy)]
struct Region {
    pd: u64,
    /// First byte of memory.
    addr: u64,
    /// Address of the first byte in segments and remote ranges.
    first: u64,
    len: u64,
    access: Access,
}

/// A memory region.
#[derive(Debug)]
pub struct FakeMr {
    key: u32,
    network: Arc<Network>,
}

/// A memory window.
#[derive(Debug)]
pub struct FakeMw {
    pd: u64,
    key: Mutex<Option<u32>>,
    network: Arc<Network>,
}

/// Kind of access to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    RemoteAtomic,
}

/// Error: the key does not allow the access.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Denied;

impl Network {
    pub(super) fn named(name: &str) -> Arc<Self> {
        let networks = NETWORKS.get_or_init(Mutex::default);
        lock(networks).entry(name.to_owned()).or_default().clone()
    }

    /// Returns true if nothing is registered or waiting. Attempts that ended while their sockets
    /// waited do not count and are dropped.
    pub(super) fn is_empty(&self) -> bool {
        self.drop_ended();
        let regions = self.regions.read().ignore_poison();
        regions.is_empty()
            && lock(&self.services).is_empty()
            && lock(&self.armed).is_empty()
            && lock(&self.waiting).is_empty()
            && self.held.is_empty()
    }

    /// Drops waiting sockets whose attempt has ended.
    pub(super) fn drop_ended(&self) {
        let mut waiting = lock(&self.waiting);
        let (live, ended): (Vec<_>, Vec<_>) = waiting
            .drain(..)
            .partition(|socket| socket.attempt.is_live());
        *waiting = live;
        // The drop may end a queue pair, which locks the network.
        drop(waiting);
        drop(ended);
    }

    pub(super) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn register(
        self: &Arc<Self>,
        pd: u64,
        request: &RegisterMr,
    ) -> Result<FakeMr, RnicError> {
        let first = request.iova.unwrap_or(request.addr);
        let RegisterMr {
            addr, len, access, ..
        } = *request;
        let key = self.insert(Region {
            pd,
            addr,
            first,
            len,
            access,
        });
        Ok(FakeMr {
            key,
            network: self.clone(),
        })
    }

    fn insert(&self, region: Region) -> u32 {
        // Never 0, and different from other numbers that a test may confuse with a key.
        let key = u32::try_from(self.next_id() & 0x00FF_FFFF).unwrap_or(0) | 0x4B00_0000;
        self.regions.write().ignore_poison().insert(key, region);
        key
    }

    fn remove(&self, key: u32) {
        self.regions.write().ignore_poison().remove(&key);
    }

    /// Returns the address of the `len` bytes at `start` in the memory of `key`, if `pd` may access
    /// them in this way.
    pub(super) fn resolve(
        &self,
        pd: u64,
        key: u32,
        start: u64,
        len: u32,
        wanted: Use,
    ) -> Result<u64, Denied> {
        let regions = self.regions.read().ignore_poison();
        let region = regions
            .get(&key)
            .filter(|region| region.pd == pd)
            .ok_or(Denied)?;
        let offset = start.checked_sub(region.first).ok_or(Denied)?;
        let end = offset.checked_add(u64::from(len)).ok_or(Denied)?;
        if end > region.len || !wanted.is_granted_by(region.access) {
            return Err(Denied);
        }
        Ok(region.addr + offset)
    }

    /// Returns all addresses of a segment list.
    pub(super) fn resolve_all(
        &self,
        pd: u64,
        sgl: &[Sge],
        wanted: Use,
    ) -> Result<Vec<(u64, usize)>, Denied> {
        sgl.iter()
            .map(|sge| {
                let addr = self.resolve(pd, sge.lkey, sge.addr, sge.len, wanted)?;
                Ok((addr, sge.len as usize))
            })
            .collect()
    }
}

impl Use {
    fn is_granted_by(self, access: Access) -> bool {
        match self {
            Self::LocalRead => access.local_read,
            Self::LocalWrite => access.local_write,
            Self::RemoteRead => access.remote_read,
            Self::RemoteWrite => access.remote_write,
            Self::RemoteAtomic => access.remote_atomic,
        }
    }
}

impl FakeMr {
    pub(super) fn key(&self) -> u32 {
        self.key
    }
}

impl Drop for FakeMr {
    fn drop(&mut self) {
        self.network.remove(self.key);
    }
}

impl Attempt {
    fn is_live(&self) -> bool {
        self.qp.is_attempting(self.number)
    }
}

impl FakeMw {
    pub(super) fn new(network: Arc<Network>, pd: u64) -> Self {
        Self {
            pd,
            key: Mutex::new(None),
            network,
        }
    }

    /// Binds the window to part of a region and returns its key, or unbinds it and returns 0. The
    /// former key becomes invalid.
    pub(super) fn bind(
        &self,
        part: Option<(&FakeMr, Sge)>,
        access: Access,
        zero_based: bool,
    ) -> Result<u32, Denied> {
        let region = part
            .map(|(mr, range)| {
                let addr =
                    self.network
                        .resolve(self.pd, mr.key, range.addr, range.len, Use::LocalRead)?;
                let first = if zero_based { 0 } else { range.addr };
                Ok(Region {
                    pd: self.pd,
                    addr,
                    first,
                    len: u64::from(range.len),
                    access,
                })
            })
            .transpose()?;
        let mut key = lock(&self.key);
        if let Some(old) = key.take() {
            self.network.remove(old);
        }
        *key = region.map(|region| self.network.insert(region));
        Ok(key.unwrap_or(0))
    }
}

impl Drop for FakeMw {
    fn drop(&mut self) {
        if let Some(key) = lock(&self.key).take() {
            self.network.remove(key);
        }
    }
}

/// Returns true for addresses at which no host exists (RFC 5737).
pub(super) fn is_unreachable(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V4(ip) if ip.octets()[..3] == [192, 0, 2])
}
