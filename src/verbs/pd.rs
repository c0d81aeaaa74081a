//! Protection domains.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::ah::AddressHandle;
use super::context::{Context, ContextInner};
use super::cq::CompletionQueue;
use super::fast::FastRegion;
use super::mr::MemoryRegion;
use super::qp::{QpConfig, QueuePair};
use super::srq::{SharedReceiveQueue, SrqConfig};
use super::window::MemoryWindow;
use super::xrc::XrcDomain;
use crate::error::{Error, Result};
use crate::memory::{self, Access, AccessError, Buffer, PdNumber, WindowType};
use crate::wire::Grh;
use crate::work::{AddressVector, Completion, Sge};

/// A protection domain (`ibv_alloc_pd(3)`): its queue pairs reach its memory and no other. Clones are the same domain.
///
/// ```
/// use uroce::verbs::{Access, Context};
///
/// let pd = Context::open("uroce_lo")?.alloc_pd();
/// let region = pd.register(4096, Access::LOCAL_WRITE)?;
/// assert_eq!(region.len(), 4096);
/// assert!(pd.register(4096, Access::REMOTE_WRITE).is_err(), "remote write needs local write");
/// # Ok::<(), uroce::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    inner: Arc<PdInner>,
}

impl ProtectionDomain {
    pub(super) fn new(context: Arc<ContextInner>) -> Self {
        let number = context.driver.command(|endpoint, _| endpoint.memory_mut().allocate_pd());
        Self { inner: Arc::new(PdInner { number, context }) }
    }

    /// Allocates `length` zero bytes, page aligned, and registers them (`ibv_reg_mr(3)`).
    ///
    /// # Errors
    /// [`Error::Invalid`] for access flags that contradict each other,
    /// [`Error::Full`] when there are too many regions.
    pub fn register(&self, length: usize, access: Access) -> Result<MemoryRegion> {
        MemoryRegion::owned(&self.inner, length, access)
    }

