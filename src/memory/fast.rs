//! Fast regions: keys that are registered and invalidated by work requests (IBTA 10.6.4).
//!
//! The kernel's verb of this name takes pages of physical memory. A program in user space names them through a region
//! that it registered before, once; the work request gives a part of that an address, rights and a fresh key.

use super::table::{Kind, Table};
use super::window::Unfit;
use super::{Access, Holder, PdNumber};
use crate::error::{Error, Result};

/// What a fast registration asks for (the kernel's `ib_reg_wr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastRegister {
    /// The fast region's key from then on: its own but for the low byte.
    pub key: u32,
    /// The region whose memory it is.
    pub lkey: u32,
    /// Where it starts, in the address space of that region.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The address by which its first byte is known from then on.
    pub iova: u64,
    /// What it allows.
    pub access: Access,
}

impl Table {
    /// Bytes of a page of a fast region.
    pub const PAGE: u64 = 4096;
    /// Pages that a fast region can have (rxe's `RXE_MAX_FMR_PAGE_LIST_LEN`).
    pub const MAX_FAST_PAGES: u32 = 512;

    /// A region for up to `max_pages` pages, which is registered by work requests; returns its key (`ib_alloc_mr` of the
    /// kernel, with `IB_MR_TYPE_MEM_REG`).
    ///
    /// # Errors
    /// [`Error::Invalid`] for 0 pages or more than [`MAX_FAST_PAGES`](Self::MAX_FAST_PAGES), [`Error::Full`] above
    /// [`MAX_REGIONS`](Self::MAX_REGIONS).
    pub fn allocate_fast(&mut self, pd: PdNumber, max_pages: u32) -> Result<u32> {
        if !(1..=Self::MAX_FAST_PAGES).contains(&max_pages) {
            let reason = format!("{max_pages}; 1 to {} are possible", Self::MAX_FAST_PAGES);
            return Err(Error::invalid("max_pages", reason));
        }
        self.add(Kind::Fast { max_length: u64::from(max_pages) * Self::PAGE }, pd, None)
    }

    /// Removes a fast region, registered or not; any of the keys that it ever had names it.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn deallocate_fast(&mut self, key: u32) -> Result<()> {
        self.remove(key, "fast region", |kind| matches!(kind, Kind::Fast { .. }))
    }

    /// Registers a fast region at the request of the queue pair `holder`. Nothing changes on an error.
    ///
    /// # Errors
    /// Which rule it breaks.
    pub fn register_fast(&mut self, holder: Holder, register: &FastRegister) -> std::result::Result<(), Unfit> {
        let fast = self.entry_at(register.key).ok_or(Unfit("no fast region has this key"))?;
        let Kind::Fast { max_length } = fast.kind else { return Err(Unfit("not the key of a fast region")) };
        if fast.pd != holder.pd {
            return Err(Unfit("fast region and queue pair are of different protection domains"));
        }
        if fast.memory.is_some() {
            return Err(Unfit("the fast region is registered already: invalidate it first"));
        }
        if register.length > max_length {
            return Err(Unfit("more pages than the fast region was allocated for"));
        }
        let lender = self.entry(register.lkey).filter(|entry| entry.kind == Kind::Region);
        let lender = lender.ok_or(Unfit("no region has this key"))?;
        let memory = lender.memory.as_ref().filter(|_| lender.pd == holder.pd);
        let memory = memory.ok_or(Unfit("fast region and region are of different protection domains"))?;
        let access = register.access;
        if !access.is_consistent() {
            return Err(Unfit("remote write and remote atomic need local write too"));
        }
        if access.contains(Access::MW_BIND) {
            return Err(Unfit("windows are bound to ordinary regions"));
        }
        if access.contains(Access::LOCAL_WRITE) && !memory.access().contains(Access::LOCAL_WRITE) {
            return Err(Unfit("the region does not allow writing"));
        }
        if access.contains(Access::FLUSH_PERSISTENT) && !memory.is_file() {
            return Err(Unfit("the region's memory cannot be made persistent"));
        }
        let part = memory.view(register.address, register.length, register.iova, access);
        let part = part.ok_or(Unfit("outside the region"))?;
        self.lend(register.lkey, register.key, part, None);
        Ok(())
    }
}
