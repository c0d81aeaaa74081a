//! Memory regions.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use super::pd::{PdInner, ProtectionDomain};
use crate::error::{Error, Result};
use crate::memory::{Access, AccessError, Buffer, Region, Span};
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
        Self::over(pd, zeroed(length)?, access)
    }

    /// A region over memory that the library owns.
    pub(super) fn over(pd: &Arc<PdInner>, buffer: Arc<Buffer>, access: Access) -> Result<Self> {
        let (address, length) = (address_of(&buffer, access), buffer.len());
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
        check_raw(length, iova, access)?;
        // SAFETY: the caller makes the same promise.
        let region = unsafe { Region::raw(start, length, iova, access, pd.number) };
        Self::add(pd, region, iova, length, None)
    }

    /// # Safety
    /// That of [`Region::implicit`].
    #[allow(unsafe_code)]
    pub(super) unsafe fn implicit(pd: &Arc<PdInner>, access: Access) -> Result<Self> {
        if !pd.context.rules.implicit_on_demand {
            return Err(Error::Unsupported(
                "an implicit on-demand region opens the whole address space to whoever has its key; \
                 ask for it with OpenOptions::implicit_on_demand"
                    .into(),
            ));
        }
        // SAFETY: the caller makes the same promise.
        let region = unsafe { Region::implicit(access | Access::ON_DEMAND, pd.number) };
        Self::add(pd, region, 0, usize::MAX, None)
    }

    pub(super) fn null(pd: &Arc<PdInner>) -> Result<Self> {
        Self::add(pd, Region::null(pd.number), 0, usize::MAX, None)
    }

    fn add(
        pd: &Arc<PdInner>,
        region: Region,
        address: u64,
        length: usize,
        buffer: Option<Arc<Buffer>>,
    ) -> Result<Self> {
        pd.context.watch_memory()?;
        let access = region.access();
        let key = pd.context.driver.command(|endpoint, _| endpoint.memory_mut().register(region))?;
        Ok(Self { pd: Arc::clone(pd), key, address, length, access, buffer })
    }

    /// Changes what the region allows, its protection domain, or its memory, and keeps its key (`ibv_rereg_mr(3)`). All or
    /// nothing: after an error the region is as it was.
    ///
    /// ```
    /// use uroce::verbs::{Access, Context, Reregister};
    ///
    /// let pd = Context::open("uroce_lo")?.alloc_pd();
    /// let mut region = pd.register(4096, Access::LOCAL_WRITE)?;
    /// let key = region.rkey();
    /// let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    /// region.reregister(&Reregister { access: Some(access), length: Some(8192), ..Reregister::default() })?;
    /// assert_eq!((region.rkey(), region.access(), region.len()), (key, access, 8192));
    /// # Ok::<(), uroce::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`] while memory windows are bound to it; [`Error::Invalid`] for access flags that contradict each other
    /// or a domain of another context; [`Error::Unsupported`] for another length or numbering of memory that the program
    /// registered itself ([`reregister_raw`](Self::reregister_raw)).
    pub fn reregister(&mut self, change: &Reregister<'_>) -> Result<()> {
        let pd = self.domain(change.pd)?;
        let access = change.access.unwrap_or(self.access);
        let Some(buffer) = &self.buffer else {
            if change.length.is_some() || (access ^ self.access).contains(Access::ZERO_BASED) {
                return Err(Error::Unsupported("replacing memory that the program registered itself".into()));
            }
            let key = self.key;
            pd.context.driver.command(|endpoint, _| endpoint.memory_mut().change(key, access, pd.number))?;
            (self.pd, self.access) = (pd, access);
            return Ok(());
        };
        let buffer = match change.length {
            Some(length) => zeroed(length)?,
            None => Arc::clone(buffer),
        };
        let (address, length) = (address_of(&buffer, access), buffer.len());
        let region = Region::owned(Arc::clone(&buffer), address, access, pd.number);
        self.replace(pd, region, length, Some(buffer))
    }

    /// As [`reregister`](Self::reregister), with memory of the program's own. The region's former memory is free when this
    /// returns.
    ///
    /// # Errors
    /// As [`reregister`](Self::reregister).
    ///
    /// # Safety
    /// That of [`ProtectionDomain::register_raw`].
    #[allow(unsafe_code)]
    pub unsafe fn reregister_raw(
        &mut self,
        start: NonNull<u8>,
        length: usize,
        iova: u64,
        access: Access,
        pd: Option<&ProtectionDomain>,
    ) -> Result<()> {
        check_raw(length, iova, access)?;
        let pd = self.domain(pd)?;
        // SAFETY: the caller makes the same promise.
        let region = unsafe { Region::raw(start, length, iova, access, pd.number) };
        self.replace(pd, region, length, None)
    }

    /// The domain that the region is to belong to.
    fn domain(&self, pd: Option<&ProtectionDomain>) -> Result<Arc<PdInner>> {
        let pd = pd.map_or_else(|| Arc::clone(&self.pd), ProtectionDomain::inner);
        if !Arc::ptr_eq(&pd.context, &self.pd.context) {
            return Err(Error::invalid("pd", "it belongs to another context"));
        }
        Ok(pd)
    }

    fn replace(&mut self, pd: Arc<PdInner>, region: Region, length: usize, buffer: Option<Arc<Buffer>>) -> Result<()> {
        pd.context.watch_memory()?;
        let (key, address, access) = (self.key, region.iova(), region.access());
        pd.context.driver.command(|endpoint, _| endpoint.memory_mut().reregister(key, region))?;
        (self.pd, self.address, self.length, self.access, self.buffer) = (pd, address, length, access, buffer);
        Ok(())
    }

    /// Deregisters the region (`ibv_dereg_mr(3)`). Dropping it does so too, and takes its memory from windows and fast
    /// regions first.
    ///
    /// # Errors
    /// [`Error::Busy`] while memory windows or fast regions have memory of it; the region comes back with the error.
    pub fn deregister(mut self) -> std::result::Result<(), (Self, Error)> {
        let key = self.key;
        match self.pd.context.driver.command(|endpoint, _| endpoint.memory_mut().deregister(key)) {
            Ok(_) => {
                self.key = 0;
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    /// Copies `bytes` into the region from `offset` on.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they do not fit; [`Error::Unsupported`] for memory that the program registered itself,
    /// which it writes itself.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.span(offset, bytes.len())?.copy_in(bytes).map_err(shortened)
    }

    /// Copies the bytes of the region from `offset` on into `bytes`, as many as fit there.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the region has not so many; [`Error::Unsupported`] for memory that the program registered
    /// itself, which it reads itself.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.span(offset, bytes.len())?.copy_out(bytes).map_err(shortened)
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
        // Zero is no key: the region was deregistered before.
        if key != 0 {
            let region = self.pd.context.driver.command(|endpoint, _| endpoint.memory_mut().evict(key));
            debug_assert!(region.is_ok(), "the table lost {key:#x}");
        }
    }
}

