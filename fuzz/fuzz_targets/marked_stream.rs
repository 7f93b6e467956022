//! libFuzzer around [`fuzz_bodies::marked_stream`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::marked_stream::run(data));
