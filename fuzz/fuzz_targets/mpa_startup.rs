//! libFuzzer around [`fuzz_bodies::mpa_startup`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::mpa_startup::run(data));
