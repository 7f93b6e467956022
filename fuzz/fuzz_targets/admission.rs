//! libFuzzer around [`fuzz_bodies::admission`].

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_bodies::admission::run(data));
