//! What the embedded broker says to clients, command by command, in virtual time: no port, no sleep.

mod faults;
mod lookup;
mod publish;
mod random;
mod session;
mod subscribe;
mod world;
