//! Programs for verbs over the staged `libibverbs.so.1`: those of rdma-core, as Debian ships them,
//! and a program of calls. The machine needs no RDMA device.

use anyhow::{Context, Result, ensure};
use stack_tests::{CProgram, DEADLINE, Finished, NetSpace, Program, Stage, Veth, available};

/// The TCP port on which the programs exchange the numbers of their queue pairs.
const PORT: u16 = 18515;
/// The number of messages in each direction of a ping-pong.
const ITERATIONS: u32 = 1000;

/// A network of its own, and the library.
struct Verbs {
    net: NetSpace,
    stage: Stage,
}

impl Verbs {
    fn new() -> Result<Self> {
        let stage = Stage::find()?;
        let net = NetSpace::enter()?;
        Ok(Self { net, stage })
    }

    /// A program that finds the library.
    fn program(&self, name: &str) -> Program {
        Program::new(name).env("LD_LIBRARY_PATH", self.stage.lib().join("verbs"))
    }

    /// Runs a ping-pong between two processes of this network.
    fn ping_pong(&self, name: &str, options: &str) -> Result<()> {
        let one = |host: &str| {
            let program = self.program(name);
            program.args_line(&format!("-d dat_lo -g 0 {options} {host}"))
        };
        let server = one("").named("server").spawn()?;
        self.net.wait_for_listener_of(&server, PORT, DEADLINE)?;
        let client = one("127.0.0.1").named("client").run(DEADLINE)?;
        check(client)?;
        check(server.finish(DEADLINE)?)
    }

    /// Runs a case of `tests/c/verbs_calls.c`.
    fn calls(case: &str) -> Result<()> {
        Self::case_of(CProgram::compile_with_verbs("verbs_calls")?, case)
    }

    /// Runs a case of `tests/c/rsocket_calls.c`.
    fn sockets(case: &str) -> Result<()> {
        Self::case_of(CProgram::compile_with_rdmacm("rsocket_calls")?, case)
    }

    fn case_of(compiled: CProgram, case: &str) -> Result<()> {
        let verbs = Self::new()?;
        let path = compiled.file().to_str().context("a path that is no text")?;
        let program = verbs.program(path).arg(case);
        let finished = program.run(DEADLINE)?;
        finished.success()?.prints(&format!("{case} ok")).map(drop)
    }
}

/// Checks that a ping-pong ended well and transferred everything.
fn check(finished: Finished) -> Result<()> {
    let finished = finished.success()?;
    let done = format!("{ITERATIONS} iters in ");
    finished.prints("remote address:")?.prints(&done).map(drop)
}

/// Returns the value of a line such as `state:   PORT_ACTIVE (4)`.
fn value<'a>(text: &'a str, name: &str) -> Result<&'a str> {
    let mut lines = text.lines().map(str::trim);
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = value.with_context(|| format!("no line {name}\n{text}"))?;
    Ok(value.trim())
}

#[test]
fn devinfo_prints_the_device_of_the_network_device() -> Result<()> {
    let verbs = Verbs::new()?;
    let _veth = available!(Veth::create(&verbs.net)?, "no network namespaces");
    let program = verbs.program("ibv_devinfo").args_line("-v -d dat_near");
    let text = program.run(DEADLINE)?.success()?.text;
    let expected = [
        ("hca_id", "dat_near"),
        ("transport", "InfiniBand (0)"),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
        ("phys_port_cnt", "1"),
        ("state", "PORT_ACTIVE (4)"),
        ("link_layer", "Ethernet"),
        ("atomic_cap", "ATOMIC_HCA (1)"),
        ("GID[  0]", "::ffff:192.0.2.1, RoCE v2"),
    ];
    for (name, wanted) in expected {
        let found = value(&text, name)?;
        ensure!(found == wanted, "{name}: {found} instead of {wanted}");
    }
    let guid = value(&text, "node_guid")?;
    ensure!(
        guid.contains("ff:fe"),
        "{guid} is not the EUI-64 of an Ethernet address"
    );
    Ok(())
}

