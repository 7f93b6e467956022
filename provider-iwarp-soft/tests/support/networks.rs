//! Network namespaces of a test: the calling thread's, and a second one. A pair of virtual Ethernet
//! devices connects them.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::testbed::wait_until;

/// The device in the namespace of the calling thread, and its addresses.
pub const NEAR: &str = "near";
pub const NEAR_V4: &str = "192.0.2.1";
pub const NEAR_LINK: &str = "fe80::1";
/// The device in the second namespace, and its address.
pub const FAR: &str = "far";
pub const FAR_V4: &str = "192.0.2.2";
const FAR_LINK: &str = "fe80::2";

/// The second namespace, which exists as long as this value.
pub struct FarNetwork(File);

/// Moves the calling thread into a new network namespace. Returns false, and reports that the test
/// is not run, if that is not permitted.
fn enter_new_namespace(what: &str) -> bool {
    // SAFETY: the thread leaves its network namespace, and shares its descriptors as before.
    let entered = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
    if entered.is_err() {
        let why = format!("\nNOT RUN: {what}: network namespaces are not permitted\n");
        // Written directly to standard error: the test harness would capture `eprintln!`, and the
        // message would not be counted.
        std::io::stderr().write_all(why.as_bytes()).unwrap();
    }
    entered.is_ok()
}

/// Moves the calling thread into a new network namespace, and connects it to a second one by a pair
/// of virtual Ethernet devices. Returns `None` if that is not permitted.
pub fn connect_networks(what: &str) -> Option<FarNetwork> {
    if !enter_new_namespace(what) {
        return None;
    }
    let far = std::thread::scope(|scope| {
        let new =
            || enter_new_namespace(what).then(|| File::open("/proc/thread-self/ns/net").unwrap());
        scope.spawn(new).join().unwrap()
    })?;
    let far = FarNetwork(far);
    // The number is that of our own descriptor, which `ip` opens through this process.
    let netns = format!("/proc/{}/fd/{}", std::process::id(), far.0.as_raw_fd());
    ip(
        &format!("link add {NEAR} type veth peer name {FAR} netns {netns}"),
        None,
    );
    for (device, v4, link, network) in [
        (NEAR, NEAR_V4, NEAR_LINK, None),
        (FAR, FAR_V4, FAR_LINK, Some(&far)),
    ] {
        ip("link set lo up", network);
        ip(&format!("link set {device} addrgenmode none"), network);
        ip(&format!("address add {v4}/24 dev {device}"), network);
        ip(
            &format!("address add {link}/64 dev {device} nodad"),
            network,
        );
        ip(&format!("link set {device} up"), network);
    }
    // The kernel makes the routes to IPv6 addresses a moment after the links are up.
    for (device, link, network) in [(NEAR, NEAR_LINK, None), (FAR, FAR_LINK, Some(&far))] {
        let route = format!("local {link} dev {device} ");
        wait_until("no route to a link-local address", || {
            ip("-6 route show table local", network).contains(&route)
        });
    }
    Some(far)
}

/// Runs `ip`, in the second network if `network` is given, and returns its output.
fn ip(args: &str, network: Option<&FarNetwork>) -> String {
    let mut command = Command::new("ip");
    command.args(args.split(' '));
    if let Some(network) = network {
        network.enter_on_exec(&mut command);
    }
    let done = command.output().unwrap();
    assert!(done.status.success(), "ip {args}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

impl FarNetwork {
    /// Makes a command run its program in the second namespace.
    pub fn enter_on_exec(&self, command: &mut Command) {
        let network = self.0.try_clone().unwrap();
        let enter = move || {
            let kind = Some(LinkNameSpaceType::Network);
            Ok(move_into_link_name_space(network.as_fd(), kind)?)
        };
        // SAFETY: between fork and exec, `enter` makes one system call and allocates nothing.
        unsafe { command.pre_exec(enter) };
    }
}
