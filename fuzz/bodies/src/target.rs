//! The list of targets.

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the libFuzzer program, and of the corpus directory except for [`C_CALLS_STAGED`].
    pub name: &'static str,
    /// Runs an input; panics if a property does not hold.
    pub run: fn(&[u8]),
}

impl Target {
    const fn new(name: &'static str, run: fn(&[u8])) -> Self {
        Self { name, run }
    }
}

/// The targets that need no staged library and no process of their own.
pub const PURE: [Target; 16] = [
    Target::new("mpa_startup", crate::mpa_startup::run),
    Target::new("fpdu_stream", crate::fpdu_stream::run),
    Target::new("marked_stream", crate::marked_stream::run),
    Target::new("ddp_rdmap_reassembly", crate::ddp_rdmap_reassembly::run),
    Target::new("terminate", crate::terminate::run),
    Target::new("dat_conf", crate::dat_conf::run),
    Target::new("rule_file", crate::rule_file::run),
    Target::new("port_mapper", crate::port_mapper::run),
    Target::new("sdp_message", crate::sdp_message::run),
    Target::new("sdp_hello", crate::sdp_hello::run),
    Target::new("sdp_sequence", crate::sdp_sequence::run),
    Target::new("sdp_trace", crate::sdp_trace::run),
    Target::new("ring_contents", crate::local_ring::contents::run),
    Target::new("ring_sequence", crate::local_ring::sequence::run),
    Target::new("c_calls", crate::c_calls::run),
    Target::new("admission", crate::admission::run),
];

/// The target that needs the staged libraries, and a process of its own; its corpus is that of
/// `c_calls`.
pub const C_CALLS_STAGED: Target = Target::new("c_calls_staged", crate::c_calls::run_staged);
