//! Datagrams: each whole and unaltered, in any order. PSNs are not checked, so what the network copies arrives as often (IBTA
//! 9.8.3), and never more often.

use std::collections::HashMap;
use std::net::IpAddr;

use uroce::wire::{Grh, GrhKind, Qpn};
use uroce::work::{Completion, CompletionKind, Status, Tag};

use crate::pool::{GRH, Pool};

/// A datagram as it is sent and received: from where, with which immediate data, whether solicited, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Datagram {
    pub(crate) source: (IpAddr, Qpn),
    pub(crate) tag: Option<u32>,
    pub(crate) is_solicited: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Checks what one queue pair received of what was sent to it. Returns how many datagrams came more often than they were sent.
pub(crate) fn check(
    pool: &mut Pool,
    address: IpAddr,
    sent: &[Datagram],
    (may_flush, is_lossless): (bool, bool),
) -> Result<u64, String> {
    let mut expected: HashMap<&Datagram, u64> = HashMap::new();
    for datagram in sent {
        *expected.entry(datagram).or_default() += 1;
    }
    let mut received: HashMap<Datagram, u64> = HashMap::new();
    for completion in std::mem::take(&mut pool.datagrams) {
        let bytes = pool.take(&completion)?;
        match completion.status {
            Status::Success => *received.entry(read(&completion, &bytes, address)?).or_default() += 1,
            Status::FlushError if may_flush => {}
            _ => return Err(format!("a receive fails without a reason: {completion:?}")),
        }
    }
    let mut copies = 0;
    for (datagram, &times) in &received {
        let Some(&often) = expected.get(datagram) else {
            return Err(format!("a datagram that nobody sent: {datagram:?}"));
        };
        // The network copies each at most once.
        if times > 2 * often {
            return Err(format!("sent {often} times, received {times} times: {datagram:?}"));
        }
        copies += times.saturating_sub(often);
    }
    match expected.iter().find(|(datagram, often)| received.get(**datagram).is_none_or(|times| times < often)) {
        Some((missing, _)) if is_lossless => Err(format!("nothing was lost, but this did not arrive: {missing:?}")),
        _ => Ok(copies),
    }
}

/// What a receive holds; behind it is nothing.
fn read(completion: &Completion, bytes: &[u8], address: IpAddr) -> Result<Datagram, String> {
    let wrong = |what: &str| format!("{what}: {completion:?}");
    let header = bytes.first_chunk::<GRH>().and_then(Grh::parse).ok_or_else(|| wrong("no header in front"))?;
    let kind = if address.is_ipv4() { GrhKind::Ipv4 } else { GrhKind::Ipv6 };
    let is_right =
        completion.grh == Some(kind) && completion.kind == CompletionKind::Receive && header.destination == address;
    let length = completion.byte_length as usize;
    if !is_right || length < GRH || length > bytes.len() {
        return Err(wrong("not a datagram for this host"));
    }
    if bytes[length..].iter().any(|&byte| byte != 0) {
        return Err(wrong("bytes behind the datagram were written"));
    }
    let tag = match completion.tag {
        Tag::None => None,
        Tag::Immediate(data) => Some(data),
        Tag::Invalidated(_) => return Err(wrong("a datagram invalidates nothing")),
    };
    Ok(Datagram {
        source: (header.source, completion.source_qpn),
        tag,
        is_solicited: completion.solicited,
        bytes: bytes[GRH..length].to_vec(),
    })
}
