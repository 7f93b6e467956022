//! The list of targets.

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the libFuzzer program, and of the corpus directory except for [`C_CALLS_STAGED`].
    pub name: &'static str,
    /// Runs an input; panics if a property does not hold.
    pub run: fn(&[u8]),
}

/// The targets that need no library and no process of their own.
pub const PURE: [Target; 15] = [
    Target {
        name: "mpa_startup",
        run: crate::mpa_startup::run,
    },
    Target {
        name: "fpdu_stream",
        run: crate::fpdu_stream::run,
    },
    Target {
        name: "marked_stream",
        run: crate::marked_stream::run,
    },
    Target {
        name: "ddp_rdmap_reassembly",
        run: crate::ddp_rdmap_reassembly::run,
    },
    Target {
        name: "terminate",
        run: crate::terminate::run,
    },
    Target {
        name: "dat_conf",
        run: crate::dat_conf::run,
    },
    Target {
        name: "rule_file",
        run: crate::rule_file::run,
    },
    Target {
        name: "port_mapper",
        run: crate::port_mapper::run,
    },
    Target {
        name: "sdp_message",
        run: crate::sdp_message::run,
    },
    Target {
        name: "sdp_hello",
        run: crate::sdp_hello::run,
    },
    Target {
        name: "sdp_sequence",
        run: crate::sdp_sequence::run,
    },
    Target {
        name: "sdp_trace",
        run: crate::sdp_trace::run,
    },
    Target {
        name: "ring_contents",
        run: crate::local_ring::contents::run,
    },
    Target {
        name: "ring_sequence",
        run: crate::local_ring::sequence::run,
    },
    Target {
        name: "c_calls",
        run: crate::c_calls::run,
    },
];

/// The target that needs the staged libraries, and a process of its own; its corpus is that of
/// `c_calls`.
pub const C_CALLS_STAGED: Target = Target {
    name: "c_calls_staged",
    run: crate::c_calls::run_staged,
};
