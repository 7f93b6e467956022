//! The switch of this process, which decides which protocol carries a socket.
//!
//! The switch is made when the first socket connects or listens, so a program without sockets does
//! not pay for it.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use host::descriptors::raise;
use ops::netlink::NetStack;
use ops::rules::{Object, Source};
use ops::{OffloadProtocol, Program, Registry, Switch, WITHIN};
use ops_local_protocol::LocalProtocol;
use ops_sdp_protocol::SdpProtocol;

use crate::foreign;
use crate::process::per_process::PerProcess;
use crate::process::{self, guard, real};
use crate::tcp::namespaces::{self, Namespace};

/// Set in the environment by `opsrun --software`.
const SOFTWARE: &str = "OPS_SOFTWARE";

/// The priority of the protocol for connections within the host.
const LOCAL_FIRST: i32 = 1;

static SWITCH: PerProcess<Option<Arc<Switch>>> = PerProcess::new();

/// The network namespace in which the switch was made, and whose routes it reads.
static NAMESPACE: PerProcess<Namespace> = PerProcess::new();

/// True in a process whose sockets stay on TCP, and in its descendants.
static IS_ON_TCP: AtomicBool = AtomicBool::new(false);

/// Keeps all further sockets of this process on TCP.
pub(crate) fn keep_on_tcp() {
    IS_ON_TCP.store(true, Ordering::Relaxed);
}

/// Returns the switch, if it was made already.
pub(crate) fn made() -> Option<&'static Arc<Switch>> {
    if IS_ON_TCP.load(Ordering::Relaxed) {
        return None;
    }
    SWITCH.get()?.as_ref()
}

/// Returns the switch, and makes it if necessary. `None`: all sockets stay on TCP.
pub(crate) fn switch() -> Option<&'static Arc<Switch>> {
    if process::is_vforked() || IS_ON_TCP.load(Ordering::Relaxed) {
        return None;
    }
    SWITCH.get_or_init(make).as_ref()
}

/// Returns true if no protocol may carry the socket, because the socket, this thread and the switch
/// are not known to be in one network namespace.
pub(crate) fn is_elsewhere(socket: BorrowedFd<'_>) -> bool {
    namespaces::is_elsewhere(socket, NAMESPACE.get().copied().flatten())
}

/// Returns the network stack of the namespace in which an inherited or own listener was made.
/// `None`: netlink is not permitted, or this thread is in another namespace.
pub(crate) fn stack_of(listener: BorrowedFd<'_>) -> Option<&'static NetStack> {
    /// The stack of a process that accepts connections and has not connected or listened itself.
    static OF_ACCEPTS: PerProcess<(Namespace, Option<NetStack>)> = PerProcess::new();
    if process::is_vforked() {
        return None;
    }
    let (home, stack) = match SWITCH.get() {
        Some(switch) => (NAMESPACE.get().copied(), switch.as_ref()?.stack()),
        None => {
            let open = || (namespaces::of_thread(), NetStack::open().ok());
            let (home, stack) = OF_ACCEPTS.get_or_init(open);
            (Some(*home), stack.as_ref())
        }
    };
    stack.filter(|_| !namespaces::is_elsewhere(listener, home.flatten()))
}

/// Starts a thread that answers the port mapper's requests. Must be called before a service is
/// offered, because peers would wait for an answer that is never sent. If the thread cannot be
/// started or has ended, peers use TCP, and the next service tries again.
pub(crate) fn answer(switch: &Arc<Switch>) {
    let _inside = guard::enter();
    let Some(service) = switch.port_mapper_service() else {
        return;
    };
    // If no thread can be started, the service is dropped with the closure.
    let _ = host::threads::spawn_quiet("ops-portmap", || service.serve(|| false));
}

fn make() -> Option<Arc<Switch>> {
    // A protocol may load libraries on a thread of this library.
    real::find_all();
    let known = [ops_local_protocol::SETTINGS, ops_sdp_protocol::SETTINGS].concat();
    let rules = match Source::choose(host::environment::variable).load(&known) {
        Ok(loaded) => loaded.rules,
        Err(error) => {
            // With an unusable rule file no socket is offloaded, and the error is written to
            // standard error.
            ops::log::print_error(&format!("{error}; all sockets stay on TCP"));
            return None;
        }
    };
    ops::log::begin(rules.log());
    let registry = Arc::new(Registry::default());
    // With this variable, SDP over the software provider carries all sockets that no rule names.
    let is_software = host::environment::variable(SOFTWARE).is_some();
    if let Some(directory) = our_directory() {
        ops_sdp_protocol::prefer_libraries_in(&directory);
    }
    let local = Arc::new(LocalProtocol::new(is_software));
    let sdp = Arc::new(SdpProtocol::new(raise).for_all(is_software));
    let mut protocols: Vec<(Arc<dyn OffloadProtocol>, i32)> = vec![(local, LOCAL_FIRST), (sdp, 0)];
    protocols.extend(rules.objects().iter().filter_map(load));
    for (protocol, priority) in protocols {
        match registry.register(protocol, priority) {
            // The registration lasts as long as the process.
            Ok(registration) => std::mem::forget(registration),
            Err(error) => ops::log::print_error(&error.to_string()),
        }
    }
    let program = Program {
        path: std::env::current_exe()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        called: process::called(),
        user: rustix::process::geteuid().as_raw(),
    };
    NAMESPACE.get_or_init(namespaces::of_thread);
    let stack = NetStack::open().ok();
    Switch::new(program, Some(rules), registry, stack, WITHIN).ok()
}

/// Loads the protocol of an object that the rule file names. Without it the other protocols are
/// used, and the error is written to standard error.
fn load(object: &Object) -> Option<(Arc<dyn OffloadProtocol>, i32)> {
    match foreign::load(&object.path) {
        Ok((protocol, wanted)) => Some((Arc::new(protocol), object.priority.unwrap_or(wanted))),
        Err(error) => {
            ops::log::print_error(&error);
            None
        }
    }
}

/// Returns the directory of this library, in which the DAT libraries were installed too.
fn our_directory() -> Option<PathBuf> {
    let here: fn() -> Option<PathBuf> = our_directory;
    let library = host::library::file_of(here as usize)?;
    let library = std::path::absolute(library).ok()?;
    library.parent().map(Path::to_owned)
}
