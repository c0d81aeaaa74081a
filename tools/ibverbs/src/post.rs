//! Posting: work requests of C become the engine's.

use std::ffi::c_int;

use smallvec::SmallVec;
use uroce::verbs::{
    Destination, Operation, Payload, PostError, Qpn, ReceiveRequest, Remote, SendFlags, SendRequest, Sge, SrqNumber,
};
use uroce::work::SgeList;

use crate::abi::{self, wr_opcode};
use crate::ah::Ah;
use crate::edge::{Failure, Result, list, quick, say};
use crate::handle::live;
use crate::memory::mw;
use crate::qp::Qp;
use crate::srq::Srq;

/// Elements of a scatter/gather list that are looked at: more than any queue pair takes.
pub(crate) const MAX_SGE: usize = 256;

pub(crate) extern "C" fn post_send(qp: *mut abi::Qp, first: *mut abi::SendWr, bad: *mut *mut abi::SendWr) -> c_int {
    post(
        first,
        bad,
        |wr| wr.next,
        |chain| {
            // SAFETY: a queue pair of the program's, as the verb requires.
            let pair = unsafe { live::<Qp>(qp) }?.inner();
            let is_datagram = pair.qp.qp_type() == uroce::verbs::QpType::Ud;
            let mut bound = Vec::new();
            let mut count = 0;
            let convert = |wr: &abi::SendWr| {
                let request = send_request(wr, is_datagram)?;
                if let Operation::BindWindow(bind) = request.operation {
                    bound.extend(mw::bound(wr.bind.mw, bind.rkey).map(|bound| (count, bound)));
                }
                count += 1;
                Ok(request)
            };
            let failure = chain.refused(|requests| pair.qp.post_send(requests), convert);
            mw::take_back(&bound, chain.posted);
            Ok(failure)
        },
    )
}

pub(crate) extern "C" fn post_recv(qp: *mut abi::Qp, first: *mut abi::RecvWr, bad: *mut *mut abi::RecvWr) -> c_int {
    post(
        first,
        bad,
        |wr| wr.next,
        |chain| {
            // SAFETY: a queue pair of the program's, as the verb requires.
            let pair = unsafe { live::<Qp>(qp) }?.inner();
            Ok(chain.refused(|requests| pair.qp.post_receive(requests), receive_request))
        },
    )
}

pub(crate) extern "C" fn post_srq_recv(
    srq: *mut abi::Srq,
    first: *mut abi::RecvWr,
    bad: *mut *mut abi::RecvWr,
) -> c_int {
    post(
        first,
        bad,
        |wr| wr.next,
        |chain| {
            // SAFETY: a queue of the program's, as the verb requires.
            let queue = unsafe { live::<Srq>(srq) }?.inner();
            Ok(chain.refused(|requests| queue.srq.post_receive(requests), receive_request))
        },
    )
}

/// Posts a list; where a request of it is refused, `bad` points to it.
fn post<W>(
    first: *mut W,
    bad: *mut *mut W,
    next: fn(&W) -> *mut W,
    work: impl FnOnce(&mut Chain<W>) -> Result<Option<Failure>>,
) -> c_int {
    let mut chain = Chain { at: first, next, posted: 0, failure: None };
    let failure =
        quick(Some(Failure::new(libc::EIO, "a bug of uroce: it panicked")), || work(&mut chain).unwrap_or_else(Some));
    let Some(failure) = failure else { return 0 };
    if crate::environment::traces() {
        say(format_args!("posting: {failure}"));
    }
    // SAFETY: the program's place for the request at fault, or null.
    if let Some(bad) = unsafe { bad.as_mut() } {
        *bad = chain.at;
    }
    failure.errno
}

/// The requests of a list, one after the other.
struct Chain<W> {
    /// The request that comes next, or is at fault.
    at: *mut W,
    next: fn(&W) -> *mut W,
    /// How many were posted.
    posted: usize,
    failure: Option<Failure>,
}

impl<W> Chain<W> {
    /// Posts all of them; tells why one was refused, where the list then stands.
    fn refused<R>(
        &mut self,
        post: impl FnOnce(&mut dyn Iterator<Item = R>) -> std::result::Result<(), PostError>,
        mut convert: impl FnMut(&W) -> Result<R>,
    ) -> Option<Failure> {
        let first = self.at;
        let next = self.next;
        let mut requests = std::iter::from_fn(|| {
            // SAFETY: a request of the program's, or the end of the list.
            let wr = unsafe { self.at.as_ref() }?;
            let request = convert(wr).map_err(|failure| self.failure = Some(failure)).ok()?;
            self.at = next(wr);
            self.posted += 1;
            Some(request)
        });
        match post(&mut requests) {
            Ok(()) => self.failure.take(),
            Err(refusal) => {
                self.posted = refusal.posted;
                // The iterator is past the request that was refused.
                self.at = first;
                for _ in 0..refusal.posted {
                    // SAFETY: the iterator went this way before.
                    self.at = unsafe { self.at.as_ref() }.map_or(self.at, next);
                }
                Some(refusal.error.into())
            }
        }
    }
}

