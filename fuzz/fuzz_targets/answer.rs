//! The answer of a child process that examines, analyses or compiles, and that may be compromised.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flame_compile::parse_answer(data));
