//! What a topic may touch besides itself while it handles a command: the clock, the settings, the links, the timers
//! and the planned faults.

use crate::config::ClusterConfig;
use crate::faults::Faults;
use crate::session::Links;
use crate::time::{Now, Timers};

pub(crate) struct Context<'a> {
    pub(crate) now: Now,
    pub(crate) config: &'a ClusterConfig,
    pub(crate) links: &'a mut Links,
    pub(crate) timers: &'a mut Timers,
    pub(crate) faults: &'a mut Faults,
}
