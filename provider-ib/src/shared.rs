//! The part of an RNIC that each of its objects can reach.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rnic::{EventUpcall, RnicError};

use verbs_dl::verbs::IbVerbs;

use crate::channel::Channel;
use crate::config::Config;
use crate::device::Device;
use crate::engine::Engine;
use crate::regions::Regions;

/// The device, its completion channel, and the work of the engine's thread.
pub(crate) struct Shared {
    // Declared before the device, which must be closed after the channel.
    pub(crate) channel: Channel,
    pub(crate) device: Device,
    pub(crate) config: Config,
    pub(crate) upcall: Arc<dyn EventUpcall>,
    pub(crate) engine: Engine,
    pub(crate) regions: Regions,
    /// True once the device has reported its removal.
    pub(crate) is_device_removed: AtomicBool,
}

impl Shared {
    pub(crate) fn open(config: Config, upcall: Arc<dyn EventUpcall>) -> Result<Self, RnicError> {
        let device = Device::open(&config)?;
        Ok(Self {
            channel: Channel::new(&device)?,
            device,
            config,
            upcall,
            engine: Engine::new()?,
            regions: Regions::default(),
            is_device_removed: AtomicBool::new(false),
        })
    }

    /// The functions of libibverbs.
    pub(crate) fn verbs(&self) -> &IbVerbs {
        &self.device.libraries.verbs
    }
}

rnic::opaque_debug!(Shared { config });