#[test]
fn devices_are_listed_with_the_loopback_device_last() -> Result<()> {
    let verbs = Verbs::new()?;
    let _veth = available!(Veth::create(&verbs.net)?, "no network namespaces");
    let text = verbs.program("ibv_devices").run(DEADLINE)?.success()?.text;
    let near = text.find("dat_near").context("dat_near is missing")?;
    let loopback = text.find("dat_lo").context("dat_lo is missing")?;
    ensure!(near < loopback, "{text}");
    Ok(())
}

#[test]
fn rc_ping_pong_within_a_host() -> Result<()> {
    Verbs::new()?.ping_pong("ibv_rc_pingpong", "")
}

#[test]
fn rc_ping_pong_with_completion_events() -> Result<()> {
    Verbs::new()?.ping_pong("ibv_rc_pingpong", "-e")
}

#[test]
fn rc_ping_pong_of_long_and_of_short_messages() -> Result<()> {
    let verbs = Verbs::new()?;
    verbs.ping_pong("ibv_rc_pingpong", "-s 262144 -c")?;
    verbs.ping_pong("ibv_rc_pingpong", "-s 1 -r 2")
}

#[test]
fn ud_ping_pong_polls_and_sleeps() -> Result<()> {
    let verbs = Verbs::new()?;
    verbs.ping_pong("ibv_ud_pingpong", "-s 1024 -r 100")?;
    verbs.ping_pong("ibv_ud_pingpong", "-s 1024 -r 100 -e")
}

#[test]
fn uc_ping_pong_polls_and_sleeps() -> Result<()> {
    let verbs = Verbs::new()?;
    verbs.ping_pong("ibv_uc_pingpong", "")?;
    verbs.ping_pong("ibv_uc_pingpong", "-e")
}

#[test]
fn srq_ping_pong_polls_and_sleeps() -> Result<()> {
    let verbs = Verbs::new()?;
    verbs.ping_pong("ibv_srq_pingpong", "")?;
    verbs.ping_pong("ibv_srq_pingpong", "-e")
}

#[test]
fn ping_pongs_between_two_networks() -> Result<()> {
    let verbs = Verbs::new()?;
    let veth = available!(Veth::create(&verbs.net)?, "no network namespaces");
    let runs = [
        ("ibv_rc_pingpong", ""),
        ("ibv_rc_pingpong", "-e"),
        ("ibv_ud_pingpong", "-s 1024 -r 100"),
    ];
    for (name, options) in runs {
        let one = |device: &str, host: &str| {
            let program = verbs.program(name);
            program.args_line(&format!("-d dat_{device} -g 0 {options} {host}"))
        };
        let server = one(Veth::NEAR, "").named("server").spawn()?;
        verbs.net.wait_for_listener_of(&server, PORT, DEADLINE)?;
        let client = one(Veth::FAR, &Veth::NEAR_V4.to_string());
        let client = client.named("client").in_network_of(&veth)?;
        check(client.run(DEADLINE)?)?;
        check(server.finish(DEADLINE)?)?;
    }
    Ok(())
}

/// The port on which `rping` listens.
const RPING_PORT: u16 = 7174;

/// Checks both ends of 20 round trips of `rping`.
fn check_rping(server: Finished, client: Finished) -> Result<()> {
    let client = client.success()?;
    client.prints("rdma-ping-0: ")?.prints("rdma-ping-19: ")?;
    server
        .success()?
        .prints("server DISCONNECT EVENT")
        .map(drop)
}

#[test]
fn rping_within_a_host() -> Result<()> {
    let verbs = Verbs::new()?;
    let server = verbs.program("rping").args_line("-s -C 20").spawn()?;
    verbs
        .net
        .wait_for_listener_of(&server, RPING_PORT, DEADLINE)?;
    let client = verbs.program("rping").args_line("-c -v -C 20 -a 127.0.0.1");
    let client = client.run(DEADLINE)?;
    check_rping(server.finish(DEADLINE)?, client)
}

