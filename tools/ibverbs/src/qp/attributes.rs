//! States and attributes of queue pairs.

use std::ffi::c_int;
use std::sync::PoisonError;

use uroce::verbs::{AddressVector, Attributes, Gid, Mtu, Psn, QpInfo, Qpn, State};

use super::{Pair, Qp, shown};
use crate::abi::{self, qp_attr};
use crate::edge::{Failure, Result, errno_of, filled, given};
use crate::handle::{Handle, live};
use crate::memory::access;

/// Attributes that the engine has no use for: there is no alternate path, and no limit of the rate.
#[derive(Clone, Copy, Default)]
pub(super) struct Kept {
    alternate: abi::AhAttr,
    alternate_pkey_index: u16,
    alternate_port: u8,
    alternate_timeout: u8,
    /// What of the address the engine does not keep.
    flow_label: u32,
    service_level: u8,
}

/// The attributes of `ibv_qp_attr_mask` that the engine knows.
const KNOWN: u32 = uroce::qp::Mask::all().bits();

pub(crate) extern "C" fn ibv_modify_qp(qp: *mut abi::Qp, attributes: *mut abi::QpAttr, mask: c_int) -> c_int {
    errno_of("ibv_modify_qp", || {
        // SAFETY: a queue pair of the program's, as the verb requires.
        let handle = unsafe { live::<Qp>(qp) }?;
        // SAFETY: attributes of the program's.
        let given = unsafe { given("the attributes", attributes) }?;
        modify(handle, given, mask as u32)
    })
}

fn modify(handle: &Handle<Qp>, given: &abi::QpAttr, mask: u32) -> Result<()> {
    let pair = handle.inner();
    check(pair, given, mask)?;
    let attributes = wanted(given, mask)?;
    pair.qp.modify(&attributes)?;
    let mut kept = pair.kept.lock().unwrap_or_else(PoisonError::into_inner);
    if attributes.state == Some(State::Reset) {
        *kept = Kept::default();
    }
    if attributes.address.is_some() {
        (kept.flow_label, kept.service_level) = (given.ah_attr.grh.flow_label, given.ah_attr.sl);
    }
    if mask & qp_attr::ALT_PATH != 0 {
        kept.alternate = given.alt_ah_attr;
        (kept.alternate_pkey_index, kept.alternate_port) = (given.alt_pkey_index, given.alt_port_num);
        kept.alternate_timeout = given.alt_timeout;
    }
    if let Some(state) = attributes.state {
        // SAFETY: the shape of a live queue pair; programs look there for the state.
        unsafe { (*handle.shape()).qp_base.state = state as u32 };
    }
    Ok(())
}

/// What the engine does not see.
fn check(pair: &Pair, given: &abi::QpAttr, mask: u32) -> Result<()> {
    let ours = qp_attr::CUR_STATE | qp_attr::EN_SQD_ASYNC_NOTIFY | qp_attr::ALT_PATH | qp_attr::PATH_MIG_STATE;
    if mask & !(KNOWN | ours) != 0 {
        let unknown = mask & !(KNOWN | ours);
        let what = match unknown {
            qp_attr::CAP => "the size of queues is fixed",
            qp_attr::RATE_LIMIT => "the rate is not limited",
            _ => "unknown attributes",
        };
        return Err(Failure::unsupported(format!("attr_mask {unknown:#x}: {what}")));
    }
    if mask & qp_attr::CUR_STATE != 0 {
        let state = pair.qp.query()?.state;
        if state as u32 != given.cur_qp_state {
            return Err(Failure::invalid(format!("cur_qp_state {}; it is in {state:?}", given.cur_qp_state)));
        }
    }
    // IBV_MIG_MIGRATED is the state that there is without migration.
    if mask & qp_attr::PATH_MIG_STATE != 0 && given.path_mig_state != 0 {
        return Err(Failure::unsupported("path migration"));
    }
    Ok(())
}

