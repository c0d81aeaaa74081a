//! One region of memory and the copies in and out of it.
//!
//! Registered memory is shared with the program, as a device's DMA shares it, so no reference to it is ever
//! made: bytes move through raw pointers, in ways that survive memory which is not there any more ([`guard`]).
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};

use super::guard::{self, Fault};
use super::{Access, AccessError, PdNumber};

/// Page-aligned memory that the library owns: zeroed, or a file's.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    length: usize,
    origin: Origin,
}

/// Where a buffer's memory came from, and so how it is given back.
#[derive(Debug)]
enum Origin {
    Allocated(Layout),
    File,
}

// SAFETY: the buffer is plain bytes; nothing about it belongs to a thread.
unsafe impl Send for Buffer {}
// SAFETY: bytes are reached through raw copies only, which promise no more than a device's DMA does.
unsafe impl Sync for Buffer {}

impl Buffer {
    const ALIGN: usize = 4096;

    /// `length` zero bytes; a length of zero is allowed.
    ///
    /// # Panics
    /// When the length exceeds the address space. Aborts when memory is short, as `Vec` does.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        let layout = Layout::from_size_align(length.max(1), Self::ALIGN).expect("a length within the address space");
        // SAFETY: the layout's size is at least one.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, length, origin: Origin::Allocated(layout) }
    }

    /// The `length` bytes of `file` from `offset` on, shared with everyone who maps them (`mmap(2)`). The bytes of a file that is
    /// shortened later are as memory that was unmapped.
    ///
    /// # Errors
    /// What `mmap(2)` says: the offset must be a multiple of the page size, the length not 0, the file opened for reading and
    /// writing.
    pub fn map_file(file: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system picks an address where nothing is; no existing memory is touched.
        let start = unsafe { mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, file, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length, origin: Origin::File })
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// The bytes from `offset`, as many as `length`, or `None` when the buffer does not have them.
    #[must_use]
    pub fn span(&self, offset: usize, length: usize) -> Option<Span<'_>> {
        let end = offset.checked_add(length)?;
        // SAFETY: `offset` is within the allocation, checked against its length.
        (end <= self.length).then(|| Span::new(unsafe { self.start.add(offset) }, length))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: allocated in `zeroed` with this very layout, and freed only here.
            Origin::Allocated(layout) => unsafe { dealloc(self.start.as_ptr(), layout) },
            Origin::File => {
                // SAFETY: mapped in `map_file` with this very length, and unmapped only here.
                let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
                debug_assert!(unmapped.is_ok(), "munmap(2): {unmapped:?}");
            }
        }
    }
}

/// What is behind the addresses of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Memory that is there, as whoever registered it promises.
    Memory,
    /// The whole address space, whose pages are looked for when they are touched.
    Implicit,
    /// Nothing: what is written is lost, what is read is zero.
    Null,
}

/// Registered memory: where it is, under which addresses it is known, and who may do what.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    length: u64,
    iova: u64,
    access: Access,
    pd: PdNumber,
    kind: Kind,
    /// Keeps memory that the library owns alive.
    owner: Option<Arc<Buffer>>,
}

