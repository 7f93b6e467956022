//! The library under test, loaded once, and a check for leaked resources of the process.

use std::{
    fs, io,
    ptr::{self, null_mut},
    sync::OnceLock,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use dat_api::{LIBRARY_ENV, Library, abi::*};

use super::calls::{Calls, idle_agent};

/// The environment variable that names the registry file.
pub const REGISTRY_ENV: &str = "DAT_OVERRIDE";

/// The interface that the registry file must have.
pub const IA_NAME: &std::ffi::CStr = c"iwarp-lo";

/// The time in which the library must release threads and descriptors after an IA was closed.
const SETTLE: Duration = Duration::from_secs(5);

/// Inputs that were not run because there was no library.
static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// The loaded library.
#[derive(Debug)]
pub struct Session {
    calls: Calls,
    before: Held,
}

impl Session {
    /// The session of this process; `None` without a library to test. The first such call prints
    /// the reason, and each is counted.
    pub fn get() -> Option<&'static Self> {
        static SESSION: OnceLock<Option<Session>> = OnceLock::new();
        let session = SESSION.get_or_init(Self::open).as_ref();
        if session.is_none() {
            SKIPPED.fetch_add(1, Ordering::Relaxed);
        }
        session
    }

    /// The number of inputs of this process that were not run.
    #[must_use]
    pub fn skipped() -> usize {
        SKIPPED.load(Ordering::Relaxed)
    }

    /// The functions.
    #[must_use]
    pub fn calls(&'static self) -> &'static Calls {
        &self.calls
    }

    /// Panics unless the process holds the same resources as before the first program.
    pub fn assert_nothing_left(&self) {
        let deadline = Instant::now() + SETTLE;
        loop {
            let now = Held::count().expect("a readable /proc");
            if now.descriptors <= self.before.descriptors && now.threads <= self.before.threads {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "before {:?}, after closing the IA {now:?}: {:?}",
                self.before,
                descriptors()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn open() -> Option<Self> {
        for name in [LIBRARY_ENV, REGISTRY_ENV] {
            if std::env::var_os(name).is_none() {
                eprintln!(
                    "c_calls_staged: SKIPPED, {name} is not set; run `cargo xtask stage`, then \
                     `cargo xtask fuzz --target c_calls_staged`"
                );
                return None;
            }
        }
        let library = Library::get().unwrap_or_else(|error| panic!("{error}"));
        let calls = Calls::loaded(library);
        warm_up(&calls);
        Some(Self {
            calls,
            before: Held::count().expect("a readable /proc"),
        })
    }
}

/// Opens and closes the IA once, and has an agent called in between. So the resources that the
/// libraries allocate once and keep, such as the thread for agents, do not count as leaks of a
/// program.
fn warm_up(calls: &Calls) {
    let (mut ia, mut evd) = (null_mut(), null_mut());
    // SAFETY: the name is NUL-terminated and the out-pointers are local variables.
    let opened = unsafe {
        (calls.dat_ia_openv)(
            ptr::from_ref(IA_NAME).cast_mut().cast(),
            8,
            &mut evd,
            &mut ia,
            2,
            0,
            0,
        )
    };
    assert!(opened.is_success(), "opening {IA_NAME:?}: {opened:?}");
    call_agent(calls, ia);
    // SAFETY: the handle was just opened.
    let closed = unsafe { (calls.dat_ia_close)(ia, DAT_CLOSE_ABRUPT_FLAG) };
    assert!(closed.is_success(), "closing {IA_NAME:?}: {closed:?}");
}

/// Creates a CNO with an agent, and an event that triggers it.
fn call_agent(calls: &Calls, ia: DatIaHandle) {
    let (mut cno, mut evd) = (null_mut(), null_mut());
    let mut event = DatEvent::zeroed();
    event.event_number = DAT_SOFTWARE_EVENT;
    // SAFETY: the handles were just returned by the library, the out-pointers are local variables,
    // and the agent's function can be called at any time.
    let results = unsafe {
        [
            (calls.dat_cno_create)(ia, idle_agent(true), &mut cno),
            (calls.dat_evd_create)(ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &mut evd),
            (calls.dat_evd_post_se)(evd, &event),
        ]
    };
    assert!(
        results.iter().all(|result| result.is_success()),
        "{results:?}"
    );
}

/// The resources whose leaks are counted.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
}

impl Held {
    fn count() -> io::Result<Self> {
        Ok(Self {
            descriptors: fs::read_dir("/proc/self/fd")?.count(),
            threads: fs::read_dir("/proc/self/task")?.count(),
        })
    }
}

/// The open descriptors, for the message of a failure.
fn descriptors() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|link| link.display().to_string())
        .collect()
}
