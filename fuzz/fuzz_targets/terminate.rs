//! libFuzzer around [`fuzz_bodies::terminate`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::terminate::run(data));
