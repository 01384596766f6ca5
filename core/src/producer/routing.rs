//! Which partition a message goes to: values in, values out.

use crate::config::Routing;
use crate::error::{Error, ErrorKind};
use crate::hash::HashingScheme;
use crate::message::OutgoingMessage;

/// The state of routing for one producer.
#[derive(Debug)]
pub(crate) struct Router {
    routing: Routing,
    scheme: HashingScheme,
    /// The partition in turn, before it is reduced to the number of partitions.
    turn: u32,
}

impl Router {
    /// `start` is drawn at random, so that many producers do not all begin with the same partition.
    pub(crate) fn new(routing: Routing, scheme: HashingScheme, start: u32) -> Self {
        Router { routing, scheme, turn: start }
    }

    /// The partition for `message`, below `partitions` (at least 1).
    pub(crate) fn route(&self, message: &OutgoingMessage, partitions: u32) -> Result<u32, Error> {
        if let Routing::Custom(function) = &self.routing {
            let partition = (function.0)(message, partitions);
            return match partition < partitions {
                true => Ok(partition),
                false => {
                    let why = format!("the routing function chose partition {partition} of {partitions}");
                    Err(Error::new(ErrorKind::InvalidConfiguration, "sending", why))
                }
            };
        }
        if partitions == 1 {
            return Ok(0);
        }
        Ok(match &message.key {
            Some(key) => self.scheme.partition(key, partitions),
            None => self.turn % partitions,
        })
    }

    /// Whether `message` goes to the partition in turn.
    pub(crate) fn takes_turns(&self, message: &OutgoingMessage) -> bool {
        matches!(self.routing, Routing::RoundRobin) && message.key.is_none()
    }

    /// The partition in turn has had its batch, or its message when there are no batches.
    pub(crate) fn advance(&mut self, partition: u32, partitions: u32) {
        if matches!(self.routing, Routing::RoundRobin) && self.turn % partitions == partition {
            self.turn = (partition + 1) % partitions;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::MessageRouter;

    fn plain() -> OutgoingMessage {
        OutgoingMessage::new("x")
    }

    #[test]
    fn keyless_messages_stay_until_the_turn_advances_and_keyed_ones_follow_the_hash() {
        let mut router = Router::new(Routing::RoundRobin, HashingScheme::JavaStringHash, 6);
        assert_eq!(router.route(&plain(), 4).unwrap(), 2);
        assert_eq!(router.route(&plain(), 4).unwrap(), 2);
        router.advance(2, 4);
        assert_eq!(router.route(&plain(), 4).unwrap(), 3);
        router.advance(1, 4); // a keyed batch elsewhere takes no turn
        assert_eq!(router.route(&plain(), 4).unwrap(), 3);
        router.advance(3, 4);
        assert_eq!(router.route(&plain(), 4).unwrap(), 0);
        assert_eq!(router.route(&plain().with_key("ab"), 4).unwrap(), 3105 % 4);
    }

    #[test]
    fn a_single_partition_is_kept_for_ever() {
        let mut router = Router::new(Routing::SinglePartition, HashingScheme::JavaStringHash, 1);
        router.advance(1, 4);
        assert_eq!(router.route(&plain(), 4).unwrap(), 1);
    }

    #[test]
    fn a_function_out_of_range_fails_that_send() {
        let routing =
            Routing::Custom(MessageRouter(Arc::new(|m, n| if m.payload.is_empty() { n } else { 0 })));
        let router = Router::new(routing, HashingScheme::JavaStringHash, 0);
        assert_eq!(router.route(&plain(), 4).unwrap(), 0);
        assert!(router.route(&OutgoingMessage::new(""), 4).is_err());
    }
}