#[test]
fn rping_between_two_networks() -> Result<()> {
    let verbs = Verbs::new()?;
    let veth = available!(Veth::create(&verbs.net)?, "no network namespaces");
    let server = verbs.program("rping");
    let server = server
        .args_line(&format!("-s -C 20 -a {}", Veth::NEAR_V4))
        .spawn()?;
    verbs
        .net
        .wait_for_listener_of(&server, RPING_PORT, DEADLINE)?;
    let client = verbs.program("rping");
    let client = client.args_line(&format!("-c -v -C 20 -a {}", Veth::NEAR_V4));
    let client = client.in_network_of(&veth)?.run(DEADLINE)?;
    check_rping(server.finish(DEADLINE)?, client)
}

#[test]
fn rping_without_a_server_is_rejected() -> Result<()> {
    let verbs = Verbs::new()?;
    let client = verbs.program("rping").args_line("-c -C 1 -a 127.0.0.1");
    let client = client.spawn()?.finish(DEADLINE)?;
    ensure!(!client.status.success(), "{}", client.tail());
    client.prints("RDMA_CM_EVENT_REJECTED").map(drop)
}

/// Runs both ends of a program of rdmacm-utils with the same options, and checks that both succeed.
fn rdmacm_pair(server: &str, client: &str, port: u16, expected: &str) -> Result<()> {
    let verbs = Verbs::new()?;
    let run = |line: &str| {
        let (name, options) = line.split_once(' ').unwrap_or((line, ""));
        verbs.program(name).args_line(options)
    };
    let server = run(server).named("server").spawn()?;
    verbs.net.wait_for_listener_of(&server, port, DEADLINE)?;
    let client = run(client).named("client").run(DEADLINE)?;
    client.success()?.prints(expected)?;
    server.finish(DEADLINE)?.success().map(drop)
}

#[test]
fn calls_that_wait_connect_a_client_and_a_server() -> Result<()> {
    let client = "rdma_client -s 127.0.0.1 -p 7471";
    rdmacm_pair("rdma_server -p 7471", client, 7471, "rdma_client: end 0")
}

#[test]
fn a_client_that_asked_for_no_inline_payload_sends_it() -> Result<()> {
    let client = "rdma_xclient -s 127.0.0.1 -p 7471";
    rdmacm_pair("rdma_xserver -p 7471", client, 7471, "rdma_xclient: end 0")
}

#[test]
fn datagrams_after_a_question_for_the_queue_pair() -> Result<()> {
    let client = "udaddy -s 127.0.0.1 -C 20 -S 512";
    rdmacm_pair("udaddy -C 20 -S 512", client, 7174, "return status 0")
}

#[test]
fn verbsrun_runs_a_program_and_lists_devices() -> Result<()> {
    let verbs = Verbs::new()?;
    let run = |line: &str| Program::new(verbs.stage.bin("verbsrun")).args_line(line);
    run("--devices")
        .run(DEADLINE)?
        .success()?
        .prints("dat_lo")?;
    let explained = run("--explain ibv_devices").run(DEADLINE)?;
    explained
        .success()?
        .prints("lib/verbs")?
        .prints("ibv_devices: finds the libraries")?;
    run("ibv_devices")
        .run(DEADLINE)?
        .success()?
        .prints("dat_lo")?;
    let missing = run("/nonexistent").spawn()?.finish(DEADLINE)?;
    ensure!(missing.status.code() == Some(127), "{}", missing.tail());
    Ok(())
}

#[test]
fn several_connections_are_made_with_and_without_migration() -> Result<()> {
    for options in ["-c 4 -C 20 -S 512", "-c 2 -C 5 -m"] {
        let (server, client) = (format!("ucmatose {options}"), "-s 127.0.0.1");
        rdmacm_pair(
            &server,
            &format!("{server} {client}"),
            7471,
            "return status 0",
        )?;
    }
    Ok(())
}

