//! Verbs of a test that plays the broker.

use bytes::Bytes;
use geminga_broker::LinkId;
use geminga_core::wire::Command;
use geminga_core::{MessageId, Mono};

use super::script::{self, Heard};
use super::{PATIENCE, World};
use crate::network::Direction;

impl World {
    /// Waits for the client to send a command that the test plays by hand, and takes it.
    pub fn hear(&mut self, name: &str) -> Heard {
        let mut heard = None;
        let came = self.run_until(
            |w| {
                heard = heard.take().or_else(|| w.script.take(name));
                heard.is_some()
            },
            PATIENCE,
        );
        match heard.filter(|_| came) {
            Some(heard) => heard,
            None => self.fail(&format!("the client sent no {name} within {PATIENCE:?}")),
        }
    }

    /// Takes a command that the client has sent already, if it has.
    pub fn heard(&mut self, name: &str) -> Option<Heard> {
        self.settle();
        self.script.take(name)
    }

    /// Says one command.
    pub fn say(&mut self, link: LinkId, command: Command) {
        self.say_bytes(link, script::encode(&command));
    }

    /// Says several commands in one segment.
    pub fn say_all(&mut self, link: LinkId, commands: &[Command]) {
        let bytes: Vec<u8> = commands.iter().flat_map(|c| script::encode(c).to_vec()).collect();
        self.say_bytes(link, bytes);
    }

    /// Says one unbatched message.
    pub fn say_message(&mut self, link: LinkId, consumer_id: u64, id: MessageId, payload: &str) {
        let bytes = script::encode_message(consumer_id, id, id.entry_id as u64, payload.as_bytes());
        self.say_bytes(link, bytes);
    }

    /// Says any bytes.
    pub fn say_bytes(&mut self, link: LinkId, bytes: impl Into<Bytes>) {
        self.script.write(link, bytes.into());
        self.settle();
    }

    /// Answers a command as a healthy broker would.
    pub fn answer(&mut self, heard: &Heard) {
        if let Some(answer) = self.script.ordinary_answer(heard) {
            self.say(heard.link, answer);
        }
    }

    /// Closes a link from the broker's side, after what was said.
    pub fn hang_up(&mut self, link: LinkId) {
        self.settle();
        let now: Mono = self.now().mono;
        self.trace.note(now, || format!("the test closes link {}", link.0));
        self.network.close(now, link, Direction::Down);
        self.script.closed(link);
        self.forget(link);
    }
}