    /// Registers `length` bytes of the program's own memory, whose first byte the peer knows by the address `iova`
    /// (`ibv_reg_mr_iova(3)`).
    ///
    /// # Errors
    /// As [`register`](Self::register).
    ///
    /// # Safety
    /// Until the region is dropped, `start .. start + length` must stay allocated, readable and, with
    /// [`Access::LOCAL_WRITE`], writable; and the program must expect the bytes to be read or changed at any time: it
    /// must not hold a reference to bytes that change. With [`survive_unmapped`](super::OpenOptions::survive_unmapped) they may
    /// be unmapped, as long as nothing else is mapped there.
    #[allow(unsafe_code)]
    pub unsafe fn register_raw(
        &self,
        start: NonNull<u8>,
        length: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion> {
        // SAFETY: the caller makes the same promise.
        unsafe { MemoryRegion::raw(&self.inner, start, length, iova, access) }
    }

    /// A region of all addresses and no memory (`ibv_alloc_null_mr(3)`): what is received there is lost, and what is sent from
    /// there is zero. Peers cannot reach it, nor can windows be bound to it.
    ///
    /// ```
    /// use uroce::verbs::Context;
    ///
    /// let pd = Context::open("uroce_lo")?.alloc_pd();
    /// let nowhere = pd.register_null()?;
    /// assert_eq!(nowhere.sge(1 << 40, 4096).lkey, nowhere.lkey());
    /// # Ok::<(), uroce::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Full`] when there are too many regions.
    pub fn register_null(&self) -> Result<MemoryRegion> {
        MemoryRegion::null(&self.inner)
    }

    /// Has the system bring in the pages of `list` (`ibv_advise_mr(3)`), so that whoever touches them first does not wait for
    /// them; to be written, when that `changes` them. Regions of all kinds may be named.
    ///
    /// # Errors
    /// [`Error::System`] with EFAULT when nothing has the key, or its memory is not there; with EPERM when it belongs to another
    /// protection domain, or must not be written.
    pub fn prefetch(&self, list: &[Sge], changes: bool) -> Result<()> {
        let access = if changes { Access::LOCAL_WRITE } else { Access::empty() };
        let number = self.inner.number;
        let places = self.inner.context.driver.inspect(|endpoint| {
            let place = |sge: &Sge| {
                let length = u64::from(sge.length);
                endpoint.memory().place(sge.lkey, number, sge.address, length, access)
            };
            list.iter().map(place).collect::<std::result::Result<Vec<_>, _>>()
        });
        let failed = |errno, reason: String| Error::system(reason, io::Error::from_raw_os_error(errno));
        let places = places.map_err(|error| match error {
            AccessError::WrongDomain | AccessError::Denied => failed(libc::EPERM, error.to_string()),
            _ => failed(libc::EFAULT, error.to_string()),
        })?;
        places.into_iter().flatten().try_for_each(|(address, length)| {
            let pages = memory::populate(address, length, changes);
            pages.map_err(|error| failed(libc::EFAULT, format!("{length} bytes at {address:#x}: {error}")))
        })
    }

    /// Registers the `length` bytes of `file` from `offset` on, which it maps (`mmap(2)`): memory that a FLUSH can make
    /// persistent, with [`Access::FLUSH_PERSISTENT`]. Such a FLUSH is an `msync(2)`, during which the device does nothing else.
    ///
    /// The file must not become shorter while it is registered: bytes that are gone end the program when they are touched, unless
    /// it asked for [`survive_unmapped`](super::OpenOptions::survive_unmapped).
    ///
    /// ```
    /// use uroce::verbs::{Access, Context};
    ///
    /// let path = std::env::temp_dir().join(format!("uroce-doc-{}", std::process::id()));
    /// let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    /// file.set_len(4096).unwrap();
    /// let pd = Context::open("uroce_lo")?.alloc_pd();
    /// let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::FLUSH_PERSISTENT;
    /// let region = pd.register_file(&file, 0, 4096, access)?;
    /// region.write(0, b"kept")?;
    /// assert!(std::fs::read(&path).unwrap().starts_with(b"kept"));
    /// assert!(pd.register(4096, access).is_err(), "no file, no persistence");
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), uroce::error::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`register`](Self::register); [`Error::System`] when the file cannot be mapped: it must be open for reading and
    /// writing, `offset` a multiple of the page size, and `length` not 0.
    pub fn register_file(&self, file: impl AsFd, offset: u64, length: usize, access: Access) -> Result<MemoryRegion> {
        let buffer = Buffer::map_file(file.as_fd(), offset, length)
            .map_err(|error| Error::system(format!("mapping {length} bytes at {offset} of the file"), error))?;
        MemoryRegion::over(&self.inner, Arc::new(buffer), access)
    }

    /// Registers the program's whole address space (`ibv_reg_mr(3)` with [`Access::ON_DEMAND`], address 0 and the greatest
    /// length): requests name any memory by its address. Pages are looked for when they are touched; what is not mapped, or
    /// not writable when it is to be written, is refused. Needs Linux 5.14.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless the context was opened with
    /// [`implicit_on_demand`](super::OpenOptions::implicit_on_demand); otherwise as [`register`](Self::register).
    ///
    /// # Safety
    /// With remote rights the peer reads or changes any byte of the program: its stack, its keys, its code. Whoever names
    /// memory by the region's key must name only memory for which the promise of [`register_raw`](Self::register_raw) holds.
    #[allow(unsafe_code)]
    pub unsafe fn register_implicit(&self, access: Access) -> Result<MemoryRegion> {
        // SAFETY: the caller makes the same promise.
        unsafe { MemoryRegion::implicit(&self.inner, access) }
    }

    /// A memory window (`ibv_alloc_mw(3)`), which opens nothing until it is bound.
    ///
    /// # Errors
    /// [`Error::Full`] when there are too many.
    pub fn allocate_window(&self, window_type: WindowType) -> Result<MemoryWindow> {
        MemoryWindow::new(&self.inner, window_type)
    }

    /// A region of up to `max_pages` pages of 4096 bytes, which work requests register.
    ///
    /// # Errors
    /// [`Error::Invalid`] for 0 or more than 512 pages, [`Error::Full`] when there are too many regions.
    pub fn allocate_fast_region(&self, max_pages: u32) -> Result<FastRegion> {
        FastRegion::new(&self.inner, max_pages)
    }

    /// Its number and context.
    pub(super) fn inner(&self) -> Arc<PdInner> {
        Arc::clone(&self.inner)
    }

    /// A queue pair (`ibv_create_qp(3)`), in the state RESET.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a capacity out of range or a completion queue of another
    /// context, [`Error::Full`] when there are too many queue pairs.
    pub fn create_qp(&self, config: &QpConfig) -> Result<QueuePair> {
        QueuePair::new(&self.inner, config)
    }

    /// A shared receive queue (`ibv_create_srq(3)`), whose requests name memory of this domain.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) names the limit that is exceeded,
    /// [`Error::Full`](crate::error::Error::Full) when there are too many.
    pub fn create_srq(&self, config: &SrqConfig) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(&self.inner, config)
    }

    /// A shared receive queue that peers of `domain` address by its number; its requests complete on `cq`
    /// (`ibv_create_srq_ex(3)` with `IBV_SRQT_XRC`). Requests of peers to it reach memory of this protection domain.
    ///
    /// # Errors
    /// As [`create_srq`](Self::create_srq); also when `domain` or `cq` belongs to another context.
    pub fn create_xrc_srq(
        &self,
        config: &SrqConfig,
        domain: &XrcDomain,
        cq: &CompletionQueue,
    ) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::extended(&self.inner, config, domain, cq)
    }

    /// An address handle, for datagrams (`ibv_create_ah(3)`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) when there is no GID of that index, or it is of another family than
    /// the destination.
    pub fn create_ah(&self, vector: &AddressVector) -> Result<AddressHandle> {
        AddressHandle::new(&self.inner, vector)
    }

    /// An address handle for the sender of a datagram that was received; `grh` is what the first 40 bytes of the receive
    /// request hold (`ibv_create_ah_from_wc(3)`).
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) when they are not the header of a datagram to this device.
    pub fn create_ah_from_completion(&self, completion: &Completion, grh: &[u8; Grh::LEN]) -> Result<AddressHandle> {
        AddressHandle::from_completion(&self.inner, completion, grh)
    }

    /// The context it was made from.
    #[must_use]
    pub fn context(&self) -> Context {
        Context::from(Arc::clone(&self.inner.context))
    }
}

/// A protection domain's number and context.
#[derive(Debug)]
pub(super) struct PdInner {
    pub(super) number: PdNumber,
    pub(super) context: Arc<ContextInner>,
}
