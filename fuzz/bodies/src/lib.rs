//! What each fuzz target does with an input, free of any fuzzing engine.
//!
//! The libFuzzer programs in `fuzz/fuzz_targets` are one call each into this crate; the tests of
//! this crate make the same calls for every file of the committed corpora, so whatever a fuzzer
//! once found is looked at by every ordinary test run.
//!
//! | Target | Subject | What must hold |
//! |---|---|---|
//! | [`mpa_startup`] | MPA start-up frames | one verdict however the bytes are cut; ranges inside the frame |
//! | [`fpdu_stream`] | one connection, any stream | nothing is placed unchecked; one Terminate; cuts do not matter |
//! | [`marked_stream`] | MPA markers | put in, damaged, taken out: what is whole arrives, nothing else |
//! | [`ddp_rdmap_reassembly`] | two connections, a bad wire | a fault is reported or exactly what was sent is delivered |
//! | [`terminate`] | Terminate messages | both layouts are read; what is written reads back |
//! | [`dat_conf`] | `dat.conf` | a bad line costs only itself; entries obey the grammar |
//! | [`rule_file`] | rules of the offload switch | a bad line is told by itself; a rule says what it reads |
//! | [`port_mapper`] | port mapper datagrams | what is read is written the same; one answer, no longer than its question |
//! | [`sdp_message`] | SDP messages | what is read is written the same; the checker takes nothing that is none |
//! | [`sdp_hello`] | SDP set-up | what is taken is written the same, trimmed or whole, and makes a connection |
//! | [`sdp_sequence`] | one SDP end, any peer | registered memory only; silence after the end; one cause |
//! | [`local_ring::contents`] | shared memory that holds anything | what is read is inside, and stays as it was checked |
//! | [`local_ring::sequence`] | both ends of a shared ring | all records once and in order; no lost wake-up; a bad word is a fault |
//! | [`c_calls`] | the C library, in memory and staged | no call crashes or hangs; closing the IA leaves nothing behind |
//!
//! [`input`] turns bytes into choices, [`model`] is the memory and the engine around a connection,
//! [`target`] lists the targets, [`seeds`] is what their corpora start from.

pub mod c_calls;
mod crc;
pub mod dat_conf;
pub mod ddp_rdmap_reassembly;
pub mod fpdu_stream;
pub mod input;
pub mod local_ring;
/// The provider's own file: in its crate nobody else can reach it.
#[path = "../../../provider-iwarp-soft/src/carrier/tcp/marked.rs"]
mod marked;
pub mod marked_stream;
pub mod model;
pub mod mpa_startup;
pub mod port_mapper;
pub mod rule_file;
pub mod sdp_hello;
pub mod sdp_message;
pub mod sdp_sequence;
pub mod seeds;
pub mod target;
pub mod terminate;
