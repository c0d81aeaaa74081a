//! Work requests and completions: plain data, as `ibv_post_send(3)` and `ibv_poll_cq(3)` know them.

use core::net::IpAddr;

use smallvec::SmallVec;

use crate::memory::{FastRegister, WindowBind};
use crate::time::Instant;
use crate::wire::{GrhKind, Placement, Qpn, Selectivity, SrqNumber};

/// One element of a scatter/gather list: `length` bytes at `address` in the region of `lkey`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Where it starts, in the address space of the region (its I/O virtual address).
    pub address: u64,
    /// Bytes; zero contributes nothing and needs no valid key.
    pub length: u32,
    /// The region's local key.
    pub lkey: u32,
}

/// A scatter/gather list; up to four elements cost no allocation.
pub type SgeList = SmallVec<[Sge; 4]>;

/// Memory at the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Where, in the address space of the peer's region.
    pub address: u64,
    /// The key that the peer gave out for it.
    pub rkey: u32,
}

/// Where packets go and how they get there (`ibv_ah_attr`): of a connected queue pair all, on UD each request's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// The peer's address, of the family of the local one; on UD it may be a multicast group.
    pub destination: IpAddr,
    /// Which of the device's GIDs packets come from.
    pub source_gid_index: u8,
    /// IPv4 time to live, IPv6 hop limit; zero means 64.
    pub hop_limit: u8,
    /// IPv4 type of service, IPv6 traffic class.
    pub traffic_class: u8,
}

impl AddressVector {
    /// The usual way to `destination`: from the first GID, 64 hops, no traffic class.
    #[must_use]
    pub const fn to(destination: IpAddr) -> Self {
        Self { destination, source_gid_index: 0, hop_limit: 64, traffic_class: 0 }
    }
}

/// Who a datagram is for: given with each request on UD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Where, and how to get there.
    pub address: AddressVector,
    /// The queue pair there; [`Qpn::MULTICAST`] when the address is a group.
    pub qpn: Qpn,
    /// The Q_Key that lets the datagram in. With the highest bit set, the sending queue pair's own is taken instead
    /// (IBTA 10.2.5): such keys are for privileged programs to hand out.
    pub qkey: u32,
}

impl Destination {
    /// The bit of a Q_Key with which the sending queue pair's own is taken.
    pub const OWN_QKEY: u32 = 1 << 31;
}

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Into the peer's next receive request.
    Send,
    /// As [`Send`](Self::Send), with four bytes for the peer's completion.
    SendImmediate(u32),
    /// As [`Send`](Self::Send); the peer then invalidates this key of its own.
    SendInvalidate(u32),
    /// Into the peer's memory.
    Write(Remote),
    /// As [`Write`](Self::Write); consumes a receive request of the peer, whose completion carries these four bytes.
    WriteImmediate(Remote, u32),
    /// From the peer's memory into the local scatter list.
    Read(Remote),
    /// If the eight bytes there equal `compare`, `swap` replaces them; what was there arrives in the scatter list.
    CompareAndSwap {
        /// Eight bytes, aligned to eight.
        remote: Remote,
        /// What must be there.
        compare: u64,
        /// What replaces it.
        swap: u64,
    },
    /// Adds to the eight bytes there; what was there arrives in the scatter list.
    FetchAndAdd {
        /// Eight bytes, aligned to eight.
        remote: Remote,
        /// What is added, modulo 2^64.
        add: u64,
    },
    /// Eight bytes into the peer's memory, in one step; of what comes after it, nothing is seen before it.
    AtomicWrite(Remote),
    /// Done once earlier WRITEs to these bytes of the peer are placed so far.
    Flush(Flush),
    /// Binds a memory window; no packet is sent.
    BindWindow(WindowBind),
    /// Registers a fast region; no packet is sent.
    FastRegister(FastRegister),
    /// Makes a key of ours worthless, that of a bound type 2 window or of a fast region, once all earlier requests are done;
    /// no packet is sent.
    LocalInvalidate(u32),
}

/// What a FLUSH pushes how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// From where on.
    pub remote: Remote,
    /// Bytes; of no meaning when the whole region is flushed.
    pub length: u32,
    /// How far.
    pub placement: Placement,
    /// These bytes, or the whole region of the key.
    pub selectivity: Selectivity,
}

impl Operation {
    /// Whether the request is answered with data, which goes to its scatter list: a READ or a fetching ATOMIC.
    #[must_use]
    pub fn fetches(&self) -> bool {
        matches!(self, Self::Read(_) | Self::CompareAndSwap { .. } | Self::FetchAndAdd { .. })
    }

