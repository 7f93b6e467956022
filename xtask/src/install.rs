//! Third-party programs that the steps need, and their installation.

use std::env;
use std::io::{IsTerminal as _, Write as _, stdin, stdout};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use elf::ElfStream;
use elf::abi::PT_INTERP;
use elf::endian::AnyEndian;
use elf::file::Class;
use stack_tests::Finished;

use crate::job::Job;
use crate::report::Outcome;
use crate::workspace::Workspace;

/// A program, or the path of a file, and the Debian package that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    program: &'static str,
    package: &'static str,
    /// True if the program must run where no shared library is.
    is_static: bool,
}

impl Need {
    /// `program` on `PATH`, or the file at that path, from `package`.
    pub(crate) const fn new(program: &'static str, package: &'static str) -> Self {
        Self {
            program,
            package,
            is_static: false,
        }
    }

    /// A statically linked program.
    pub(crate) const fn new_static(program: &'static str, package: &'static str) -> Self {
        Self {
            is_static: true,
            ..Self::new(program, package)
        }
    }

    fn is_missing(self) -> bool {
        let found = find(self.program);
        !found.is_some_and(|file| !self.is_static || is_static(&file))
    }

    fn name(self) -> String {
        let kind = if self.is_static {
            "a statically linked "
        } else {
            ""
        };
        format!("{kind}{}", self.program)
    }
}

/// Returns true if the file is a program for 64 bits that names no interpreter (`PT_INTERP` in
/// elf(5)).
fn is_static(file: &Path) -> bool {
    let elf = std::fs::File::open(file)
        .ok()
        .map(ElfStream::<AnyEndian, _>::open_stream);
    elf.and_then(Result::ok).is_some_and(|elf| {
        let has_loader = elf.segments().iter().any(|it| it.p_type == PT_INTERP);
        elf.ehdr.class == Class::ELF64 && !has_loader
    })
}

/// Declares the programs, each with its package.
macro_rules! needs {
    ($($name:ident = $program:literal, $package:literal;)+) => {
        $(pub(crate) const $name: Need = Need::new($program, $package);)+
    };
}

needs! {
    CC = "cc", "gcc"; // the C compiler
    NM = "nm", "binutils"; // symbol tables
    PATCH = "patch", "patch"; // the examples of changes
    PKG_CONFIG = "pkg-config", "pkg-config"; // compiler flags of a library
    CXX = "g++", "g++"; // the C++ compiler, for libFuzzer
    AARCH64_CC = "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"; // compiles for 64-bit Arm
    AARCH64_LIBC = "/usr/aarch64-linux-gnu/include/stdio.h", "libc6-dev-arm64-cross";
    QEMU_AARCH64 = "qemu-aarch64", "qemu-user"; // runs programs for 64-bit Arm
    MAKE = "make", "make"; // runs the Makefile of the C examples
    // OFA's transaction and performance tester, as Debian ships it.
    DAPLTEST = "dapltest", "dapl2-utils";
    DTEST = "dtest", "dapl2-utils"; // OFA's smaller tests, in the same package
    // OFA's headers, with which portable sources are compiled too.
    OFA_HEADERS = "/usr/include/dat2/udat.h", "libdapl-dev";
    TSHARK = "tshark", "tshark"; // the independent decoder of our frames
    DUMPCAP = "dumpcap", "wireshark-common"; // the capture program of Wireshark
    IBV_PINGPONG = "ibv_rc_pingpong", "ibverbs-utils"; // rdma-core's programs for verbs
    RPING = "rping", "rdmacm-utils"; // rdma-core's program for connections by address
    PERFTEST = "ib_write_bw", "perftest"; // measures verbs; independent of this project
    FABRIC = "fi_pingpong", "libfabric-bin"; // libraries over verbs, and their programs
    UCX = "ucx_perftest", "ucx-utils";
    OPEN_MPI = "mpirun.openmpi", "openmpi-bin"; // MPI over UCX
    OPEN_MPI_CC = "mpicc.openmpi", "libopenmpi-dev";
    MPICH = "mpiexec.mpich", "mpich";
    MPICH_CC = "mpicc.mpich", "libmpich-dev";
    VERBS_HEADERS = "/usr/include/infiniband/verbs.h", "libibverbs-dev";
    IP = "ip", "iproute2"; // networks of virtual Ethernet
    NFT = "nft", "nftables"; // drops packets in tests
    TC = "tc", "iproute2"; // delays packets
    // The interpreter of programs that are independent of this project.
    PYTHON = "python3", "python3";
    PIP = "pip3", "python3-pip"; // installs Intel MPI
    NSENTER = "nsenter", "util-linux"; // starts a program in another network
    REDIS = "redis-server", "redis-server"; // a server that is independent of this project
    REDIS_TOOLS = "redis-benchmark", "redis-tools"; // the load generator and the clients of redis
    NGINX = "nginx", "nginx"; // serves files from several processes
    WRK = "wrk", "wrk"; // sends requests to a web server as fast as it can
    // A process for each connection; its own programs are in a directory of their version.
    POSTGRES = "pg_ctlcluster", "postgresql";
    MEMCACHED = "memcached", "memcached"; // threads that share connections
    IPERF3 = "iperf3", "iperf3"; // transfers bulk data in both directions
    CURL = "curl", "curl"; // the client of many protocols
    VSFTPD = "vsftpd", "vsftpd"; // an FTP server
    HAPROXY = "haproxy", "haproxy"; // a proxy that splices
    INETD = "inetd", "openbsd-inetd"; // starts a program for each connection
    // Listens for a program that it starts with the first connection.
    SOCKET_ACTIVATE = "systemd-socket-activate", "systemd";
    STUNNEL = "stunnel4", "stunnel4"; // relays connections by TLS
    OPENSSL = "openssl", "openssl"; // makes a certificate for it
    PEN = "pen", "pen"; // a load balancer
    VARNISH = "varnishd", "varnish"; // a cache
    SQUID = "/usr/sbin/squid", "squid"; // a cache with an event loop of its own
    SSHD = "/usr/sbin/sshd", "openssh-server"; // serves in a sandbox
    SSH = "ssh", "openssh-client"; // its client
    DOVECOT = "/usr/sbin/dovecot", "dovecot-imapd"; // starts its workers without the environment
    PHP = "php", "php-cli"; // binds the C library's functions past a preloaded library
    SUPERVISOR = "supervisord", "supervisor"; // executes workers that inherit its listener
    NODE = "node", "nodejs"; // runtimes with networks of their own, in full runs
    JAVA = "javac", "default-jdk-headless"; // compiles and runs a Java source
    ERLANG = "escript", "erlang-base"; // runs an Erlang script
    GO = "go", "golang-go"; // builds programs that make their system calls without the C library
    MARIADB = "mariadbd", "mariadb-server"; // a thread for each connection
    STRACE = "strace", "strace"; // counts system calls
    VALGRIND = "valgrind", "valgrind"; // memory errors in C programs that use the library
}

