//! ATOMIC WRITE and FLUSH at the responder (IBTA annex A19): both are answered as a READ of nothing is.

use std::sync::atomic::{Ordering, fence};

use super::replay::{Executed, ExecutedKind};
use super::reply::{ReadReply, Reply};
use super::responder::Responder;
use crate::memory::Access;
use crate::qp::common::{Common, Surroundings};
use crate::qp::incoming::{INVALID, Refusal, check_rights, refusal};
use crate::qp::request::MAX_MESSAGE;
use crate::wire::{NakCode, Packet, Placement, Selectivity};

impl Responder {
    /// An ATOMIC WRITE: eight bytes, placed in one step here and now.
    pub(super) fn atomic_write(
        &mut self,
        common: &Common,
        around: &Surroundings<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        check_rights(common, Access::REMOTE_WRITE)?;
        self.check_depth()?;
        let reth = packet.extensions.reth.ok_or(INVALID)?;
        let value: [u8; 8] = packet.payload.try_into().map_err(|_| INVALID)?;
        if reth.length != 8 || !reth.address.is_multiple_of(8) {
            return Err(INVALID);
        }
        let cell = around.memory.resolve_remote(reth.rkey, common.holder(), reth.address, 8, Access::REMOTE_WRITE);
        cell.and_then(|cell| cell.store(u64::from_ne_bytes(value))).map_err(refusal)?;
        self.answer_done(common);
        Ok(())
    }

    /// A FLUSH: what was written before is placed as far as it asks.
    pub(super) fn flush_memory(
        &mut self,
        common: &Common,
        around: &Surroundings<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let reth = packet.extensions.reth.ok_or(INVALID)?;
        let flush = packet.extensions.flush.ok_or(INVALID)?;
        let access = rights(flush.placement)?;
        check_rights(common, access)?;
        self.check_depth()?;
        let span = match flush.selectivity {
            Selectivity::Reserved(_) => return Err(INVALID),
            Selectivity::Range if u64::from(reth.length) > MAX_MESSAGE => return Err(INVALID),
            Selectivity::Range => {
                around.memory.resolve_remote(reth.rkey, common.holder(), reth.address, u64::from(reth.length), access)
            }
            Selectivity::Region => around.memory.resolve_whole(reth.rkey, common.holder(), access),
        };
        let span = span.map_err(refusal)?;
        if flush.placement.contains(Placement::PERSISTENCE) && !span.is_empty() {
            // The region maps a file, or it could not allow this.
            span.persist().map_err(|_| Refusal::Fatal(NakCode::RemoteOperational, None))?;
        }
        // What was copied before is seen by every thread that sees the answer's effects.
        fence(Ordering::SeqCst);
        self.answer_done(common);
        Ok(())
    }

    /// Owes the answer without data to the request that was just executed, and remembers it.
    fn answer_done(&mut self, common: &Common) {
        let psn = self.expected;
        self.finish();
        self.replay.push(Executed { first: psn, last: psn, kind: ExecutedKind::Done });
        self.replies.push(Reply::Read(ReadReply::empty(common.pd, psn, self.msn)));
    }
}

/// The rights that a FLUSH needs. One that places nothing, or something reserved, makes no sense.
fn rights(placement: Placement) -> Result<Access, Refusal> {
    let mut access = Access::empty();
    access.set(Access::FLUSH_GLOBAL, placement.contains(Placement::GLOBAL_VISIBILITY));
    access.set(Access::FLUSH_PERSISTENT, placement.contains(Placement::PERSISTENCE));
    let is_defined = (Placement::GLOBAL_VISIBILITY | Placement::PERSISTENCE).contains(placement);
    if is_defined && !access.is_empty() { Ok(access) } else { Err(INVALID) }
}