/// The port on which the programs for sockets of librdmacm listen.
const STREAM_PORT: u16 = 7471;
const COPY_PORT: u16 = 7427;

#[test]
fn sockets_stream_within_a_host() -> Result<()> {
    let runs = [
        "-I 50 -C 10 -S 1000 -T v",
        "-I 2 -C 4 -S 1000000 -T v",
        "-I 50 -C 20 -S 64 -T b",
        "-I 2 -C 8 -S 300000 -T b -T v",
        "-I 20 -C 10 -S 5000 -T a -T b -T r",
        "-I 20 -C 10 -S 5000 -B 2000 -T v",
    ];
    for options in runs {
        let server = format!("rstream {options}");
        let client = format!("{server} -s 127.0.0.1");
        rdmacm_pair(&server, &client, STREAM_PORT, "custom")?;
    }
    Ok(())
}

#[test]
fn sockets_write_to_mapped_buffers() -> Result<()> {
    for options in ["-I 20 -C 5 -S 64 -T v", "-I 4 -C 5 -S 200000 -T v -T b"] {
        let server = format!("riostream {options}");
        let client = format!("{server} -s 127.0.0.1");
        rdmacm_pair(&server, &client, STREAM_PORT, "custom")?;
    }
    Ok(())
}

#[test]
fn sockets_stream_between_two_networks() -> Result<()> {
    let verbs = Verbs::new()?;
    let veth = available!(Veth::create(&verbs.net)?, "no network namespaces");
    for line in [
        "rstream -I 4 -C 4 -S 100000 -T b -T v",
        "riostream -I 4 -C 4 -S 100000 -T v",
    ] {
        let (name, options) = line.split_once(' ').context("no options")?;
        let one = |options: &str| verbs.program(name).args_line(options);
        let server = one(options).named("server").spawn()?;
        verbs
            .net
            .wait_for_listener_of(&server, STREAM_PORT, DEADLINE)?;
        let client = one(&format!("{options} -s {}", Veth::NEAR_V4)).named("client");
        let client = client.in_network_of(&veth)?.run(DEADLINE)?;
        client.success()?.prints("custom")?;
        server.finish(DEADLINE)?.success()?;
    }
    Ok(())
}

#[test]
fn a_file_is_copied_over_a_socket() -> Result<()> {
    let verbs = Verbs::new()?;
    let directory = tempfile::tempdir()?;
    let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
    let text: Vec<u8> = (0..3_000_001_u32)
        .map(|index| (index % 251) as u8)
        .collect();
    std::fs::write(&from, &text)?;
    let server = verbs.program("rcopy").arg("-p").arg(COPY_PORT.to_string());
    let server = server.named("server").spawn()?;
    verbs
        .net
        .wait_for_listener_of(&server, COPY_PORT, DEADLINE)?;
    let target = format!("127.0.0.1:{}", to.display());
    let client = verbs.program("rcopy").arg(&from).arg(target);
    let client = client.named("client").run(DEADLINE)?;
    client.success()?.prints("3000001 bytes in")?;
    ensure!(std::fs::read(&to)? == text, "the copy differs");
    Ok(())
}

#[test]
fn a_socket_without_a_listener_is_refused() -> Result<()> {
    let verbs = Verbs::new()?;
    let client = verbs.program("rstream");
    let client = client.args_line("-T b -I 1 -C 1 -S 64 -s 127.0.0.1");
    let client = client.spawn()?.finish(DEADLINE)?;
    ensure!(!client.status.success(), "{}", client.tail());
    client.prints("Connection refused").map(drop)
}

/// The bytes that the loopback device of this network has received.
fn loopback_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let mut lines = text.lines().map(str::trim);
    let line = lines.find_map(|line| line.strip_prefix("lo:"));
    let bytes = line.and_then(|line| line.split_whitespace().next());
    Ok(bytes.context("no loopback device")?.parse()?)
}

