//! Scenarios, simulation, interop and real-broker tests.

pub mod lab;
