//! Address handles: where datagrams go.

use super::pd::PdInner;
use crate::error::{Error, Result};
use crate::wire::{Gid, Grh, Qpn};
use crate::work::{AddressVector, Completion, Destination};

/// Where datagrams go: a peer's device, or a multicast group, and how to get there (`ibv_create_ah(3)`). It is plain data,
/// checked once; copies are as good as itself.
///
/// ```
/// use uroce::verbs::{AddressVector, ConnectOptions, Context, Grh, Operation, QpConfig, QpType};
/// use uroce::verbs::{ReceiveRequest, SendRequest, random_psn};
///
/// const QKEY: u32 = 0x1111_1111;
/// let context = Context::open("uroce_lo")?;
/// let (pd, cq) = (context.alloc_pd(), context.create_cq(16, None)?);
/// let config = QpConfig { qp_type: QpType::Ud, ..QpConfig::new(&cq, &cq) };
/// let (asker, server) = (pd.create_qp(&config)?, pd.create_qp(&config)?);
/// for qp in [&asker, &server] {
///     qp.start(random_psn(), QKEY)?;
/// }
/// let region = pd.register(8192, uroce::verbs::Access::LOCAL_WRITE)?;
/// region.write(0, b"who is there?")?;
///
/// // A receive request has room for the 40 bytes that tell where the datagram came from.
/// server.post_receive([ReceiveRequest::new(1, &[region.sge(4096, 2048)])])?;
/// let ah = pd.create_ah(&AddressVector::to(context.address(0)?))?;
/// asker.post_send([SendRequest::new(2, Operation::Send, &[region.sge(0, 13)]).to(ah.at(server.qpn(), QKEY))])?;
/// let received = loop {
///     match cq.poll_one() {
///         Some(completion) if completion.qpn == server.qpn() => break completion,
///         _ => {}
///     }
/// };
/// assert_eq!((received.byte_length, received.source_qpn), (40 + 13, asker.qpn()));
///
/// // The answer goes to where the question came from.
/// let mut grh = [0; Grh::LEN];
/// region.read(4096, &mut grh)?;
/// let back = pd.create_ah_from_completion(&received, &grh)?;
/// server.post_send([SendRequest::new(3, Operation::Send, &[region.sge(4136, 13)]).to(back.at(received.source_qpn, QKEY))])?;
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressHandle {
    vector: AddressVector,
}

impl AddressHandle {
    pub(super) fn new(pd: &PdInner, vector: &AddressVector) -> Result<Self> {
        let source = pd.context.address(vector.source_gid_index)?;
        let destination = vector.destination;
        if source.is_ipv4() != destination.is_ipv4() {
            let reason = format!("{destination} and {source}, the GID of index {}", vector.source_gid_index);
            return Err(Error::invalid("dgid", format!("{reason}, are of different address families")));
        }
        if destination.is_unspecified() {
            return Err(Error::invalid("dgid", format!("{destination} is not the address of a peer")));
        }
        Ok(Self { vector: *vector })
    }

    /// The way back to the sender of a datagram.
    pub(super) fn from_completion(pd: &PdInner, completion: &Completion, grh: &[u8; Grh::LEN]) -> Result<Self> {
        let header = Grh::parse(grh).filter(|_| completion.grh.is_some());
        let header = header.ok_or_else(|| Error::invalid("grh", "not the header of a received datagram"))?;
        // A datagram for a group came to no address of ours in particular.
        let own = &pd.context.place.gids();
        let fits = |address: &std::net::IpAddr| match header.destination.is_multicast() {
            true => {
                let is_narrow = |address| Gid::from(address).is_link_local();
                address.is_ipv4() == header.source.is_ipv4() && is_narrow(*address) == is_narrow(header.source)
            }
            false => *address == header.destination,
        };
        let index = own.iter().position(fits).and_then(|index| u8::try_from(index).ok());
        let source_gid_index = index.ok_or_else(|| {
            Error::invalid("grh", format!("it was sent to {}, which is no address of this device", header.destination))
        })?;
        let AddressVector { hop_limit, .. } = AddressVector::to(header.source);
        let (destination, traffic_class) = (header.source, header.traffic_class);
        Self::new(pd, &AddressVector { destination, source_gid_index, hop_limit, traffic_class })
    }

    /// Where it leads to.
    #[must_use]
    pub fn vector(&self) -> AddressVector {
        self.vector
    }

    /// A queue pair there, as a request names it; `qkey` must be that queue pair's, or have the highest bit set: then the
    /// sender's own is taken.
    #[must_use]
    pub fn at(&self, qpn: Qpn, qkey: u32) -> Destination {
        Destination { address: self.vector, qpn, qkey }
    }

    /// All queue pairs that are attached to the group there; `qkey` must be theirs.
    #[must_use]
    pub fn group(&self, qkey: u32) -> Destination {
        self.at(Qpn::MULTICAST, qkey)
    }
}