#[test]
fn a_setting_keeps_the_traffic_of_a_host_on_tcp() -> Result<()> {
    let verbs = Verbs::new()?;
    let of_run = |settings: &str| {
        let before = loopback_bytes()?;
        let one = |host: &str| {
            let program = verbs.program("ibv_rc_pingpong").env("DAT_VERBS", settings);
            program.args_line(&format!("-d dat_lo -g 0 {host}"))
        };
        let server = one("").named("server").spawn()?;
        verbs.net.wait_for_listener_of(&server, PORT, DEADLINE)?;
        check(one("127.0.0.1").named("client").run(DEADLINE)?)?;
        check(server.finish(DEADLINE)?)?;
        anyhow::Ok(loopback_bytes()? - before)
    };
    // A thousand messages of 4 KiB in each direction.
    let payload = 2 * 1000 * 4096;
    let (shared, tcp) = (of_run("")?, of_run("local=off crc=off")?);
    ensure!(tcp > payload, "{tcp} bytes by TCP");
    ensure!(
        shared < payload / 2,
        "{shared} bytes by TCP with shared memory"
    );
    let wrong = verbs.program("ibv_devinfo").env("DAT_VERBS", "nonsense=1");
    let wrong = wrong.spawn()?.finish(DEADLINE)?;
    ensure!(!wrong.status.success(), "{}", wrong.tail());
    Ok(())
}

/// Runs a program of perftest with `iterations` messages between two processes of one host, and
/// checks the line that it prints: the size, the number of messages of all queue pairs, rates.
fn perftest(name: &str, iterations: u32, options: &str) -> Result<()> {
    let verbs = Verbs::new()?;
    let one = |host: &str| {
        let program = verbs.program(name);
        program.args_line(&format!("-d dat_lo -x 0 -n {iterations} {options} {host}"))
    };
    let server = one("").named("server").spawn()?;
    verbs.net.wait_for_listener_of(&server, PORT, DEADLINE)?;
    let client = one("127.0.0.1").named("client").run(DEADLINE)?.success()?;
    server.finish(DEADLINE)?.success()?;
    let is_result = |line: &str| {
        let columns: Vec<Option<f64>> = line
            .split_whitespace()
            .map(|column| column.parse().ok())
            .collect();
        let is_numeric = columns.len() > 3 && columns.iter().all(Option::is_some);
        is_numeric && columns[1].is_some_and(|count| count >= f64::from(iterations))
    };
    let has_result = client.text.lines().any(is_result);
    ensure!(has_result, "no line of results\n{}", client.tail());
    Ok(())
}

macro_rules! perftests {
    ($($test:ident: $name:literal, $iterations:literal, $options:literal;)+) => { $(
        #[test]
        fn $test() -> Result<()> {
            crate::perftest($name, $iterations, $options)
        }
    )+ };
}

/// The programs of perftest for reliable connections.
mod perftest {
    use super::*;

    perftests! {
        sends: "ib_send_bw", 500, "";
        sends_in_both_directions: "ib_send_bw", 200, "-b";
        sends_with_completion_events: "ib_send_bw", 200, "-e";
        sends_to_shared_receives: "ib_send_bw", 200, "-r 64 --use-srq";
        sends_over_several_queue_pairs: "ib_send_bw", 200, "-q 4 -s 4096";
        inline_sends: "ib_send_lat", 200, "-s 32 -I 64";
        writes: "ib_write_bw", 500, "";
        writes_that_the_peer_polls_for: "ib_write_lat", 10, "";
        sends_over_a_connection_by_address: "ib_send_bw", 200, "-R";
        reads: "ib_read_bw", 200, "";
        reads_of_small_size: "ib_read_lat", 200, "-s 8";
        datagrams: "ib_send_lat", 200, "-c UD -s 64";
        datagrams_in_bursts: "ib_send_bw", 100, "-c UD -s 1024";
        atomics: "ib_atomic_bw", 200, "-A FETCH_AND_ADD";
        compare_and_swap: "ib_atomic_lat", 200, "-A CMP_AND_SWAP";
    }
}