// SAFETY: see `Buffer`; for raw memory the promise of `Region::raw` stands in for ownership.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// A region over memory that the library owns; its first byte has the address `iova`.
    #[must_use]
    pub fn owned(buffer: Arc<Buffer>, iova: u64, access: Access, pd: PdNumber) -> Self {
        Self {
            start: buffer.start,
            length: buffer.len() as u64,
            iova,
            access,
            pd,
            kind: Kind::Memory,
            owner: Some(buffer),
        }
    }

    /// A region over the caller's memory; its first byte has the address `iova`.
    ///
    /// # Safety
    /// From now until the region is dropped (deregistered), `start .. start + length` must stay allocated, readable,
    /// and, when `access` has [`Access::LOCAL_WRITE`], writable; and the program must expect the bytes to change, or
    /// to be read, at any time: it must not hold a reference to bytes that change.
    #[must_use]
    pub unsafe fn raw(start: NonNull<u8>, length: usize, iova: u64, access: Access, pd: PdNumber) -> Self {
        Self { start, length: length as u64, iova, access, pd, kind: Kind::Memory, owner: None }
    }

    /// A region over the whole address space (`ibv_reg_mr(3)` with on-demand paging, address 0 and all the length). Pages
    /// that are not mapped, or not writable, are refused when they are touched.
    ///
    /// # Safety
    /// Every byte of the program is open to whoever holds the key, as far as `access` goes: holders must name only memory
    /// for which the promise of [`raw`](Self::raw) holds.
    #[must_use]
    pub unsafe fn implicit(access: Access, pd: PdNumber) -> Self {
        // Address 0 is never a page; so the first byte is one that can be pointed at.
        let (start, iova) = (NonNull::<u8>::dangling(), 1);
        Self { start, length: u64::MAX - 1, iova, access, pd, kind: Kind::Implicit, owner: None }
    }

    /// A region of all addresses and no memory (`ibv_alloc_null_mr(3)`): what is written to it is lost, what is read of it is
    /// zero. For local use only.
    #[must_use]
    pub fn null(pd: PdNumber) -> Self {
        let (start, length) = (Span::NOWHERE, u64::MAX);
        Self { start, length, iova: 0, access: Access::LOCAL_WRITE, pd, kind: Kind::Null, owner: None }
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What it allows.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The address of its first byte.
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Whether its memory is a file's, and so can be made persistent.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.owner.as_ref().is_some_and(|buffer| matches!(buffer.origin, Origin::File))
    }

    /// Whether there is no memory behind it.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.kind == Kind::Null
    }

    /// The same memory with other rights and in another protection domain.
    #[must_use]
    pub fn with(self, access: Access, pd: PdNumber) -> Self {
        Self { access, pd, ..self }
    }

    /// The part `address .. address + length` as a region whose first byte has the address `iova`; `None` when it is not
    /// wholly inside. Of raw memory the part must not outlive the whole, whose promise it rests on.
    pub(super) fn view(&self, address: u64, length: u64, iova: u64, access: Access) -> Option<Self> {
        let start = self.place(address, length)?.start;
        Some(Self { start, length, iova, access, pd: self.pd, kind: self.kind, owner: self.owner.clone() })
    }

    /// The protection domain it belongs to.
    #[must_use]
    pub fn pd(&self) -> PdNumber {
        self.pd
    }

    /// The part `address .. address + length`, to be used with `access`; `None` when it is not wholly inside.
    #[must_use]
    #[inline]
    pub(super) fn part(&self, address: u64, length: u64, access: Access) -> Option<Span<'_>> {
        let span = self.place(address, length)?;
        let changes = access.intersects(Access::CHANGES);
        if self.kind == Kind::Implicit && populate(span.address(), span.length, changes).is_err() {
            return None;
        }
        Some(span)
    }

    /// Where `address .. address + length` lies; `None` when it is not wholly inside.
    #[inline]
    fn place(&self, address: u64, length: u64) -> Option<Span<'_>> {
        let offset = address.checked_sub(self.iova)?;
        let end = offset.checked_add(length)?;
        if end > self.length {
            return None;
        }
        // `length` fits usize: the region itself does.
        let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        let start = match self.kind {
            Kind::Memory => self.start.as_ptr().wrapping_add(offset),
            // `part` looks what is there before it hands it out.
            Kind::Implicit => ptr::with_exposed_provenance_mut(self.start.addr().get().wrapping_add(offset)),
            Kind::Null => self.start.as_ptr(),
        };
        Some(Span::new(NonNull::new(start)?, length))
    }
}

/// Bytes that were checked to be inside a region; reached only by copying.
#[derive(Debug)]
pub struct Span<'region> {
    start: NonNull<u8>,
    length: usize,
    region: PhantomData<&'region Region>,
}

