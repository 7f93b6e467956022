//! Programs that do not depend on this project.

use std::ffi::OsStr;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use stack_tests::{CProgram, NetSpace, Offload, OffloadProtocol, OpsRun, Stage};
use tempfile::TempDir;

/// The time limit of a script, far longer than any script takes, even with one maximal wait.
const LIMIT: Duration = Duration::from_secs(600);

/// Sockets on this address stay on TCP. Sockets on all other addresses are offloaded.
pub(crate) const NATIVE: &str = "127.0.0.2";

pub(crate) struct Script {
    pub(crate) name: &'static str,
    interpreter: &'static str,
    text: String,
}

/// Makes a table of scripts: the names of the tests and the files.
macro_rules! scripts {
    ($($name:ident = $file:literal,)+) => {
        &[$((stringify!($name), include_str!($file))),+]
    };
}

/// Requirement 3 of the offload protocol switch, call by call.
const EVERY_CALL: (&str, &str) = (
    "every_call_is_answered_as_tcp_answers",
    include_str!("every_call.py"),
);

/// Requirement 8: handlers with and without `SA_RESTART`, and broken pipes.
const SIGNALS: (&str, &str) = ("signals_end_calls_as_with_tcp", include_str!("signals.py"));

/// Programs in which each process uses its own connections only.
const SCRIPTS: &[(&str, &str)] = scripts! {
    // Both ends of a connection in one interpreter, which fails if a byte is wrong.
    python_threads = "threads.py",
    // An event loop with its own descriptors, timers and children.
    python_asyncio = "event_loop.py",
    plain_and_offloaded_peers_of_one_listener = "both_kinds.py",
    listeners_at_no_address_of_either_family = "both_families.py",
    // Programs such as wrk treat an empty receive after a wake-up as an error.
    no_wake_up_is_spurious = "true_readiness.py",
    options_are_answered_as_tcp_answers = "options.py",
    accepted_sockets_are_set_as_the_listening_one = "inherited.py",
    buffer_sizes_bound_the_bytes_that_are_held = "buffers.py",
    stdio_reads_and_writes_a_connection_at_its_numbers = "standard_numbers.py",
    a_disconnected_socket_connects_again = "disconnect.py",
    control_data_is_ignored_as_over_tcp = "control_data.py",
    bytes_are_spliced_as_over_tcp = "splicing.py",
    a_listener_reports_one_event_until_it_is_armed = "one_shot.py",
    // Event loops of other languages.
    connections_made_by_number = "by_number.py",
    closing_all_numbers_closes_none_of_ours = "close_all.py",
    closing_each_number_closes_none_of_ours = "close_each.py",
    a_lost_descriptor_leaves_listeners_on_tcp = "close_others.py",
    of_two_listeners_of_one_address_the_other_stays = "one_of_two.py",
    handlers_use_the_number_that_their_thread_uses = "same_number_in_handler.py",
    receives_that_poll_lose_no_event = "polls.py",
    calls_that_wait_end_as_with_tcp = "waiting.py",
    threads_are_cancelled_where_they_wait = "cancelled.py",
    waits_that_follow_each_other_closely = "close_waits.py",
    other_addresses_than_loopback_s = "other_addresses.py",
    // Proxies and routing daemons make sockets in several namespaces.
    sockets_stay_in_their_network_namespace = "namespaces.py",
    calls_fit_on_small_stacks = "small_stacks.py",
    // Servers close their listener temporarily.
    a_closed_listener_makes_room = "listen_again.py",
    // Peers that connect and then wait must not exhaust the server's descriptors.
    the_backlog_holds_for_offloaded_peers = "backlog.py",
    // Threaded servers shut the listener down, because a close does not end a blocked accept.
    a_listener_that_was_shut_down = "listener_shut_down.py",
    // Servers at their limit do not accept the peers in the backlog.
    at_the_limit_of_descriptors = "at_the_limit.py",
    connections_that_stay_on_tcp_share_ports = "many_clients.py",
    the_old_port_of_a_service_is_not_contacted = "old_port.py",
    a_close_that_lingers_ends_with_the_last_byte = "lingering.py",
    options_that_only_tcp_keeps = "only_tcp.py",
    sockets_of_families_that_name_a_stack = "families.py",
    poll_with_as_many_entries_as_descriptors = "long_poll.py",
    select_with_sets_that_a_program_enlarged = "wide_select.py",
    sockets_that_were_watched_before_they_connect = "watched_before.py",
    a_child_closes_only_its_own_copy_of_a_socket = "closed_by_a_child.py",
    sockets_that_were_watched_before_they_listened = "watched_before_listening.py",
    sockets_that_were_duplicated_before_they_connected = "duplicated_before.py",
    travelling = "travelling.py",
    sockets_that_are_used_as_soon_as_a_set_reports_them = "watched_meanwhile.py",
};

