//! An adapter: the parts of an RNIC that its calls and the engine's thread use.

use std::sync::Arc;

use rnic::{EventUpcall, RnicError};

use crate::cm::Cm;
use crate::config::Config;
use crate::cq::Cqs;
use crate::engine::Source;
use crate::qp::Qps;
use crate::reader::Reader;
use crate::shared::Shared;

/// The device, its objects, and its connection manager.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) shared: Arc<Shared>,
    pub(crate) cqs: Arc<Cqs>,
    pub(crate) qps: Arc<Qps>,
    pub(crate) reader: Reader,
    pub(crate) cm: Arc<Cm>,
}

impl Adapter {
    /// Opens the device. The engine watches its descriptors.
    pub(crate) fn open(config: Config, upcall: Arc<dyn EventUpcall>) -> Result<Self, RnicError> {
        let shared = Arc::new(Shared::open(config, upcall)?);
        let cqs = Arc::<Cqs>::default();
        shared
            .engine
            .watch(shared.device.event_fd()?, Source::Device)?;
        Ok(Self {
            reader: Reader::open(shared.clone(), cqs.clone())?,
            cm: Cm::open(shared.clone())?,
            qps: Arc::default(),
            cqs,
            shared,
        })
    }
}
