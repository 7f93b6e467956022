//! Communication libraries over the staged `libibverbs.so.1` and `librdmacm.so.1`, as Debian ships
//! them: libfabric, UCX, and Open MPI and MPICH over UCX. The machine needs no RDMA device.

use std::ffi::OsStr;

use anyhow::{Result, ensure};
use stack_tests::{
    CProgram, DEADLINE, Finished, NetSpace, Program, Stage, Veth, available, not_run,
};

/// The TCP ports on which the measuring programs exchange their addresses.
const PINGPONG_PORT: u16 = 47592;
const PERFTEST_PORT: u16 = 13337;

/// The transports of UCX: reliable connections, which begin with datagrams, and datagrams alone.
const CONNECTED: &str = "rc_v";
const DATAGRAMS: &str = "ud_verbs";

/// A network of its own with a cable to a second one, and the libraries.
struct Verbs {
    net: NetSpace,
    veth: Veth,
    stage: Stage,
}

/// The networks of a server and its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Networks {
    One,
    Two,
}

impl Verbs {
    /// Returns `None` if the machine permits no networks for tests.
    fn new() -> Result<Option<Self>> {
        let stage = Stage::find()?;
        let net = NetSpace::enter()?;
        let Some(veth) = Veth::create(&net)? else {
            not_run("no network namespaces");
            return Ok(None);
        };
        Ok(Some(Self { net, veth, stage }))
    }

    /// A program that finds the library, and files of its devices.
    fn program(&self, name: impl AsRef<OsStr>) -> Program {
        Program::new(self.stage.bin("verbsrun")).arg(name)
    }

    /// Runs a server and its client, which `with` makes from the name of the device. Returns the
    /// client, once both have succeeded.
    fn pair(
        &self,
        networks: Networks,
        port: u16,
        with: impl Fn(&str) -> Program,
    ) -> Result<Finished> {
        let server = with(Veth::NEAR).named("server").spawn()?;
        self.net.wait_for_listener_of(&server, port, DEADLINE)?;
        let client = match networks {
            Networks::One => with(Veth::NEAR),
            Networks::Two => with(Veth::FAR).in_network_of(&self.veth)?,
        };
        let client = client.named("client").arg(Veth::NEAR_V4.to_string());
        let client = client.run(DEADLINE)?;
        server.finish(DEADLINE)?.success()?;
        Ok(client)
    }

    /// Transfers messages of all sizes in both directions, and checks their bytes.
    fn pingpong(&self, networks: Networks) -> Result<()> {
        let client = self.pair(networks, PINGPONG_PORT, |_| {
            let program = self.program("fi_pingpong");
            program.args_line("-p verbs -e msg -c")
        })?;
        let is_longest = |line: &str| {
            let mut columns = line.split_whitespace();
            columns.next() == Some("1m") && columns.nth(1) == Some("=10")
        };
        let has_longest = client.text.lines().any(is_longest);
        ensure!(has_longest, "no messages of 1 MiB\n{}", client.tail());
        Ok(())
    }

    /// Runs a test of `ucx_perftest` with messages of 8 bytes, and then of `long` bytes unless that
    /// is 0.
    fn perftest(&self, networks: Networks, transport: &str, test: &str, long: u32) -> Result<()> {
        const COUNT: &str = "100";
        for size in [8, long].into_iter().filter(|size| *size > 0) {
            let client = self.pair(networks, PERFTEST_PORT, |device| {
                self.program("ucx_perftest")
                    .env("UCX_TLS", transport)
                    .env("UCX_NET_DEVICES", format!("dat_{device}:1"))
                    .args_line(&format!("-t {test} -n {COUNT} -w 10 -s {size}"))
            })?;
            let client = client.never_prints("UCX  ERROR")?;
            let is_final = |line: &str| {
                let mut columns = line.split_whitespace();
                columns.next() == Some("Final:") && columns.next() == Some(COUNT)
            };
            let has_final = client.text.lines().any(is_final);
            ensure!(has_final, "no final line\n{}", client.tail());
        }
        Ok(())
    }
}

#[test]
fn libfabric_finds_endpoints_of_the_device() -> Result<()> {
    let verbs = available!(Verbs::new()?);
    let program = verbs.program("fi_info").args_line("-p verbs -d dat_near");
    let found = program.run(DEADLINE)?;
    found
        .success()?
        .prints("type: FI_EP_MSG")?
        .prints("protocol: FI_PROTO_RDMA_CM_IB_RC")?
        .prints("protocol: FI_PROTO_RXM")
        .map(drop)
}

