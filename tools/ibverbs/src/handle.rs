//! What programs hold pointers to: a structure of C, with our own part behind it.
//!
//! A program may keep a pointer to an object that it destroyed, and use it. So the memory of a handle is never given back:
//! it waits for the next object of the same kind, and until then every verb answers EINVAL. The data path pays one
//! comparison for that. After `fork(2)` the same comparison fails for everything that the parent had.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_queue::SegQueue;

use crate::edge::{Failure, Result};

/// A kind of object.
pub(crate) trait Object: Sized + 'static {
    /// What programs hold a pointer to.
    type Seen;
    /// The structure of C that it stands in.
    type Shape;
    /// Our own part.
    type Inner: Send + Sync;
    /// Where in the shape what programs see begins.
    const OFFSET: usize = 0;
    /// For error messages.
    const NAME: &'static str;

    /// Where handles of this kind wait to be used again.
    fn slots() -> &'static Slots<Self>;
}

/// Handles that wait to be used again.
pub(crate) struct Slots<O: Object> {
    free: SegQueue<&'static Handle<O>>,
}

impl<O: Object> Slots<O> {
    pub(crate) const fn new() -> Self {
        Self { free: SegQueue::new() }
    }
}

/// An object as a program holds it.
#[repr(C)]
pub(crate) struct Handle<O: Object> {
    /// [`alive`] while it stands for an object. Before the shape, where it is for all kinds: a pointer to another kind of object
    /// is recognised.
    life: AtomicU64,
    /// Objects that stand on this one.
    users: AtomicUsize,
    shape: UnsafeCell<O::Shape>,
    inner: UnsafeCell<Option<O::Inner>>,
}

// SAFETY: the inner part is `Sync`, and changes only in `make` and `retire`, which no other use may overlap (a program
// that destroys what it uses in another thread has no promise of any verbs library). The shape is shared with the program
// and reached through raw pointers.
unsafe impl<O: Object> Sync for Handle<O> {}
// SAFETY: as above; nothing of it belongs to a thread.
unsafe impl<O: Object> Send for Handle<O> {}

impl<O: Object> Handle<O> {
    /// Bytes before what programs see.
    const BEFORE: usize = offset_of!(Self, shape) + O::OFFSET;

    /// A new object, and the pointer that the program gets.
    pub(crate) fn make(shape: O::Shape, inner: O::Inner) -> *mut O::Seen {
        let handle = match O::slots().free.pop() {
            Some(handle) => {
                // SAFETY: it waited: no object, so nobody has a reference into it; the program owns no live pointer.
                unsafe { handle.shape.get().write(shape) };
                // SAFETY: as above.
                unsafe { *handle.inner.get() = Some(inner) };
                handle
            }
            None => Box::leak(Box::new(Self {
                shape: UnsafeCell::new(shape),
                life: AtomicU64::new(0),
                users: AtomicUsize::new(0),
                inner: UnsafeCell::new(Some(inner)),
            })),
        };
        handle.users.store(0, Ordering::Relaxed);
        handle.life.store(alive::<O>(), Ordering::Release);
        handle.seen()
    }

    /// The pointer that the program has.
    pub(crate) fn seen(&self) -> *mut O::Seen {
        ptr::from_ref(self).wrapping_byte_add(Self::BEFORE).cast_mut().cast()
    }

    /// The structure that the program sees; it may change it at any time.
    pub(crate) fn shape(&self) -> *mut O::Shape {
        self.shape.get()
    }

    /// Our own part.
    pub(crate) fn inner(&self) -> &O::Inner {
        // SAFETY: changes only when no use overlaps; see `Sync`.
        let inner = unsafe { &*self.inner.get() };
        // `live` gave out this handle: it has an inner part.
        inner.as_ref().expect("a live handle")
    }

    /// Takes the object out of the handle: from now on the pointer is worth nothing.
    ///
    /// # Errors
    /// EBUSY while other objects stand on it.
    pub(crate) fn retire(&self) -> Result<O::Inner> {
        self.check_unused()?;
        self.abandon().ok_or_else(|| stale::<O>())
    }

    /// Whether it could be destroyed.
    ///
    /// # Errors
    /// EBUSY while other objects stand on it.
    pub(crate) fn check_unused(&self) -> Result<()> {
        match self.users.load(Ordering::Acquire) {
            0 => Ok(()),
            users => Err(Failure::new(libc::EBUSY, format!("{users} objects stand on the {}", O::NAME))),
        }
    }

