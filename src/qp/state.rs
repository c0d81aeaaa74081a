//! The states of a queue pair, the attributes that each change of state takes, and the table of both.

use crate::error::{Error, Result};
use crate::memory::Access;
use crate::wire::{Psn, Qpn, Transport};
use crate::work::AddressVector;

/// The service a queue pair gives (`ibv_qp_type`, with the same values).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum QpType {
    /// Reliable connected.
    Rc = 2,
    /// Unreliable connected.
    Uc = 3,
    /// Unreliable datagram.
    Ud = 4,
    /// Extended reliable connected, the end that sends (IBTA annex A14).
    XrcInitiator = 9,
    /// Extended reliable connected, the end that receives, for every shared receive queue of its domain.
    XrcTarget = 10,
}

/// The state of a queue pair (`ibv_qp_state`, with the same values; IBTA 10.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum State {
    /// New, or emptied: nothing can be posted.
    #[default]
    Reset = 0,
    /// Receives can be posted; packets are dropped.
    Init = 1,
    /// Requests of the peer are served.
    ReadyToReceive = 2,
    /// Requests are sent, too.
    ReadyToSend = 3,
    /// Requests begun are finished; no new one begins.
    SendQueueDrained = 4,
    /// A send request failed; the receive side still works (not on RC).
    SendQueueError = 5,
    /// Broken: everything posted is flushed.
    Error = 6,
}

impl QpType {
    /// Whose packets it sends and takes.
    #[must_use]
    pub const fn transport(self) -> Transport {
        match self {
            Self::Rc => Transport::Rc,
            Self::Uc => Transport::Uc,
            Self::Ud => Transport::Ud,
            Self::XrcInitiator | Self::XrcTarget => Transport::Xrc,
        }
    }
}

impl State {
    /// Whether requests of the peer are served.
    #[must_use]
    pub fn receives(self) -> bool {
        matches!(self, Self::ReadyToReceive | Self::ReadyToSend | Self::SendQueueDrained | Self::SendQueueError)
    }

    /// Whether the answers to our requests are expected.
    #[must_use]
    pub fn awaits_answers(self) -> bool {
        matches!(self, Self::ReadyToSend | Self::SendQueueDrained)
    }
}

/// The path MTU: payload bytes of a full packet (`ibv_mtu`, with the same values).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    #[default]
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl Mtu {
    /// All of them, ascending.
    pub const ALL: [Self; 5] = [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// Payload bytes of a full packet.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The one of `bytes`, if there is one.
    #[must_use]
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// The largest that fits a link MTU of `link` bytes beside 80 bytes of headers: the kernel's rule
    /// (`rxe_mtu_int_to_enum` and `RXE_MAX_HDR_LENGTH` in rxe's `rxe_param.h`).
    #[must_use]
    pub fn of_link(link: u32) -> Self {
        let fits = |mtu: &&Self| mtu.bytes() <= link.saturating_sub(80);
        *Self::ALL.iter().rev().find(fits).unwrap_or(&Self::Mtu256)
    }
}

bitflags::bitflags! {
    /// Which attributes are given (`ibv_qp_attr_mask`, with the same values).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Mask: u32 {
        /// [`Attributes::state`].
        const STATE = 1;
        /// [`Attributes::access`].
        const ACCESS_FLAGS = 1 << 3;
        /// [`Attributes::pkey_index`].
        const PKEY_INDEX = 1 << 4;
        /// [`Attributes::port`].
        const PORT = 1 << 5;
        /// [`Attributes::qkey`].
        const QKEY = 1 << 6;
        /// [`Attributes::address`].
        const AV = 1 << 7;
        /// [`Attributes::path_mtu`].
        const PATH_MTU = 1 << 8;
        /// [`Attributes::timeout`].
        const TIMEOUT = 1 << 9;
        /// [`Attributes::retry_count`].
        const RETRY_CNT = 1 << 10;
        /// [`Attributes::rnr_retry`].
        const RNR_RETRY = 1 << 11;
        /// [`Attributes::receive_psn`].
        const RQ_PSN = 1 << 12;
        /// [`Attributes::max_rd_atomic`].
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// [`Attributes::min_rnr_timer`].
        const MIN_RNR_TIMER = 1 << 15;
        /// [`Attributes::send_psn`].
        const SQ_PSN = 1 << 16;
        /// [`Attributes::max_dest_rd_atomic`].
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// [`Attributes::destination`].
        const DEST_QPN = 1 << 20;
    }
}

