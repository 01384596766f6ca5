//! What becomes of a handle's connections, for those who want to watch. Decides nothing: it passes on what core says.

use geminga_core::{HandleId, StateChange};
use tokio::sync::broadcast::{Receiver, error::RecvError};

/// A change in a handle's standing with a broker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StateEvent {
    /// The producer, consumer or reader.
    pub handle: HandleId,
    /// What changed, for which topic or partition, and why.
    pub change: StateChange,
}

impl StateEvent {
    pub(crate) fn log(&self) {
        match &self.change {
            StateChange::Reconnecting { topic, reason } => tracing::info!(%topic, %reason, "reconnecting"),
            StateChange::Connected { topic } => tracing::info!(%topic, "serving"),
            StateChange::Active { topic, active } => tracing::info!(%topic, active, "failover"),
            StateChange::DeadLettered { topic, id, dead_letter } => {
                tracing::warn!(%topic, %id, %dead_letter, "given up: the message is in the dead letter topic");
            }
            StateChange::DeadLetterFailed { topic, id, reason } => {
                tracing::warn!(%topic, %id, %reason, "not sent to the dead letter topic, trying again");
            }
            StateChange::EndOfTopic { topic } => tracing::info!(%topic, "end of topic"),
        }
    }
}

/// The state events of a client or of one handle, from the moment it was asked for.
///
/// Shape: the latest 256 events of the client are kept; a listener that falls further behind misses the oldest.
pub struct StateEvents {
    receiver: Receiver<StateEvent>,
    only: Option<HandleId>,
}

impl StateEvents {
    pub(crate) fn new(receiver: Receiver<StateEvent>, only: Option<HandleId>) -> Self {
        StateEvents { receiver, only }
    }

    /// The next event, `None` when the client has gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<StateEvent> {
        loop {
            match self.receiver.recv().await {
                Ok(event) if self.only.is_none_or(|only| only == event.handle) => return Some(event),
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => tracing::debug!(missed, "state events missed"),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl std::fmt::Debug for StateEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateEvents").field("only", &self.only).finish_non_exhaustive()
    }
}
