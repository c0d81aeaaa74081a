//! What every transport service does for its queue pair.

use core::fmt;

use super::common::{Common, Outcome, Surroundings};
use crate::counters::Counters;
use crate::error::Result;
use crate::time::Instant;
use crate::wire::{Arrival, Flow, Packet, Psn, Transport};
use crate::work::SendRequest;

/// The machine of a transport service.
///
/// Inputs: [`post`](Self::post), [`on_packet`](Self::on_packet), [`on_timeout`](Self::on_timeout), and the changes of
/// state; after each, [`settle`](Self::settle). Output: [`poll_transmit`](Self::poll_transmit). What two services do not
/// share has a default here.
pub(crate) trait Service: fmt::Debug + Send {
    /// Whose packets it takes.
    fn transport(&self) -> Transport;

    /// Whether a well-formed packet of its transport is for this queue pair; counts in `dropped` why it is not.
    fn accepts(&self, common: &Common, arrival: &Arrival<'_>, packet: &Packet<'_>, dropped: &mut Counters) -> bool;

    /// The queue pair moves to RTR.
    fn start_receiving(&mut self, common: &Common);

    /// The queue pair moves to RTS from RTR.
    fn start_sending(&mut self, common: &Common);

    /// Attributes changed while the queue pair works.
    fn configure(&mut self, common: &Common);

    /// The queue pair moves to SQD: an event is due when what was begun is finished.
    fn drain(&mut self);

    /// Adds a request to the send queue.
    fn post(&mut self, common: &Common, around: &mut Surroundings<'_>, request: SendRequest) -> Result<()>;

    /// Takes a packet that was accepted.
    fn on_packet(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
    ) -> Outcome;

    /// Runs the timers that are due.
    fn on_timeout(&mut self, _common: &mut Common, _around: &mut Surroundings<'_>) -> Outcome {
        Outcome::Alive
    }

    /// When the next timer fires.
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// Follows up on any input: what can only be seen once it is handled.
    fn settle(&mut self, common: &mut Common, around: &mut Surroundings<'_>) -> Outcome;

    /// Whether a packet waits to be sent, when `window` may still be sent to the peer.
    fn wants_transmit(&self, common: &Common, window: u64) -> bool;

    /// Whether only a window of this size holds the next packet back.
    fn is_held_by_window(&self, common: &Common, window: u64) -> bool;

    /// Whether all that waits to be sent is an acknowledge, which may wait for a moment.
    fn owes_only_acknowledge(&self, _common: &Common, _window: u64) -> bool {
        false
    }

    /// The next packet, written to `room`; its length without the ICRC.
    fn poll_transmit(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        window: u64,
        room: &mut [u8],
    ) -> (Option<usize>, Outcome);

    /// Where the packet that was made last goes.
    fn way(&self, common: &Common) -> Option<Flow> {
        common.flow
    }

    /// The PSNs of the next new request to be sent, and of the next request to come.
    fn psns(&self) -> [Option<Psn>; 2] {
        [None, None]
    }

    /// Whether what was begun before the move to SQD is not finished.
    fn is_draining(&self) -> bool {
        false
    }

    /// The cost of what was sent and is not acknowledged.
    fn in_flight(&self) -> u64 {
        0
    }

    /// The cost of what was acknowledged so far.
    fn acknowledged(&self) -> u64 {
        0
    }

    /// Whether a loss was seen since the last call.
    fn take_loss(&mut self) -> bool {
        false
    }

    /// Reports every send request as flushed: the send queue stops alone (see [`Outcome::SendFailed`]).
    fn flush_sends(&mut self, _common: &Common, _around: &mut Surroundings<'_>) {}

    /// Reports every send request, and a receive request that is being filled, as flushed. What is owed to the peer still
    /// goes out when `keep_replies`: the NAK that ends the connection is part of it.
    fn flush(&mut self, common: &Common, around: &mut Surroundings<'_>, keep_replies: bool);
}
