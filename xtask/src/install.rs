//! Third-party programs that the steps need, and their installation.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::job::Job;
use crate::report::Outcome;
use crate::workspace::Workspace;

/// A program, or the path of a file, and the Debian package that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    program: &'static str,
    package: &'static str,
}

impl Need {
    /// `program` on `PATH`, or the file at that path, from `package`.
    pub(crate) const fn new(program: &'static str, package: &'static str) -> Self {
        Self { program, package }
    }
}

/// The C compiler.
pub(crate) const CC: Need = Need::new("cc", "gcc");
/// Symbol tables.
pub(crate) const NM: Need = Need::new("nm", "binutils");
/// Compiler flags of a library.
pub(crate) const PKG_CONFIG: Need = Need::new("pkg-config", "pkg-config");
/// Runs the Makefile of the C examples.
pub(crate) const MAKE: Need = Need::new("make", "make");
/// OFA's transaction and performance tester, as Debian ships it.
pub(crate) const DAPLTEST: Need = Need::new("dapltest", "dapl2-utils");
/// OFA's smaller tests, in the same package.
pub(crate) const DTEST: Need = Need::new("dtest", "dapl2-utils");
/// OFA's headers, with which portable sources are compiled too.
pub(crate) const OFA_HEADERS: Need = Need::new("/usr/include/dat2/udat.h", "libdapl-dev");
/// The independent decoder of our frames.
pub(crate) const TSHARK: Need = Need::new("tshark", "tshark");
/// The capture program of Wireshark.
pub(crate) const DUMPCAP: Need = Need::new("dumpcap", "wireshark-common");
/// Networks of virtual Ethernet.
pub(crate) const IP: Need = Need::new("ip", "iproute2");
/// Drops packets in tests.
pub(crate) const NFT: Need = Need::new("nft", "nftables");
/// Delays packets.
pub(crate) const TC: Need = Need::new("tc", "iproute2");
/// The interpreter of programs that are independent of this project.
pub(crate) const PYTHON: Need = Need::new("python3", "python3");
/// A server that is independent of this project.
pub(crate) const REDIS: Need = Need::new("redis-server", "redis-server");
/// The load generator and the clients of redis.
pub(crate) const REDIS_TOOLS: Need = Need::new("redis-benchmark", "redis-tools");
/// Serves files from several processes.
pub(crate) const NGINX: Need = Need::new("nginx", "nginx");
/// Sends requests to a web server as fast as it can.
pub(crate) const WRK: Need = Need::new("wrk", "wrk");
/// A process for each connection; its own programs are in a directory of their version.
pub(crate) const POSTGRES: Need = Need::new("pg_ctlcluster", "postgresql");
/// Threads that share connections.
pub(crate) const MEMCACHED: Need = Need::new("memcached", "memcached");
/// Transfers bulk data in both directions.
pub(crate) const IPERF3: Need = Need::new("iperf3", "iperf3");
/// The client of many protocols.
pub(crate) const CURL: Need = Need::new("curl", "curl");
/// An FTP server.
pub(crate) const VSFTPD: Need = Need::new("vsftpd", "vsftpd");
/// A proxy that splices.
pub(crate) const HAPROXY: Need = Need::new("haproxy", "haproxy");
/// Starts a program for each connection.
pub(crate) const INETD: Need = Need::new("inetd", "openbsd-inetd");
/// Listens for a program that it starts with the first connection.
pub(crate) const SOCKET_ACTIVATE: Need = Need::new("systemd-socket-activate", "systemd");
/// Runtimes with networks of their own, in full runs.
pub(crate) const NODE: Need = Need::new("node", "nodejs");
/// Compiles and runs a Java source.
pub(crate) const JAVA: Need = Need::new("javac", "default-jdk-headless");
/// Runs an Erlang script.
pub(crate) const ERLANG: Need = Need::new("escript", "erlang-base");
/// Builds programs that make their system calls without the C library.
pub(crate) const GO: Need = Need::new("go", "golang-go");
/// A thread for each connection.
pub(crate) const MARIADB: Need = Need::new("mariadbd", "mariadb-server");
/// Counts system calls.
pub(crate) const STRACE: Need = Need::new("strace", "strace");
/// Memory errors in C programs that use the library.
pub(crate) const VALGRIND: Need = Need::new("valgrind", "valgrind");

/// Returns those of `needs` that are not on this machine.
pub(crate) fn missing(needs: &[Need]) -> Vec<Need> {
    needs
        .iter()
        .copied()
        .filter(|need| find(need.program).is_none())
        .collect()
}

/// Installs missing programs, if this user may; otherwise returns the command that installs them.
pub(crate) fn provide(workspace: &Workspace, needs: &[Need]) -> Result<Outcome> {
    let absent = missing(needs);
    if absent.is_empty() {
        return Ok(Outcome::passed(0, "nothing to install"));
    }
    let packages = packages_of(&absent);
    if !nix::unistd::geteuid().is_root() || find("apt-get").is_none() {
        return Ok(Outcome::NotRun(advice(&absent)));
    }
    apt_get(workspace, "update --quiet").run()?;
    apt_get(
        workspace,
        &format!("install --yes --no-install-recommends {packages}"),
    )
    .check()?;
    let absent = missing(needs);
    anyhow::ensure!(
        absent.is_empty(),
        "still missing after apt-get: {}",
        packages_of(&absent)
    );
    Ok(Outcome::passed(0, format!("installed {packages}")))
}

/// A sentence with the command that installs `needs`.
pub(crate) fn advice(needs: &[Need]) -> String {
    let programs: Vec<&str> = needs.iter().map(|need| need.program).collect();
    format!(
        "{} missing; as root: apt-get install {}",
        programs.join(", "),
        packages_of(needs)
    )
}

/// An apt-get command that never prompts.
pub(crate) fn apt_get(workspace: &Workspace, args: &str) -> Job {
    Job::new(workspace, "apt-get", "apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // The services of a package must not start, because tests start what they need.
        .env("RUNLEVEL", "1")
        .minutes(5)
}

fn packages_of(needs: &[Need]) -> String {
    let mut packages: Vec<&str> = needs.iter().map(|need| need.package).collect();
    packages.dedup();
    packages.join(" ")
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    // Debian keeps some of the programs in directories that only root's `PATH` has.
    let system = ["/usr/sbin", "/sbin"].map(|dir| Path::new(dir).to_owned());
    env::split_paths(&path)
        .chain(system)
        // An absolute path replaces the directory.
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_no_package_provides_is_missing() {
        let odd = Need::new("no-such-program-anywhere", "none");
        assert_eq!(missing(&[Need::new("sh", "dash"), odd]), [odd]);
    }

    #[test]
    fn a_package_of_two_programs_is_named_once() {
        assert_eq!(
            packages_of(&[DAPLTEST, DTEST, TSHARK]),
            "dapl2-utils tshark"
        );
    }
}
