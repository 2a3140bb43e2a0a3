//! See `longshore_fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longshore_fuzz::target("pool_formats")(input));
