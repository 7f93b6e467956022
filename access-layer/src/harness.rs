//! Common code of the tests of this crate: the consumer of the conformance suite with the in-memory
//! RNIC.

use std::ptr;

use dat_abi::*;

pub(crate) use crate::conformance::consumer::*;
use crate::fake_rnic::FakeRnic;
use crate::handle::{self, Object, Pinned};
use crate::ia::Ia;

impl Dat {
    /// Opens an IA in a network of its own.
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
    /// Creates two connected endpoints in a network of their own.
    pub(crate) fn connected(params: &str, recv_flags: DatCompletionFlags) -> Self {
        Self::on(Dat::open_with(params), recv_flags)
    }
}

/// Returns the consumer's value in a software event.
pub(crate) fn software_word(event: &DatEvent) -> usize {
    assert_eq!(event.event_number, DAT_SOFTWARE_EVENT);
    // SAFETY: the event number selects this member.
    unsafe { event.event_data.software_event_data }
        .pointer
        .addr()
}
