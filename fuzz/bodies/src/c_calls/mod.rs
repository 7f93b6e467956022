//! The C library: programs of calls over handles that are live, freed, or invalid.
//!
//! | Module | Contents |
//! |---|---|
//! | [`calls`] | the functions, linked or loaded |
//! | `memory` | the stack that is linked into this program, over an RNIC in memory |
//! | [`session`] | the loaded library, and the resources that the process held before the program |
//! | [`world`] | handles, memory and sockets of one program, and the choice of arguments |
//! | `objects` | calls that make, query, change and free objects |
//! | `transfers` | calls that post, wait and connect |
//! | `extensions` | operations of the extensions, and calls that name no object |
//!
//! Input: a sequence of calls, each one byte for the number of the call and then its arguments.
//!
//! [`run`] executes many inputs a second: the whole stack is in this program, and its behaviour
//! follows from the input. With [`run`], bit 7 of a call's byte delays the events of the call until
//! after the next call. [`run_staged`] runs the same programs over real sockets. The environment
//! variable `DAT_LIBRARY` names its registry library, and `DAT_OVERRIDE` its registry file; `cargo
//! xtask fuzz` and the replay test set both to the staged files. Without the variables,
//! `run_staged` makes no call, and reports once that it was not run.

pub mod calls;
mod extensions;
mod memory;
mod objects;
pub mod session;
mod transfers;
pub mod world;

use crate::{
    input::Input,
    seed::{Seed, seed},
};

use session::Session;
use world::{Backend, World};

/// The limit of calls of one program; keeps an input under a second.
const CALLS_MAX: usize = 96;

/// Runs one input in memory.
pub fn run(data: &[u8]) {
    let calls = memory::calls();
    let descriptor = memory::lowest_descriptor();
    run_calls(World::new(calls, Backend::Memory), data);
    memory::assert_nothing_left(descriptor);
}

/// Runs one input with the staged libraries.
pub fn run_staged(data: &[u8]) {
    let Some(session) = Session::get() else {
        return;
    };
    run_calls(World::new(session.calls(), Backend::Staged), data);
    session.assert_nothing_left();
}

fn run_calls(mut world: World, data: &[u8]) {
    let mut input = Input::new(data);
    world.open_ia();
    for _ in 0..CALLS_MAX {
        if input.is_empty() {
            break;
        }
        step(&mut world, &mut input);
    }
    world.finish();
}

