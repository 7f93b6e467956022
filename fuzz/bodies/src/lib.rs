//! The bodies of the fuzz targets, independent of any fuzzing engine.
//!
//! The libFuzzer programs in `fuzz/fuzz_targets` are one call each into this crate. The tests of
//! this crate make the same calls for every file of the committed corpora, so every ordinary test
//! run checks every input that a fuzzer once found.
//!
//! | Target | Subject | Property |
//! |---|---|---|
//! | [`mpa_startup`] | MPA start-up frames | one verdict however the bytes are cut; ranges inside the frame |
//! | [`fpdu_stream`] | one connection, any stream | nothing is placed unchecked; one Terminate; cuts do not matter |
//! | [`marked_stream`] | MPA markers | inserted, damaged, removed: only undamaged FPDUs are received, and all of them |
//! | [`ddp_rdmap_reassembly`] | two connections, a bad wire | a fault is reported or exactly what was sent is delivered |
//! | [`terminate`] | Terminate messages | both layouts are parsed; written messages can be parsed |
//! | [`dat_conf`] | `dat.conf` | a bad line affects only itself; entries obey the grammar |
//! | [`rule_file`] | rules of the offload switch | a bad line is reported on its own; a rule parses from its own text |
//! | [`port_mapper`] | port mapper datagrams | parsed messages are emitted unchanged; one answer, no longer than its query |
//! | [`sdp_message`] | SDP messages | parsed messages are emitted unchanged; the checker accepts only messages |
//! | [`sdp_hello`] | SDP set-up | accepted messages are emitted unchanged, trimmed or whole, and open a connection |
//! | [`sdp_sequence`] | one SDP end, any peer | registered memory only; silence after the end; one cause |
//! | [`sdp_trace`] | the checker of SDP traces | any bytes get a verdict; the traces of both ends get the same one |
//! | [`local_ring::contents`] | shared memory with any content | data that is read is inside the area, and does not change after its check |
//! | [`local_ring::sequence`] | both ends of a shared ring | all records once and in order; no lost wake-up; a bad word is a fault |
//! | [`admission`] | connections within the host, next to TCP | carried only if TCP connects the same sockets, with the same addresses |
//! | [`c_calls`] | the C library, in memory and staged | no call crashes or hangs; closing the IA leaks nothing |
//!
//! [`input`] turns bytes into choices, [`target`] lists the targets, [`seeds`] holds the initial
//! inputs of their corpora, and [`seed`] is the type of one of them.

pub mod admission;
pub mod c_calls;
mod crc;
pub mod dat_conf;
pub mod ddp_rdmap_reassembly;
pub mod fpdu_stream;
pub mod input;
pub mod local_ring;
/// The provider's own file. It is included by its path, because a feature that exports it would
/// have to make every item of it public, and the compiler would no longer report unused ones.
#[path = "../../../provider-iwarp-soft/src/carrier/tcp/marked.rs"]
mod marked;
pub mod marked_stream;
pub mod mpa_startup;
pub mod port_mapper;
pub mod rule_file;
pub mod sdp_hello;
pub mod sdp_message;
pub mod sdp_sequence;
pub mod sdp_trace;
pub mod seed;
pub mod seeds;
pub mod target;
pub mod terminate;
