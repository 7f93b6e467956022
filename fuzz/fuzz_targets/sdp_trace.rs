//! libFuzzer around [`fuzz_bodies::sdp_trace`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::sdp_trace::run(data));
