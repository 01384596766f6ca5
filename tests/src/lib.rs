//! Scenarios, simulation, interop and real-broker tests.

pub mod java;
pub mod lab;
pub mod network;
pub mod suite;
pub mod world;
