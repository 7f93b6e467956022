//! A second network, and a pair of virtual Ethernet devices of MTU 1500 between it and ours.
//!
//! The programs `ip` and `tc` create the devices. They are installed on every machine that has a
//! network, and the crates that speak their netlink dialect depend on an asynchronous runtime.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CloneFlags, setns};

use crate::net_space;

/// The two devices of a cable and their addresses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// The device in our network, and its address.
    pub(crate) near: &'static str,
    near_address: Ipv4Addr,
    /// The device in the second network, and its address.
    pub(crate) far: &'static str,
    far_address: Ipv4Addr,
    /// The queueing discipline at both ends, as `tc` reads it.
    discipline: Option<&'static str>,
}

/// A link whose speed is limited only by the kernel.
pub(crate) const FAST: Lane = Lane {
    near: "near",
    near_address: Ipv4Addr::new(192, 0, 2, 1),
    far: "far",
    far_address: Ipv4Addr::new(192, 0, 2, 2),
    discipline: None,
};

/// A link as fast as a network adapter of 10 Gbit/s. The burst holds several packets of 64 KiB,
/// which is the longest packet that TCP passes to a device. The queue is longer than the amount by
/// which reno's window shrinks.
pub(crate) const SHAPED: Lane = Lane {
    near: "near-10g",
    near_address: Ipv4Addr::new(198, 51, 100, 1),
    far: "far-10g",
    far_address: Ipv4Addr::new(198, 51, 100, 2),
    discipline: Some("tbf rate 10gbit burst 256kb limit 4mb"),
};

/// The second network. The kernel removes it, and the devices with it, when the last process and
/// the last descriptor in it are gone.
#[derive(Debug)]
pub(crate) struct Cable {
    far: File,
    lane: &'static Lane,
}

impl Cable {
    /// Makes the second network and the pair. This process must be in a network of its own.
    pub(crate) fn lay(lane: &'static Lane) -> Result<Self> {
        let cable = Self {
            far: new_network()?,
            lane,
        };
        let Lane { near, far, .. } = lane;
        // The number is that of our own descriptor, which `ip` opens through this process.
        let network = format!("/proc/{}/fd/{}", std::process::id(), cable.far.as_raw_fd());
        let pair = format!("link add {near} mtu 1500 type veth");
        run(command(
            "ip",
            &format!("{pair} peer name {far} mtu 1500 netns {network}"),
        ))?;
        for line in lane.lines(near, lane.near_address) {
            run(command(line.0, &line.1))?;
        }
        for line in lane.lines(far, lane.far_address) {
            run(cable.start_far(command(line.0, &line.1))?)?;
        }
        Ok(cable)
    }

    /// The address of the device in the second network.
    pub(crate) const fn far_address(&self) -> IpAddr {
        IpAddr::V4(self.lane.far_address)
    }

    /// Makes `command` start in the second network, before the program loads any library.
    pub(crate) fn start_far(&self, mut command: Command) -> Result<Command> {
        let far = self.far.try_clone().context("duplicating a descriptor")?;
        let enter = move || setns(&far, CloneFlags::CLONE_NEWNET).map_err(Into::into);
        // SAFETY: between fork and exec this makes one system call and allocates nothing.
        unsafe { command.pre_exec(enter) };
        Ok(command)
    }
}

impl Lane {
    /// The programs that prepare one device, and their arguments.
    fn lines(&self, device: &str, address: Ipv4Addr) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("ip", format!("address add {address}/24 dev {device}")),
            ("ip", format!("link set {device} up")),
        ];
        let discipline = self.discipline;
        lines.extend(discipline.map(|it| ("tc", format!("qdisc add dev {device} root {it}"))));
        lines
    }
}

/// A network namespace with the same settings as ours.
fn new_network() -> Result<File> {
    // A namespace belongs to a thread, so a new thread enters one and returns a descriptor for it.
    thread::spawn(|| {
        net_space::enter_new()?;
        File::open("/proc/thread-self/ns/net").context("opening a network namespace")
    })
    .join()
    .map_err(|_| anyhow!("the thread that makes a namespace panicked"))?
}

fn command(program: &str, args: &str) -> Command {
    let mut command = Command::new(program);
    command.args(args.split(' '));
    command
}

fn run(mut command: Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command
        .output()
        .with_context(|| format!("running the program {program}"))?;
    let why = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{program}: {}", why.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shaped_lane_has_a_queueing_discipline() {
        let lines = FAST.lines(FAST.far, FAST.far_address);
        assert!(lines.iter().all(|(program, _)| *program == "ip"));
        let lines = SHAPED.lines(SHAPED.near, SHAPED.near_address);
        let (program, args) = lines.last().unwrap();
        assert_eq!(*program, "tc");
        assert!(args.starts_with("qdisc add dev near-10g root tbf rate 10gbit "));
    }
}
