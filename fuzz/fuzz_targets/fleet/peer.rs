//! The other end: packets that it sends, with as much wrong as is chosen, and what each of them may do.

use std::net::IpAddr;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use uroce::qp::QpType;
use uroce::wire::{
    Aeth, Arrival, AtomicEth, Bth, Deth, Extensions, Info, Kind, Opcode, Packet, PayloadRule, Psn, Qpn, Reth, Syndrome,
    Transport, Xrceth, emit_headers, pad_of,
};

use super::{
    AREA, Area, Fleet, GROUP, MTU, Memory, PAIRS, PEER, QKEY, Queue, SECRET, SELF, SERVICES, STRANGER, Span, shared_of,
};

/// What makes a packet what it is.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Chosen {
    pub pair: u8,
    /// Which of the opcodes of the queue pair's transport, or of all when one in 16 is strange.
    pub opcode: u8,
    pub strange: u8,
    /// From the PSN that is expected on.
    pub psn: i8,
    pub area: Area,
    pub offset: u16,
    pub length: u16,
    pub payload: u16,
    pub syndrome: u8,
    pub srq: u8,
    pub flags: u8,
}

/// What is wrong with a packet, by the bits of `strange`'s upper half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wrong {
    #[default]
    Nothing,
    Qkey,
    Pkey,
    Source,
    Destination,
    Key,
    Qpn,
    /// The group's address, or the group's number, alone.
    Group,
}

impl Chosen {
    fn wrong(&self) -> Wrong {
        match self.strange >> 4 {
            1 => Wrong::Qkey,
            2 => Wrong::Pkey,
            3 => Wrong::Source,
            4 => Wrong::Destination,
            5 => Wrong::Key,
            6 => Wrong::Qpn,
            7 => Wrong::Group,
            _ => Wrong::Nothing,
        }
    }

    fn info(&self, transport: Transport) -> &'static Info {
        let of_all = self.strange & 0xf == 0xf;
        let fits = |info: &&Info| of_all || info.transport == transport;
        let count = Opcode::known().filter(fits).count();
        Opcode::known().filter(fits).nth(usize::from(self.opcode) % count).expect("one of so many")
    }

    /// As many bytes as the opcode may have, rather than any number, three times of four.
    fn payload(&self, info: &Info, most: usize) -> usize {
        match info.payload {
            PayloadRule::None => 0,
            PayloadRule::Exactly(bytes) => bytes,
            _ if self.payload & 3 == 0 => usize::from(self.payload >> 2) % (MTU + 8),
            _ if info.kind == Kind::AtomicWrite => 8,
            _ if info.position.is_last() => usize::from(self.length).min(most),
            _ => MTU,
        }
    }
}

/// The peer's queue pair, by that which is connected to it.
pub fn qpn(pair: usize) -> Qpn {
    // Few.
    Qpn::new(0x12_3400 + pair as u32)
}

impl Fleet {
    /// A packet of the peer.
    pub fn push(&mut self, chosen: &Chosen) {
        let pair = Self::pick(chosen.pair);
        let info = chosen.info(SERVICES[pair].0.transport());
        let attributes = self.info(pair).attributes;
        let known = if info.kind.is_request() { attributes.receive_psn } else { attributes.send_psn };
        let psn = shifted(known.unwrap_or_default(), chosen.psn);
        self.push_at(chosen, info, psn);
    }

    /// A message of `packets` full packets and a last one, from the PSN that is expected on; of those whose bit is set, none
    /// comes.
    pub fn push_message(&mut self, chosen: &Chosen, packets: usize, lost: u16) {
        let pair = Self::pick(chosen.pair);
        let transport = SERVICES[pair].0.transport();
        let mut psn = self.info(pair).attributes.receive_psn.unwrap_or_default();
        let writes = chosen.opcode & 1 != 0;
        let immediate = u8::from(chosen.opcode & 2 != 0);
        let tail = 1 + usize::from(chosen.payload) % MTU;
        // RC's opcodes: first, middle, last, last with immediate.
        let base = if writes { Opcode::RC_WRITE_FIRST } else { Opcode::RC_SEND_FIRST }.value();
        for n in 0..=packets {
            let (opcode, payload) = match n {
                0 if packets > 0 => (base, MTU),
                0 => (base + 4 + immediate, tail),
                n if n < packets => (base + 1, MTU),
                _ => (base + 2 + immediate, tail),
            };
            let length = (packets * MTU + tail).min(AREA) as u16;
            let each = Chosen { length, offset: chosen.offset % 512, strange: chosen.strange & 0xf0, ..*chosen };
            let opcode = Opcode::new(opcode).of(transport);
            if lost >> (n % 16) & 1 == 0
                && let Some(info) = opcode.info()
            {
                self.push_bytes(&each, info, psn, payload);
            }
            psn = psn.plus(1);
        }
    }

