//! The table of keys: who holds one may reach the region behind it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::Rng;

use super::{Access, PdNumber, Region, Span};
use crate::error::{Error, Result};

/// Every region of an endpoint, by key. Local and remote key of a region are the same number, as in the kernel's rxe.
#[derive(Debug)]
pub struct Table {
    regions: HashMap<u32, Region, BuildHasherDefault<KeyHasher>>,
    random: ChaCha12Rng,
    next_pd: u32,
}

/// Why a key does not open the memory it was shown for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No region has this key.
    #[error("no region has this key")]
    UnknownKey,
    /// The key belongs to another protection domain.
    #[error("the key belongs to another protection domain")]
    WrongDomain,
    /// The region does not allow this.
    #[error("the region does not allow this access")]
    Denied,
    /// The bytes are not wholly inside the region.
    #[error("outside the region")]
    OutOfRange,
}

impl Table {
    /// Regions that one endpoint can hold, as the kernel's rxe reports.
    pub const MAX_REGIONS: usize = 512 * 1024;

    /// An empty table. Keys come from `random`: seed it from the system, or keys can be guessed.
    #[must_use]
    pub fn new(random: ChaCha12Rng) -> Self {
        Self { regions: HashMap::default(), random, next_pd: 1 }
    }

    /// A protection domain that no other region or queue pair belongs to yet.
    pub fn allocate_pd(&mut self) -> PdNumber {
        let number = PdNumber(self.next_pd);
        self.next_pd = self.next_pd.wrapping_add(1).max(1);
        number
    }

    /// Whether a region belongs to `pd`.
    #[must_use]
    pub fn uses_pd(&self, pd: PdNumber) -> bool {
        self.regions.values().any(|region| region.pd() == pd)
    }

    /// Adds a region; returns its key.
    ///
    /// # Errors
    /// [`Error::Invalid`] for access flags that contradict each other, [`Error::Full`] above [`MAX_REGIONS`](Self::MAX_REGIONS).
    pub fn register(&mut self, region: Region) -> Result<u32> {
        if !region.access().is_consistent() {
            return Err(Error::invalid("access", "remote write and remote atomic need local write too"));
        }
        if self.regions.len() >= Self::MAX_REGIONS {
            return Err(Error::Full { what: "the table of memory regions", limit: Self::MAX_REGIONS });
        }
        loop {
            let key = self.random.next_u32();
            // Zero is what an unset field holds, so it is never a key.
            if key != 0 && !self.regions.contains_key(&key) {
                self.regions.insert(key, region);
                return Ok(key);
            }
        }
    }

    /// Removes the region of `key`: nothing reaches its memory from now on.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is none.
    pub fn deregister(&mut self, key: u32) -> Result<Region> {
        self.regions.remove(&key).ok_or_else(|| Error::Missing { what: "memory region", name: format!("{key:#x}") })
    }

    /// Removes the region of `key` because a peer asked for it, when `pd` and the region let it.
    ///
    /// # Errors
    /// Why not.
    pub fn invalidate(&mut self, key: u32, pd: PdNumber) -> std::result::Result<(), AccessError> {
        let region = self.regions.get(&key).ok_or(AccessError::UnknownKey)?;
        if region.pd() != pd {
            return Err(AccessError::WrongDomain);
        }
        if !region.peer_may_invalidate() {
            return Err(AccessError::Denied);
        }
        self.regions.remove(&key);
        Ok(())
    }

    /// The bytes `address .. address + length` of the region of `key`, when `pd` may do all of `access` there.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn resolve(
        &self,
        key: u32,
        pd: PdNumber,
        address: u64,
        length: u64,
        access: Access,
    ) -> std::result::Result<Span<'_>, AccessError> {
        let region = self.regions.get(&key).ok_or(AccessError::UnknownKey)?;
        if region.pd() != pd {
            return Err(AccessError::WrongDomain);
        }
        if !region.access().contains(access) {
            return Err(AccessError::Denied);
        }
        region.part(address, length).ok_or(AccessError::OutOfRange)
    }

    /// How many regions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there is no region.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }
}

/// Keys are random already, so spreading their bits over the word is all a hash has to do.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte) ^ (self.0 as u32).rotate_left(8));
        }
    }

    fn write_u32(&mut self, key: u32) {
        self.0 = u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::memory::Buffer;

    fn table() -> Table {
        Table::new(ChaCha12Rng::seed_from_u64(1))
    }

    fn region(access: Access, pd: PdNumber) -> Region {
        Region::owned(Arc::new(Buffer::zeroed(64)), 0x4000, access, pd)
    }

    #[test]
    fn a_key_opens_what_it_was_made_for_and_nothing_else() {
        let mut table = table();
        let (pd, other) = (table.allocate_pd(), table.allocate_pd());
        let key = table.register(region(Access::LOCAL_WRITE | Access::REMOTE_WRITE, pd)).unwrap();
        let error = |key, pd, address, length, access| table.resolve(key, pd, address, length, access).err();
        assert_eq!(error(key, pd, 0x4000, 64, Access::REMOTE_WRITE), None);
        assert_eq!(error(key ^ 1, pd, 0x4000, 64, Access::REMOTE_WRITE), Some(AccessError::UnknownKey));
        assert_eq!(error(key, other, 0x4000, 64, Access::REMOTE_WRITE), Some(AccessError::WrongDomain));
        assert_eq!(error(key, pd, 0x4000, 64, Access::REMOTE_READ), Some(AccessError::Denied));
        assert_eq!(error(key, pd, 0x4001, 64, Access::REMOTE_WRITE), Some(AccessError::OutOfRange));
    }

    #[test]
    fn a_deregistered_key_is_dead() {
        let mut table = table();
        let pd = table.allocate_pd();
        let key = table.register(region(Access::LOCAL_WRITE, pd)).unwrap();
        assert!(table.uses_pd(pd));
        assert_eq!(table.deregister(key).unwrap().length(), 64);
        assert_eq!(table.resolve(key, pd, 0x4000, 1, Access::empty()).err(), Some(AccessError::UnknownKey));
        assert_eq!(table.deregister(key).unwrap_err().errno(), 2);
        assert!(!table.uses_pd(pd));
    }

    #[test]
    fn a_peer_may_not_change_what_we_may_not() {
        let mut table = table();
        let pd = table.allocate_pd();
        let error = table.register(region(Access::REMOTE_WRITE, pd)).unwrap_err();
        assert_eq!(error.errno(), 22);
    }
}
