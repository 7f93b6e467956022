//! Two networks joined by a cable: a pair of virtual Ethernet devices of MTU 1500.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CloneFlags, unshare};

use crate::{NetSpace, Program};

/// The time limit of `ip`.
const DEADLINE: Duration = Duration::from_secs(240);

/// The interval at which the table of routes is read again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A second network in addition to the calling thread's, and the cable between them.
///
/// The near device is [`Veth::NEAR`], in the network of the calling thread. The far device is
/// [`Veth::FAR`], in a network that programs enter by [`Program::in_network_of`].
#[derive(Debug)]
pub struct Veth {
    far: File,
}

/// The address families of both devices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Families {
    Both,
    Ipv6,
}

impl Veth {
    /// The device in the network of the calling thread.
    pub const NEAR: &str = "near";
    /// The device in the second network.
    pub const FAR: &str = "far";
    /// The near device's IPv4 address.
    pub const NEAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    /// The far device's IPv4 address.
    pub const FAR_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    /// The near device's address on the link.
    pub const NEAR_LINK: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    /// The far device's address on the link.
    pub const FAR_LINK: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    /// The near device's IPv6 address.
    pub const NEAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    /// The far device's IPv6 address.
    pub const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));

    /// Creates the cable, whose ends have the addresses above. Returns `None` if `net` is the
    /// host's network, which must not be changed.
    pub fn create(net: &NetSpace) -> Result<Option<Self>> {
        Self::with_families(net, Families::Both)
    }

    /// Creates the cable as [`create`](Self::create) does, without the IPv4 addresses.
    pub fn create_ipv6(net: &NetSpace) -> Result<Option<Self>> {
        Self::with_families(net, Families::Ipv6)
    }

    fn with_families(net: &NetSpace, families: Families) -> Result<Option<Self>> {
        if matches!(net, NetSpace::Host(_)) {
            return Ok(None);
        }
        let veth = Self { far: new_space()? };
        let (near, far) = (Self::NEAR, Self::FAR);
        let into = veth.far_network();
        ip(&format!(
            "link add {near} mtu 1500 type veth peer name {far} mtu 1500 netns {into}"
        ))
        .spawn_and_wait()?;
        let ends = [
            (near, Self::NEAR_V4, Self::NEAR_V6, Self::NEAR_LINK),
            (far, Self::FAR_V4, Self::FAR_V6, Self::FAR_LINK),
        ];
        for (device, ipv4, ipv6, link) in ends {
            let mut commands = vec![
                format!("link set {device} addrgenmode none"),
                format!("address add {link}/64 dev {device} nodad"),
                format!("address add {ipv6}/64 dev {device} nodad"),
                format!("link set {device} up"),
                "link set lo up".to_owned(),
            ];
            if families == Families::Both {
                commands.insert(0, format!("address add {ipv4}/24 dev {device}"));
            }
            for command in commands {
                let program = ip(&command);
                let program = if device == far {
                    program.in_network_of(&veth)?
                } else {
                    program
                };
                program.spawn_and_wait()?;
            }
        }
        for (device, _, ipv6, link) in ends {
            veth.await_routes(device, &[ipv6.to_string(), link.to_string()])?;
        }
        Ok(Some(veth))
    }

    /// Waits until the IPv6 addresses of `device` are reachable. The kernel makes the routes to
    /// these addresses a moment after the link is up.
    fn await_routes(&self, device: &str, addresses: &[String]) -> Result<()> {
        let end = Instant::now() + DEADLINE;
        loop {
            let program = ip("-6 route show table local");
            let program = match device {
                Self::FAR => program.in_network_of(self)?,
                _ => program,
            };
            let shown = program.run(DEADLINE)?.text;
            let has_route =
                |address: &String| shown.contains(&format!("local {address} dev {device} "));
            if addresses.iter().all(has_route) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{device} has no routes:\n{shown}");
            thread::sleep(RETRY_INTERVAL);
        }
    }

    /// The path of the second network, for programs such as `nsenter`.
    pub fn far_network(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.far.as_raw_fd())
    }

    /// Makes the program of a [`Command`] run at the far end.
    pub fn at_far_end(&self, command: &mut Command) -> Result<()> {
        let network = self.far.try_clone().context("duplicating a namespace")?;
        // SAFETY: between fork and exec the closure makes only the async-signal-safe call setns,
        // and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                if libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) == 0 {
                    Ok(())
                } else {
                    Err(std::io::Error::last_os_error())
                }
            });
        }
        Ok(())
    }
}

impl Program {
    /// Makes the program run at the far end of `veth`.
    pub fn in_network_of(self, veth: &Veth) -> Result<Self> {
        let far = veth.far.try_clone().context("duplicating a namespace")?;
        Ok(self.in_network(far))
    }

    fn spawn_and_wait(self) -> Result<()> {
        self.run(DEADLINE).map(drop)
    }
}

fn ip(args: &str) -> Program {
    Program::new("ip")
        .args_line(args)
        .named(&format!("ip {args}"))
}

/// A network namespace that exists as long as the file is open.
fn new_space() -> Result<File> {
    // A namespace belongs to a thread, so a new thread enters one and returns a descriptor for it.
    thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).context("making a network namespace")?;
        File::open("/proc/thread-self/ns/net").context("opening a network namespace")
    })
    .join()
    .map_err(|_| anyhow!("the thread that makes a namespace panicked"))?
}