/// What is to change about a region: what is `Some` (`ibv_rereg_mr(3)`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Reregister<'pd> {
    /// What it allows.
    pub access: Option<Access>,
    /// The protection domain, of the same context.
    pub pd: Option<&'pd ProtectionDomain>,
    /// Other memory: so many zero bytes.
    pub length: Option<usize>,
}

/// Memory for a region.
fn zeroed(length: usize) -> Result<Arc<Buffer>> {
    if isize::try_from(length).is_err() {
        return Err(Error::invalid("length", format!("{length} bytes; no address space has that many")));
    }
    Ok(Arc::new(Buffer::zeroed(length)))
}

/// Only a file's memory can go away from a region that owns it.
fn shortened(error: AccessError) -> Error {
    Error::system(format!("the file became shorter: {error}"), io::Error::from_raw_os_error(libc::EFAULT))
}

/// The address of the first byte of memory that the library owns.
fn address_of(buffer: &Buffer, access: Access) -> u64 {
    if access.contains(Access::ZERO_BASED) { 0 } else { buffer.address() }
}

/// Whether memory of the program's own can be registered so.
fn check_raw(length: usize, iova: u64, access: Access) -> Result<()> {
    if access.contains(Access::ZERO_BASED) && iova != 0 {
        return Err(Error::invalid("iova", format!("{iova:#x}; addresses of a zero-based region count from 0")));
    }
    if isize::try_from(length).is_err() {
        return Err(Error::invalid(
            "length",
            "all of the address space: that is an implicit region, register_implicit",
        ));
    }
    Ok(())
}
