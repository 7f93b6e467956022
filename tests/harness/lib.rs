//! The environment of every suite: the staged artefacts, a registry file, a network namespace, and
//! child processes that end with the test.
//!
//! - [`Stage`] finds `target/stage`.
//! - [`Registry`] writes a `dat.conf` into a scratch directory.
//! - [`NetSpace`] is a network namespace for the calling thread and the children that it starts.
//! - [`Veth`] connects that namespace to a second one: TCP then uses segments of Ethernet's size.
//! - [`Program`] starts a child, [`Running`] supervises it and ends it on drop. When a child hangs,
//!   `stuck` reports the state of all children.
//! - [`CProgram`] compiles a C file of `tests/c` against the staged headers; [`make_c_examples`]
//!   builds the examples with their Makefile, [`c_examples()`] lists them.
//! - [`Peers`] runs both ends of a connection as C programs.
//! - [`raw`] speaks MPA and DDP byte by byte over a plain TCP socket.
//! - [`frame_writer`] encodes every frame with any value in any field, without the stack's code.
//! - [`relay`](relay()) forwards bytes between two ends, slowly or in small pieces.
//! - [`ofa_tools`] runs command lines of OFA's programs.
//! - [`Capture`] records the packets and decodes them with an independent program.
//! - [`OpsRun`] starts programs under `opsrun`, with one of the [`OffloadProtocol`]s.
//! - [`IntelMpi`] starts the ranks of MPI programs.
//! - [`SdpTraces`] checks every SDP message of a test.
//! - [`TcpData`] counts the data of the kernel's TCP, as evidence that a connection was not
//!   TCP.
//! - [`device()`] is the RDMA device that carries the connections, in place of the software
//!   provider.
//! - [`let_others_run`] waits until the bytes in transit have been received.
//! - [`load_staged`] lets a suite call the staged libraries in its own process.
//! - [`not_run()`] reports that a test could not check its subject on this machine, and
//!   [`available!`] ends such a test.
//! - [`tree()`] makes a directory with files.
//! - [`rows!`] makes a table with one row per line.
//! - [`until!`] waits for a condition, and [`awaited!`] for a value.
//! - [`StackEnv`] is the common case: the staged libraries, one IA on `lo`, a network namespace.

mod c_examples;
mod c_program;
mod capture;
mod device;
pub mod frame_writer;
mod full;
mod in_process;
mod intel_mpi;
mod net_space;
mod not_run;
pub mod ofa_tools;
mod ops_run;
mod peers;
mod program;
pub mod raw;
mod registry;
mod relay;
mod rows;
mod running;
mod sanitizer;
mod sdp_traces;
mod stack_env;
mod stage;
mod stuck;
mod tcp_data;
mod tree;
mod trial;
mod turns;
mod veth;
mod waits;

pub use c_examples::{c_examples, make_c_examples};
pub use c_program::CProgram;
pub use capture::{Capture, CaptureFile, Decoded};
pub use device::{SOFTWARE, adapter_address, device, not_over_devices, provider_name, scratch};
pub use full::is_full;
pub use in_process::{await_end_of_stack_threads, load_staged, load_staged_sdp};
pub use intel_mpi::IntelMpi;
pub use net_space::NetSpace;
pub use not_run::not_run;
pub use ops_run::{Offload, OffloadProtocol, OpsRun};
pub use peers::{DEADLINE, PASSED_FD, Peers, keeps_at_most, orderly, orderly_within};
pub use program::Program;
pub use registry::{IA_NAME, Registry, adapter_line, carrier_params};
pub use relay::{Pace, relay};
pub use running::{Echo, Finished, Running};
pub use sanitizer::{Sanitizer, VALGRIND};
pub use sdp_traces::SdpTraces;
pub use stack_env::StackEnv;
pub use stage::Stage;
pub use tcp_data::TcpData;
pub use tree::tree;
pub use trial::{check_trials, passes};
pub use turns::let_others_run;
pub use veth::Veth;
