//! Random traffic over one direction of a connection, and the model of what it must do.
#![allow(unreachable_pub)]

use std::collections::VecDeque;

use uroce::qp::State;
use uroce::wire::Qpn;
use uroce::work::{
    Completion, CompletionKind, Operation, Payload, ReceiveRequest, SendFlags, SendRequest, Sge, SgeList, Status, Tag,
};

use crate::common::mesh::Mesh;
use crate::common::pair::Side;

/// Bytes that a direction uses on either side.
pub const AREA: usize = 1 << 19;
/// The first bytes of the target's area: cells of atomics, then a place that many WRITEs overwrite.
const CELLS: usize = 64;
const HOT: usize = 64;

/// SplitMix64: small, seeded, the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// One end of a direction: which host, which queue pair, where its area starts; and the bytes that must be there.
struct End {
    host: usize,
    qpn: Qpn,
    base: usize,
    model: Vec<u8>,
    used: usize,
}

impl End {
    fn new(host: usize, qpn: Qpn, base: usize) -> Self {
        Self { host, qpn, base, model: vec![0; AREA], used: CELLS + HOT }
    }

    /// A place for `length` bytes that nothing else uses, with a gap behind it.
    fn place(&mut self, length: usize) -> usize {
        let offset = self.used;
        self.used = (self.used + length + 16).next_multiple_of(8);
        assert!(self.used <= AREA, "too much traffic for the area");
        offset
    }

    fn expect(&mut self, offset: usize, bytes: &[u8]) {
        self.model[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Puts random bytes into memory and model.
    fn fill(&mut self, side: &Side, offset: usize, length: usize, random: &mut Random) -> Vec<u8> {
        let bytes: Vec<u8> = std::iter::from_fn(|| Some(random.next() as u8)).take(length).collect();
        side.fill(self.base + offset, &bytes);
        self.expect(offset, &bytes);
        bytes
    }

    /// The place as a list of one to three elements, perhaps with an empty one.
    fn list(&self, side: &Side, offset: usize, length: usize, random: &mut Random) -> SgeList {
        let mut cuts = [0, random.below(length + 1), random.below(length + 1), length];
        cuts.sort_unstable();
        let all = [side.sge(self.base + offset, length as u32)];
        if random.below(2) == 0 {
            return SgeList::from_slice(&all);
        }
        cuts.windows(2)
            .map(|cut| side.sge(self.base + offset + cut[0], (cut[1] - cut[0]) as u32))
            .collect::<Vec<Sge>>()
            .into()
    }

    fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.model[offset..offset + 8].try_into().unwrap())
    }
}

/// Requests from one queue pair to another, and what must come of them.
pub struct Traffic {
    from: End,
    to: End,
    /// Receive requests that are not posted yet.
    receives: VecDeque<ReceiveRequest>,
    ids: u64,
    expected_sends: Vec<(u64, CompletionKind, u32)>,
    expected_receives: Vec<(u64, CompletionKind, u32, Tag)>,
}

impl Traffic {
    /// Traffic from the first to the second of `(host, queue pair, start of its area)`.
    pub fn new(from: (usize, Qpn, usize), to: (usize, Qpn, usize)) -> Self {
        Self {
            from: End::new(from.0, from.1, from.2),
            to: End::new(to.0, to.1, to.2),
            receives: VecDeque::new(),
            ids: 0,
            expected_sends: Vec::new(),
            expected_receives: Vec::new(),
        }
    }

