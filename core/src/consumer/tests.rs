//! The consumer machine as a whole, driven through a `Client` by a broker that says exactly what a test tells it to.

mod broker;
mod flow;
mod position;
mod whole;
