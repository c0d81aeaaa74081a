//! XRC domains.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use uroce::verbs::XrcDomain;

use crate::abi;
use crate::context::{Context, ContextHandle, adopt, release};
use crate::edge::{Failure, Result, errno_of, given, object};
use crate::handle::{live, object as declare};

declare!(Xrcd: abi::Xrcd as abi::Xrcd, Domain, "XRC domain");

/// Our part of an XRC domain.
pub(crate) struct Domain {
    pub(crate) domain: XrcDomain,
    context: ContextHandle,
    /// Where others find it, when it was opened with a file.
    place: Option<Place>,
}

impl Drop for Domain {
    fn drop(&mut self) {
        let Some(place) = &self.place else { return };
        let mut shared = shared();
        let Some(found) = shared.get_mut(place) else { return };
        found.users -= 1;
        let last = if found.users == 0 { shared.remove(place) } else { None };
        // Closing is nothing to do under the lock.
        drop(shared);
        drop(last);
    }
}

/// A device's name, and device and inode of a file: by these the domains of a file are found, as in the kernel.
type Place = (String, u64, u64);

/// A domain that was opened with a file.
struct Shared {
    domain: XrcDomain,
    context: ContextHandle,
    users: usize,
    /// As long as it is open no other file has its inode.
    _file: File,
}

fn shared() -> MutexGuard<'static, HashMap<Place, Shared>> {
    static SHARED: LazyLock<Mutex<HashMap<Place, Shared>>> = LazyLock::new(Mutex::default);
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a domain: a new one, or with a file the one that the context has opened with it already. A domain belongs to its context,
/// which has addresses and queues of its own: another context of this process that comes with the same file is refused, rather than
/// given a domain that leads nowhere. Other processes are not known here: each has its own domain of a file.
pub(crate) extern "C" fn open_xrcd(context: *mut abi::Context, attributes: *mut abi::XrcdInitAttr) -> *mut abi::Xrcd {
    object("ibv_open_xrcd", || {
        // SAFETY: a context of the program's, as the verb requires.
        let handle = unsafe { live::<Context>(context) }?;
        // SAFETY: attributes of the program's.
        let attributes = unsafe { given("the attributes", attributes) }?;
        // A file (bit 0) and how to open it (bit 1), both always.
        if attributes.comp_mask != 3 {
            return Err(Failure::invalid(format!("comp_mask {:#x} of an XRC domain", attributes.comp_mask)));
        }
        let (domain, place) = match attributes.fd {
            -1 => (handle.inner().verbs.open_xrc_domain()?, None),
            fd => open_shared(handle, fd, attributes.oflags).map(|(domain, place)| (domain, Some(place)))?,
        };
        Ok(adopt::<Xrcd>(handle, abi::Xrcd { context }, Domain { domain, context: handle, place }))
    })
}

/// The domain of the file at `fd`; what `flags` say is as in the kernel's `ib_uverbs_open_xrcd`.
///
/// # Errors
/// EBADF; EAGAIN when there is none and O_CREAT is missing; EINVAL when there is one and O_EXCL given; EOPNOTSUPP when another context
/// has it.
fn open_shared(context: ContextHandle, fd: c_int, flags: c_int) -> Result<(XrcDomain, Place)> {
    // SAFETY: a number; the kernel knows whether it is a file.
    let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if own < 0 {
        return Err(Failure::new(libc::EBADF, format!("{fd} is no file")));
    }
    // SAFETY: it was made just now, and nobody else knows it.
    let file = unsafe { File::from_raw_fd(own) };
    let about = file.metadata().map_err(|error| Failure::new(libc::EBADF, format!("{fd}: {error}")))?;
    let verbs = &context.inner().verbs;
    let place = (verbs.device().name.clone(), about.dev(), about.ino());
    let mut shared = shared();
    let Some(found) = shared.get_mut(&place) else {
        if flags & libc::O_CREAT == 0 {
            return Err(Failure::new(libc::EAGAIN, "no XRC domain of that file is open, and O_CREAT is missing"));
        }
        let domain = verbs.open_xrc_domain()?;
        shared.insert(place.clone(), Shared { domain: domain.clone(), context, users: 1, _file: file });
        return Ok((domain, place));
    };
    if flags & libc::O_EXCL != 0 {
        return Err(Failure::invalid("an XRC domain of that file is open already, and O_EXCL was given"));
    }
    if !ptr::eq(found.context, context) {
        return Err(Failure::unsupported("the XRC domain of that file belongs to another context of this process"));
    }
    found.users += 1;
    Ok((found.domain.clone(), place))
}

pub(crate) extern "C" fn close_xrcd(xrcd: *mut abi::Xrcd) -> c_int {
    errno_of("ibv_close_xrcd", || {
        // SAFETY: a domain of the program's, as the verb requires.
        let handle = unsafe { live::<Xrcd>(xrcd) }?;
        release(handle.inner().context, handle).map(drop)
    })
}
