//! One request by itself: whether a queue pair takes it, and how each of its packets is written.

use super::QpType;
use super::common::Common;
use super::gather;
use super::segment;
use crate::error::{Error, Result};
use crate::memory::Table;
use crate::wire::icrc::rxe_flush;
use crate::wire::{AtomicEth, Deth, Extensions, Feth, Kind, Psn, Reth, Selectivity, Xrceth, emit_headers, pad_of};
use crate::work::{Destination, Flush, Operation, Payload, SendFlags, SendRequest, Status};

/// The largest message (rxe's `max_msg_sz` up to 6.1).
pub(crate) const MAX_MESSAGE: u64 = 1 << 31;

/// Which packet of a request is written, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Payload bytes of a full packet.
    pub(crate) mtu: u32,
    /// Bytes of the message.
    pub(crate) length: u32,
    /// Packets of it.
    pub(crate) packets: u32,
    /// Its index in the message.
    pub(crate) packet: u32,
    /// PSNs that it takes: more than one for a READ.
    pub(crate) psns: u32,
    pub(crate) psn: Psn,
    /// Whether it asks for an acknowledge.
    pub(crate) asks: bool,
    /// Whether a FLUSH gets the ICRC of the kernel's rxe.
    pub(crate) rxe_flush: bool,
}

/// Whether a queue pair takes this request; the bytes of its message.
///
/// # Errors
/// [`Error::Invalid`] names what it does not take.
pub(crate) fn check(common: &Common, request: &SendRequest) -> Result<u32> {
    let length = request.payload.length();
    if length > MAX_MESSAGE {
        let reason = format!("{length} bytes in all; a message has at most {}", MAX_MESSAGE);
        return Err(Error::invalid("sg_list", reason));
    }
    match &request.payload {
        Payload::Inline(_) if request.operation.fetches() => {
            return Err(Error::invalid("send_flags", "a READ or ATOMIC has no payload to send inline"));
        }
        // The eight bytes of an ATOMIC WRITE are a part of the request, as an ATOMIC's operands are (`ibv_wr_post(3)`).
        Payload::Inline(_) if matches!(request.operation, Operation::AtomicWrite(_)) => {}
        Payload::Inline(bytes) if bytes.len() > common.capacity.max_inline as usize => {
            let reason = format!("{} bytes; max_inline_data is {}", bytes.len(), common.capacity.max_inline);
            return Err(Error::invalid("inline data", reason));
        }
        Payload::Memory(list) if list.len() > common.capacity.max_send_sge as usize => {
            let reason = format!("{} elements; max_send_sge is {}", list.len(), common.capacity.max_send_sge);
            return Err(Error::invalid("sg_list", reason));
        }
        _ => {}
    }
    if common.qp_type == QpType::XrcInitiator && request.srq.is_none() {
        return Err(Error::invalid(
            "remote_srqn",
            "a request of an XRC initiator names a shared receive queue of the peer",
        ));
    }
    check_operation(common, &request.operation, length)?;
    u32::try_from(length).map_err(|_| Error::invalid("sg_list", "too long"))
}

/// Whether a queue pair takes this operation with a payload of `length` bytes.
fn check_operation(common: &Common, operation: &Operation, length: u64) -> Result<()> {
    if common.qp_type != QpType::Rc && matches!(operation, Operation::AtomicWrite(_) | Operation::Flush(_)) {
        return Err(Error::invalid(
            "opcode",
            format!("{:?} queue pairs have no ATOMIC WRITE and no FLUSH", common.qp_type),
        ));
    }
    let is_eight = operation.is_atomic() || matches!(operation, Operation::AtomicWrite(_));
    if is_eight && length != 8 {
        return Err(Error::invalid("sg_list", format!("{length} bytes; an atomic moves exactly 8")));
    }
    if (operation.is_local() || matches!(operation, Operation::Flush(_))) && length != 0 {
        return Err(Error::invalid("sg_list", format!("{length} bytes; {operation:?} moves none")));
    }
    if let Operation::Flush(flush) = operation {
        if flush.placement.is_empty() || matches!(flush.selectivity, Selectivity::Reserved(_)) {
            return Err(Error::invalid("flush", "names no placement or a reserved selectivity"));
        }
        if u64::from(flush.length) > MAX_MESSAGE {
            return Err(Error::invalid("flush", format!("{} bytes; {MAX_MESSAGE} at most", flush.length)));
        }
    }
    if operation.is_answered() && common.attributes.max_rd_atomic == Some(0) {
        return Err(Error::invalid("opcode", "READ, ATOMIC and FLUSH need a max_rd_atomic of at least 1"));
    }
    Ok(())
}

