//! Tells people on stderr that connections were lost and came back, since the client carries on without an error.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use geminga::{Client, HandleId, StateChange};

/// How long an opening may take before it is worth a line.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Watches all handles of the client until it ends.
pub(crate) fn tell(client: &Client) {
    let mut events = client.events();
    tokio::spawn(async move {
        let mut pauses = Pauses::default();
        while let Some(event) = events.next().await {
            if let Some(line) = pauses.note(event.handle, event.change) {
                eprintln!("{line}");
            }
        }
    });
}

/// Awaits an opening, and says that it does once that takes longer than one likes to wait without a word; not when `quiet`.
pub(crate) async fn patiently<T>(opening: impl Future<Output = T>, quiet: bool) -> T {
    let mut opening = pin!(opening);
    tokio::select! {
        biased;
        opened = &mut opening => return opened,
        () = tokio::time::sleep(PATIENCE), if !quiet => {}
    }
    eprintln!("still waiting for the broker (geminga broker starts one for development)");
    opening.await
}

/// The parts of handles that are without a broker: one line when there is a first, one when there is none left.
#[derive(Default)]
struct Pauses {
    waiting: BTreeSet<(HandleId, String)>,
}

impl Pauses {
    fn note(&mut self, handle: HandleId, change: StateChange) -> Option<String> {
        match change {
            StateChange::Reconnecting { topic, reason } => {
                let first = self.waiting.is_empty();
                self.waiting.insert((handle, topic));
                first.then(|| format!("paused, reconnecting: {reason}"))
            }
            StateChange::Connected { topic } => {
                let waited = self.waiting.remove(&(handle, topic));
                (waited && self.waiting.is_empty()).then(|| "connected again".to_owned())
            }
            StateChange::EndOfTopic { topic } => Some(format!("the end of {topic}, which is terminated")),
            StateChange::DeadLettered { id, .. } => Some(format!("message {id} is in the dead letter topic")),
            StateChange::DeadLetterFailed { id, reason, .. } => {
                Some(format!("message {id} was not sent to the dead letter topic: {reason}"))
            }
            StateChange::Active { .. } => None,
        }
    }
}
