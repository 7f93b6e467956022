//! libFuzzer around [`fuzz_bodies::fpdu_stream`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::fpdu_stream::run(data));