    /// An answer to the oldest request that was sent and is not answered, if any, as a queue pair that means well gives it.
    pub fn answer(&mut self, chosen: &Chosen) {
        let pair = Self::pick(chosen.pair);
        let Some(&(opcode, psn, length)) = self.due[pair].front() else { return };
        let transport = SERVICES[pair].0.transport();
        let (answer, bytes) = match opcode.of(Transport::Rc) {
            Opcode::RC_READ_REQUEST => (Opcode::RC_READ_RESPONSE_MIDDLE, (length as usize).min(MTU)),
            Opcode::RC_FETCH_ADD | Opcode::RC_COMPARE_SWAP => (Opcode::RC_ATOMIC_ACKNOWLEDGE, 0),
            _ => (Opcode::RC_ACKNOWLEDGE, 0),
        };
        self.due[pair].pop_front();
        if bytes > 0 && length as usize > MTU {
            self.due[pair].push_front((opcode, psn.plus(1), length - MTU as u32));
        }
        let good = Chosen { strange: 0, syndrome: 0x1f, ..*chosen };
        if let Some(info) = answer.of(transport).info() {
            self.push_bytes(&good, info, psn, bytes);
        }
    }

    fn push_at(&mut self, chosen: &Chosen, info: &Info, psn: Psn) {
        let most = if info.transport == Transport::Ud { 2 * AREA } else { MTU };
        self.push_bytes(chosen, info, psn, chosen.payload(info, most));
    }

    fn push_bytes(&mut self, chosen: &Chosen, info: &Info, psn: Psn, payload: usize) {
        let wrong = chosen.wrong();
        let pair = Self::pick(chosen.pair);
        let to_group = info.transport == Transport::Ud && chosen.flags & 1 != 0;
        let (by_address, by_number) = (to_group ^ (wrong == Wrong::Group && chosen.flags & 2 != 0), to_group);
        let by_number = by_number ^ (wrong == Wrong::Group && chosen.flags & 2 == 0);
        let bth = Bth {
            opcode: info.opcode,
            solicited: chosen.flags & 4 != 0,
            migration: true,
            pad: pad_of(payload),
            version: 0,
            pkey: if wrong == Wrong::Pkey { 0x1234 } else { 0xffff },
            fecn: false,
            becn: false,
            destination: match (wrong, by_number) {
                (Wrong::Qpn, _) => Qpn::new(self.qpns[pair].value() ^ 0x100),
                (_, true) => Qpn::MULTICAST,
                _ => self.qpns[pair],
            },
            ack_request: chosen.flags & 8 != 0,
            psn,
        };
        let mut datagram = vec![0x5a; 80];
        let header = emit_headers(&bth, &self.extensions(chosen, pair), &mut datagram).expect("a known opcode");
        datagram.truncate(header);
        datagram.resize(header + payload + usize::from(bth.pad), 0x5a);
        let source = if wrong == Wrong::Source { STRANGER } else { PEER };
        let destination = match (wrong, by_address) {
            (Wrong::Destination, _) => STRANGER,
            (_, true) => GROUP,
            _ => SELF,
        };
        self.arrive(source, destination, &datagram);
    }

    fn extensions(&self, chosen: &Chosen, pair: usize) -> Extensions {
        let wrong = chosen.wrong();
        let (sge, _) = self.memory.element(chosen.area, chosen.offset, chosen.length.into());
        let (address, rkey) = (sge.address, sge.lkey ^ u32::from(wrong == Wrong::Key));
        // Mostly the one that its domain has.
        let srq = match chosen.srq {
            other if other < 0xc0 => self.srqs[Queue::EXTENDED],
            other => self.srqs[usize::from(other) % 3],
        };
        Extensions {
            xrceth: Some(Xrceth { srq }),
            deth: Some(Deth { qkey: QKEY ^ u32::from(wrong == Wrong::Qkey), source: qpn(pair) }),
            reth: Some(Reth { address, rkey, length: sge.length }),
            atomic: Some(AtomicEth { address, rkey, swap_add: 1, compare: u64::MAX }),
            aeth: Some(Aeth { syndrome: Syndrome::from(chosen.syndrome), msn: 0 }),
            atomic_ack: Some(7),
            immediate: Some(9),
            invalidate: Some(rkey),
            ..Extensions::default()
        }
    }

    /// Bytes with the number of one of the queue pairs, and nothing else that is known.
    pub fn push_garbage(&mut self, pair: u8, bytes: &[u8]) {
        let mut datagram = bytes.to_vec();
        if let Some(number) = datagram.get_mut(5..8) {
            number.copy_from_slice(&self.qpns[Self::pick(pair)].value().to_be_bytes()[1..]);
        }
        self.arrive(PEER, SELF, &datagram);
    }

