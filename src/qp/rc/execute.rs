//! A request of the peer, executed: in its turn, once, and only as far as it is allowed.

use super::replay::{Executed, ExecutedKind};
use super::reply::{ACK, ReadReply, Reply};
use super::responder::Responder;
use crate::memory::Access;
use crate::qp::common::{Common, Surroundings};
use crate::qp::incoming::{INVALID, Refusal, check_range, check_rights, refusal};
use crate::qp::segment;
use crate::wire::{AtomicEth, Kind, Packet, Reth};

impl Responder {
    /// Executes the request with the expected PSN.
    pub(super) fn execute(
        &mut self,
        common: &mut Common,
        around: &mut Surroundings<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        self.enter_srq(common, around, packet)?;
        if !self.incoming.fits_order(packet.info) {
            return Err(INVALID);
        }
        let mut psns = 1;
        match packet.info.kind {
            Kind::Send | Kind::Write => {
                if self.incoming.place(common, around, packet)? {
                    self.finish();
                }
            }
            Kind::ReadRequest => psns = self.read(common, around, packet.extensions.reth.ok_or(INVALID)?)?,
            Kind::CompareSwap | Kind::FetchAdd => {
                self.atomic(common, around, packet.info.kind, packet.extensions.atomic.ok_or(INVALID)?)?;
            }
            Kind::AtomicWrite => self.atomic_write(common, around, packet)?,
            Kind::Flush => self.flush_memory(common, around, packet)?,
            _ => return Err(INVALID),
        }
        let done = self.expected.plus(psns - 1);
        self.expected = done.plus(1);
        let is_answered = !matches!(packet.info.kind, Kind::Send | Kind::Write);
        if packet.bth.ack_request && !is_answered {
            self.acknowledge(common, done, ACK);
        }
        Ok(())
    }

    /// Has an XRC target work for the shared receive queue that the request names: one of its domain (IBTA A14.3.1). All packets
    /// of a message name the same.
    fn enter_srq(
        &mut self,
        common: &mut Common,
        around: &Surroundings<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let (Some(domain), Some(xrceth)) = (common.xrcd, packet.extensions.xrceth) else { return Ok(()) };
        if self.incoming.is_busy() && common.srq != Some(xrceth.srq) {
            return Err(INVALID);
        }
        common.pd = around.srqs.pd_in(domain, xrceth.srq).ok_or(INVALID)?;
        common.srq = Some(xrceth.srq);
        Ok(())
    }

    /// A message is complete.
    pub(super) fn finish(&mut self) {
        self.msn = (self.msn + 1) & 0xff_ffff;
    }

    /// A READ: owes its answer. Returns the PSNs that the answer takes.
    fn read(&mut self, common: &Common, around: &Surroundings<'_>, reth: Reth) -> Result<u32, Refusal> {
        check_rights(common, Access::REMOTE_READ)?;
        self.check_depth()?;
        check_range(common, around, reth, Access::REMOTE_READ)?;
        let psns = segment::packets(reth.length, common.mtu());
        let (first, last) = (self.expected, self.expected.plus(psns - 1));
        let Reth { address, rkey, length } = reth;
        self.finish();
        self.replay.push(Executed { first, last, kind: ExecutedKind::Read { pd: common.pd, address, rkey, length } });
        self.replies.push(Reply::Read(ReadReply {
            psn: first,
            last,
            pd: common.pd,
            address,
            rkey,
            remaining: length,
            is_first: true,
            msn: self.msn,
            is_again: false,
        }));
        Ok(psns)
    }

    /// An ATOMIC: executed here and now, and its answer kept.
    fn atomic(
        &mut self,
        common: &Common,
        around: &Surroundings<'_>,
        kind: Kind,
        request: AtomicEth,
    ) -> Result<(), Refusal> {
        check_rights(common, Access::REMOTE_ATOMIC)?;
        self.check_depth()?;
        if !request.address.is_multiple_of(8) {
            return Err(INVALID);
        }
        let cell =
            around.memory.resolve_remote(request.rkey, common.holder(), request.address, 8, Access::REMOTE_ATOMIC);
        let original = cell.and_then(|cell| match kind {
            Kind::CompareSwap => cell.compare_and_swap(request.compare, request.swap_add),
            _ => cell.fetch_and_add(request.swap_add),
        });
        let original = original.map_err(refusal)?;
        let psn = self.expected;
        self.finish();
        self.replay.push(Executed { first: psn, last: psn, kind: ExecutedKind::Atomic { original } });
        self.replies.push(Reply::Atomic { psn, original, msn: self.msn, is_again: false });
        Ok(())
    }

    /// More READs and ATOMICs at a time than were agreed on are refused (IBTA C9-60).
    pub(super) fn check_depth(&self) -> Result<(), Refusal> {
        if self.replies.new_fetches() >= self.replay.capacity() { Err(INVALID) } else { Ok(()) }
    }
}
