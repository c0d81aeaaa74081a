//! Memory windows: narrower keys to a part of a region, given and taken without a verb (IBTA 10.6.7).

use super::table::{AccessError, Kind, Table, index};
use super::{Access, Holder, PdNumber, Region};
use crate::error::Result;
use crate::wire::Qpn;

/// The kind of a memory window: `ibv_mw_type`, with the same values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum WindowType {
    /// Opens for every queue pair of its protection domain. Bound as often as one likes, with a length of 0 to nothing.
    One = 1,
    /// Type 2B: opens for the queue pair that bound it, only. Bound once, then invalidated, by either side.
    Two = 2,
}

/// What a bind request asks for (`ibv_mw_bind_info`): the part of a region that the window opens, and to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowBind {
    /// The window's key as it is.
    pub window: u32,
    /// The window's key from then on: another low byte.
    pub rkey: u32,
    /// The region's key.
    pub lkey: u32,
    /// Where it starts, in the address space of the region.
    pub address: u64,
    /// Bytes; 0 unbinds a type 1 window.
    pub length: u64,
    /// What the peer may do; with [`Access::ZERO_BASED`] its addresses count from 0. Flags that are about something else, as
    /// [`Access::LOCAL_WRITE`] is, are ignored.
    pub access: Access,
}

/// Why a window cannot be bound or a key not be invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(pub &'static str);

impl Table {
    /// What a window can allow. Programs bind windows with the flags of their regions, so all others may be asked for as well, as
    /// with rxe (`RXE_ACCESS_SUPPORTED_MW` in its `rxe_verbs.h`): they mean nothing, since nobody but a peer comes through a window.
    const WINDOW_ACCESS: Access = Access::REMOTE.union(Access::ZERO_BASED).union(Access::FLUSH);

    /// A window that opens nothing yet; returns its key.
    ///
    /// # Errors
    /// [`Error::Full`](crate::error::Error::Full) above [`MAX_REGIONS`](Self::MAX_REGIONS).
    pub fn allocate_window(&mut self, pd: PdNumber, window_type: WindowType) -> Result<u32> {
        self.add(Kind::Window(window_type), pd, None)
    }

    /// Removes a window, bound or not; any of the keys that it ever had names it.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::error::Error::Missing).
    pub fn deallocate_window(&mut self, key: u32) -> Result<()> {
        self.remove(key, "memory window", |kind| matches!(kind, Kind::Window(_)))
    }

    /// Binds a window at the request of the queue pair `holder`. Nothing changes on an error.
    ///
    /// # Errors
    /// Which rule of IBTA 10.6.7.2 it breaks.
    pub fn bind_window(&mut self, holder: Holder, bind: &WindowBind) -> std::result::Result<(), Unfit> {
        let bind = &WindowBind { access: bind.access & Self::WINDOW_ACCESS, ..*bind };
        let window = self.entry(bind.window).ok_or(Unfit("no window has this key"))?;
        let Kind::Window(window_type) = window.kind else { return Err(Unfit("not the key of a window")) };
        if index(bind.rkey) != index(bind.window) {
            return Err(Unfit("only the low byte of a window's key can be chosen"));
        }
        if window.pd != holder.pd {
            return Err(Unfit("window and queue pair are of different protection domains"));
        }
        match window_type {
            WindowType::One if bind.access.contains(Access::ZERO_BASED) => {
                return Err(Unfit("a type 1 window has the addresses of its region"));
            }
            WindowType::Two if window.memory.is_some() => return Err(Unfit("a type 2 window is bound only once")),
            WindowType::Two if bind.length == 0 => return Err(Unfit("a type 2 window is unbound by invalidating it")),
            _ => {}
        }
        if bind.length == 0 {
            self.unbind(bind.rkey);
            return Ok(());
        }
        let part = self.lendable(holder.pd, bind)?;
        let only = (window_type == WindowType::Two).then_some(holder.qpn);
        self.lend(bind.lkey, bind.rkey, part, only);
        Ok(())
    }

    /// The part of a region that a window may open.
    fn lendable(&self, pd: PdNumber, bind: &WindowBind) -> std::result::Result<Region, Unfit> {
        let region = self.entry(bind.lkey).filter(|entry| entry.kind == Kind::Region);
        let region = region.ok_or(Unfit("no region that windows can be bound to has this key"))?;
        let memory = region.memory.as_ref().ok_or(Unfit("the region is not registered"))?;
        if region.pd != pd {
            return Err(Unfit("window and region are of different protection domains"));
        }
        let access = memory.access();
        if access.contains(Access::ZERO_BASED) {
            return Err(Unfit("a window cannot be bound to a zero-based region"));
        }
        if !access.contains(Access::MW_BIND) {
            return Err(Unfit("the region does not allow windows"));
        }
        if !access.union(bind.access).is_consistent() {
            return Err(Unfit("a window grants no writing where the region has no local write"));
        }
        if bind.access.contains(Access::FLUSH_PERSISTENT) && !memory.is_file() {
            return Err(Unfit("the region's memory cannot be made persistent"));
        }
        let iova = if bind.access.contains(Access::ZERO_BASED) { 0 } else { bind.address };
        memory.view(bind.address, bind.length, iova, bind.access).ok_or(Unfit("outside the region"))
    }

    /// Makes a key worthless at the request of the queue pair `holder`, or of its peer: that of a bound type 2 window of
    /// this queue pair, or of a registered fast region. All other keys are safe from that (IBTA 10.6.5).
    ///
    /// # Errors
    /// Why not.
    pub fn invalidate(&mut self, key: u32, holder: Holder) -> std::result::Result<(), AccessError> {
        let entry = self.entry(key).ok_or(AccessError::UnknownKey)?;
        if entry.pd != holder.pd || entry.only.is_some_and(|only| only != holder.qpn) {
            return Err(AccessError::WrongDomain);
        }
        if !matches!(entry.kind, Kind::Fast { .. } | Kind::Window(WindowType::Two)) {
            return Err(AccessError::Denied);
        }
        if entry.memory.is_none() {
            return Err(AccessError::UnknownKey);
        }
        self.give_back(index(key));
        Ok(())
    }

    /// Unbinds the windows that open for `qpn` only: the queue pair is destroyed or reset, and another peer may come to it.
    pub fn release_pair(&mut self, qpn: Qpn) {
        if self.exclusive > 0 {
            for index in self.exclusive_to(qpn) {
                self.give_back(index);
            }
        }
    }
}
