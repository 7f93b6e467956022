//! What the tests of this crate share: the consumer of the conformance suite over the in-memory
//! RNIC.

use std::ptr;

use dat_abi::*;

pub(crate) use crate::conformance::consumer::*;
use crate::fake_rnic::FakeRnic;
use crate::handle::{self, Object, Pinned};
use crate::ia::Ia;

impl Dat {
    /// Opens an IA of its own network.
    pub(crate) fn open() -> Self {
        Self::open_with("")
    }

    pub(crate) fn open_with(params: &str) -> Self {
        Self::open_on::<FakeRnic>(&format!("net=test{} {params}", unique()))
    }

    pub(crate) fn ia(&self) -> Pinned<Ia<FakeRnic>> {
        self.pin(self.ia)
    }

    pub(crate) fn pin<T: Object>(&self, handle: DatHandle) -> Pinned<T> {
        handle::pin(handle).expect("alive")
    }

    pub(crate) fn post_software(&self, evd: DatEvdHandle, word: usize) -> u32 {
        let mut event = DatEvent::zeroed();
        event.event_number = DAT_SOFTWARE_EVENT;
        event.event_data.software_event_data = DatSoftwareEventData {
            pointer: ptr::without_provenance_mut(word),
        };
        call!(self, evd_post_se, evd, &raw const event)
    }
}

impl Pair {
    /// Two connected endpoints in a network of their own.
    pub(crate) fn connected(params: &str, recv_flags: DatCompletionFlags) -> Self {
        Self::on(Dat::open_with(params), recv_flags)
    }
}

/// The consumer's word in a software event.
pub(crate) fn software_word(event: &DatEvent) -> usize {
    assert_eq!(event.event_number, DAT_SOFTWARE_EVENT);
    // SAFETY: the event number says that this member is meant.
    unsafe { event.event_data.software_event_data }
        .pointer
        .addr()
}