fn receive_request(wr: &abi::RecvWr) -> Result<ReceiveRequest> {
    Ok(ReceiveRequest { id: wr.wr_id, sges: scatter_list(wr.sg_list, wr.num_sge)? })
}

fn send_request(wr: &abi::SendWr, is_datagram: bool) -> Result<SendRequest> {
    let payload = if wr.send_flags & abi::SEND_INLINE != 0 {
        Payload::Inline(inline_data(wr)?)
    } else {
        Payload::Memory(scatter_list(wr.sg_list, wr.num_sge)?)
    };
    let mut request = SendRequest::with_payload(wr.wr_id, operation(wr)?, payload);
    request = request.with_flags(send_flags(wr.send_flags)?);
    if is_datagram {
        // SAFETY: every bit pattern is one of these plain values.
        let target = unsafe { wr.wr.ud };
        request = request.to(destination(target.ah, target.remote_qpn, target.remote_qkey)?);
    }
    // Only an XRC initiator looks at it; there is no such queue as 0.
    request.srq = Some(SrqNumber::new(wr.remote_srqn)).filter(|srq| srq.value() != 0);
    Ok(request)
}

/// # Errors
/// EINVAL for flags that there are not.
pub(crate) fn send_flags(bits: u32) -> Result<SendFlags> {
    SendFlags::from_bits(bits & !abi::SEND_IP_CSUM).ok_or_else(|| Failure::invalid(format!("send_flags {bits:#x}")))
}

fn operation(wr: &abi::SendWr) -> Result<Operation> {
    // SAFETY: every bit pattern is one of these plain values.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let remote = Remote { address: rdma.remote_addr, rkey: rdma.rkey };
    let word = Remote { address: atomic.remote_addr, rkey: atomic.rkey };
    let immediate = u32::from_be(wr.imm_data);
    Ok(match wr.opcode {
        wr_opcode::SEND => Operation::Send,
        wr_opcode::SEND_WITH_IMM => Operation::SendImmediate(immediate),
        wr_opcode::SEND_WITH_INV => Operation::SendInvalidate(wr.imm_data),
        wr_opcode::RDMA_WRITE => Operation::Write(remote),
        wr_opcode::RDMA_WRITE_WITH_IMM => Operation::WriteImmediate(remote, immediate),
        wr_opcode::RDMA_READ => Operation::Read(remote),
        wr_opcode::ATOMIC_CMP_AND_SWP => {
            Operation::CompareAndSwap { remote: word, compare: atomic.compare_add, swap: atomic.swap }
        }
        wr_opcode::ATOMIC_FETCH_AND_ADD => Operation::FetchAndAdd { remote: word, add: atomic.compare_add },
        wr_opcode::ATOMIC_WRITE => Operation::AtomicWrite(remote),
        wr_opcode::LOCAL_INV => Operation::LocalInvalidate(wr.imm_data),
        wr_opcode::BIND_MW => mw::binding(wr.bind.mw, wr.bind.rkey, &wr.bind.bind_info)?,
        other => return Err(Failure::invalid(format!("opcode {other} of a send request"))),
    })
}

/// Whom a datagram is for.
pub(crate) fn destination(ah: *mut abi::Ah, qpn: u32, qkey: u32) -> Result<Destination> {
    // SAFETY: an address handle of the program's, as the verbs require that come here.
    let address = unsafe { live::<Ah>(ah) }?.inner();
    Ok(address.handle.at(Qpn::new(qpn), qkey))
}

/// The elements of a scatter/gather list.
///
/// # Errors
/// EINVAL for a null pointer or a count that makes no sense.
pub(crate) fn scatter_list(elements: *const abi::Sge, count: c_int) -> Result<SgeList> {
    let count = usize::try_from(count).map_err(|_| Failure::invalid(format!("num_sge {count}")))?;
    // SAFETY: the program's list of so many elements.
    let elements = unsafe { list(elements, count, MAX_SGE) }?;
    Ok(elements.iter().map(|sge| Sge { address: sge.addr, length: sge.length, lkey: sge.lkey }).collect())
}

/// The bytes of an inline request, copied now; their keys do not matter.
fn inline_data(wr: &abi::SendWr) -> Result<SmallVec<[u8; 64]>> {
    let count = usize::try_from(wr.num_sge).map_err(|_| Failure::invalid(format!("num_sge {}", wr.num_sge)))?;
    // SAFETY: the program's list of so many elements.
    let elements = unsafe { list(wr.sg_list, count, MAX_SGE) }?;
    let mut bytes = SmallVec::new();
    for element in elements {
        append(&mut bytes, element.addr as *const u8, element.length as usize)?;
    }
    Ok(bytes)
}

/// Copies bytes of the program's behind those that are there.
///
/// # Errors
/// EINVAL when they are more than any queue pair takes inline, or at a null pointer.
pub(crate) fn append(bytes: &mut SmallVec<[u8; 64]>, start: *const u8, length: usize) -> Result<()> {
    let limit = uroce::verbs::Capacity::MAX.max_inline as usize;
    // SAFETY: the program's bytes, as the verbs require that come here.
    bytes.extend_from_slice(unsafe { list(start, length, limit - bytes.len().min(limit)) }?);
    Ok(())
}
