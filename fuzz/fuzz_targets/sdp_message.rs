//! libFuzzer around [`fuzz_bodies::sdp_message`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::sdp_message::run(data));