    /// As [`retire`](Self::retire), whatever stands on it: its context closes.
    pub(crate) fn abandon(&self) -> Option<O::Inner> {
        self.life.compare_exchange(alive::<O>(), 0, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        // SAFETY: the exchange lets one caller through, and no use overlaps; see `Sync`.
        let inner = unsafe { (*self.inner.get()).take() };
        // SAFETY: handles are leaked when they are made, never freed.
        let handle: &'static Self = unsafe { &*ptr::from_ref(self) };
        O::slots().free.push(handle);
        inner
    }

    /// Says that another object stands on this one, until what is returned is dropped.
    pub(crate) fn hold(&'static self) -> Hold {
        self.users.fetch_add(1, Ordering::AcqRel);
        Hold { users: &self.users, life: &self.life, alive: alive::<O>() }
    }
}

/// The object that a program means with a pointer.
///
/// # Errors
/// EINVAL for a null pointer and for an object that was destroyed.
///
/// # Safety
/// `seen` must be null or a pointer that a verb of this library gave out as one to such an object, ever.
#[inline]
pub(crate) unsafe fn live<O: Object>(seen: *mut O::Seen) -> Result<&'static Handle<O>> {
    if seen.is_null() {
        return Err(Failure::invalid(format!("the {} is a null pointer", O::NAME)));
    }
    // SAFETY: the caller promises that it came from here, and handles are never freed.
    let handle = unsafe { &*seen.byte_sub(Handle::<O>::BEFORE).cast::<Handle<O>>() };
    if handle.life.load(Ordering::Acquire) == alive::<O>() { Ok(handle) } else { Err(stale::<O>()) }
}

/// As [`live`], where a null pointer means none.
///
/// # Safety
/// That of [`live`].
pub(crate) unsafe fn live_if_any<O: Object>(seen: *mut O::Seen) -> Result<Option<&'static Handle<O>>> {
    if seen.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller makes the same promise.
    unsafe { live(seen) }.map(Some)
}

#[cold]
fn stale<O: Object>() -> Failure {
    Failure::invalid(format!("the {} was destroyed, or belongs to the process that this one was forked from", O::NAME))
}

/// An object stands on another one while this lives.
pub(crate) struct Hold {
    users: &'static AtomicUsize,
    life: &'static AtomicU64,
    alive: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Whoever was abandoned meanwhile, and perhaps made anew, counts from 0 again.
        if self.life.load(Ordering::Acquire) == self.alive {
            let fewer = |users: usize| users.checked_sub(1);
            let _ = self.users.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fewer);
        }
    }
}

/// How often this process is a child of one that used the library.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// What marks a live object of a kind in this process.
#[inline]
fn alive<O: Object>() -> u64 {
    // The address tells the kinds apart; it is aligned, so that the lowest bits count forks.
    let kind = ptr::from_ref(O::slots()) as u64;
    (kind << 8) | 1 | (FORKS.load(Ordering::Relaxed) & 0x7f) << 1
}

/// In the child of a fork: nothing that the parent had is this process's.
pub(crate) fn forget_all() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Declares a kind of object.
macro_rules! object {
    ($kind:ident: $seen:ty as $shape:ty, $inner:ty, $name:literal $(, at $offset:expr)?) => {
        pub(crate) enum $kind {}

        impl $crate::handle::Object for $kind {
            type Seen = $seen;
            type Shape = $shape;
            type Inner = $inner;
            $(const OFFSET: usize = $offset;)?
            const NAME: &'static str = $name;

            fn slots() -> &'static $crate::handle::Slots<Self> {
                static SLOTS: $crate::handle::Slots<$kind> = $crate::handle::Slots::new();
                &SLOTS
            }
        }
    };
}
pub(crate) use object;

#[cfg(test)]
mod tests {
    use super::*;

    object!(Toy: u32 as (u64, u32), String, "toy", at std::mem::offset_of!((u64, u32), 1));

    #[test]
    fn a_destroyed_object_is_refused_and_its_place_used_again() {
        let pointer = Handle::<Toy>::make((1, 2), "one".into());
        // SAFETY: made above.
        let handle = unsafe { live::<Toy>(pointer) }.unwrap();
        assert_eq!(handle.inner(), "one");
        let hold = handle.hold();
        assert_eq!(handle.retire().unwrap_err().errno, libc::EBUSY);
        drop(hold);
        assert_eq!(handle.retire().unwrap(), "one");
        // SAFETY: it came from here, once.
        assert_eq!(unsafe { live::<Toy>(pointer) }.err().unwrap().errno, libc::EINVAL);
        assert_eq!(handle.retire().unwrap_err().errno, libc::EINVAL);
        assert_eq!(Handle::<Toy>::make((1, 2), "two".into()), pointer);
        // SAFETY: null.
        assert_eq!(unsafe { live::<Toy>(ptr::null_mut()) }.err().unwrap().errno, libc::EINVAL);
    }
}
