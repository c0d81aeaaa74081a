//! The table of keys: who holds one may reach the memory behind it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::Rng;

use super::{Access, Holder, PdNumber, Region, Span, WindowType};
use crate::error::{Error, Result};
use crate::wire::Qpn;

/// Everything of an endpoint that has a key: regions, fast regions and windows. Local and remote key of a region are the
/// same number, as in the kernel's rxe.
///
/// The upper 24 bits of a key pick an entry, the low 8 must match: of windows and fast regions their owner chooses them.
#[derive(Debug)]
pub struct Table {
    entries: HashMap<u32, Entry, BuildHasherDefault<KeyHasher>>,
    random: ChaCha12Rng,
    next_pd: u32,
    /// Windows that are bound to a queue pair, of all.
    pub(super) exclusive: usize,
}

/// What is behind a key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: u32,
    pub(super) kind: Kind,
    pub(super) pd: PdNumber,
    /// The memory; `None` while a window is not bound, or a fast region not registered.
    pub(super) memory: Option<Region>,
    /// The only queue pair that it opens for.
    pub(super) only: Option<Qpn>,
    /// The index of the region whose memory it is.
    pub(super) lender: Option<u32>,
    /// How many windows and fast regions have memory of this one.
    pub(super) borrowers: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An ordinary region, registered by a verb.
    Region,
    /// A region that is registered by work requests; so many bytes at most.
    Fast { max_length: u64 },
    /// A memory window.
    Window(WindowType),
}

/// Why a key does not open the memory it was shown for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Nothing has this key, or what has it is not bound.
    #[error("nothing has this key")]
    UnknownKey,
    /// The key belongs to another protection domain, or to a window of another queue pair.
    #[error("the key belongs to another protection domain or queue pair")]
    WrongDomain,
    /// The region or window does not allow this.
    #[error("the region does not allow this access")]
    Denied,
    /// The bytes are not wholly inside.
    #[error("outside the region")]
    OutOfRange,
    /// The program unmapped the memory after it registered it, or made the file shorter.
    #[error("the memory is not mapped any more")]
    Unmapped,
    /// An atomic access to other than eight aligned bytes.
    #[error("not eight aligned bytes")]
    Misaligned,
}

impl Table {
    /// Regions and windows that one endpoint can hold, as the kernel's rxe reports for each.
    pub const MAX_REGIONS: usize = 512 * 1024;

    /// An empty table. Keys come from `random`: seed it from the system, or keys can be guessed.
    #[must_use]
    pub fn new(random: ChaCha12Rng) -> Self {
        Self { entries: HashMap::default(), random, next_pd: 1, exclusive: 0 }
    }

    /// A protection domain that no other region or queue pair belongs to yet.
    pub fn allocate_pd(&mut self) -> PdNumber {
        let number = PdNumber(self.next_pd);
        self.next_pd = self.next_pd.wrapping_add(1).max(1);
        number
    }

    /// Whether a region or window belongs to `pd`.
    #[must_use]
    pub fn uses_pd(&self, pd: PdNumber) -> bool {
        self.entries.values().any(|entry| entry.pd == pd)
    }

    /// Adds a region; returns its key.
    ///
    /// # Errors
    /// [`Error::Invalid`] for access flags that contradict each other or the memory, [`Error::Full`] above
    /// [`MAX_REGIONS`](Self::MAX_REGIONS).
    pub fn register(&mut self, region: Region) -> Result<u32> {
        check_region(&region)?;
        self.add(Kind::Region, region.pd(), Some(region))
    }

    /// Puts another region in the place of the one of `key`, which stays its key (`ibv_rereg_mr(3)`). All or nothing:
    /// after an error the old one is as it was.
    ///
    /// # Errors
    /// As for [`register`](Self::register); [`Error::Missing`] when `key` is no ordinary region's, [`Error::Busy`] while
    /// windows are bound to it, [`Error::Unsupported`] for a null region.
    pub fn reregister(&mut self, key: u32, region: Region) -> Result<Region> {
        check_region(&region)?;
        let entry = self.region_mut(key)?;
        check_changeable(entry)?;
        entry.pd = region.pd();
        entry.memory.replace(region).ok_or_else(|| missing(key))
    }

    /// Changes what the region of `key` allows and to whom, all or nothing (`ibv_rereg_mr(3)`).
    ///
    /// # Errors
    /// As for [`reregister`](Self::reregister).
    pub fn change(&mut self, key: u32, access: Access, pd: PdNumber) -> Result<()> {
        let entry = self.region_mut(key)?;
        check_changeable(entry)?;
        let memory = entry.memory.as_ref().ok_or_else(|| missing(key))?;
        check_access(access, memory.is_file())?;
        entry.memory = entry.memory.take().map(|memory| memory.with(access, pd));
        entry.pd = pd;
        Ok(())
    }