/// The attributes of a change of state: those that are `Some` are given (`ibv_qp_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The state to move to; none: stay.
    pub state: Option<State>,
    /// What the peer may do: remote write, read, atomic.
    pub access: Option<Access>,
    /// Index into the table of partition keys; 0 is the only one.
    pub pkey_index: Option<u16>,
    /// The device's port; 1 is the only one.
    pub port: Option<u8>,
    /// The Q_Key that datagrams must carry to be let in (UD).
    pub qkey: Option<u32>,
    /// The peer's address.
    pub address: Option<AddressVector>,
    /// Payload bytes of a full packet; both ends must agree.
    pub path_mtu: Option<Mtu>,
    /// The peer's queue pair.
    pub destination: Option<Qpn>,
    /// The first PSN that the peer will send.
    pub receive_psn: Option<Psn>,
    /// The first PSN to send.
    pub send_psn: Option<Psn>,
    /// Acknowledge timeout: 4.096 µs × 2^n, n below 32; 0 is never.
    pub timeout: Option<u8>,
    /// Retries without an answer before a request fails, 0 to 7.
    pub retry_count: Option<u8>,
    /// Retries while the peer has no receive request, 0 to 6; 7 is for ever.
    pub rnr_retry: Option<u8>,
    /// How long a peer is told to wait when there is no receive request: a code of 5 bits (IBTA table 45).
    pub min_rnr_timer: Option<u8>,
    /// READs and ATOMICs of ours that may be outstanding.
    pub max_rd_atomic: Option<u8>,
    /// READs and ATOMICs of the peer that may be outstanding.
    pub max_dest_rd_atomic: Option<u8>,
}

impl Attributes {
    /// Outstanding READs and ATOMICs that a queue pair can have, either way.
    pub const MAX_RD_ATOMIC: u8 = 128;

    /// Which attributes are given.
    #[must_use]
    pub fn mask(&self) -> Mask {
        let given = [
            (self.state.is_some(), Mask::STATE),
            (self.access.is_some(), Mask::ACCESS_FLAGS),
            (self.pkey_index.is_some(), Mask::PKEY_INDEX),
            (self.port.is_some(), Mask::PORT),
            (self.qkey.is_some(), Mask::QKEY),
            (self.address.is_some(), Mask::AV),
            (self.path_mtu.is_some(), Mask::PATH_MTU),
            (self.destination.is_some(), Mask::DEST_QPN),
            (self.receive_psn.is_some(), Mask::RQ_PSN),
            (self.send_psn.is_some(), Mask::SQ_PSN),
            (self.timeout.is_some(), Mask::TIMEOUT),
            (self.retry_count.is_some(), Mask::RETRY_CNT),
            (self.rnr_retry.is_some(), Mask::RNR_RETRY),
            (self.min_rnr_timer.is_some(), Mask::MIN_RNR_TIMER),
            (self.max_rd_atomic.is_some(), Mask::MAX_QP_RD_ATOMIC),
            (self.max_dest_rd_atomic.is_some(), Mask::MAX_DEST_RD_ATOMIC),
        ];
        given.into_iter().filter(|(is_given, _)| *is_given).map(|(_, bit)| bit).collect()
    }

    /// Whether a queue pair of `qp_type` in state `from` takes these attributes; returns the state it moves to.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the transition or the attribute that is missing, not allowed, or out of range.
    pub fn check(&self, qp_type: QpType, from: State) -> Result<State> {
        let to = self.state.unwrap_or(from);
        let given = self.mask() - Mask::STATE;
        let Some(rule) = RULES.iter().find(|rule| rule.applies(qp_type, from, to)) else {
            return Err(Error::invalid("state", format!("{qp_type:?} cannot go from {from:?} to {to:?}")));
        };
        let missing = rule.required - given;
        if !missing.is_empty() {
            return Err(Error::invalid("attr_mask", format!("{from:?} to {to:?} needs {missing:?} too")));
        }
        let extra = given - rule.required - rule.optional;
        if !extra.is_empty() {
            return Err(Error::invalid("attr_mask", format!("{from:?} to {to:?} does not take {extra:?}")));
        }
        self.check_ranges()?;
        Ok(to)
    }