    /// Posts a random request.
    pub fn post(&mut self, mesh: &mut Mesh, random: &mut Random) {
        let mtu = mesh.options.mtu.bytes() as usize;
        let length = random.pick(&[0, 1, 7, 64, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 3]);
        let kind = random.below(8);
        let (operation, payload) = match kind {
            0..=3 | 7 => self.outbound(mesh, random, kind, length),
            4 => self.read(mesh, random, length),
            _ => self.atomic(mesh, random, kind == 5),
        };
        let id = self.ids;
        self.ids += 1;
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, random.below(4) > 0);
        flags.set(SendFlags::FENCE, random.below(8) == 0);
        flags.set(SendFlags::SOLICITED, random.below(8) == 0);
        if flags.contains(SendFlags::SIGNALED) {
            self.expected_sends.push((id, CompletionKind::from(&operation), payload.length() as u32));
        }
        let request = SendRequest::with_payload(id, operation, payload).with_flags(flags);
        mesh.hosts[self.from.host].endpoint.post_send(mesh.now, self.from.qpn, request).unwrap();
    }

    /// A SEND or WRITE of any kind.
    fn outbound(&mut self, mesh: &Mesh, random: &mut Random, kind: usize, length: usize) -> (Operation, Payload) {
        let (near, far) = (&mesh.hosts[self.from.host], &mesh.hosts[self.to.host]);
        let length = if kind == 7 { length.min(HOT) } else { length };
        let source = self.from.place(length);
        let bytes = self.from.fill(near, source, length, random);
        let payload = if length <= 512 && random.below(3) == 0 {
            Payload::Inline(bytes.as_slice().into())
        } else {
            Payload::Memory(self.from.list(near, source, length, random))
        };
        let target = if kind == 7 { CELLS } else { self.to.place(length) };
        self.to.expect(target, &bytes);
        let remote = far.remote(self.to.base + target);
        let immediate = random.next() as u32;
        let (operation, tag) = match kind {
            0 => (Operation::Send, Tag::None),
            1 => (Operation::SendImmediate(immediate), Tag::Immediate(immediate)),
            3 => (Operation::WriteImmediate(remote, immediate), Tag::Immediate(immediate)),
            _ => (Operation::Write(remote), Tag::None),
        };
        let id = 1_000_000 + self.expected_receives.len() as u64;
        let received = match kind {
            0 | 1 => {
                let spare = random.below(9);
                let sges = self.to.list(far, target, length + spare, random);
                Some((ReceiveRequest { id, sges }, CompletionKind::Receive))
            }
            3 => Some((ReceiveRequest::new(id, &[]), CompletionKind::ReceiveWriteImmediate)),
            _ => None,
        };
        if let Some((request, kind)) = received {
            self.receives.push_back(request);
            self.expected_receives.push((id, kind, length as u32, tag));
        }
        (operation, payload)
    }

    fn read(&mut self, mesh: &Mesh, random: &mut Random, length: usize) -> (Operation, Payload) {
        let (near, far) = (&mesh.hosts[self.from.host], &mesh.hosts[self.to.host]);
        let source = self.to.place(length);
        let bytes = self.to.fill(far, source, length, random);
        let target = self.from.place(length);
        self.from.expect(target, &bytes);
        let list = self.from.list(near, target, length, random);
        (Operation::Read(far.remote(self.to.base + source)), Payload::Memory(list))
    }

    /// What was in the cell tells whether every atomic before was executed, once.
    fn atomic(&mut self, mesh: &Mesh, random: &mut Random, adds: bool) -> (Operation, Payload) {
        let (near, far) = (&mesh.hosts[self.from.host], &mesh.hosts[self.to.host]);
        let cell = 8 * random.below(CELLS / 8);
        let before = self.to.word(cell);
        let target = self.from.place(8);
        self.from.expect(target, &before.to_ne_bytes());
        let remote = far.remote(self.to.base + cell);
        let (operation, after) = if adds {
            let add = random.next();
            (Operation::FetchAndAdd { remote, add }, before.wrapping_add(add))
        } else {
            let compare = if random.below(2) == 0 { before } else { random.next() };
            let swap = random.next();
            (Operation::CompareAndSwap { remote, compare, swap }, if compare == before { swap } else { before })
        };
        self.to.expect(cell, &after.to_ne_bytes());
        let list = self.from.list(near, target, 8, random);
        (operation, Payload::Memory(list))
    }

    /// Posts up to `count` of the receive requests that the messages need.
    pub fn receive(&mut self, mesh: &mut Mesh, count: usize) {
        for _ in 0..count.min(self.receives.len()) {
            let request = self.receives.pop_front().unwrap();
            mesh.hosts[self.to.host].endpoint.post_receive(mesh.now, self.to.qpn, request).unwrap();
        }
    }

    /// Asserts that memory and completions are what they must be.
    pub fn check(&self, mesh: &Mesh) {
        assert!(self.receives.is_empty(), "the test posts every receive");
        for end in [&self.from, &self.to] {
            let side = &mesh.hosts[end.host];
            assert_eq!(side.endpoint.query_qp(end.qpn).unwrap().state, State::ReadyToSend);
            let found = side.bytes(end.base, AREA);
            if let Some(at) = found.iter().zip(&end.model).position(|(a, b)| a != b) {
                panic!("host {} has {:#x} at {at:#x}, not {:#x}", end.host, found[at], end.model[at]);
            }
        }
        let of = |end: &End, receives: bool| -> Vec<Completion> {
            let all = mesh.hosts[end.host].completions.iter();
            all.filter(|c| c.qpn == end.qpn && (c.kind as u32 >= 128) == receives).copied().collect()
        };
        let (sends, receives) = (of(&self.from, false), of(&self.to, true));
        assert!(sends.iter().chain(&receives).all(|c| c.status == Status::Success));
        let sends: Vec<_> = sends.iter().map(|c| (c.id, c.kind, c.byte_length)).collect();
        assert_eq!(sends, self.expected_sends);
        let receives: Vec<_> = receives.iter().map(|c| (c.id, c.kind, c.byte_length, c.tag)).collect();
        assert_eq!(receives, self.expected_receives);
    }
}
