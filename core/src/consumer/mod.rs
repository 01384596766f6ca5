//! Replaced by the consumer machine in the next commits.
#![allow(missing_docs)]
use crate::config::*;
use crate::connection::RequestKind;
use crate::error::*;
use crate::hub::*;
use crate::io::*;
use crate::lookup::*;
use crate::slots::Slot;
use crate::wire::{command::Command, frame::Payload, proto};
#[derive(Debug)]
pub(crate) struct Consumers;
#[derive(Debug)]
pub struct Consumer<'a> {
    pub(crate) consumers: &'a mut Consumers,
    pub(crate) hub: &'a mut Hub,
    pub(crate) id: ConsumerId,
}
#[allow(unused)]
impl Consumers {
    pub(crate) fn new() -> Self {
        Consumers
    }
    pub(crate) fn subscribe(
        &mut self,
        h: &mut Hub,
        l: &mut Lookups,
        c: ConsumerConfig,
    ) -> Result<ConsumerId, Error> {
        Err(Error::new(ErrorKind::OperationNotSupported, "subscribing", ""))
    }
    pub(crate) fn create_reader(
        &mut self,
        h: &mut Hub,
        l: &mut Lookups,
        c: ReaderConfig,
    ) -> Result<ConsumerId, Error> {
        Err(Error::new(ErrorKind::OperationNotSupported, "subscribing", ""))
    }
    pub(crate) fn contains(&self, _: ConsumerId) -> bool {
        false
    }
    pub(crate) fn len(&self) -> usize {
        0
    }
    pub(crate) fn close_all(&mut self, _: &mut Hub) {}
    pub(crate) fn check_invariants(&self) {}
    pub(crate) fn connection(&mut self, h: &mut Hub, p: Slot, t: Ticket, r: Result<ConnId, Error>) {}
    pub(crate) fn lost(&mut self, h: &mut Hub, p: Slot, i: ConnId, e: Error) {}
    pub(crate) fn answered(
        &mut self,
        h: &mut Hub,
        p: Slot,
        t: Ticket,
        k: RequestKind,
        i: ConnId,
        r: Result<Command, Error>,
    ) {
    }
    pub(crate) fn looked_up(&mut self, h: &mut Hub, p: Slot, t: Ticket, r: Result<Found, Error>) {}
    pub(crate) fn partitions_found(
        &mut self,
        h: &mut Hub,
        l: &mut Lookups,
        c: ConsumerId,
        r: Result<Found, Error>,
    ) {
    }
    pub(crate) fn ask_partitions(&mut self, h: &mut Hub, l: &mut Lookups, c: ConsumerId) {}
    pub(crate) fn retry(&mut self, h: &mut Hub, l: &mut Lookups, p: Slot) {}
    pub(crate) fn opening_timed_out(&mut self, h: &mut Hub, p: Slot) {}
    pub(crate) fn ack_group(&mut self, h: &mut Hub, p: Slot) {}
    pub(crate) fn negative_ack(&mut self, h: &mut Hub, p: Slot) {}
    pub(crate) fn operation_timed_out(&mut self, h: &mut Hub, o: OpId) {}
    pub(crate) fn message(&mut self, h: &mut Hub, i: ConnId, m: proto::CommandMessage, p: Payload) {}
    pub(crate) fn closed_by_broker(&mut self, h: &mut Hub, i: ConnId, c: &proto::CommandCloseConsumer) {}
    pub(crate) fn active_change(&mut self, h: &mut Hub, i: ConnId, c: &proto::CommandActiveConsumerChange) {}
    pub(crate) fn end_of_topic(&mut self, h: &mut Hub, i: ConnId, c: &proto::CommandReachedEndOfTopic) {}
    pub(crate) fn migrated(&mut self, p: Slot, u: Option<&str>) {}
}
