//! The keys of a program: regions, and the windows and fast regions to which parts of them are lent.

use std::sync::Arc;

use uroce::endpoint::Endpoint;
use uroce::error::Error;
use uroce::memory::{Access, Buffer, FastRegister, PdNumber, Region, WindowBind, WindowType, next_key};
use uroce::work::Operation;

use super::calls::{Lent, Place};

/// Bytes of the one region that there is at the beginning.
const REGION: usize = 64 * 1024;
/// More make runs slower, not better.
const MOST: usize = 8;

pub struct Keys {
    pds: [PdNumber; 2],
    buffer: Arc<Buffer>,
    regions: Vec<u32>,
    lent: Vec<(Lent, u32)>,
}

impl Keys {
    pub fn new(endpoint: &mut Endpoint, pds: [PdNumber; 2]) -> Self {
        let buffer = Arc::new(Buffer::zeroed(REGION));
        let mut keys = Self { pds, buffer, regions: Vec::new(), lent: Vec::new() };
        let access = Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND | Access::FLUSH_GLOBAL;
        keys.register(endpoint, REGION, access, 0);
        keys
    }

    /// A key of any kind, or one that is none any more, or never was.
    pub fn pick(&self, index: u8) -> u32 {
        let all = self.regions.iter().chain(self.lent.iter().map(|(_, key)| key));
        let count = self.regions.len() + self.lent.len() + 1;
        all.copied().nth(usize::from(index) % count).unwrap_or(u32::from(index))
    }

    fn region(&self, length: usize, access: Access, pd: usize) -> Region {
        let buffer = if length == REGION { Arc::clone(&self.buffer) } else { Arc::new(Buffer::zeroed(length)) };
        Region::owned(buffer, 0, access, self.pds[pd])
    }

    pub fn register(&mut self, endpoint: &mut Endpoint, length: usize, access: Access, pd: usize) {
        if self.regions.len() < MOST {
            let region = self.region(length, access, pd);
            self.regions.extend(endpoint.memory_mut().register(region));
        }
    }

    /// Other memory, or only other rights, behind the same key.
    pub fn reregister(&mut self, endpoint: &mut Endpoint, key: u32, length: Option<usize>, access: Access, pd: usize) {
        let result = match length {
            Some(length) => endpoint.memory_mut().reregister(key, self.region(length, access, pd)).map(drop),
            None => endpoint.memory_mut().change(key, access, self.pds[pd]),
        };
        assert!(result.is_err() || self.regions.contains(&key), "what is no region was registered anew");
    }

    /// A region is there until it is deregistered, and cannot be while parts of it are lent, unless it is evicted.
    pub fn deregister(&mut self, endpoint: &mut Endpoint, key: u32, evict: bool) {
        let memory = endpoint.memory_mut();
        let result = if evict { memory.evict(key) } else { memory.deregister(key) };
        let is_there = self.regions.contains(&key);
        match result {
            Ok(_) => assert!(is_there),
            Err(Error::Busy { .. }) => {
                assert!(is_there && !evict);
                return;
            }
            Err(_) => assert!(!is_there),
        }
        self.regions.retain(|&other| other != key);
    }

    pub fn allocate(&mut self, endpoint: &mut Endpoint, lent: Lent, pages: u8, pd: usize) {
        if self.lent.len() < MOST {
            let (memory, pd) = (endpoint.memory_mut(), self.pds[pd]);
            let key = match lent {
                Lent::WindowOne => memory.allocate_window(pd, WindowType::One),
                Lent::WindowTwo => memory.allocate_window(pd, WindowType::Two),
                Lent::Fast => memory.allocate_fast(pd, pages.into()),
            };
            self.lent.extend(key.ok().map(|key| (lent, key)));
        }
    }

    pub fn deallocate(&mut self, endpoint: &mut Endpoint, index: u8) {
        if !self.lent.is_empty() {
            let lent = self.lent.swap_remove(usize::from(index) % self.lent.len());
            deallocate(endpoint, lent);
        }
    }

    /// A request that binds a window or registers a fast region, and gives it the next key; whether it fits or not.
    pub fn lend(&mut self, index: u8, part: Place, access: Access, iova: u16) -> Option<Operation> {
        let lkey = self.pick(part.key);
        let count = self.lent.len().max(1);
        let (lent, key) = self.lent.get_mut(usize::from(index) % count)?;
        let window = std::mem::replace(key, next_key(*key));
        let (address, length) = (part.offset.into(), part.length.into());
        Some(match lent {
            Lent::Fast => {
                Operation::FastRegister(FastRegister { key: *key, lkey, address, length, iova: iova.into(), access })
            }
            _ => Operation::BindWindow(WindowBind { window, rkey: *key, lkey, address, length, access }),
        })
    }

    /// All of them go, in the order in which they can.
    pub fn finish(self, endpoint: &mut Endpoint) {
        self.lent.into_iter().for_each(|lent| deallocate(endpoint, lent));
        for key in self.regions {
            endpoint.memory_mut().deregister(key).expect("nothing is lent any more");
        }
        assert!(endpoint.memory().is_empty());
    }
}

fn deallocate(endpoint: &mut Endpoint, (lent, key): (Lent, u32)) {
    let memory = endpoint.memory_mut();
    match lent {
        Lent::Fast => memory.deallocate_fast(key).unwrap(),
        _ => memory.deallocate_window(key).unwrap(),
    }
}
