//! Scenarios, simulation, interop and real-broker tests.

pub mod checkers;
pub mod java;
pub mod lab;
pub mod network;
pub mod sim;
pub mod suite;
pub mod world;