/// The attributes in the engine's terms.
fn wanted(given: &abi::QpAttr, mask: u32) -> Result<Attributes> {
    use uroce::qp::Mask;
    let mask = Mask::from_bits_truncate(mask);
    fn when<T>(is_given: bool, value: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        is_given.then(value).transpose()
    }
    Ok(Attributes {
        state: when(mask.contains(Mask::STATE), || state(given.qp_state))?,
        access: when(mask.contains(Mask::ACCESS_FLAGS), || access(given.qp_access_flags))?,
        pkey_index: mask.contains(Mask::PKEY_INDEX).then_some(given.pkey_index),
        port: mask.contains(Mask::PORT).then_some(given.port_num),
        qkey: mask.contains(Mask::QKEY).then_some(given.qkey),
        address: when(mask.contains(Mask::AV), || address_vector(&given.ah_attr))?,
        path_mtu: when(mask.contains(Mask::PATH_MTU), || mtu(given.path_mtu))?,
        destination: when(mask.contains(Mask::DEST_QPN), || number("dest_qp_num", given.dest_qp_num).map(Qpn::new))?,
        // As the kernel does, whatever stands above the 24 bits.
        receive_psn: mask.contains(Mask::RQ_PSN).then(|| Psn::new(given.rq_psn)),
        send_psn: mask.contains(Mask::SQ_PSN).then(|| Psn::new(given.sq_psn)),
        timeout: mask.contains(Mask::TIMEOUT).then_some(given.timeout),
        retry_count: mask.contains(Mask::RETRY_CNT).then_some(given.retry_cnt),
        rnr_retry: mask.contains(Mask::RNR_RETRY).then_some(given.rnr_retry),
        min_rnr_timer: mask.contains(Mask::MIN_RNR_TIMER).then_some(given.min_rnr_timer),
        max_rd_atomic: mask.contains(Mask::MAX_QP_RD_ATOMIC).then_some(given.max_rd_atomic),
        max_dest_rd_atomic: mask.contains(Mask::MAX_DEST_RD_ATOMIC).then_some(given.max_dest_rd_atomic),
    })
}

fn state(value: u32) -> Result<State> {
    use State::{Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrained, SendQueueError};
    let states = [Reset, Init, ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError, Error];
    let known = states.into_iter().find(|state| *state as u32 == value);
    known.ok_or_else(|| Failure::invalid(format!("qp_state {value}")))
}

fn mtu(value: u32) -> Result<Mtu> {
    let known = Mtu::ALL.into_iter().find(|mtu| *mtu as u32 == value);
    known.ok_or_else(|| Failure::invalid(format!("path_mtu {value}; 1 to 5 are 256 to 4096 bytes")))
}

fn number(what: &str, value: u32) -> Result<u32> {
    if value < Psn::SPACE {
        Ok(value)
    } else {
        Err(Failure::invalid(format!("{what} {value:#x} has more than 24 bits")))
    }
}

/// The way to a peer as the engine knows it.
///
/// # Errors
/// EINVAL without a GRH, which is what RoCE goes by.
pub(crate) fn address_vector(attributes: &abi::AhAttr) -> Result<AddressVector> {
    if attributes.is_global == 0 {
        return Err(Failure::invalid("is_global is 0: on RoCE a peer is named by its GID (-g with many programs)"));
    }
    crate::context::check_port(u32::from(attributes.port_num))?;
    Ok(AddressVector {
        destination: gid(attributes).address(),
        source_gid_index: attributes.grh.sgid_index,
        hop_limit: attributes.grh.hop_limit,
        traffic_class: attributes.grh.traffic_class,
    })
}

fn gid(attributes: &abi::AhAttr) -> Gid {
    let [high, low] = attributes.grh.dgid.map(u64::to_ne_bytes);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high);
    bytes[8..].copy_from_slice(&low);
    Gid(bytes)
}

/// The way to a peer as programs know it.
pub(crate) fn address_attributes(vector: &AddressVector) -> abi::AhAttr {
    let gid = Gid::from(vector.destination).0;
    let half = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    abi::AhAttr {
        grh: abi::GlobalRoute {
            dgid: [half(&gid[..8]), half(&gid[8..])],
            flow_label: 0,
            sgid_index: vector.source_gid_index,
            hop_limit: vector.hop_limit,
            traffic_class: vector.traffic_class,
        },
        is_global: 1,
        port_num: 1,
        ..abi::AhAttr::default()
    }
}