impl<'region> Span<'region> {
    /// Where a span of no memory starts: at an address that is never mapped.
    const NOWHERE: NonNull<u8> = NonNull::dangling();

    fn new(start: NonNull<u8>, length: usize) -> Self {
        Self { start, length, region: PhantomData }
    }

    /// A span of no bytes, which needs no region.
    #[must_use]
    pub fn empty() -> Span<'region> {
        Self::new(Self::NOWHERE, 0)
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where it starts in the address space of the program.
    pub(super) fn address(&self) -> usize {
        self.start.addr().get()
    }

    /// Whether there is no memory behind it.
    #[inline]
    pub(super) fn is_nowhere(&self) -> bool {
        self.start == Self::NOWHERE
    }

    /// Writes `bytes` to the start of the span.
    ///
    /// # Errors
    /// [`AccessError::Unmapped`]; bytes before the fault may be there.
    ///
    /// # Panics
    /// When the span is shorter: a bug of the caller, who asked for a span of this very length.
    #[inline]
    pub fn copy_in(&self, bytes: &[u8]) -> Result<(), AccessError> {
        assert!(bytes.len() <= self.length, "a copy longer than its span");
        if self.is_nowhere() {
            return Ok(());
        }
        // SAFETY: the span is valid for `length` bytes, or what the program unmapped of it ends as an error; and `bytes`, a
        // reference, cannot overlap memory to which no reference exists.
        unsafe { guard::copy(bytes.as_ptr(), self.start.as_ptr(), bytes.len()) }.map_err(unmapped)
    }

    /// Reads the start of the span into `bytes`.
    ///
    /// # Errors
    /// [`AccessError::Unmapped`]; `bytes` may have changed.
    ///
    /// # Panics
    /// When the span is shorter: a bug of the caller, who asked for a span of this very length.
    #[inline]
    pub fn copy_out(&self, bytes: &mut [u8]) -> Result<(), AccessError> {
        assert!(bytes.len() <= self.length, "a copy longer than its span");
        if self.is_nowhere() {
            bytes.fill(0);
            return Ok(());
        }
        // SAFETY: as in `copy_in`.
        unsafe { guard::copy(self.start.as_ptr(), bytes.as_mut_ptr(), bytes.len()) }.map_err(unmapped)
    }

    /// The eight bytes of the span as one cell.
    fn cell(&self) -> Result<*mut u64, AccessError> {
        let pointer = self.start.as_ptr().cast::<u64>();
        if self.length == 8 && pointer.is_aligned() { Ok(pointer) } else { Err(AccessError::Misaligned) }
    }

    /// Replaces the eight bytes by `swap` in one step when they equal `compare`; returns what was there.
    ///
    /// # Errors
    /// [`AccessError::Misaligned`] when the span is not eight aligned bytes, [`AccessError::Unmapped`].
    pub fn compare_and_swap(&self, compare: u64, swap: u64) -> Result<u64, AccessError> {
        // SAFETY: eight aligned bytes, inside the region for as long as the span lives, or unmapped by the program.
        unsafe { guard::compare_and_swap(self.cell()?, compare, swap) }.map_err(unmapped)
    }

    /// Adds to the eight bytes in one step; returns what was there.
    ///
    /// # Errors
    /// As [`compare_and_swap`](Self::compare_and_swap).
    pub fn fetch_and_add(&self, add: u64) -> Result<u64, AccessError> {
        // SAFETY: as in `compare_and_swap`.
        unsafe { guard::fetch_and_add(self.cell()?, add) }.map_err(unmapped)
    }

    /// Replaces the eight bytes in one step.
    ///
    /// # Errors
    /// As [`compare_and_swap`](Self::compare_and_swap).
    pub fn store(&self, value: u64) -> Result<(), AccessError> {
        // SAFETY: as in `compare_and_swap`.
        unsafe { guard::store(self.cell()?, value) }.map_err(unmapped)
    }

