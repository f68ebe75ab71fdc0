//! The answer of a child process that examines, analyses or compiles: it may have been taken over.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flame_compile::parse_answer(data));
