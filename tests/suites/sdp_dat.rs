//! The calls of `sdp_dat.h`, tested end to end by a C program over the staged `libsdp-dat.so.1`.
//! The program is `tests/c/sdp_dat.c`; each of its trials is one test here.

use anyhow::Result;
use stack_tests::{CProgram, DEADLINE, StackEnv, Stage, make_c_examples, trials};

trials! { compile_with_sdp => sdp_dat:
    every_byte_arrives_in_both_directions_and_then_the_end = "bytes",
    a_descriptor_shows_what_a_socket_is_ready_for = "descriptors",
    flags_of_send_and_receive_have_their_effects = "flags",
    options_are_read_as_they_were_set = "options",
    both_ends_have_addresses = "names",
    a_connect_without_a_listener_is_refused = "refused",
    numbers_that_are_no_sockets_are_refused = "handles",
    bytes_sent_before_the_exit_are_delivered = "ending",
}

#[test]
fn the_header_compiles_as_cpp() -> Result<()> {
    let stage = Stage::find()?;
    let program = CProgram::compile_with_sdp_as(&stage, "sdp_header", "c++")?;
    let env = StackEnv::at(stage)?;
    env.program(program.file())
        .run(DEADLINE)?
        .prints("PASSED")?;
    Ok(())
}

#[test]
fn the_example_serves_a_client() -> Result<()> {
    let env = StackEnv::new()?;
    let directory = env.registry.dir();
    make_c_examples(&env.stage, directory, "sdpecho")?;
    let start = |args: &str| {
        env.program(directory.join("sdpecho"))
            .args_line(args)
            .spawn()
    };
    let server = start("--listen 127.0.0.1")?;
    env.net.wait_for_listener(4711, DEADLINE)?;
    let client = start("127.0.0.1")?.finish(DEADLINE)?.success()?;
    client.prints("4194304 bytes came back")?;
    server
        .finish(DEADLINE)?
        .success()?
        .prints("a client has closed")?;
    Ok(())
}