/// Returns those of `needs` that are not on this machine.
pub(crate) fn missing(needs: &[Need]) -> Vec<Need> {
    needs
        .iter()
        .copied()
        .filter(|need| need.is_missing())
        .collect()
}

/// Asks on the terminal whether to install missing programs, and installs them if the answer is
/// yes. Programs such as redis are services of the system.
pub(crate) fn provide_if_agreed(workspace: &Workspace, needs: &[Need]) -> Result<Outcome> {
    let absent = missing(needs);
    let may_install = nix::unistd::geteuid().is_root() && find("apt-get").is_some();
    if absent.is_empty() || !may_install || !stdin().is_terminal() {
        let advice = || Outcome::NotRun(advice(&absent));
        return Ok(match absent.is_empty() {
            true => Outcome::passed(0, "nothing to install"),
            false => advice(),
        });
    }
    let packages = packages_of(&absent);
    print!("\nInstall {packages} with apt-get, for parts of the demo? [y/N] ");
    stdout().flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => provide(workspace, needs),
        _ => Ok(Outcome::NotRun(advice(&absent))),
    }
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
    // If a list cannot be fetched, the installation shows whether it is needed.
    let _ = apt_get(workspace, "update --quiet");
    apt_get(
        workspace,
        &format!("install --yes --no-install-recommends {packages}"),
    )?;
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
    let programs: Vec<String> = needs.iter().map(|need| need.name()).collect();
    format!(
        "{} missing; as root: apt-get install {}",
        programs.join(", "),
        packages_of(needs)
    )
}

/// Runs an apt-get command that never prompts.
pub(crate) fn apt_get(workspace: &Workspace, args: &str) -> Result<Finished> {
    let _alone = lock_apt();
    Job::new(workspace, "apt-get", "apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // The services of a package must not start, because tests start what they need.
        .env("RUNLEVEL", "1")
        .minutes(9)
        .check()
}

/// Excludes other uses of apt-get by this process: an apt-get that finds the lock of the package
/// lists taken fails. Steps run in parallel.
pub(crate) fn lock_apt() -> MutexGuard<'static, ()> {
    static APT: Mutex<()> = Mutex::new(());
    APT.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_program_with_an_interpreter_is_not_a_static_one() {
        let shell = Need::new_static("/bin/sh", "sh-static");
        assert_eq!(missing(&[shell]), [shell]);
        assert!(advice(&[shell]).starts_with("a statically linked /bin/sh missing"));
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["static", "text"].map(|name| dir.path().join(name));
        // One program header, of type PT_LOAD, directly behind the file's header.
        let mut elf = vec![0; 64 + 56];
        elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        elf[20] = 1;
        (elf[32], elf[54], elf[56], elf[64]) = (64, 56, 1, 1);
        std::fs::write(&one, &elf).unwrap();
        std::fs::write(&other, "#!/bin/sh\n").unwrap();
        assert!(is_static(&one) && !is_static(&other));
    }

    #[test]
    fn a_package_of_two_programs_is_named_once() {
        assert_eq!(
            packages_of(&[DAPLTEST, DTEST, TSHARK]),
            "dapl2-utils tshark"
        );
    }
}
