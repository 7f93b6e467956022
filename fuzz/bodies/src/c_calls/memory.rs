//! The whole stack in one process: the registry, the access layer, and an RNIC in memory.
//!
//! The RNIC has no thread and no clock, and delivers events only between calls. An input therefore
//! has the same effect in every run, and a fuzzer sees the coverage that the input reaches. The
//! only threads and sockets are those that a program of calls creates.

use std::{
    ffi::{CStr, c_char},
    io,
    os::fd::{AsFd, AsRawFd},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use access_layer::{
    fake_rnic::{self, FakeRnic},
    provider,
};
use dat_api::abi::*;
use libdat2::entry::registry::dat_registry_add_provider;
use rnic::RnicConfig;
use tracing::subscriber::NoSubscriber;

use super::calls::Calls;

pub(super) const IA_NAME: &CStr = c"memory";
/// The network of the RNICs, which [`deliver_held`] and [`expire_timeouts`] control.
const NET: &str = "calls";
/// The time in which a thread of the library must release its last references.
const SETTLE: Duration = Duration::from_secs(60);

/// Returns the C functions. The first call registers the provider.
pub(super) fn calls() -> &'static Calls {
    static CALLS: OnceLock<Calls> = OnceLock::new();
    CALLS.get_or_init(|| {
        // Logging of thousands of programs per second is discarded. The call fails if a subscriber
        // is set already.
        let _ = tracing::subscriber::set_global_default(NoSubscriber::new());
        register();
        Calls::linked()
    })
}

fn register() {
    let name = IA_NAME.to_str().expect("plain text");
    let provider = provider::announce::<FakeRnic>(RnicConfig {
        ia_name: name.to_owned(),
        ia_params: format!("net={NET} held srq=8 mw=8"),
    });
    let mut info = DatProviderInfo::zeroed();
    for (to, byte) in info.ia_name.iter_mut().zip(IA_NAME.to_bytes()) {
        *to = c_char::from_ne_bytes([*byte]);
    }
    info.dapl_version_major = 2;
    // SAFETY: the provider's table is never freed, and `info` is read only during the call.
    let added = unsafe { dat_registry_add_provider(provider.get(), &raw const info) };
    assert!(added.is_success(), "{added:?}");
}

/// Delivers all pending events.
pub(super) fn deliver_held() {
    fake_rnic::deliver_held(NET);
}

/// Makes every running timeout expire.
pub(super) fn expire_timeouts() {
    fake_rnic::expire_timeouts(NET);
}

/// Returns true if `dat_ia_close` has freed the IA. For a provider that is in no registry file, the
/// registry then returns `DAT_PROVIDER_NOT_FOUND`.
pub(super) fn has_closed(result: DatReturn) -> bool {
    result.is_success() || result.is(DAT_PROVIDER_NOT_FOUND)
}

/// Returns the lowest free descriptor, which rises if a descriptor is leaked.
pub(super) fn lowest_descriptor() -> i32 {
    let copy = io::stdin().as_fd().try_clone_to_owned();
    copy.map_or(-1, |fd| fd.as_raw_fd())
}

/// Panics if the network still contains objects, or if the lowest free descriptor does not become
/// `descriptor` again.
pub(super) fn assert_nothing_left(descriptor: i32) {
    assert!(fake_rnic::is_network_empty(NET), "objects outlive their IA");
    let deadline = Instant::now() + SETTLE;
    // The thread that calls agents may hold the last reference to a CNO.
    while lowest_descriptor() > descriptor {
        assert!(Instant::now() < deadline, "a descriptor outlives its IA");
        thread::sleep(Duration::from_millis(1));
    }
}
