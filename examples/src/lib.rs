//! Example programs; see `examples/examples/`.
