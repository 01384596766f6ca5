//! Whole input sequences of a client. What must hold is in `geminga_core::fuzzing`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| geminga_core::fuzzing::inputs(data));