type Call = fn(&mut World, &mut Input<'_>);

/// The calls, in the order of their numbers in an input.
const CALLS: [Call; 64] = [
    World::create_evd,
    World::create_pz,
    World::create_ep,
    World::create_lmr,
    World::create_psp,
    World::connect,
    World::wait,
    World::accept,
    World::post_receive,
    World::post_send,
    World::post_write,
    World::post_read,
    World::dequeue,
    World::disconnect,
    World::create_cno,
    World::create_rmr,
    World::bind,
    World::create_srq,
    World::create_ep_with_srq,
    World::create_rsp,
    World::create_ssp,
    World::connect_socket,
    World::free,
    World::free,
    World::reset_ep,
    World::query,
    World::query,
    World::ep_status,
    World::modify_ep,
    World::change_evd,
    World::resize_evd,
    World::post_software_event,
    World::wait_cno,
    World::change_cno,
    World::reject,
    World::hand_off,
    World::duplicate_connection,
    World::post_to_srq,
    World::change_srq,
    World::set_context,
    World::handle_type,
    World::sync_memory,
    World::close_ia,
    World::open_ia_again,
    World::extension,
    World::create_psp_any,
    World::watermarks,
    World::query_ia,
    World::pass_time,
    World::create_csp,
    World::common_connect,
    World::create_rmr_for_ep,
    World::post_send_with_invalidate,
    World::post_read_to_rmr,
    World::trigger_cno,
    World::name_error,
    World::post_atomic,
    World::post_write_immediate,
    World::counters,
    World::list_providers,
    World::connect,
    World::post_send,
    World::wait,
    World::dequeue,
];

fn step(world: &mut World, input: &mut Input<'_>) {
    let choice = input.byte();
    CALLS[usize::from(choice) % CALLS.len()](world, input);
    if world.backend == Backend::Memory && choice < 0x80 {
        memory::deliver_held();
    }
}

/// Programs that create objects, connect to themselves, send data in both directions, or end early.
///
/// Handles are chosen by one byte: 0 is the newest live one of the kind that is wanted. The zero at
/// the end of a call that creates an object chooses the out-pointer for its handle.
pub(crate) fn seeds() -> Vec<Seed> {
    let objects: &[u8] = &[
        1, 0, 0, // PZ
        0, 0, 16, 0, 3, 0, // EVD 2: transfers
        0, 0, 16, 0, 5, 0, // EVD 1: connections
        0, 0, 16, 0, 4, 0, // EVD 0: requests
        3, 0, 0, 0, 0, 0, 0, 16, 0, 0, // LMR of 4 KiB
        2, 0, 0, 2, 2, 1, 0, 0, // EP
        2, 0, 0, 2, 2, 1, 0, 0, // EP
    ];
    let [requests, connections, transfers] = [0, 1, 2].map(|evd| [6, evd, 3, 0]);
    let listen: &[u8] = &[45, 0, 0, 0];
    let connect: &[u8] = &[5, 0, 0, 3, 3, 0];
    let accept: &[u8] = &[7, 0, 1, 3];
    let accept_reserved: &[u8] = &[7, 0, 0xF0, 3];
    let receive: &[u8] = &[8, 1, 1, 0, 0, 64, 0, 0];
    let send: &[u8] = &[9, 0, 1, 0, 0, 64, 0, 0];
    let write: &[u8] = &[10, 4, 1, 0, 1, 0, 0, 64, 0, 0];
    let read: &[u8] = &[11, 4, 1, 0, 1, 0, 8, 64, 0, 0];
    let disconnect: &[u8] = &[13, 0, 0];
    let free_all: &[u8] = &[
        22, 0, 0, 22, 0, 0, 22, 4, 0, 22, 1, 0, 22, 1, 0, 22, 1, 0, 22, 3, 0, 22, 2, 0,
    ];
    let garbage: &[u8] = &[
        25, 0, 0xF0, 0, 25, 1, 0xF1, 0, 25, 2, 0xF2, 0, 22, 3, 0xF8, 22, 4, 0xF9, 13, 0xFA, 0, 13,
        0xFB, 0, 24, 0xFC, 27, 0xFD, 24, 0xE0, 24, 0xE1,
    ];
    let socket: &[u8] = &[20, 0, 0, 1, 0, 4, 0, 21, 0, 1, 3, 4];
    let both = [connections, connections].concat();
    let connected = [objects, listen, connect, &requests, accept, &both].concat();
    let sent = [receive, send, &transfers, &transfers].concat();
    let moved = [write, &transfers, read, &transfers].concat();
    let whole = [&connected[..], &sent, &moved, disconnect, &both, free_all].concat();
    let rows = [
        ("nothing", vec![0x60]),
        ("objects", [objects, free_all].concat()),
        ("garbage", [garbage, objects, garbage].concat()),
        ("connect", [objects, listen, connect, &requests].concat()),
        (
            "refused",
            [objects, connect, &connections, connect].concat(),
        ),
        ("connected", connected.clone()),
        ("data", [&connected[..], &sent, &moved].concat()),
        ("whole", whole),
        (
            "socket",
            [objects, socket, &requests, accept_reserved, &both].concat(),
        ),
        (
            "unread",
            [&connected[..], receive, receive, send, send, write, read].concat(),
        ),
    ];
    rows.map(|(name, bytes)| seed("c_calls", name, bytes))
        .into()
}