    /// Those of these attributes that a queue pair of `qp_type` takes on its way from state `from`.
    #[must_use]
    pub fn fitted(mut self, qp_type: QpType, from: State) -> Self {
        let to = self.state.unwrap_or(from);
        let taken = RULES.iter().find(|rule| rule.applies(qp_type, from, to));
        let taken = taken.map_or(Mask::all(), |rule| rule.required | rule.optional);
        fn keep<T>(attribute: &mut Option<T>, is_taken: bool) {
            attribute.take_if(|_| !is_taken);
        }
        keep(&mut self.access, taken.contains(Mask::ACCESS_FLAGS));
        keep(&mut self.pkey_index, taken.contains(Mask::PKEY_INDEX));
        keep(&mut self.port, taken.contains(Mask::PORT));
        keep(&mut self.qkey, taken.contains(Mask::QKEY));
        keep(&mut self.address, taken.contains(Mask::AV));
        keep(&mut self.path_mtu, taken.contains(Mask::PATH_MTU));
        keep(&mut self.destination, taken.contains(Mask::DEST_QPN));
        keep(&mut self.receive_psn, taken.contains(Mask::RQ_PSN));
        keep(&mut self.send_psn, taken.contains(Mask::SQ_PSN));
        keep(&mut self.timeout, taken.contains(Mask::TIMEOUT));
        keep(&mut self.retry_count, taken.contains(Mask::RETRY_CNT));
        keep(&mut self.rnr_retry, taken.contains(Mask::RNR_RETRY));
        keep(&mut self.min_rnr_timer, taken.contains(Mask::MIN_RNR_TIMER));
        keep(&mut self.max_rd_atomic, taken.contains(Mask::MAX_QP_RD_ATOMIC));
        keep(&mut self.max_dest_rd_atomic, taken.contains(Mask::MAX_DEST_RD_ATOMIC));
        self
    }

    /// Whether every attribute given is in its range.
    fn check_ranges(&self) -> Result<()> {
        let at_most = |argument: &'static str, value: Option<u8>, limit: u8| match value {
            Some(value) if value > limit => {
                Err(Error::invalid(argument, format!("{value}; at most {limit} is possible")))
            }
            _ => Ok(()),
        };
        at_most("timeout", self.timeout, 31)?;
        at_most("retry_cnt", self.retry_count, 7)?;
        at_most("rnr_retry", self.rnr_retry, 7)?;
        at_most("min_rnr_timer", self.min_rnr_timer, 31)?;
        at_most("max_rd_atomic", self.max_rd_atomic, Self::MAX_RD_ATOMIC)?;
        at_most("max_dest_rd_atomic", self.max_dest_rd_atomic, Self::MAX_RD_ATOMIC)?;
        match (self.port, self.pkey_index) {
            (Some(port), _) if port != 1 => Err(Error::invalid("port_num", format!("{port}; the only port is 1"))),
            (_, Some(index)) if index != 0 => {
                Err(Error::invalid("pkey_index", format!("{index}; the only partition key has index 0")))
            }
            _ => Ok(()),
        }
    }
}

/// One line of the table: which attributes a transition needs and which it takes besides.
struct Rule {
    qp_type: Option<QpType>,
    from: &'static [State],
    to: State,
    required: Mask,
    optional: Mask,
}

impl Rule {
    fn applies(&self, qp_type: QpType, from: State, to: State) -> bool {
        self.to == to && self.from.contains(&from) && self.qp_type.is_none_or(|only| only == qp_type)
    }
}

const EVERY: &[State] = &[
    State::Reset,
    State::Init,
    State::ReadyToReceive,
    State::ReadyToSend,
    State::SendQueueDrained,
    State::SendQueueError,
    State::Error,
];

