//! Every command of the project.

fn main() {}
