//! An embedded, in-memory Apache Pulsar broker for development and tests; production uses a Pulsar cluster.
