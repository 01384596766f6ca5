//! What the embedded broker says to clients, command by command, in virtual time: no port, no sleep.

mod faults;
mod key_shared;
mod lookup;
mod publish;
mod random;
mod seek;
mod session;
mod shared;
mod subscribe;
mod world;