    /// Whether the request is answered by a response of its own, not by an acknowledge: it takes a place of
    /// `max_rd_atomic`.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.fetches() || matches!(self, Self::AtomicWrite(_) | Self::Flush(_))
    }

    /// Whether it is carried out here, without a packet.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self, Self::BindWindow(_) | Self::FastRegister(_) | Self::LocalInvalidate(_))
    }

    /// Whether it is one of the two fetching atomics.
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareAndSwap { .. } | Self::FetchAndAdd { .. })
    }
}

bitflags::bitflags! {
    /// `ibv_send_flags`, with the same values.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// Wait until all earlier requests of this queue pair that are answered (READs, ATOMICs, FLUSHes) are complete.
        const FENCE = 1;
        /// Report a completion when done (errors are always reported).
        const SIGNALED = 2;
        /// Wake a peer that asked for solicited events only.
        const SOLICITED = 4;
        /// The payload was copied when posting.
        const INLINE = 8;
    }
}

/// Where the bytes of a request come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Registered memory, read when the packet is made; for a READ or ATOMIC, where the answer goes.
    Memory(SgeList),
    /// A copy made when posting; up to 64 bytes cost no allocation.
    Inline(SmallVec<[u8; 64]>),
}

impl Payload {
    /// Bytes in total; more than `u32::MAX` is possible, and refused when posting.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Memory(list) => list.iter().map(|sge| u64::from(sge.length)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// A request for the send queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The caller's, returned in the completion.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// With which bytes.
    pub payload: Payload,
    /// How.
    pub flags: SendFlags,
    /// For whom; on UD only, and there always.
    pub destination: Option<Destination>,
    /// XRC only: the peer's shared receive queue that it is for.
    pub srq: Option<SrqNumber>,
}

impl SendRequest {
    /// A signalled request over registered memory.
    #[must_use]
    pub fn new(id: u64, operation: Operation, sges: &[Sge]) -> Self {
        Self::with_payload(id, operation, Payload::Memory(SgeList::from_slice(sges)))
    }

    /// A signalled request whose payload is copied now.
    #[must_use]
    pub fn inline(id: u64, operation: Operation, bytes: &[u8]) -> Self {
        Self::with_payload(id, operation, Payload::Inline(SmallVec::from_slice(bytes)))
    }

    /// A signalled request with this payload.
    #[must_use]
    pub fn with_payload(id: u64, operation: Operation, payload: Payload) -> Self {
        let flags = SendFlags::empty();
        Self { id, operation, payload, flags, destination: None, srq: None }.with_flags(SendFlags::SIGNALED)
    }

    /// The same request as a datagram for `destination`.
    #[must_use]
    pub fn to(mut self, destination: Destination) -> Self {
        self.destination = Some(destination);
        self
    }

    /// The same request for this shared receive queue of the peer. Every request of an XRC initiator names one, whatever the
    /// operation: it also says whose memory may be touched.
    #[must_use]
    pub fn to_srq(mut self, srq: SrqNumber) -> Self {
        self.srq = Some(srq);
        self
    }

    /// The same request with these flags ([`SendFlags::INLINE`] follows the payload, whatever is given).
    #[must_use]
    pub fn with_flags(mut self, flags: SendFlags) -> Self {
        self.flags = flags;
        self.flags.set(SendFlags::INLINE, matches!(self.payload, Payload::Inline(_)));
        self
    }
}

/// A request for the receive queue: where the next message goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// The caller's, returned in the completion.
    pub id: u64,
    /// Where the bytes go, filled in order.
    pub sges: SgeList,
}

impl ReceiveRequest {
    /// A receive into these elements.
    #[must_use]
    pub fn new(id: u64, sges: &[Sge]) -> Self {
        Self { id, sges: SgeList::from_slice(sges) }
    }
}

