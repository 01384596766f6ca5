//! Scenarios, simulation, interop and real-broker tests.
