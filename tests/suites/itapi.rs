//! The calls of IT-API, each tested end to end by C programs with both ends of a connection, over
//! the staged `libitapi.so.2`. The programs are `tests/c/itapi_*.c`; each trial of a program is one
//! test here.

use anyhow::Result;
use stack_tests::{CProgram, DEADLINE, NetSpace, Registry, StackEnv, Stage, trials};

trials! { compile_with_itapi => itapi_objects:
    an_adapter_is_listed_opened_and_described = "adapters",
    handles_have_kinds_and_words_and_others_are_refused = "handles",
    addresses_are_converted = "addresses",
    endpoints_have_attributes_within_the_adapters_limits = "attributes-of-endpoints",
    calls_for_datagrams_and_privileged_programs_are_refused = "unsupported",
}

trials! { compile_with_itapi => itapi_events:
    dispatchers_have_parameters = "dispatchers",
    software_events_keep_their_order = "software",
    an_aggregate_returns_the_events_of_its_members_in_turn = "aggregate",
    an_aggregate_names_the_member_that_has_events = "notifications",
    a_descriptor_is_readable_until_the_dispatcher_is_empty = "descriptor",
    a_descriptor_covers_the_members_of_an_aggregate = "descriptor-of-aggregate",
    a_callback_takes_every_event = "callback",
    a_callback_takes_the_events_of_an_aggregate = "callback-of-aggregate",
    a_server_needs_one_aggregate = "connection-by-aggregate",
    asynchronous_events_are_sorted_into_two_streams = "asynchronous",
}

trials! { compile_with_itapi => itapi_connect:
    states_and_events_accompany_a_connection = "life",
    a_rejected_request_is_reported_with_its_data = "reject",
    a_request_without_a_listener_is_reported = "no-listener",
    a_peer_that_closes_its_adapter_ends_the_connection = "peer-closes",
    a_message_that_is_too_long_breaks_the_connection = "broken",
    a_request_is_handed_to_another_listener = "listen-and-hand-off",
    the_child_of_a_fork_has_adapters_of_its_own = "fork",
    bad_arguments_of_connections_are_refused = "refused",
}

trials! { compile_with_itapi => itapi_transfer:
    messages_are_received_in_both_directions = "sends",
    a_completion_without_notification_is_dequeued = "unnotified",
    bad_posts_are_refused = "refused",
    memory_is_written_and_read_at_a_peer = "rdma",
    atomics_return_the_former_value = "atomics",
    a_narrow_window_ends_with_its_unlink = "narrow-window",
    a_wide_window_ends_with_its_unlink = "wide-window",
    a_message_unlinks_a_window = "send-and-unlink",
    a_read_writes_into_a_window = "read-to-rmr",
    regions_have_modes_and_privileges = "regions",
    endpoints_share_a_receive_queue = "shared-queue",
}

trials! { compile_with_itapi => itapi_socket:
    a_tcp_connection_becomes_a_connection_of_endpoints = "convert",
    the_last_message_may_be_empty = "convert-without-message",
    a_peer_that_closes_its_socket_is_reported = "peer-gone",
    a_program_that_stops_waiting_has_its_socket_again = "give-up",
    a_peer_without_rdma_is_served_in_streaming_mode = "peer-streams",
    what_cannot_be_converted_is_refused = "refused",
}

/// Programs of each version, in both languages.
#[test]
fn the_header_compiles_in_each_version_as_c_and_as_cpp() -> Result<()> {
    let stage = Stage::find()?;
    let env = StackEnv::at(Stage::find()?)?;
    for language in ["c", "c++"] {
        for version in [
            "",
            "-DITAPI_ENABLE_V20_BINDINGS",
            "-DITAPI_ENABLE_V21_BINDINGS",
        ] {
            let name = "itapi_versions";
            let program = CProgram::compile_with_itapi_as(&stage, name, language, version)?;
            let program = env.program(program.file()).named(version);
            program.run(DEADLINE)?.prints("PASSED")?;
        }
    }
    Ok(())
}

/// Trials of calls that OFA's registry library does not have: program, trial, and the check that
/// fails. 82 is `IT_ERR_OP_NOT_SUPPORTED`.
const NOT_IN_OFAS: [(&str, &str, &str); 5] = [
    ("itapi_events", "descriptor", "is 82, not IT_SUCCESS"),
    (
        "itapi_events",
        "descriptor-of-aggregate",
        "is 82, not IT_SUCCESS",
    ),
    (
        "itapi_transfer",
        "narrow-window",
        "info->rmr_types_supported & type",
    ),
    ("itapi_transfer", "send-and-unlink", "is 82, not IT_SUCCESS"),
    ("itapi_transfer", "read-to-rmr", "is 82, not IT_SUCCESS"),
];

/// OFA's registry library, as Debian ships it, with our provider.
#[test]
fn the_library_runs_over_ofas_registry() -> Result<()> {
    let stage = Stage::find()?;
    let alone = tempfile::tempdir()?;
    std::fs::copy(
        stage.lib().join("libitapi.so.2"),
        alone.path().join("libitapi.so.2"),
    )?;
    let registry = Registry::loopback(&stage.provider().display().to_string())?;
    let env = StackEnv::of(stage, registry, NetSpace::enter()?).with_system_registry();
    let run = |program: &CProgram, trial: &str| {
        let program = env.program(program.file()).arg(trial).named(trial);
        let program = program.env("LD_LIBRARY_PATH", alone.path());
        // A trial whose call is not there ends with its objects.
        let is_lacking = NOT_IN_OFAS.iter().any(|row| row.1 == trial);
        let leaks = if is_lacking { "detect_leaks=0" } else { "" };
        let program = program.env("ASAN_OPTIONS", leaks);
        program.spawn()?.finish(DEADLINE)
    };
    for name in ["objects", "events", "connect", "transfer", "socket"] {
        let name = format!("itapi_{name}");
        let program = CProgram::compile_with_itapi(&env.stage, &name)?;
        let listed = run(&program, "")?.text;
        let trials = listed
            .lines()
            .filter_map(|line| line.strip_prefix("TRIAL "));
        for trial in trials {
            let finished = run(&program, trial)?;
            let lacking = NOT_IN_OFAS
                .iter()
                .find(|row| (row.0, row.1) == (&name, trial));
            finished.prints(lacking.map_or("PASSED", |row| row.2))?;
        }
    }
    Ok(())
}
