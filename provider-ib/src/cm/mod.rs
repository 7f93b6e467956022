//! Making and ending connections through librdmacm.
//!
//! | File | What |
//! |---|---|
//! | `listen` | services |
//! | `request` | what a peer asks for, until it is answered |
//! | `address` | socket addresses as C wants them |
//!
//! A queue pair is made by `qp`, not by librdmacm: it is given to an id by its number. What this
//! module needs of it is [`Qp::begin_attempt`], [`Qp::establish`], [`Qp::finish`] and
//! [`Qp::modify`].

pub(crate) mod address;
pub(crate) mod listen;
pub(crate) mod request;

use std::sync::Arc;
use std::time::Instant;

use access_layer::rnic::{ConnectParams, RnicError};

use crate::device::Device;
use crate::qp::Qp;
use crate::rnic::Shared;

/// The connection manager of one RNIC.
#[derive(Debug)]
pub(crate) struct Cm {}

/// What a queue pair keeps for this module while it connects and is connected.
#[derive(Debug)]
pub(crate) struct Connection {}

impl Cm {
    /// Makes nothing yet: the event channel comes with the first connection or listener.
    pub(crate) fn new() -> Self {
        Self {}
    }

    /// Engine: when it has to call [`on_deadline`](Self::on_deadline) at the latest.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Engine: the event channel may have events; takes all of them.
    pub(crate) fn on_readable(&self, _shared: &Arc<Shared>) {}

    /// Engine: whatever was to happen before `now`.
    pub(crate) fn on_deadline(&self, _shared: &Arc<Shared>, _now: Instant) {}

    /// Engine: a work request failed, or the device says that the queue pair did. Ends in
    /// `Broken`.
    pub(crate) fn on_qp_failed(&self, _qp: &Arc<Qp>) {}

    /// Engine: the device is gone. Every connection ends in `Broken`.
    pub(crate) fn on_device_gone(&self, _shared: &Arc<Shared>) {}
}

/// Largest private data of a consumer.
pub(crate) fn private_data_max(_device: &Device) -> u32 {
    56
}

/// [`Rnic::connect`](access_layer::rnic::Rnic::connect).
pub(crate) fn connect(qp: &Arc<Qp>, _params: &ConnectParams<'_>) -> Result<(), RnicError> {
    qp.begin_attempt()?;
    qp.abandon_attempt();
    Err(RnicError::NotSupported("connecting"))
}

/// [`Rnic::disconnect`](access_layer::rnic::Rnic::disconnect); also when the queue pair is dropped.
pub(crate) fn disconnect(_qp: &Arc<Qp>, _abrupt: bool) {}