/// The scripts with calls of every kind.
const CALLS: &[(&str, &str)] = &[
    EVERY_CALL,
    (
        "every_call_by_number_is_answered_as_tcp_answers",
        concat!("BY_NUMBER = True\n", include_str!("every_call.py")),
    ),
    SIGNALS,
];

/// The first lines of all scripts.
const PRELUDE: &str = include_str!("prelude.py");

/// The lines after the prelude in the scripts about processes.
const PAIRS: &str = include_str!("forking/pairs.py");

/// Scripts in which several processes use a connection.
const FORKING: &[(&str, &str)] = scripts! {
    accept_then_fork = "forking/accept_then_fork.py",
    prefork = "forking/prefork.py",
    gone_before_accept = "forking/gone_before_accept.py",
    ended_before_accept = "forking/ended_before_accept.py",
    cloned = "forking/cloned.py",
    limited = "forking/limited.py",
    while_opening = "forking/while_opening.py",
    daemon_while_opening = "forking/daemon_while_opening.py",
    bound_before_fork = "forking/bound_before_fork.py",
    first_fork = "forking/first_fork.py",
    daemon = "forking/daemon.py",
    listener_killed = "forking/listener_killed.py",
    accept_together = "forking/accept_together.py",
    killed_while_accepting = "forking/killed_while_accepting.py",
    snapshot = "forking/snapshot.py",
    both_use = "forking/both_use.py",
    plain_programs = "forking/plain_programs.py",
    names_after_exec = "forking/names_after_exec.py",
    handed_over_in_a_call = "forking/handed_over_in_a_call.py",
    duplicated_meanwhile = "forking/duplicated_meanwhile.py",
    passing = "forking/passing.py",
    ends = "forking/ends.py",
    ends_while_in_calls = "forking/ends_while_in_calls.py",
    ends_while_shared = "forking/ends_while_shared.py",
    both_have_ended = "forking/both_have_ended.py",
    sends_all_and_exits = "forking/sends_all_and_exits.py",
    read_late = "forking/read_late.py",
    stopped_listener = "forking/stopped_listener.py",
    shut_down_by_a_worker = "forking/shut_down_by_a_worker.py",
    limits = "forking/limits.py",
    restricted_children_make_the_calls_that_they_name = "restricted.py",
    owner_exits = "forking/owner_exits.py",
    exec_of_an_owner = "forking/exec_of_an_owner.py",
    an_unused_listener = "forking/unused_listener.py",
    no_leaks = "forking/no_leaks.py",
};

/// Scripts that apply only to connections within the host.
const LOCAL: &[(&str, &str)] = scripts! {
    connections = "local/connections.py",
    listeners = "local/listeners.py",
    resets = "local/resets.py",
    // Servers that close first, while their clients still write.
    sends_after_a_close = "local/sends_after_a_close.py",
    // Event loops that remove a socket and add it again.
    removals = "local/removals.py",
    signal_driven = "local/signal_driven.py",
    signals_end_calls_that_poll = "local/signals_in_polls.py",
    raw_clone = "local/raw_clone.py",
    offered_later = "local/offered_later.py",
    link_local = "local/link_local.py",
    a_server_with_a_cleaned_environment = "local/cleaned_environment.py",
    two_clients_of_one_port_are_both_accepted = "local/one_port.py",
    files_get_the_lowest_numbers = "local/own_numbers.py",
    every_event_is_that_of_tcp = "local/readiness.py",
    calls_after_the_end_are_answered_as_tcp_answers = "local/hang_ups.py",
    answers_and_named_differences = "local/answers.py",
    other_users = "local/other_users.py",
    // The host also offers a service over SDP.
    peers_by_two_protocols_of_one_listener = "local/two_offers.py",
};

