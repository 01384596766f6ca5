//! The geminga command line.

fn main() {}