/// How a request ended: `ibv_wc_status`, with the same values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    /// Done.
    #[default]
    Success = 0,
    /// A message is longer than the receive request, or a READ response has the wrong size.
    LocalLengthError = 1,
    /// The queue pair is not fit for this operation.
    LocalQpOperationError = 2,
    /// A scatter/gather element names no memory this queue pair may use so.
    LocalProtectionError = 4,
    /// The queue pair went to the error state before the request was done.
    FlushError = 5,
    /// A bind of a memory window failed.
    MemoryWindowBindError = 6,
    /// A response that fits no request.
    BadResponseError = 7,
    /// An answer to an atomic could not be placed.
    LocalAccessError = 8,
    /// The peer found the request malformed, too long, or not allowed.
    RemoteInvalidRequestError = 9,
    /// The peer's region does not allow it.
    RemoteAccessError = 10,
    /// The peer could not carry it out.
    RemoteOperationError = 11,
    /// The peer did not answer in `retry_cnt` retries.
    RetryExceededError = 12,
    /// The peer had no receive request in `rnr_retry` retries.
    RnrRetryExceededError = 13,
}

impl Status {
    /// What `ibv_wc_status_str(3)` prints.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::LocalLengthError => "local length error",
            Self::LocalQpOperationError => "local QP operation error",
            Self::LocalProtectionError => "local protection error",
            Self::FlushError => "Work Request Flushed Error",
            Self::MemoryWindowBindError => "memory management operation error",
            Self::BadResponseError => "bad response error",
            Self::LocalAccessError => "local access error",
            Self::RemoteInvalidRequestError => "remote invalid request error",
            Self::RemoteAccessError => "remote access error",
            Self::RemoteOperationError => "remote operation error",
            Self::RetryExceededError => "transport retry counter exceeded",
            Self::RnrRetryExceededError => "RNR retry counter exceeded",
        }
    }
}

/// Which kind of request completed: `ibv_wc_opcode`, with the same values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CompletionKind {
    /// A SEND of any kind.
    #[default]
    Send = 0,
    /// A WRITE of any kind.
    Write = 1,
    /// A READ.
    Read = 2,
    /// A compare-and-swap.
    CompareAndSwap = 3,
    /// A fetch-and-add.
    FetchAndAdd = 4,
    /// The binding of a memory window.
    BindWindow = 5,
    /// The invalidation of a key of ours.
    LocalInvalidate = 6,
    /// A FLUSH.
    Flush = 8,
    /// An ATOMIC WRITE.
    AtomicWrite = 9,
    /// A fast registration (`IB_WC_REG_MR` of the kernel).
    FastRegister = 10,
    /// A receive that a SEND filled.
    Receive = 128,
    /// A receive that a WRITE with immediate consumed; its buffer is untouched.
    ReceiveWriteImmediate = 129,
}

impl From<&Operation> for CompletionKind {
    fn from(operation: &Operation) -> Self {
        match operation {
            Operation::Send | Operation::SendImmediate(_) | Operation::SendInvalidate(_) => Self::Send,
            Operation::Write(_) | Operation::WriteImmediate(..) => Self::Write,
            Operation::Read(_) => Self::Read,
            Operation::CompareAndSwap { .. } => Self::CompareAndSwap,
            Operation::FetchAndAdd { .. } => Self::FetchAndAdd,
            Operation::AtomicWrite(_) => Self::AtomicWrite,
            Operation::Flush(_) => Self::Flush,
            Operation::BindWindow(_) => Self::BindWindow,
            Operation::FastRegister(_) => Self::FastRegister,
            Operation::LocalInvalidate(_) => Self::LocalInvalidate,
        }
    }
}

/// What came along with a received message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tag {
    /// Nothing.
    #[default]
    None,
    /// Immediate data, in host order.
    Immediate(u32),
    /// The key of ours that the peer invalidated.
    Invalidated(u32),
}

/// The end of a work request: `ibv_wc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The request's id.
    pub id: u64,
    /// How it ended; when not success, only `id`, `status`, `qpn` and `vendor_error` mean anything.
    pub status: Status,
    /// Which kind of request.
    pub kind: CompletionKind,
    /// Bytes received, read or fetched.
    pub byte_length: u32,
    /// The local queue pair.
    pub qpn: Qpn,
    /// The peer's queue pair.
    pub source_qpn: Qpn,
    /// Immediate data or an invalidated key.
    pub tag: Tag,
    /// Whether the peer asked for a solicited event.
    pub solicited: bool,
    /// Which header the datagram came with, in the first 40 bytes that were received (`IBV_WC_GRH`): on UD always, else none.
    /// [`Grh::parse`](crate::wire::Grh::parse) reads them.
    pub grh: Option<GrhKind>,
    /// More about an error: the AETH syndrome of the NAK that caused it, or 0.
    pub vendor_error: u32,
    /// When it ended, on the engine's clock, which starts when the device is opened.
    pub timestamp: Instant,
}