    /// Removes the region of `key`: nothing reaches its memory from now on.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is none, [`Error::Busy`] while windows are bound to it (IBTA 10.6.7.2.6).
    pub fn deregister(&mut self, key: u32) -> Result<Region> {
        check_idle(self.region_mut(key)?)?;
        let entry = self.entries.remove(&index(key));
        entry.and_then(|entry| entry.memory).ok_or_else(|| missing(key))
    }

    /// Removes the region of `key` in any case; windows that are bound to it lose their memory first.
    ///
    /// # Errors
    /// [`Error::Missing`] when there is none.
    pub fn evict(&mut self, key: u32) -> Result<Region> {
        if self.region_mut(key)?.borrowers > 0 {
            let borrows = |entry: &Entry| entry.lender == Some(index(key));
            let borrowers: Vec<u32> =
                self.entries.iter().filter(|(_, entry)| borrows(entry)).map(|(&index, _)| index).collect();
            for borrower in borrowers {
                self.give_back(borrower);
            }
        }
        self.deregister(key)
    }

    /// The ordinary region of `key`.
    fn region_mut(&mut self, key: u32) -> Result<&mut Entry> {
        let entry = self.entry_mut(key).filter(|entry| entry.kind == Kind::Region);
        entry.ok_or_else(|| missing(key))
    }

    /// Adds an entry; returns its key.
    pub(super) fn add(&mut self, kind: Kind, pd: PdNumber, memory: Option<Region>) -> Result<u32> {
        if self.entries.len() >= Self::MAX_REGIONS {
            return Err(Error::Full { what: "the table of memory regions and windows", limit: Self::MAX_REGIONS });
        }
        loop {
            let key = self.random.next_u32();
            // Zero is what an unset field holds, so it is never a key, whatever its low byte becomes.
            if index(key) != 0 && !self.entries.contains_key(&index(key)) {
                let entry = Entry { key, kind, pd, memory, only: None, lender: None, borrowers: 0 };
                self.entries.insert(index(key), entry);
                return Ok(key);
            }
        }
    }

    /// Removes the entry of `key`, whatever its low byte, when `is_kind` says that it is one of the kind.
    pub(super) fn remove(&mut self, key: u32, what: &'static str, is_kind: impl Fn(Kind) -> bool) -> Result<()> {
        let index = index(key);
        if !self.entries.get(&index).is_some_and(|entry| is_kind(entry.kind)) {
            return Err(Error::Missing { what, name: format!("{key:#x}") });
        }
        self.give_back(index);
        self.entries.remove(&index);
        Ok(())
    }

    pub(super) fn entry(&self, key: u32) -> Option<&Entry> {
        self.entries.get(&index(key)).filter(|entry| entry.key == key)
    }

    fn entry_mut(&mut self, key: u32) -> Option<&mut Entry> {
        self.entries.get_mut(&index(key)).filter(|entry| entry.key == key)
    }

    /// The entry of `key`, whatever its low byte.
    pub(super) fn entry_at(&self, key: u32) -> Option<&Entry> {
        self.entries.get(&index(key))
    }

    /// Gives the borrower of `key` memory of the region of `lender`, and `key` as its new key.
    pub(super) fn lend(&mut self, lender: u32, key: u32, memory: Region, only: Option<Qpn>) {
        self.give_back(index(key));
        if let Some(entry) = self.entries.get_mut(&index(lender)) {
            entry.borrowers += 1;
        }
        if let Some(entry) = self.entries.get_mut(&index(key)) {
            self.exclusive += usize::from(only.is_some());
            *entry = Entry { key, memory: Some(memory), only, lender: Some(index(lender)), ..*entry };
        }
    }

    /// Takes borrowed memory from the entry at `index`, if it has any.
    pub(super) fn give_back(&mut self, index: u32) {
        let Some(entry) = self.entries.get_mut(&index) else { return };
        let Some(lender) = entry.lender.take() else { return };
        entry.memory = None;
        self.exclusive -= usize::from(entry.only.take().is_some());
        if let Some(lender) = self.entries.get_mut(&lender) {
            lender.borrowers -= 1;
        }
    }

    /// Takes the memory from the window of `key`, whatever its low byte, and makes `key` its key.
    pub(super) fn unbind(&mut self, key: u32) {
        self.give_back(index(key));
        if let Some(entry) = self.entries.get_mut(&index(key)) {
            entry.key = key;
        }
    }