    /// Writes the bytes to the file that they map (`msync(2)`), and waits until they are there.
    ///
    /// # Errors
    /// What `msync(2)` says.
    pub fn persist(&self) -> io::Result<()> {
        // The system wants the start of a page; a mapping starts at one.
        let before = self.start.addr().get() % rustix::param::page_size();
        let start = self.start.as_ptr().wrapping_sub(before);
        // SAFETY: whole pages of which at least one byte is in a live mapping; msync changes none of them.
        Ok(unsafe { msync(start.cast(), self.length + before, MsyncFlags::SYNC) }?)
    }
}

/// Has the system bring in the pages of `address .. address + length` (`MADV_POPULATE_READ` and `_WRITE` of `madvise(2)`), for
/// writing when that `changes` them; whatever is there.
///
/// # Errors
/// What `madvise(2)` says: ENOMEM where nothing is mapped, EFAULT where it cannot be read or written so.
pub(crate) fn populate(address: usize, length: usize, changes: bool) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    let before = address % rustix::param::page_size();
    let start = ptr::without_provenance_mut(address - before);
    let advice = if changes { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    // SAFETY: this advice changes no byte; for pages that are not there it fails.
    Ok(unsafe { madvise(start, length.saturating_add(before), advice) }?)
}

fn unmapped(Fault: Fault) -> AccessError {
    AccessError::Unmapped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(length: usize) -> (Arc<Buffer>, Region) {
        let buffer = Arc::new(Buffer::zeroed(length));
        let region = Region::owned(Arc::clone(&buffer), 0x1000, Access::LOCAL_WRITE, PdNumber(1));
        (buffer, region)
    }

    #[test]
    fn a_part_lies_wholly_inside_or_is_refused() {
        let (_buffer, region) = region(100);
        assert_eq!(region.part(0x1000, 100, Access::empty()).map(|span| span.len()), Some(100));
        assert_eq!(region.part(0x1000 + 100, 0, Access::empty()).map(|span| span.len()), Some(0));
        for (address, length) in [(0xfff, 1), (0x1000, 101), (0x1000 + 100, 1), (u64::MAX, 2), (0x1001, u64::MAX)] {
            assert!(region.part(address, length, Access::empty()).is_none(), "{address:#x}+{length}");
        }
    }

    #[test]
    fn bytes_go_in_and_come_out() {
        let (buffer, region) = region(16);
        region.part(0x1004, 4, Access::empty()).unwrap().copy_in(b"abcd").unwrap();
        let mut out = [0; 6];
        buffer.span(3, 6).unwrap().copy_out(&mut out).unwrap();
        assert_eq!(&out, b"\0abcd\0");
    }

    #[test]
    fn a_null_region_swallows_and_gives_zeroes() {
        let region = Region::null(PdNumber(1));
        let span = region.part(u64::MAX - 8, 8, Access::LOCAL_WRITE).unwrap();
        span.copy_in(&[7; 8]).unwrap();
        let mut out = [7; 8];
        span.copy_out(&mut out).unwrap();
        assert_eq!(out, [0; 8]);
        assert_eq!(span.fetch_and_add(1), Err(AccessError::Misaligned));
        assert!(!region.access().intersects(Access::REMOTE));
    }

    #[test]
    fn atomics_need_eight_aligned_bytes() {
        let (_buffer, region) = region(32);
        let cell = region.part(0x1008, 8, Access::empty()).unwrap();
        assert_eq!(cell.fetch_and_add(5), Ok(0));
        assert_eq!(cell.compare_and_swap(4, 9), Ok(5));
        assert_eq!(cell.compare_and_swap(5, 9), Ok(5));
        assert_eq!(cell.fetch_and_add(u64::MAX), Ok(9));
        assert_eq!(cell.fetch_and_add(0), Ok(8));
        assert_eq!(region.part(0x1004, 8, Access::empty()).unwrap().fetch_and_add(1), Err(AccessError::Misaligned));
        assert_eq!(region.part(0x1008, 4, Access::empty()).unwrap().fetch_and_add(1), Err(AccessError::Misaligned));
    }
}