/// Everything is told, whatever the mask asks for.
pub(crate) extern "C" fn ibv_query_qp(
    qp: *mut abi::Qp,
    place: *mut abi::QpAttr,
    _mask: c_int,
    init_place: *mut abi::QpInitAttr,
) -> c_int {
    errno_of("ibv_query_qp", || {
        // SAFETY: a queue pair of the program's, as the verb requires.
        let handle = unsafe { live::<Qp>(qp) }?;
        let info = handle.inner().qp.query()?;
        let base = handle.shape();
        // SAFETY: the shape of a live queue pair.
        let base = unsafe { &mut (*base).qp_base };
        base.state = info.state as u32;
        let init = abi::QpInitAttr {
            qp_context: base.qp_context,
            send_cq: base.send_cq,
            recv_cq: base.recv_cq,
            srq: base.srq,
            cap: shown(&info.capacity),
            qp_type: base.qp_type,
            sq_sig_all: c_int::from(info.signal_all),
        };
        let attributes = attributes_of(handle.inner(), &info);
        // SAFETY: the program's places for both.
        unsafe { crate::edge::store(place, attributes).and_then(|()| crate::edge::store(init_place, init)) }
    })
}

fn attributes_of(pair: &Pair, info: &QpInfo) -> abi::QpAttr {
    let known = &info.attributes;
    let kept = *pair.kept.lock().unwrap_or_else(PoisonError::into_inner);
    let mut address = known.address.as_ref().map(address_attributes).unwrap_or_default();
    (address.grh.flow_label, address.sl) = (kept.flow_label, kept.service_level);
    abi::QpAttr {
        qp_state: info.state as u32,
        cur_qp_state: info.state as u32,
        path_mtu: known.path_mtu.map_or(0, |mtu| mtu as u32),
        path_mig_state: 0,
        qkey: known.qkey.unwrap_or_default(),
        rq_psn: known.receive_psn.map_or(0, Psn::value),
        sq_psn: known.send_psn.map_or(0, Psn::value),
        dest_qp_num: known.destination.map_or(0, Qpn::value),
        qp_access_flags: known.access.map_or(0, |access| access.bits()),
        cap: shown(&info.capacity),
        ah_attr: address,
        alt_ah_attr: kept.alternate,
        pkey_index: known.pkey_index.unwrap_or_default(),
        alt_pkey_index: kept.alternate_pkey_index,
        en_sqd_async_notify: 0,
        sq_draining: u8::from(info.is_draining),
        max_rd_atomic: known.max_rd_atomic.unwrap_or_default(),
        max_dest_rd_atomic: known.max_dest_rd_atomic.unwrap_or_default(),
        min_rnr_timer: known.min_rnr_timer.unwrap_or_default(),
        port_num: known.port.unwrap_or_default(),
        timeout: known.timeout.unwrap_or_default(),
        retry_cnt: known.retry_count.unwrap_or_default(),
        rnr_retry: known.rnr_retry.unwrap_or_default(),
        alt_port_num: kept.alternate_port,
        alt_timeout: kept.alternate_timeout,
        rate_limit: 0,
    }
}

/// Bytes of a message may arrive in any order: packets that overtake others are held.
pub(crate) extern "C" fn ibv_query_qp_data_in_order(_qp: *mut abi::Qp, _operation: u32, _flags: u32) -> c_int {
    0
}

/// Enhancements of a connection that vendors agree on: there are none.
pub(crate) extern "C" fn ibv_query_ece(qp: *mut abi::Qp, place: *mut abi::Ece) -> c_int {
    filled("ibv_query_ece", place, || {
        // SAFETY: a queue pair of the program's, as the verb requires.
        unsafe { live::<Qp>(qp) }?;
        Ok(abi::Ece::default())
    })
}

pub(crate) extern "C" fn ibv_set_ece(qp: *mut abi::Qp, ece: *mut abi::Ece) -> c_int {
    errno_of("ibv_set_ece", || {
        // SAFETY: a queue pair of the program's, as the verb requires.
        unsafe { live::<Qp>(qp) }?;
        // SAFETY: a structure of the program's.
        match unsafe { given("the enhancements", ece) }? {
            abi::Ece { vendor_id: 0, .. } => Ok(()),
            other => Err(Failure::unsupported(format!("enhancements of vendor {:#x}", other.vendor_id))),
        }
    })
}
