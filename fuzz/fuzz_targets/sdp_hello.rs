//! libFuzzer around [`fuzz_bodies::sdp_hello`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::sdp_hello::run(data));
