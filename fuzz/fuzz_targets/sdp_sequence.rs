//! libFuzzer around [`fuzz_bodies::sdp_sequence`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::sdp_sequence::run(data));
