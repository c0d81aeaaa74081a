//! Memory regions.

use std::ptr::NonNull;
use std::sync::Arc;

use super::pd::PdInner;
use crate::error::{Error, Result};
use crate::memory::{Access, Buffer, Region, Span};
use crate::work::{Remote, Sge};

/// Registered memory (`ibv_reg_mr(3)`). Dropping it deregisters it: from then on its keys open nothing.
///
/// The engine and the peer change it behind the program's back, as a device's DMA does, so there is no reference
/// to its bytes: they are copied in and out.
///
/// ```
/// use uroce::verbs::{Access, Context};
///
/// let pd = Context::open("uroce_lo")?.alloc_pd();
/// let region = pd.register(64, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// region.write(8, b"hello")?;
/// let mut bytes = [0; 5];
/// region.read(8, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// assert_eq!(region.sge(8, 5).address, region.remote(8).address);
/// assert!(region.write(60, b"hello").is_err(), "one byte too far");
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Debug)]
pub struct MemoryRegion {
    pd: Arc<PdInner>,
    key: u32,
    address: u64,
    length: usize,
    access: Access,
    /// Memory that the library owns.
    buffer: Option<Arc<Buffer>>,
}

impl MemoryRegion {
    pub(super) fn owned(pd: &Arc<PdInner>, length: usize, access: Access) -> Result<Self> {
        let Ok(buffer) = isize::try_from(length).map(|_| Arc::new(Buffer::zeroed(length))) else {
            return Err(Error::invalid("length", format!("{length} bytes; no address space has that many")));
        };
        let address = if access.contains(Access::ZERO_BASED) { 0 } else { buffer.address() };
        let region = Region::owned(Arc::clone(&buffer), address, access, pd.number);
        Self::add(pd, region, address, length, Some(buffer))
    }

    /// # Safety
    /// That of [`Region::raw`].
    #[allow(unsafe_code)]
    pub(super) unsafe fn raw(
        pd: &Arc<PdInner>,
        start: NonNull<u8>,
        length: usize,
        iova: u64,
        access: Access,
    ) -> Result<Self> {
        // SAFETY: the caller makes the same promise.
        let region = unsafe { Region::raw(start, length, iova, access, pd.number) };
        Self::add(pd, region, iova, length, None)
    }

    fn add(
        pd: &Arc<PdInner>,
        region: Region,
        address: u64,
        length: usize,
        buffer: Option<Arc<Buffer>>,
    ) -> Result<Self> {
        let access = region.access();
        let key = pd.context.driver.command(|endpoint, _| endpoint.memory_mut().register(region))?;
        Ok(Self { pd: Arc::clone(pd), key, address, length, access, buffer })
    }

    /// Copies `bytes` into the region from `offset` on.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they do not fit; [`Error::Unsupported`] for memory that the program registered itself,
    /// which it writes itself.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.span(offset, bytes.len()).map(|span| span.copy_in(bytes))
    }

    /// Copies the bytes of the region from `offset` on into `bytes`, as many as fit there.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the region has not so many; [`Error::Unsupported`] for memory that the program registered
    /// itself, which it reads itself.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.span(offset, bytes.len()).map(|span| span.copy_out(bytes))
    }

    /// The `length` bytes from `offset` on, as an element of a scatter/gather list. Whether the region has them is checked
    /// when the request is carried out.
    #[must_use]
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge { address: self.address.wrapping_add(offset as u64), length, lkey: self.key }
    }

    /// The bytes from `offset` on, as a peer names them. Whether the region has them is checked when the peer
    /// comes for them.
    #[must_use]
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { address: self.address.wrapping_add(offset as u64), rkey: self.key }
    }

    /// The local key.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.key
    }

    /// The remote key: whoever knows it may do what the region allows a peer.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.key
    }

    /// The address of the first byte, as work requests and peers name it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
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

    /// What it allows.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    fn span(&self, offset: usize, length: usize) -> Result<Span<'_>> {
        let Some(buffer) = &self.buffer else {
            return Err(Error::Unsupported("copying memory that the program registered itself".into()));
        };
        buffer.span(offset, length).ok_or_else(|| {
            Error::invalid("offset", format!("{length} bytes at {offset} of a region of {}", self.length))
        })
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let key = self.key;
        let region = self.pd.context.driver.command(|endpoint, _| endpoint.memory_mut().deregister(key));
        debug_assert!(region.is_ok(), "the table lost {key:#x}");
    }
}
