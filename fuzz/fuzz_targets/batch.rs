//! The payload of a batch. What must hold is in `geminga_core::fuzzing`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| geminga_core::fuzzing::batch(data));