    /// Has a datagram come in, which does no more than it may.
    fn arrive(&mut self, source: IpAddr, destination: IpAddr, datagram: &[u8]) {
        let targets = self.targets(source, destination, datagram);
        let arrival = Arrival { source, destination, source_port: 0xc000, traffic_class: 0, hop_limit: 64, datagram };
        self.endpoint.on_packet(self.now, &arrival);
        if targets.is_empty() {
            assert!(self.endpoint.poll_event().is_none(), "a packet that is for nobody caused an event");
            assert!(self.cq.is_empty(), "a packet that is for nobody completed a request");
        }
        let allowed: Vec<_> = targets.iter().flat_map(|&pair| self.reach(pair, datagram)).collect();
        self.check(&allowed);
    }

    /// Which queue pairs take the packet: by number, state, transport, P_Key, and Q_Key or address.
    fn targets(&self, source: IpAddr, destination: IpAddr, datagram: &[u8]) -> Vec<usize> {
        let Ok(packet) = Packet::parse(datagram) else { return Vec::new() };
        let is_for_group = packet.bth.destination == Qpn::MULTICAST;
        (0..PAIRS)
            .filter(|&pair| {
                let is_right_peer = match packet.extensions.deth {
                    Some(deth) => deth.qkey == QKEY && is_for_group == destination.is_multicast(),
                    None => (source, destination) == (PEER, SELF),
                };
                (packet.bth.destination == self.qpns[pair] || (is_for_group && destination == GROUP))
                    && packet.info.transport == SERVICES[pair].0.transport()
                    && packet.bth.pkey & 0x7fff == 0x7fff
                    && self.info(pair).state.receives()
                    && is_right_peer
            })
            .collect()
    }

    /// What a packet to this queue pair may change.
    fn reach(&self, pair: usize, datagram: &[u8]) -> Vec<Span> {
        let Ok(packet) = Packet::parse(datagram) else { return Vec::new() };
        let (qp_type, kind) = (SERVICES[pair].0, packet.info.kind);
        // On RC a packet may release others that were held behind a gap.
        let reliable = matches!(qp_type, QpType::Rc | QpType::XrcTarget) && kind.is_request();
        let receives = |queue| match queue {
            Queue::Receive(of) => of == pair,
            Queue::Shared(srq) => shared_of(pair) == Some(srq),
            Queue::Send(_) => false,
        };
        let takes = kind == Kind::Send || reliable;
        let works = self.outstanding.values().filter(|work| {
            (takes && receives(work.queue)) || (!kind.is_request() && work.fetches && work.queue == Queue::Send(pair))
        });
        let mut spans: Vec<_> = works.flat_map(|work| work.spans.iter().cloned()).collect();
        match qp_type {
            QpType::Ud | QpType::XrcInitiator => {}
            QpType::XrcTarget if reliable => spans.push(Memory::whole(Area::OpenExtended)),
            _ if reliable || kind == Kind::Write => spans.push(Memory::whole(Area::Open)),
            _ => {}
        }
        spans
    }

    /// Sends up to `limit` packets; how many there were. Each is one for the peer, and tells no secret.
    pub fn drain(&mut self, limit: usize) -> usize {
        let mut sent = 0;
        while sent < limit
            && let Some(transmit) = self.endpoint.poll_transmit(self.now, &mut self.room)
        {
            sent += 1;
            let packet = Packet::parse(&self.room[..transmit.length]).expect("what is sent is a packet");
            assert_eq!(transmit.flow.source, SELF);
            let most = if packet.info.transport == Transport::Ud { 4096 } else { MTU };
            assert!(packet.payload.len() <= most, "a packet is longer than the path carries");
            assert!(
                packet.payload.windows(8).all(|bytes| bytes != [SECRET; 8]),
                "memory that nobody may read was sent"
            );
            let Some(deth) = packet.extensions.deth else {
                let pair = (packet.bth.destination.value() - qpn(0).value()) as usize;
                assert_eq!(packet.info.transport, SERVICES[pair].0.transport());
                assert_eq!(transmit.flow.destination, PEER);
                if packet.info.kind.is_request() && packet.info.transport != Transport::Uc {
                    let length = packet.extensions.reth.map_or(0, |reth| reth.length);
                    self.due[pair].push_back((packet.bth.opcode, packet.bth.psn, length));
                    self.due[pair].truncate(256);
                }
                continue;
            };
            assert!(self.qpns.contains(&deth.source));
            assert_eq!(packet.bth.destination == Qpn::MULTICAST, transmit.flow.destination == GROUP);
        }
        self.settle();
        sent
    }
}

fn shifted(psn: Psn, by: i8) -> Psn {
    if by < 0 { psn.minus(u32::from(by.unsigned_abs())) } else { psn.plus(u32::from(by.unsigned_abs())) }
}