/// Whether a request suits a connection.
///
/// # Errors
/// [`Error::Invalid`] when it names a destination: that of a connection is fixed.
pub(crate) fn check_connected(request: &SendRequest) -> Result<()> {
    match request.destination {
        Some(_) => Err(Error::invalid("ah", "only a request on UD has a destination of its own")),
        None => Ok(()),
    }
}

/// Writes one packet of `request` to `room`; its length without the ICRC.
///
/// # Errors
/// With which status the request fails: its memory went away after it was begun, or the packet does not fit the room.
pub(crate) fn emit(
    common: &Common,
    memory: &Table,
    request: &SendRequest,
    cut: &Cut,
    room: &mut [u8],
) -> std::result::Result<usize, Status> {
    const UNFIT: Status = Status::LocalQpOperationError;
    let operation = &request.operation;
    let mtu = u64::from(cut.mtu);
    let offset = u64::from(cut.packet) * mtu;
    let rest = u64::from(cut.length).saturating_sub(offset);
    let carried = if operation.fetches() { 0 } else { rest.min(mtu) as usize };

    let position = segment::position(cut.packet, cut.packets);
    let mut bth = common.header(segment::request_opcode(operation, position).ok_or(UNFIT)?, cut.psn);
    bth.pad = pad_of(carried);
    bth.ack_request = cut.asks;
    let info = bth.opcode.info().ok_or(UNFIT)?;
    bth.solicited = request.flags.contains(SendFlags::SOLICITED)
        && position.is_last()
        && (info.kind == Kind::Send || matches!(operation, Operation::WriteImmediate(..)));

    let mut extensions = extensions(operation, cut.length, offset, rest.min(u64::from(cut.psns) * mtu));
    extensions.xrceth = request.srq.map(|srq| Xrceth { srq });
    if let Some(destination) = &request.destination {
        bth.destination = destination.qpn;
        let own = common.attributes.qkey.unwrap_or_default();
        let qkey = if destination.qkey & Destination::OWN_QKEY == 0 { destination.qkey } else { own };
        extensions.deth = Some(Deth { qkey, source: common.qpn });
    }
    let header = emit_headers(&bth, &extensions, room).ok_or(UNFIT)?;
    let end = header + carried;
    let payload = room.get_mut(header..end).ok_or(UNFIT)?;
    match &request.payload {
        Payload::Inline(bytes) => {
            let start = usize::try_from(offset).map_err(|_| UNFIT)?;
            payload.copy_from_slice(bytes.get(start..start + carried).ok_or(UNFIT)?);
        }
        Payload::Memory(list) => {
            gather::gather(memory, common.pd, list, offset, payload).map_err(|_| Status::LocalProtectionError)?
        }
    }
    let length = end + usize::from(bth.pad);
    room.get_mut(end..length).ok_or(UNFIT)?.fill(0);
    if cut.rxe_flush && info.kind == Kind::Flush {
        rxe_flush::mark(room);
    }
    Ok(length)
}

/// The headers that a request's packet may need; the opcode's table entry picks those it has.
fn extensions(operation: &Operation, length: u32, offset: u64, asked: u64) -> Extensions {
    let mut extensions = Extensions::default();
    match *operation {
        Operation::Send => {}
        Operation::SendImmediate(immediate) => extensions.immediate = Some(immediate),
        Operation::SendInvalidate(rkey) => extensions.invalidate = Some(rkey),
        Operation::Write(remote) | Operation::AtomicWrite(remote) => {
            extensions.reth = Some(Reth { address: remote.address, rkey: remote.rkey, length });
        }
        Operation::WriteImmediate(remote, immediate) => {
            extensions.reth = Some(Reth { address: remote.address, rkey: remote.rkey, length });
            extensions.immediate = Some(immediate);
        }
        Operation::Read(remote) => {
            let address = remote.address.wrapping_add(offset);
            extensions.reth = Some(Reth { address, rkey: remote.rkey, length: asked as u32 });
        }
        Operation::CompareAndSwap { remote, compare, swap } => {
            let (address, rkey) = (remote.address, remote.rkey);
            extensions.atomic = Some(AtomicEth { address, rkey, swap_add: swap, compare });
        }
        Operation::FetchAndAdd { remote, add } => {
            let (address, rkey) = (remote.address, remote.rkey);
            extensions.atomic = Some(AtomicEth { address, rkey, swap_add: add, compare: 0 });
        }
        Operation::Flush(Flush { remote, length, placement, selectivity }) => {
            extensions.flush = Some(Feth { placement, selectivity });
            extensions.reth = Some(Reth { address: remote.address, rkey: remote.rkey, length });
        }
        Operation::BindWindow(_) | Operation::FastRegister(_) | Operation::LocalInvalidate(_) => {}
    }
    extensions
}