/// Scripts that apply only to protocols whose connections are not kernel sockets.
const BETWEEN: &[(&str, &str)] = scripts! {
    connecting_without_blocking = "connecting.py",
    connections_are_accepted_in_order = "order_of_accepts.py",
    a_connection_that_has_ended_has_no_peer = "names_at_the_end.py",
    low_marks_and_longer_backlogs = "low_mark.py",
    sends_of_several_threads_stay_together = "sends_together.py",
    a_listener_is_closed_with_connections_in_its_queue = "closed_with_pending.py",
};

/// The scripts about such protocols.
pub(crate) fn between() -> impl Iterator<Item = Script> {
    let scripts = BETWEEN.iter();
    scripts.map(|(name, text)| Script::new(name, text))
}

/// The scripts about connections within the host.
pub(crate) fn local() -> impl Iterator<Item = Script> {
    LOCAL.iter().map(|(name, text)| Script::new(name, text))
}

/// The scripts about processes.
pub(crate) fn forking() -> impl Iterator<Item = Script> {
    FORKING
        .iter()
        .map(|(name, text)| Script::new(name, &format!("{PAIRS}\n{text}")))
}

pub(crate) fn all() -> impl Iterator<Item = Script> {
    let scripts = SCRIPTS.iter().chain(CALLS);
    scripts.map(|(name, text)| Script::new(name, text))
}

/// Runs a script in a program whose clocks another library replaces.
pub(crate) fn run_at_other_time(protocol: &'static OffloadProtocol) -> Result<()> {
    let library = CProgram::compile_shared("other_time")?;
    let text = format!("{PRELUDE}{}", include_str!("other_time.py"));
    run(protocol, "python3", |command| {
        let preloaded = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD");
        let mut all = preloaded
            .and_then(|(_, it)| it)
            .unwrap_or_default()
            .to_owned();
        all.push(":");
        all.push(library.file());
        command.env("LD_PRELOAD", all).args(["-c", &text]);
    })
}

impl Script {
    fn new(name: &'static str, text: &str) -> Self {
        Self {
            name,
            interpreter: "python3",
            text: format!("{PRELUDE}{text}"),
        }
    }

    /// Runs the script under the library.
    pub(crate) fn run(&self, protocol: &'static OffloadProtocol) -> Result<()> {
        run(protocol, self.interpreter, |command| {
            command.args(["-c", &self.text]);
        })
    }
}

/// Runs a program with the library preloaded, in a network of its own where one address stays on
/// TCP, and checks every SDP message of the program.
pub(crate) fn run(
    protocol: &'static OffloadProtocol,
    program: impl AsRef<OsStr>,
    with: impl FnOnce(&mut Command),
) -> Result<()> {
    let _net = NetSpace::enter()?;
    let dir = TempDir::new().context("making a directory")?;
    let ops = OpsRun::new(
        &Stage::find()?,
        protocol,
        Offload::AllBut(NATIVE),
        dir.path(),
    )?;
    let mut command = ops.preloaded(program);
    command.env("OPS_PAGES", dir.path());
    with(&mut command);
    finish(command)?;
    let messages = ops.check_traces()?;
    ensure!(
        messages > 0 || !protocol.is_sdp,
        "no SDP message was recorded"
    );
    Ok(())
}

/// Runs the program until it ends; a failure includes its output. The output is written to a file,
/// because daemons that a failed script does not stop would keep a pipe open.
fn finish(mut command: Command) -> Result<()> {
    let mut output = tempfile::tempfile().context("making a file")?;
    let mut child = command
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {:?}", command.get_program()))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > LIMIT {
            break end(&mut child)?;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut text = String::new();
    output.rewind()?;
    // Output that is not text is shown as far as it is text.
    let _ = output.read_to_string(&mut text);
    ensure!(status.success(), "{status}\n{text}");
    Ok(())
}

/// Ends a process that hangs, and its children. The first signal makes Python print its stack. The
/// second signal kills the whole process group.
fn end(child: &mut Child) -> Result<ExitStatus> {
    let group = Pid::from_child(child);
    kill_process_group(group, Signal::ABORT)?;
    std::thread::sleep(Duration::from_secs(1));
    // No process of the group may remain.
    let _ = kill_process_group(group, Signal::KILL);
    Ok(child.wait()?)
}
