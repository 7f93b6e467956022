//! libFuzzer around [`fuzz_bodies::c_calls`] with the staged libraries.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::c_calls::run_staged(data));