macro_rules! calls {
    ($($case:ident)+) => { $(
        #[test]
        fn $case() -> Result<()> {
            Verbs::calls(stringify!($case))
        }
    )+ };
}

/// The cases of `tests/c/verbs_calls.c`.
mod calls {
    use super::*;

    calls! {
        device unsupported states transfer atomics events peer_gone refused_access children reused
        own_peer immediate windows_of_type_1 windows_of_type_2 stopped registrations
        polled_one_by_one built_requests domains datagrams datagram_events
    }
}

macro_rules! sockets {
    ($($case:ident)+) => { $(
        #[test]
        fn $case() -> Result<()> {
            Verbs::sockets(stringify!($case))
        }
    )+ };
}

/// The cases of `tests/c/rsocket_calls.c`.
mod sockets {
    use super::*;

    sockets! {
        setup refused messages flow ends gone mixed mapped
    }
}

macro_rules! failures {
    ($($case:ident)+) => { $(
        #[test]
        fn $case() -> Result<()> {
            let compiled = CProgram::compile_with_verbs("verbs_failures")?;
            Verbs::case_of(compiled, stringify!($case))
        }
    )+ };
}

/// The cases of `tests/c/verbs_failures.c`.
mod failures {
    use super::*;

    failures! {
        receiver_not_ready receiver_late messages_longer_than_their_receives
        receives_without_memory sends_without_memory writes_to_other_memory rights_of_queue_pairs
        unreliable_connections shared_receives_of_datagrams
    }
}

/// Runs a way of ending of `tests/c/verbs_ends.c` on a carrier.
fn ends(way: &str, settings: Option<&str>) -> Result<()> {
    let verbs = Verbs::new()?;
    let compiled = CProgram::compile_with_verbs("verbs_ends")?;
    let path = compiled.file().to_str().context("a path that is no text")?;
    let mut program = verbs.program(path).arg(way);
    if let Some(settings) = settings {
        program = program.env("DAT_VERBS", settings);
    }
    let finished = program.run(DEADLINE)?;
    finished.success()?.prints(&format!("{way} ok")).map(drop)
}

#[test]
fn requests_succeed_whose_receiver_destroys_its_queue_pairs() -> Result<()> {
    ends("destroys", None)?;
    ends("destroys", Some("local=off"))
}

#[test]
fn requests_succeed_whose_receiver_exits() -> Result<()> {
    ends("exits", None)?;
    ends("exits", Some("local=off"))
}

#[test]
fn verbsrun_shows_device_files() -> Result<()> {
    let verbs = Verbs::new()?;
    let is_device = |name: &str| {
        let program = Program::new(verbs.stage.bin("verbsrun"));
        let file = format!("/dev/infiniband/{name}");
        let test = program.args_line(&format!("/usr/bin/test -c {file}"));
        let finished = test.spawn()?.finish(DEADLINE)?;
        Ok::<_, anyhow::Error>(finished.success().is_ok())
    };
    ensure!(is_device("uverbs_dat_lo")?, "no device file");
    ensure!(!is_device("uverbs_other")?, "a file of no device");
    Ok(())
}

/// Random calls, by numbers from which they are drawn.
#[test]
fn random_calls_do_no_harm() -> Result<()> {
    let verbs = Verbs::new()?;
    let compiled = CProgram::compile_with_verbs("verbs_random")?;
    let path = compiled.file().to_str().context("a path that is no text")?;
    for seed in 1..=8 {
        let program = verbs.program(path).args_line(&format!("{seed} 4000"));
        let finished = program.run(DEADLINE)?;
        let context = || format!("seed {seed}");
        let finished = finished.success().with_context(context)?;
        finished.prints("random ok").with_context(context)?;
    }
    Ok(())
}
