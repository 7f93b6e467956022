//! libFuzzer around [`fuzz_bodies::c_calls`] in memory.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::c_calls::run(data));
