//! Provider libraries during a fork.
//!
//! The child of a fork that happens while another thread loads a library has a dynamic loader that
//! is in the middle of this work, and ends with its next load. So a fork waits for loads.
//!
//! A provider library of dat-rs has handlers that hold its locks during each fork. The C library
//! does not run them in a fork that has begun before the library was loaded, though another thread
//! may use the library by the time that the process is copied. So the handlers of this library,
//! which run later in a fork, hold the locks that are not held yet.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dat_abi::{DatRsForkFunc, DatRsForkStep};
use host::forks::HeldLock;

/// The largest number of libraries. Each has the code of one provider, and stays loaded.
const LIBRARIES_MAX: usize = 16;

/// The longest wait for a load. The initialiser of a library that forks would wait for itself.
const LOAD_MAX: Duration = Duration::from_secs(1);

/// The time between two looks at the loads.
const LOOK: Duration = Duration::from_millis(1);

type Libraries = [Option<DatRsForkFunc>; LIBRARIES_MAX];

static LOADED: HeldLock<Libraries> = HeldLock::new([None; LIBRARIES_MAX]);

/// The number of loads in progress. It grows only while [`LOADED`] is locked.
static LOADS: AtomicUsize = AtomicUsize::new(0);

/// The process that forks.
static PARENT: AtomicU32 = AtomicU32::new(0);

/// A load in progress.
#[derive(Debug)]
pub(super) struct Load(());

impl Load {
    /// Begins to load. Waits for the end of a fork.
    pub(super) fn begin() -> Self {
        let _loaded = LOADED.lock();
        LOADS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // In a child that was made by this load, there is none any more.
        let fewer = |loads: usize| loads.checked_sub(1);
        let _ = LOADS.fetch_update(Ordering::Release, Ordering::Relaxed, fewer);
    }
}

/// Adds a library that was loaded and that no thread uses yet. Waits for the end of a fork.
pub(super) fn add(around: DatRsForkFunc) {
    let is_it = |known: DatRsForkFunc| std::ptr::fn_addr_eq(known, around);
    let mut loaded = LOADED.lock();
    let place = loaded.iter_mut().find(|place| place.is_none_or(is_it));
    if let Some(place) = place {
        *place = Some(around);
    }
}

/// The locks of all provider libraries, and the lock of their list.
pub(crate) struct Providers;

impl Providers {
    pub(crate) fn hold(&self) {
        let until = Instant::now() + LOAD_MAX;
        loop {
            LOADED.hold();
            if LOADS.load(Ordering::Acquire) > 0 && Instant::now() < until {
                LOADED.release();
                sleep(LOOK);
                continue;
            }
            PARENT.store(std::process::id(), Ordering::Relaxed);
            let lacking = loaded().find(|around| around(DatRsForkStep::QUERY) == 0);
            let Some(lacking) = lacking else { return };
            // Another thread that forks may have those locks, and need the list.
            LOADED.release();
            lacking(DatRsForkStep::HOLD);
        }
    }

    /// The handlers of a library, which may run after this, find its locks released.
    pub(crate) fn release(&self) {
        for around in loaded() {
            around(DatRsForkStep::RELEASE);
        }
        if PARENT.load(Ordering::Relaxed) != std::process::id() {
            // The child has no thread that loads.
            LOADS.store(0, Ordering::Relaxed);
        }
        LOADED.release();
    }
}

/// The libraries, while this thread holds the list.
fn loaded() -> impl Iterator<Item = DatRsForkFunc> {
    LOADED.held_value().into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    static IS_HELD: AtomicBool = AtomicBool::new(false);
    static STEPS: Mutex<Vec<c_int>> = Mutex::new(Vec::new());

    extern "C" fn library(step: c_int) -> c_int {
        STEPS.lock().unwrap().push(step);
        match step {
            DatRsForkStep::HOLD => IS_HELD.store(true, Ordering::Relaxed),
            DatRsForkStep::RELEASE => IS_HELD.store(false, Ordering::Relaxed),
            _ => {}
        }
        IS_HELD.load(Ordering::Relaxed).into()
    }

    fn a_fork_waits_for_a_load_that_ends() {
        let load = Load::begin();
        let has_loaded = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(20 * LOOK);
                has_loaded.store(true, Ordering::Relaxed);
                drop(load);
            });
            Providers.hold();
            assert!(has_loaded.load(Ordering::Relaxed));
            Providers.release();
        });
    }

    fn a_load_that_forks_is_not_waited_for_longer_than_the_limit() {
        let load = Load::begin();
        Providers.hold();
        Providers.release();
        drop(load);
    }

    /// One test, because the list is that of the process.
    #[test]
    fn a_fork_waits_for_loads_and_holds_the_locks_of_libraries_that_have_not() {
        a_fork_waits_for_a_load_that_ends();
        a_load_that_forks_is_not_waited_for_longer_than_the_limit();
        add(library);
        add(library);
        for is_held_before in [false, true] {
            IS_HELD.store(is_held_before, Ordering::Relaxed);
            STEPS.lock().unwrap().clear();
            Providers.hold();
            assert!(IS_HELD.load(Ordering::Relaxed));
            Providers.release();
            assert!(!IS_HELD.load(Ordering::Relaxed));
            let expected: &[_] = match is_held_before {
                false => &[
                    DatRsForkStep::QUERY,
                    DatRsForkStep::HOLD,
                    DatRsForkStep::QUERY,
                    DatRsForkStep::RELEASE,
                ],
                true => &[DatRsForkStep::QUERY, DatRsForkStep::RELEASE],
            };
            assert_eq!(*STEPS.lock().unwrap(), expected);
        }
        assert!(LOADED.held_value().is_none());
    }
}
