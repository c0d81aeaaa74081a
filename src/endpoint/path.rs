//! Peers, and what is in flight to each.

use std::collections::HashMap;
use std::net::IpAddr;

use super::schedule::Ready;
use crate::congestion::Window;
use crate::qp::QueuePair;
use crate::time::Instant;

/// The way to one peer.
#[derive(Debug)]
struct Path {
    window: Window,
    /// Queue pairs that have something to send which the window does not let through.
    waiting: Vec<usize>,
}

/// What one queue pair has in flight, as its path knows it.
#[derive(Clone, Copy, Debug)]
struct Share {
    peer: IpAddr,
    path: usize,
    in_flight: u64,
    acknowledged: u64,
}

/// The ways to all peers, and the share of each queue pair.
#[derive(Debug)]
pub(super) struct Paths {
    most: u64,
    by_peer: HashMap<IpAddr, usize>,
    paths: Vec<Path>,
    /// By index of the queue pair.
    shares: Vec<Option<Share>>,
}

impl Paths {
    pub(super) fn new(most: u64) -> Self {
        Self { most, by_peer: HashMap::new(), paths: Vec::new(), shares: Vec::new() }
    }

    /// What the queue pair at `index` may still send.
    pub(super) fn room(&self, index: usize) -> u64 {
        let share = self.shares.get(index).copied().flatten();
        share.map_or(self.most, |share| self.paths[share.path].window.room())
    }

    /// What is in flight on all paths.
    pub(super) fn in_flight(&self) -> u64 {
        self.paths.iter().map(|path| path.window.in_flight()).sum()
    }

    /// The queue pair at `index` waits for room on its path.
    pub(super) fn wait(&mut self, index: usize) {
        if let Some(share) = self.shares.get(index).copied().flatten() {
            let waiting = &mut self.paths[share.path].waiting;
            if !waiting.contains(&index) {
                waiting.push(index);
            }
        }
    }

    /// Sees what the queue pair at `index` has in flight now, and wakes who waited for the room that this makes.
    #[inline]
    pub(super) fn update(&mut self, now: Instant, index: usize, pair: &mut QueuePair, ready: &mut Ready) {
        let Some(share) = self.share(index, pair, ready) else { return };
        let (in_flight, acknowledged) = (pair.in_flight(), pair.acknowledged());
        let path = &mut self.paths[share.path];
        path.window.adjust(share.in_flight, in_flight);
        // A reset starts from zero again.
        let newly = acknowledged.saturating_sub(share.acknowledged);
        if newly > 0 {
            path.window.on_acknowledged(newly);
        }
        if pair.take_loss() {
            path.window.on_loss(now);
        }
        if in_flight < share.in_flight || newly > 0 {
            for waiting in path.waiting.drain(..) {
                ready.push(waiting);
            }
        }
        self.shares[index] = Some(Share { in_flight, acknowledged, ..share });
    }

    /// The share of the queue pair at `index`, on the path to its peer; `None` while it has no peer.
    fn share(&mut self, index: usize, pair: &QueuePair, ready: &mut Ready) -> Option<Share> {
        let peer = pair.flow().map(|flow| flow.destination);
        let known = self.shares.get(index).copied().flatten();
        if known.map(|share| share.peer) == peer {
            return known;
        }
        self.leave(index, ready);
        let peer = peer?;
        let path = *self.by_peer.entry(peer).or_insert_with(|| {
            self.paths.push(Path { window: Window::new(self.most), waiting: Vec::new() });
            self.paths.len() - 1
        });
        if self.shares.len() <= index {
            self.shares.resize(index + 1, None);
        }
        let share = Share { peer, path, in_flight: 0, acknowledged: pair.acknowledged() };
        self.shares[index] = Some(share);
        Some(share)
    }

    /// The queue pair at `index` is gone or has no peer any more, and what it had in flight with it.
    pub(super) fn leave(&mut self, index: usize, ready: &mut Ready) {
        let Some(share) = self.shares.get_mut(index).and_then(Option::take) else { return };
        let path = &mut self.paths[share.path];
        path.window.adjust(share.in_flight, 0);
        path.waiting.retain(|&other| other != index);
        for waiting in path.waiting.drain(..) {
            ready.push(waiting);
        }
    }
}