#[test]
fn libfabric_connects_endpoints_for_messages() -> Result<()> {
    let verbs = available!(Verbs::new()?);
    verbs.pingpong(Networks::One)
}

#[test]
fn libfabric_connects_endpoints_between_two_networks() -> Result<()> {
    let verbs = available!(Verbs::new()?);
    verbs.pingpong(Networks::Two)
}

#[test]
fn ucx_finds_both_transports_of_a_device() -> Result<()> {
    let verbs = available!(Verbs::new()?);
    let found = verbs.program("ucx_info").arg("-d").run(DEADLINE)?;
    let found = found.success()?;
    let device = "Device: dat_near:1";
    for transport in ["Transport: rc_verbs", "Transport: ud_verbs"] {
        let mut lines = found
            .text
            .lines()
            .skip_while(|line| !line.contains(transport));
        let next = lines.nth(1).unwrap_or_default();
        ensure!(next.contains(device), "{transport}\n{}", found.tail());
    }
    Ok(())
}

macro_rules! perftests {
    ($($test:ident: $name:literal, $long:literal;)+) => { $(
        mod $test {
            use super::*;

            #[test]
            fn connected() -> Result<()> {
                available!(Verbs::new()?).perftest(Networks::One, CONNECTED, $name, $long)
            }

            #[test]
            fn connected_between_two_networks() -> Result<()> {
                available!(Verbs::new()?).perftest(Networks::Two, CONNECTED, $name, $long)
            }

            #[test]
            fn by_datagrams() -> Result<()> {
                available!(Verbs::new()?).perftest(Networks::One, DATAGRAMS, $name, $long)
            }
        }
    )+ };
}

perftests! {
    ucx_tagged_messages_in_turn: "tag_lat", 100000;
    ucx_tagged_messages_in_bursts: "tag_bw", 100000;
    ucx_writes_in_turn: "ucp_put_lat", 100000;
    ucx_writes_in_bursts: "ucp_put_bw", 100000;
    ucx_reads: "ucp_get", 100000;
    ucx_active_messages: "ucp_am_bw", 100000;
    ucx_streams: "stream_lat", 100000;
    ucx_fetch_and_add: "ucp_fadd", 0;
    ucx_compare_and_swap: "ucp_cswap", 0;
}

/// Runs `tests/c/mpi_exchange.c`, which checks each byte that its ranks exchange, over UCX alone.
fn exchange(compiled: &CProgram, launcher: &str, ranks: usize) -> Result<()> {
    let verbs = available!(Verbs::new()?);
    let (launcher, options) = launcher.split_once(' ').unwrap_or((launcher, ""));
    let program = Program::new(launcher)
        .env("UCX_TLS", CONNECTED)
        .env("UCX_NET_DEVICES", "dat_near:1")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        // Otherwise MPICH does not use the network within a host.
        .env("MPIR_CVAR_NOLOCAL", "1")
        .args_line(&format!("{options} -n {ranks}"))
        .arg(verbs.stage.bin("verbsrun"))
        .arg(compiled.file())
        .arg("3");
    let finished = program.run(DEADLINE)?;
    finished
        .success()?
        .never_prints("error")?
        .prints(&format!("CHECKED {ranks} ranks"))
        .map(drop)
}

/// Open MPI sends and accesses memory by UCX, with any of its transports.
fn open_mpi(ranks: usize) -> Result<()> {
    let compiled = CProgram::compile_with_mpi("mpi_exchange", "mpicc.openmpi")?;
    let options = "--oversubscribe --mca pml ucx --mca osc ucx --mca pml_ucx_tls any \
                   --mca pml_ucx_devices any --mca btl self";
    exchange(&compiled, &format!("mpirun.openmpi {options}"), ranks)
}

fn mpich(ranks: usize) -> Result<()> {
    let compiled = CProgram::compile_with_mpi("mpi_exchange", "mpicc.mpich")?;
    exchange(&compiled, "mpiexec.mpich", ranks)
}

#[test]
fn open_mpi_with_2_ranks() -> Result<()> {
    open_mpi(2)
}

#[test]
fn open_mpi_with_4_ranks() -> Result<()> {
    open_mpi(4)
}

#[test]
fn mpich_with_2_ranks() -> Result<()> {
    mpich(2)
}

#[test]
fn mpich_with_4_ranks() -> Result<()> {
    mpich(4)
}
