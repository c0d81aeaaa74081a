//! Memory in areas with guards around them, and a second copy of it: what may change is said before, and all else stays.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use uroce::endpoint::Endpoint;
use uroce::memory::{Access, Buffer, PdNumber, Region};
use uroce::work::Sge;

/// What the program keeps to itself: guards, and what no message filled yet. Eight such bytes are never sent.
pub const SECRET: u8 = 0xee;
/// Bytes of an area.
pub const AREA: usize = 2048;
const GUARD: usize = 256;

/// A region, by what it is for.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Peers may do anything to it.
    Open,
    /// The same, in the protection domain that peers on XRC reach.
    OpenExtended,
    /// Receives are posted here.
    Private,
    /// The same, for the shared receive queues of XRC.
    PrivateExtended,
    /// Peers may read it, and nobody may write.
    Source,
}

impl Area {
    const ALL: [Self; 5] = [Self::Open, Self::OpenExtended, Self::Private, Self::PrivateExtended, Self::Source];

    /// Which of the two protection domains it belongs to.
    pub fn domain(self) -> usize {
        usize::from(matches!(self, Self::OpenExtended | Self::PrivateExtended))
    }

    fn access(self) -> Access {
        match self {
            Self::Open | Self::OpenExtended => Access::LOCAL_WRITE | Access::REMOTE,
            Self::Private | Self::PrivateExtended => Access::LOCAL_WRITE,
            Self::Source => Access::REMOTE_READ,
        }
    }

    fn content(self) -> u8 {
        if matches!(self, Self::Private | Self::PrivateExtended) { SECRET } else { 0x11 }
    }

    /// The address of its first byte, for the program and for peers.
    pub fn start(self) -> u64 {
        0x10_0000 * (1 + self as u64)
    }

    fn offset(self) -> usize {
        GUARD + self as usize * (AREA + GUARD)
    }
}

/// Bytes of an area.
#[derive(Clone, Debug)]
pub struct Span {
    pub area: Area,
    pub bytes: Range<usize>,
}

/// The areas, and what is known of their content.
pub struct Memory {
    buffer: Arc<Buffer>,
    known: Vec<u8>,
    now: Vec<u8>,
    keys: [Option<u32>; Area::ALL.len()],
}

impl Memory {
    /// Registers the areas.
    pub fn new(endpoint: &mut Endpoint, pds: [PdNumber; 2]) -> Self {
        let mut known = vec![SECRET; GUARD + Area::ALL.len() * (AREA + GUARD)];
        for area in Area::ALL {
            known[area.offset()..][..AREA].fill(area.content());
        }
        let buffer = Arc::new(Buffer::zeroed(known.len()));
        buffer.span(0, known.len()).unwrap().copy_in(&known).unwrap();
        let keys = Area::ALL.map(|area| {
            let start = NonNull::new((buffer.address() as usize + area.offset()) as *mut u8).unwrap();
            // SAFETY: inside the buffer, which lives as long as the endpoint and is reached through copies only.
            let region = unsafe { Region::raw(start, AREA, area.start(), area.access(), pds[area.domain()]) };
            Some(endpoint.memory_mut().register(region).unwrap())
        });
        Self { buffer, now: known.clone(), known, keys }
    }

    /// The area's key; zero, which is none, when it is deregistered.
    pub fn key(&self, area: Area) -> u32 {
        self.keys[area as usize].unwrap_or(0)
    }

    pub fn deregister(&mut self, endpoint: &mut Endpoint, area: Area) {
        if let Some(key) = self.keys[area as usize].take() {
            endpoint.memory_mut().deregister(key).unwrap();
        }
    }

    pub fn deregister_all(&mut self, endpoint: &mut Endpoint) {
        Area::ALL.iter().for_each(|&area| self.deregister(endpoint, area));
    }

    /// An element of a work request, and those of its bytes that exist.
    pub fn element(&self, area: Area, offset: u16, length: u32) -> (Sge, Span) {
        // Some end after the area, and some begin there.
        let start = usize::from(offset) % (AREA + 16);
        let end = start.saturating_add(length as usize).min(AREA);
        let sge = Sge { address: area.start() + start as u64, length, lkey: self.key(area) };
        (sge, Span { area, bytes: start.min(end)..end })
    }

    /// All of an area that a peer may write to.
    pub fn whole(area: Area) -> Span {
        Span { area, bytes: 0..AREA }
    }

    /// Only `allowed` has changed since the last call; of areas that are registered and writable, that is.
    pub fn check(&mut self, allowed: &[Span]) {
        self.buffer.span(0, self.now.len()).unwrap().copy_out(&mut self.now).unwrap();
        for Span { area, bytes } in allowed {
            if self.keys[*area as usize].is_some() && *area != Area::Source {
                let bytes = area.offset() + bytes.start..area.offset() + bytes.end;
                self.known[bytes.clone()].copy_from_slice(&self.now[bytes]);
            }
        }
        if self.known != self.now {
            let at = self.known.iter().zip(&self.now).position(|(known, now)| known != now);
            panic!("byte {at:?} changed, which is in none of {allowed:?}");
        }
    }
}
