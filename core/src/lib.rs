//! The Apache Pulsar client protocol as one sans-IO state machine.
#![forbid(unsafe_code)]
