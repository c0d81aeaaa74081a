//! Multicast groups and the queue pairs that are attached to them.

use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};

use crate::error::{Error, Result};

/// What the port must be told: drained with [`Endpoint::poll_membership`](super::Endpoint::poll_membership).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// When the first queue pair was attached: the network must deliver what is sent to this group.
    Join(IpAddr),
    /// When the last one was detached.
    Leave(IpAddr),
}

/// Who receives what is sent to which group.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Indices of queue pairs, in the order in which they were attached.
    attached: HashMap<IpAddr, Vec<usize>>,
    changes: VecDeque<Membership>,
}

impl Groups {
    /// As many as the kernel's rxe has (`RXE_MAX_MCAST_GRP`).
    pub(super) const MAX_GROUPS: usize = 8192;
    /// Queue pairs of a group, likewise (`RXE_MAX_MCAST_QP_ATTACH`).
    pub(super) const MAX_ATTACHED: usize = 56;

    /// Attaches the queue pair at `index`; once more changes nothing.
    pub(super) fn attach(&mut self, index: usize, group: IpAddr) -> Result<()> {
        let count = self.attached.len();
        if !self.attached.contains_key(&group) && count >= Self::MAX_GROUPS {
            return Err(Error::Full { what: "the table of multicast groups", limit: Self::MAX_GROUPS });
        }
        let members = self.attached.entry(group).or_default();
        if members.contains(&index) {
            return Ok(());
        }
        if members.len() >= Self::MAX_ATTACHED {
            return Err(Error::Full { what: "the multicast group", limit: Self::MAX_ATTACHED });
        }
        members.push(index);
        if members.len() == 1 {
            self.changes.push_back(Membership::Join(group));
        }
        Ok(())
    }

    /// Detaches the queue pair at `index`; returns whether it was attached.
    pub(super) fn detach(&mut self, index: usize, group: IpAddr) -> bool {
        let Some(members) = self.attached.get_mut(&group) else { return false };
        let before = members.len();
        members.retain(|&member| member != index);
        let was_attached = members.len() < before;
        if members.is_empty() {
            self.attached.remove(&group);
            self.changes.push_back(Membership::Leave(group));
        }
        was_attached
    }

    /// Detaches the queue pair at `index`, which is gone, from every group.
    pub(super) fn forget(&mut self, index: usize) {
        let groups: Vec<_> = self.attached.iter().filter(|(_, members)| members.contains(&index)).collect();
        let groups: Vec<IpAddr> = groups.into_iter().map(|(group, _)| *group).collect();
        for group in groups {
            self.detach(index, group);
        }
    }

    /// The `nth` queue pair of a group.
    pub(super) fn member(&self, group: IpAddr, nth: usize) -> Option<usize> {
        self.attached.get(&group)?.get(nth).copied()
    }

    /// The next thing to tell the port.
    pub(super) fn poll(&mut self) -> Option<Membership> {
        self.changes.pop_front()
    }
}
