//! Listening services.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rnic::{ListenAddress, RequestInfo, RnicError};
use verbs_dl::types::*;

use super::id::{CmEvent, Depth, Id, Key};
use super::{Cm, Target, lock, refused};

/// The maximum number of attempts to listen on a port that librdmacm chooses. librdmacm chooses a
/// port that none of its own services uses. On an iWARP device a TCP service may use that port, and
/// then listening fails.
const ATTEMPTS_MAX: u32 = 16;

/// The function that receives the id and the depths of each request, with its description.
pub(super) type Deliver = Box<dyn Fn(Id, Depth, &RequestInfo<'_>) + Send + Sync>;

/// A service that listens until this value is dropped. Requests that were delivered stay valid.
#[derive(Debug)]
pub struct IbListener(Arc<Listener>);

impl Drop for IbListener {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A service: an id that listens.
pub(crate) struct Listener {
    cm: Arc<Cm>,
    key: Key,
    deliver: Deliver,
    is_open: AtomicBool,
    id: Mutex<Option<Id>>,
}

rnic::opaque_debug!(Listener { key });

impl Listener {
    /// Listens on a port of the adapter's address and returns the port.
    pub(super) fn open(
        cm: &Arc<Cm>,
        address: &ListenAddress,
        deliver: Deliver,
    ) -> Result<(IbListener, u16), RnicError> {
        let listener = Arc::new(Self {
            cm: cm.clone(),
            key: cm.new_key(),
            deliver,
            is_open: AtomicBool::new(true),
            id: Mutex::new(None),
        });
        // The listener is registered before it listens, because requests may be received at once.
        let target = Target::Listener(listener.clone());
        lock(&cm.targets).insert(listener.key, target);
        let mut attempts = if address.port == 0 { ATTEMPTS_MAX } else { 1 };
        loop {
            attempts -= 1;
            match listener.listen(address.port) {
                Ok(port) => return Ok((IbListener(listener), port)),
                Err(RnicError::AddressInUse) if attempts > 0 => {}
                Err(error) => {
                    listener.close();
                    return Err(error);
                }
            }
        }
    }

    fn listen(&self, port: u16) -> Result<u16, RnicError> {
        let channel = self.cm.channel().map_err(refused)?;
        let id = channel.new_id(self.key).map_err(refused)?;
        let mut at = self.cm.shared.device.address;
        at.set_port(port);
        let port = id.listen(at).map_err(refused)?;
        *lock(&self.id) = Some(id);
        Ok(port)
    }

    /// Stops listening. Requests that were delivered stay valid; all others are refused.
    fn close(&self) {
        self.is_open.store(false, Ordering::Release);
        self.cm.forget(self.key);
        let id = lock(&self.id).take();
        drop(id);
    }

    /// Called when the device is being removed. The kernel waits until the device's ids are
    /// destroyed.
    pub(super) fn on_device_removed(&self) {
        let id = lock(&self.id).take();
        drop(id);
    }

    pub(super) fn on_cm(&self, event: CmEvent) {
        match (event.kind, event.request) {
            (RDMA_CM_EVENT_DEVICE_REMOVAL, _) => self.on_device_removed(),
            (RDMA_CM_EVENT_CONNECT_REQUEST, Some(id)) if self.is_open.load(Ordering::Acquire) => {
                self.deliver(id, event.depth, &event.private_data);
            }
            // A request that was received too late is dropped with its id, and its peer is refused.
            _ => {}
        }
    }

    fn deliver(&self, id: Id, depth: Depth, private_data: &[u8]) {
        let addresses: (Option<SocketAddr>, Option<SocketAddr>) = (id.local(), id.remote());
        let (Some(local), Some(remote)) = addresses else {
            tracing::warn!("a request without IP addresses is refused");
            return;
        };
        let limit = self.cm.shared.device.transport.private_data_max();
        let info = RequestInfo {
            local,
            remote,
            private_data: &private_data[..private_data.len().min(limit)],
            truncated: private_data.len() > limit,
        };
        (self.deliver)(id, depth, &info);
    }
}