/// IBTA 11.2.5.3, tables 91 and 92; the kernel's `qp_state_table` in `drivers/infiniband/core/verbs.c`.
#[rustfmt::skip]
const RULES: &[Rule] = {
    use State::{Init, ReadyToReceive, ReadyToSend, SendQueueDrained, SendQueueError, Reset};
    const RC: Option<QpType> = Some(QpType::Rc);
    const UC: Option<QpType> = Some(QpType::Uc);
    const UD: Option<QpType> = Some(QpType::Ud);
    const INIT: Mask = Mask::PKEY_INDEX.union(Mask::PORT).union(Mask::ACCESS_FLAGS);
    const UD_INIT: Mask = Mask::PKEY_INDEX.union(Mask::PORT).union(Mask::QKEY);
    const LIVE: Mask = Mask::ACCESS_FLAGS.union(Mask::MIN_RNR_TIMER);
    const INI: Option<QpType> = Some(QpType::XrcInitiator);
    const TGT: Option<QpType> = Some(QpType::XrcTarget);
    const PEER: Mask = Mask::AV.union(Mask::PATH_MTU).union(Mask::DEST_QPN).union(Mask::RQ_PSN);
    const RETRY: Mask = Mask::TIMEOUT.union(Mask::RETRY_CNT).union(Mask::RNR_RETRY);
    const DRAINED: Mask = Mask::PORT.union(Mask::AV).union(Mask::PKEY_INDEX).union(Mask::ACCESS_FLAGS);
    &[
        Rule { qp_type: None, from: EVERY, to: Reset, required: Mask::empty(), optional: Mask::empty() },
        Rule { qp_type: None, from: EVERY, to: State::Error, required: Mask::empty(), optional: Mask::empty() },
        Rule { qp_type: RC, from: &[Reset], to: Init, required: INIT, optional: Mask::empty() },
        Rule { qp_type: RC, from: &[Init], to: Init, required: Mask::empty(), optional: INIT },
        Rule { qp_type: RC, from: &[Init], to: ReadyToReceive,
            required: Mask::AV.union(Mask::PATH_MTU).union(Mask::DEST_QPN).union(Mask::RQ_PSN)
                .union(Mask::MAX_DEST_RD_ATOMIC).union(Mask::MIN_RNR_TIMER),
            optional: Mask::ACCESS_FLAGS.union(Mask::PKEY_INDEX) },
        Rule { qp_type: RC, from: &[ReadyToReceive], to: ReadyToSend,
            required: Mask::TIMEOUT.union(Mask::RETRY_CNT).union(Mask::RNR_RETRY).union(Mask::SQ_PSN)
                .union(Mask::MAX_QP_RD_ATOMIC),
            optional: LIVE },
        Rule { qp_type: RC, from: &[ReadyToSend], to: ReadyToSend, required: Mask::empty(), optional: LIVE },
        Rule { qp_type: None, from: &[ReadyToSend], to: SendQueueDrained, required: Mask::empty(), optional: Mask::empty() },
        Rule { qp_type: RC, from: &[SendQueueDrained], to: ReadyToSend, required: Mask::empty(), optional: LIVE },
        Rule { qp_type: RC, from: &[SendQueueDrained], to: SendQueueDrained, required: Mask::empty(),
            optional: LIVE.union(Mask::PORT).union(Mask::AV).union(Mask::TIMEOUT).union(Mask::RETRY_CNT).union(Mask::RNR_RETRY)
                .union(Mask::MAX_QP_RD_ATOMIC).union(Mask::MAX_DEST_RD_ATOMIC).union(Mask::PKEY_INDEX) },

        Rule { qp_type: UC, from: &[Reset], to: Init, required: INIT, optional: Mask::empty() },
        Rule { qp_type: UC, from: &[Init], to: Init, required: Mask::empty(), optional: INIT },
        Rule { qp_type: UC, from: &[Init], to: ReadyToReceive,
            required: Mask::AV.union(Mask::PATH_MTU).union(Mask::DEST_QPN).union(Mask::RQ_PSN),
            optional: Mask::ACCESS_FLAGS.union(Mask::PKEY_INDEX) },
        Rule { qp_type: UC, from: &[ReadyToReceive], to: ReadyToSend, required: Mask::SQ_PSN, optional: Mask::ACCESS_FLAGS },
        Rule { qp_type: UC, from: &[ReadyToSend, SendQueueDrained, SendQueueError], to: ReadyToSend,
            required: Mask::empty(), optional: Mask::ACCESS_FLAGS },
        Rule { qp_type: UC, from: &[SendQueueDrained], to: SendQueueDrained, required: Mask::empty(),
            optional: Mask::PORT.union(Mask::AV).union(Mask::ACCESS_FLAGS).union(Mask::PKEY_INDEX) },

        Rule { qp_type: UD, from: &[Reset], to: Init, required: UD_INIT, optional: Mask::empty() },
        Rule { qp_type: UD, from: &[Init], to: Init, required: Mask::empty(), optional: UD_INIT },
        Rule { qp_type: UD, from: &[Init], to: ReadyToReceive, required: Mask::empty(),
            optional: Mask::PKEY_INDEX.union(Mask::QKEY) },
        Rule { qp_type: UD, from: &[ReadyToReceive], to: ReadyToSend, required: Mask::SQ_PSN, optional: Mask::QKEY },
        Rule { qp_type: UD, from: &[ReadyToSend, SendQueueDrained, SendQueueError], to: ReadyToSend,
            required: Mask::empty(), optional: Mask::QKEY },
        Rule { qp_type: UD, from: &[SendQueueDrained], to: SendQueueDrained, required: Mask::empty(),
            optional: Mask::PKEY_INDEX.union(Mask::QKEY) },
        Rule { qp_type: INI, from: &[Reset], to: Init, required: INIT, optional: Mask::empty() },
        Rule { qp_type: INI, from: &[Init], to: Init, required: Mask::empty(), optional: INIT },
        Rule { qp_type: INI, from: &[Init], to: ReadyToReceive, required: PEER,
            optional: Mask::ACCESS_FLAGS.union(Mask::PKEY_INDEX) },
        Rule { qp_type: INI, from: &[ReadyToReceive], to: ReadyToSend,
            required: RETRY.union(Mask::SQ_PSN).union(Mask::MAX_QP_RD_ATOMIC), optional: Mask::ACCESS_FLAGS },
        Rule { qp_type: INI, from: &[ReadyToSend, SendQueueDrained], to: ReadyToSend, required: Mask::empty(),
            optional: Mask::ACCESS_FLAGS },
        Rule { qp_type: INI, from: &[SendQueueDrained], to: SendQueueDrained, required: Mask::empty(),
            optional: DRAINED.union(RETRY).union(Mask::MAX_QP_RD_ATOMIC) },
        Rule { qp_type: TGT, from: &[Reset], to: Init, required: INIT, optional: Mask::empty() },
        Rule { qp_type: TGT, from: &[Init], to: Init, required: Mask::empty(), optional: INIT },
        Rule { qp_type: TGT, from: &[Init], to: ReadyToReceive,
            required: PEER.union(Mask::MAX_DEST_RD_ATOMIC).union(Mask::MIN_RNR_TIMER),
            optional: Mask::ACCESS_FLAGS.union(Mask::PKEY_INDEX) },
        Rule { qp_type: TGT, from: &[ReadyToReceive], to: ReadyToSend, required: Mask::TIMEOUT.union(Mask::SQ_PSN),
            optional: LIVE },
        Rule { qp_type: TGT, from: &[ReadyToSend, SendQueueDrained], to: ReadyToSend, required: Mask::empty(), optional: LIVE },
        Rule { qp_type: TGT, from: &[SendQueueDrained], to: SendQueueDrained, required: Mask::empty(),
            optional: DRAINED.union(LIVE).union(Mask::TIMEOUT).union(Mask::MAX_DEST_RD_ATOMIC) },
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    fn to(state: State) -> Attributes {
        Attributes { state: Some(state), ..Attributes::default() }
    }

    #[test]
    fn reset_and_error_are_reached_from_everywhere_and_take_nothing() {
        for &from in EVERY {
            assert_eq!(to(State::Reset).check(QpType::Rc, from).unwrap(), State::Reset);
            assert_eq!(to(State::Error).check(QpType::Rc, from).unwrap(), State::Error);
            let extra = Attributes { timeout: Some(14), ..to(State::Error) };
            assert!(extra.check(QpType::Rc, from).unwrap_err().to_string().contains("TIMEOUT"));
        }
    }

    #[test]
    fn a_missing_attribute_is_named() {
        let error = Attributes { port: Some(1), pkey_index: Some(0), ..to(State::Init) };
        let error = error.check(QpType::Rc, State::Reset).unwrap_err();
        assert_eq!(error.errno(), 22);
        assert!(error.to_string().contains("ACCESS_FLAGS"), "{error}");
    }

    #[test]
    fn no_way_leads_around_a_state() {
        for (from, target) in [
            (State::Reset, State::ReadyToReceive),
            (State::Reset, State::ReadyToSend),
            (State::Init, State::ReadyToSend),
            (State::Error, State::Init),
            (State::ReadyToReceive, State::SendQueueDrained),
        ] {
            assert!(to(target).check(QpType::Rc, from).is_err(), "{from:?} to {target:?}");
        }
    }

    #[test]
    fn ranges_are_checked() {
        let good = Attributes { port: Some(1), pkey_index: Some(0), access: Some(Access::empty()), ..to(State::Init) };
        assert_eq!(good.check(QpType::Rc, State::Reset).unwrap(), State::Init);
        let error = Attributes { port: Some(2), ..good }.check(QpType::Rc, State::Reset).unwrap_err();
        assert!(error.to_string().contains("port_num: 2"), "{error}");
    }

    #[test]
    fn the_path_mtu_of_a_link_leaves_room_for_headers() {
        for (link, bytes) in [(1500, 1024), (4200, 4096), (4175, 2048), (9000, 4096), (65536, 4096), (100, 256)] {
            assert_eq!(Mtu::of_link(link).bytes(), bytes, "{link}");
        }
        assert_eq!(Mtu::from_bytes(2048), Some(Mtu::Mtu2048));
        assert_eq!(Mtu::from_bytes(1500), None);
    }
}
