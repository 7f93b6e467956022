//! A second network, and a pair of virtual Ethernet devices of MTU 1500 between it and ours.
//!
//! The program `ip` lays it: it is on every machine that has a network, and the crates that speak
//! its netlink dialect bring an asynchronous runtime along.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CloneFlags, setns, unshare};

use crate::setup;

/// The device in our network, and its address.
pub(crate) const NEAR: &str = "near";
const NEAR_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The device in the second network, and its address.
pub(crate) const FAR: &str = "far";
pub(crate) const FAR_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// The second network; it ends, and the devices with it, when nothing is left that is in it.
#[derive(Debug)]
pub(crate) struct Cable {
    far: File,
}

impl Cable {
    /// Makes the second network and the pair. This process must be in a network of its own.
    pub(crate) fn lay() -> Result<Self> {
        let cable = Self {
            far: new_network()?,
        };
        // The number is that of our own descriptor, which `ip` opens through this process.
        let far = format!("/proc/{}/fd/{}", std::process::id(), cable.far.as_raw_fd());
        let pair =
            format!("link add {NEAR} mtu 1500 type veth peer name {FAR} mtu 1500 netns {far}");
        run(ip(&pair))?;
        run(ip(&format!("address add {NEAR_ADDRESS}/24 dev {NEAR}")))?;
        run(ip(&format!("link set {NEAR} up")))?;
        let there = |args: &str| run(cable.start_far(ip(args))?);
        there(&format!("address add {FAR_ADDRESS}/24 dev {FAR}"))?;
        there(&format!("link set {FAR} up"))?;
        Ok(cable)
    }

    /// Has a program start in the second network, before it loads any library.
    pub(crate) fn start_far(&self, mut command: Command) -> Result<Command> {
        let far = self.far.try_clone().context("duplicating a descriptor")?;
        let enter = move || setns(&far, CloneFlags::CLONE_NEWNET).map_err(Into::into);
        // SAFETY: between fork and exec this makes one system call and allocates nothing.
        unsafe { command.pre_exec(enter) };
        Ok(command)
    }
}

/// A network namespace with the same settings as ours.
fn new_network() -> Result<File> {
    // Namespaces belong to threads, so one goes there and comes back with the way.
    thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).context(setup::NO_RIGHT)?;
        setup::furnish_network()?;
        File::open("/proc/thread-self/ns/net").context("opening a network namespace")
    })
    .join()
    .map_err(|_| anyhow!("the thread that makes a namespace panicked"))?
}

fn ip(args: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(args.split(' '));
    command
}

fn run(mut command: Command) -> Result<()> {
    let done = command.output().context("running the program ip")?;
    let why = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "ip: {}", why.trim());
    Ok(())
}
