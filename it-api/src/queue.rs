//! The object of an event dispatcher, simple (SEVD) or aggregate (AEVD).
//!
//! An SEVD is a DAT EVD, an AEVD a DAT CNO. An SEVD with a descriptor or a callback has a CNO of
//! its own. Events that the library itself makes wait in `made`, with one software event in the DAT
//! EVD for each, so that they wake and are counted like all others.

use std::collections::VecDeque;
use std::sync::Mutex;

use dat_abi::*;
use host::locks::lock;

use crate::abi::*;
use crate::handle::{self, Kind, Object};
use crate::status::*;

/// `it_evd_callback_rtn_t`.
pub(crate) type CallbackRoutine = unsafe extern "C" fn(evd: Handle, argument: u64);

/// A routine of the program, and the argument that it receives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callback {
    pub(crate) routine: CallbackRoutine,
    pub(crate) argument: u64,
}

/// An event that the library makes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Made {
    /// The conversion of a socket has failed before DAT could report it.
    NotConverted { ep: Handle },
    /// An event of the affiliated stream, and the object that it concerns.
    Affiliated { number: EventNumber, cause: Handle },
    /// An event of the unaffiliated stream.
    Unaffiliated { number: EventNumber },
}

/// The settings that `it_evd_modify` changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) queue_size: usize,
    pub(crate) threshold: usize,
    pub(crate) aevd: Handle,
    pub(crate) is_enabled: bool,
}

/// How an EVD notifies the program, apart from waits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Notifier {
    /// The CNO: of an AEVD always, of an SEVD with a descriptor or a callback.
    pub(crate) cno: Option<usize>,
    pub(crate) descriptor: Option<i32>,
    pub(crate) callback: Option<Callback>,
}

impl Notifier {
    pub(crate) fn cno(&self) -> Option<DatCnoHandle> {
        self.cno.map(std::ptr::with_exposed_provenance_mut)
    }

    pub(crate) fn set_cno(&mut self, cno: DatCnoHandle) {
        self.cno = Some(cno.expose_provenance());
    }
}

/// An event dispatcher.
#[derive(Debug)]
pub(crate) struct Evd {
    pub(crate) ia: Handle,
    pub(crate) stream: EventNumber,
    pub(crate) flags: u32,
    pub(crate) settings: Mutex<Settings>,
    pub(crate) notifier: Mutex<Notifier>,
    /// The SEVDs of an AEVD, in the order in which they are polled.
    pub(crate) members: Mutex<Vec<Handle>>,
    made: Mutex<VecDeque<Made>>,
}

impl Object for Evd {
    const KIND: Kind = Kind::Evd;
    const WRONG: Status = INVALID_EVD;
}

impl Evd {
    pub(crate) fn new(
        ia: Handle,
        stream: EventNumber,
        flags: u32,
        settings: Settings,
        notifier: Notifier,
    ) -> Self {
        Self {
            ia,
            stream,
            flags,
            settings: Mutex::new(settings),
            notifier: Mutex::new(notifier),
            members: Mutex::default(),
            made: Mutex::default(),
        }
    }

    pub(crate) fn is_aggregate(&self) -> bool {
        self.stream == AEVD_STREAM
    }

    /// Takes the event for which a software event was found.
    pub(crate) fn take_made(&self) -> Option<Made> {
        lock(&self.made).pop_front()
    }
}

/// Queues an event. One that finds no room is lost, and DAT reports the overflow.
pub(crate) fn post(evd: Handle, made: Made) {
    let Ok((slot, object)) = handle::find::<Evd>(evd) else {
        return;
    };
    let mut event = DatEvent::zeroed();
    event.event_number = DAT_SOFTWARE_EVENT;
    // The lock keeps the order of both queues the same.
    let mut queue = lock(&object.made);
    queue.push_back(made);
    if let Err(status) = call!(dat_evd_post_se(slot.dat(), &raw const event)) {
        tracing::warn!(?made, ?status, "an event was lost");
        queue.pop_back();
    }
}

/// The SEVD `handle` of the adapter, if one of `streams` is its stream; else `wrong`.
pub(crate) fn sevd(
    handle: Handle,
    ia: Handle,
    streams: &[EventNumber],
    wrong: Status,
) -> Outcome<DatEvdHandle> {
    let slot = handle::of_kind(handle, Kind::Evd).ok_or(wrong)?;
    let fits = slot.ia() == ia
        && streams
            .iter()
            .any(|stream| u64::from(*stream) == slot.key());
    fits.then(|| slot.dat()).ok_or(wrong)
}

/// Stores the handle with its DAT object, so that events that name the object find the handle.
pub(crate) fn name(dat: DatHandle, handle: Handle) -> Outcome {
    call!(dat_set_consumer_context(
        dat,
        DatContext::from_u64(handle.0)
    ))
}

/// The handle of the DAT object that an event names; null if the object has been freed.
pub(crate) fn named(dat: DatHandle) -> Handle {
    let mut context = DatContext::zeroed();
    match call!(dat_get_consumer_context(dat, &raw mut context)) {
        Ok(()) => Handle(context.to_u64()),
        Err(_) => Handle::NULL,
    }
}