    /// The indices of what opens for the queue pair `qpn` only.
    pub(super) fn exclusive_to(&self, qpn: Qpn) -> Vec<u32> {
        self.entries.iter().filter(|(_, entry)| entry.only == Some(qpn)).map(|(&index, _)| index).collect()
    }

    /// The bytes `address .. address + length` of the region of the local key `lkey`, when `pd` may do all of `access`
    /// there. A window has no local key.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn resolve(
        &self,
        lkey: u32,
        pd: PdNumber,
        address: u64,
        length: u64,
        access: Access,
    ) -> std::result::Result<Span<'_>, AccessError> {
        let entry = self.entry(lkey).ok_or(AccessError::UnknownKey)?;
        if matches!(entry.kind, Kind::Window(_)) {
            return Err(AccessError::UnknownKey);
        }
        entry.open(pd, address, length, access)
    }

    /// The bytes `address .. address + length` of the region or window of the remote key `rkey`, when a peer of `holder`
    /// may do all of `access` there.
    ///
    /// # Errors
    /// Why not.
    #[inline]
    pub fn resolve_remote(
        &self,
        rkey: u32,
        holder: Holder,
        address: u64,
        length: u64,
        access: Access,
    ) -> std::result::Result<Span<'_>, AccessError> {
        let entry = self.entry(rkey).ok_or(AccessError::UnknownKey)?;
        if entry.only.is_some_and(|only| only != holder.qpn) {
            return Err(AccessError::WrongDomain);
        }
        entry.open(holder.pd, address, length, access)
    }

    /// Where the bytes that [`resolve`](Self::resolve) finds are in the address space of the program, and how many;
    /// `None` for those of a null region, which are nowhere. To be looked at only: nothing keeps them there.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub(crate) fn place(
        &self,
        lkey: u32,
        pd: PdNumber,
        address: u64,
        length: u64,
        access: Access,
    ) -> std::result::Result<Option<(usize, usize)>, AccessError> {
        let span = self.resolve(lkey, pd, address, length, access)?;
        Ok((!span.is_nowhere()).then(|| (span.address(), span.len())))
    }

    /// All the bytes of the region or window of `rkey`, when a peer of `holder` may do all of `access` there.
    ///
    /// # Errors
    /// Why not.
    pub fn resolve_whole(
        &self,
        rkey: u32,
        holder: Holder,
        access: Access,
    ) -> std::result::Result<Span<'_>, AccessError> {
        let entry = self.entry(rkey).ok_or(AccessError::UnknownKey)?;
        let memory = entry.memory.as_ref().ok_or(AccessError::UnknownKey)?;
        self.resolve_remote(rkey, holder, memory.iova(), memory.length(), access)
    }

    /// How many regions and windows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Entry {
    #[inline]
    fn open(
        &self,
        pd: PdNumber,
        address: u64,
        length: u64,
        access: Access,
    ) -> std::result::Result<Span<'_>, AccessError> {
        if self.pd != pd {
            return Err(AccessError::WrongDomain);
        }
        let memory = self.memory.as_ref().ok_or(AccessError::UnknownKey)?;
        if !memory.access().contains(access) {
            return Err(AccessError::Denied);
        }
        memory.part(address, length, access).ok_or(AccessError::OutOfRange)
    }
}

/// Which entry a key picks.
pub(super) const fn index(key: u32) -> u32 {
    key >> 8
}

/// Whether a region can be registered.
fn check_region(region: &Region) -> Result<()> {
    check_access(region.access(), region.is_file())
}

fn check_access(access: Access, is_file: bool) -> Result<()> {
    if !access.is_consistent() {
        return Err(Error::invalid("access", "remote write and remote atomic need local write too"));
    }
    if access.contains(Access::FLUSH_PERSISTENT) && !is_file {
        return Err(Error::invalid("access", "a FLUSH makes only memory that maps a file persistent: register a file"));
    }
    Ok(())
}

/// Whether nothing is bound to a region.
fn check_idle(entry: &Entry) -> Result<()> {
    if entry.borrowers > 0 {
        let by = format!("{} memory windows or fast regions that are bound to it", entry.borrowers);
        return Err(Error::Busy { what: "memory region", by });
    }
    Ok(())
}

/// Whether a region can be registered anew: a null region stays what it is (`ibv_alloc_null_mr(3)`).
fn check_changeable(entry: &Entry) -> Result<()> {
    if entry.memory.as_ref().is_some_and(Region::is_null) {
        return Err(Error::Unsupported("a null region cannot be registered anew".into()));
    }
    check_idle(entry)
}

fn missing(key: u32) -> Error {
    Error::Missing { what: "memory region", name: format!("{key:#x}") }
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
mod tests;
