//! The transmit queue: datagrams in one buffer, gathered into runs that the kernel takes in one piece.

use std::io;

use smallvec::SmallVec;

use super::{PortCounters, seal};
use crate::wire::{Flow, ICRC_LEN, MAX_DATAGRAM};

/// Bytes of the buffer.
const BUFFER_LEN: usize = 512 << 10;
/// The most runs that wait at a time.
const RUNS: usize = 1024;
/// The most datagrams of a run: `UDP_MAX_SEGMENTS` of kernels before 6.9, later ones take 128.
const RUN_DATAGRAMS: usize = 64;
/// The most bytes of a run. UDP over IPv4 would take 65,507, but a run that with its IP and Ethernet headers reaches a
/// device's `gso_max_size` of 64 KiB is cut in software (`gso_features_check`), so leave room for them.
pub(super) const RUN_BYTES: usize = (64 << 10) - 128;

/// Where in a datagram the high byte of the destination queue pair stands: in the BTH.
const SLOT: usize = 5;

/// Datagrams that wait for [`flush`](Queue::flush), on ways that `W` names: a socket, or a next hop.
pub(super) struct Queue<W> {
    buffer: Box<[u8]>,
    /// Where the next datagram begins.
    tail: usize,
    runs: Vec<Run<W>>,
    /// Whether the last flush left runs behind because their ways were full.
    backlog: bool,
}

/// Consecutive datagrams of one flow, all of `segment` bytes but the last, which may be shorter.
pub(super) struct Run<W> {
    /// What its datagrams have in common.
    pub(super) flow: Flow,
    /// The slot of the peer that they are for: the high byte of the destination queue pair. All of a run go to one socket.
    slot: Option<u8>,
    /// How it leaves.
    pub(super) way: Way<W>,
    /// Bytes of each datagram, ICRC included.
    pub(super) segment: usize,
    /// Where in the buffer it begins.
    start: usize,
    /// Bytes of it, 0 once it is sent or dropped.
    length: usize,
    /// Whether it takes no further datagram.
    closed: bool,
    /// Whether the kernel refused it in one piece, so that its datagrams go one by one.
    cut: bool,
}

/// How a run leaves.
#[derive(Clone, Copy)]
pub(super) struct Way<W> {
    /// Runs of one name are sent together and wait together.
    pub(super) name: W,
    /// The UDP source port on the wire.
    pub(super) source_port: u16,
    /// Whether the kernel is thought to cut runs into datagrams there.
    pub(super) segmentation: bool,
}

/// What stands between a queue and the kernel.
pub(super) trait Sender<W> {
    /// The way for datagrams of `flow`; `None`: there is none, and they are dropped and counted.
    fn way(&mut self, flow: &Flow) -> Option<Way<W>>;

    /// Hands `messages`, all of one way, to the kernel in one call; returns how many it took.
    ///
    /// # Errors
    /// What the kernel says of the first. `EAGAIN`: it has no room now. `EIO` or `EINVAL`, where that is a run: perhaps it
    /// can only take single datagrams.
    fn send(&mut self, way: W, messages: &[Message<'_>]) -> io::Result<usize>;

    /// Learns that single datagrams go where a run did not.
    fn no_segmentation(&mut self, way: W);

    /// How many messages one call of [`send`](Sender::send) takes.
    const BATCH: usize;
}

/// A run, or a piece of one, as it goes to the kernel.
pub(super) struct Message<'a> {
    /// The datagrams, with their ICRCs.
    pub(super) bytes: &'a [u8],
    /// What they have in common.
    pub(super) flow: &'a Flow,
    /// The UDP source port on the wire.
    pub(super) source_port: u16,
    /// Bytes of each datagram but the last, when there are several.
    pub(super) segment: Option<u16>,
}

impl<W: Copy + PartialEq> Run<W> {
    /// How many datagrams it has.
    fn count(&self) -> usize {
        self.length.div_ceil(self.segment)
    }

    /// Whether a datagram of `flow` for `slot`, `length` bytes with its ICRC, may be appended.
    fn takes(&self, flow: &Flow, slot: Option<u8>, length: usize) -> bool {
        !self.closed
            && length <= self.segment
            && self.length + length <= RUN_BYTES
            && self.count() < RUN_DATAGRAMS
            && self.flow == *flow
            && self.slot == slot
    }

    /// The messages that carry it: one, or one for each datagram when it is cut.
    fn messages<'a>(&'a self, buffer: &'a [u8]) -> impl Iterator<Item = Message<'a>> {
        let bytes = buffer.get(self.start..self.start + self.length).unwrap_or(&[]);
        let whole = !self.cut && self.count() > 1;
        let segment = whole.then(|| u16::try_from(self.segment).unwrap_or(u16::MAX));
        let piece = if self.cut { self.segment } else { RUN_BYTES };
        let source_port = self.way.source_port;
        bytes.chunks(piece).map(move |bytes| Message { bytes, flow: &self.flow, source_port, segment })
    }
}

impl<W: Copy + PartialEq> Queue<W> {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; BUFFER_LEN].into_boxed_slice(), tail: 0, runs: Vec::with_capacity(RUNS), backlog: false }
    }

    /// See [`Port::room`](super::Port::room).
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        if self.runs.len() == RUNS {
            return None;
        }
        self.buffer.get_mut(self.tail..).filter(|room| room.len() >= MAX_DATAGRAM)
    }

    /// See [`Port::backlog`](super::Port::backlog).
    pub(super) fn backlog(&self) -> bool {
        self.backlog
    }

    /// The ways whose runs the last flush left behind, one for each run.
    pub(super) fn full_ways(&self) -> impl Iterator<Item = W> {
        self.runs.iter().filter(|_| self.backlog).map(|run| run.way.name)
    }

    /// See [`Port::commit`](super::Port::commit).
    pub(super) fn commit(
        &mut self,
        flow: &Flow,
        length: usize,
        sender: &mut impl Sender<W>,
        counters: &mut PortCounters,
    ) {
        let length = length + ICRC_LEN;
        let Some(frame) = self.buffer.get_mut(self.tail..).and_then(|room| room.get_mut(..length)) else {
            panic!("commit of {length} bytes, ICRC included, into a room that has fewer");
        };
        let slot = frame.get(SLOT).copied();
        // The kernel numbers the datagrams of a run 0, 1, 2, ... in the IPv4 ID, which the ICRC covers.
        if let Some(run) = self.runs.last_mut().filter(|run| run.takes(flow, slot, length)) {
            seal::seal(flow, run.way.source_port, u16::try_from(run.count()).unwrap_or(0), frame);
            run.length += length;
            run.closed = length < run.segment;
        } else {
            let same_family = flow.source.is_ipv4() == flow.destination.is_ipv4();
            let Some(way) = sender.way(flow).filter(|_| same_family) else {
                counters.send_errors += 1;
                return;
            };
            seal::seal(flow, way.source_port, 0, frame);
            let closed = !way.segmentation;
            self.runs.push(Run {
                flow: *flow,
                slot,
                way,
                segment: length,
                start: self.tail,
                length,
                closed,
                cut: false,
            });
        }
        self.tail += length;
    }

    /// See [`Port::flush`](super::Port::flush).
    pub(super) fn flush(&mut self, sender: &mut impl Sender<W>, counters: &mut PortCounters) -> io::Result<()> {
        // A way that is full must not hold up those of other flows, which may be free.
        let mut full: SmallVec<[W; 4]> = SmallVec::new();
        let mut next = 0;
        while let Some(run) = self.runs.get(next) {
            let way = run.way.name;
            if full.contains(&way) {
                next += 1;
                continue;
            }
            match self.send_from(next, sender, counters) {
                Ok(done) => next += done,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => full.push(way),
                    Some(libc::EINTR) => {}
                    Some(libc::EBADF | libc::ENOTSOCK) => return Err(error),
                    Some(libc::EIO | libc::EINVAL) if self.cut(next) => {}
                    _ => {
                        self.drop_run(next, counters);
                        next += 1;
                    }
                },
            }
        }
        self.reclaim();
        self.backlog = !self.runs.is_empty();
        Ok(())
    }

    /// Sends the run at `first` and, in the same call, those behind it that leave the same way. Returns how many are
    /// done with.
    fn send_from<S: Sender<W>>(
        &mut self,
        first: usize,
        sender: &mut S,
        counters: &mut PortCounters,
    ) -> io::Result<usize> {
        let runs = self.runs.get_mut(first..).unwrap_or_default();
        let Some((head, _)) = runs.split_first() else {
            return Ok(0);
        };
        let (way, cut) = (head.way.name, head.cut);
        let messages: SmallVec<[Message<'_>; 16]> = runs
            .iter()
            .take_while(|run| run.way.name == way && run.cut == cut && run.length > 0)
            .take(if cut { 1 } else { S::BATCH })
            .flat_map(|run| run.messages(&self.buffer))
            .take(S::BATCH)
            .collect();
        let sent = sender.send(way, &messages)?;
        drop(messages);
        counters.send_calls += 1;
        if cut {
            sender.no_segmentation(way);
            if let Some(run) = runs.first_mut() {
                let bytes = (sent * run.segment).min(run.length);
                counters.sent += sent as u64;
                counters.sent_bytes += bytes as u64;
                run.start += bytes;
                run.length -= bytes;
                return Ok(usize::from(run.length == 0));
            }
        }
        for run in runs.iter_mut().take(sent) {
            counters.sent += run.count() as u64;
            counters.sent_bytes += run.length as u64;
            run.length = 0;
        }
        Ok(sent)
    }

    /// After the kernel refused the run at `index` as such: has its datagrams sent one by one, each with an IPv4 ID of 0.
    /// Returns false when that was tried already or there is only one.
    pub(super) fn cut(&mut self, index: usize) -> bool {
        let Some(run) = self.runs.get_mut(index).filter(|run| !run.cut && run.count() > 1) else {
            return false;
        };
        run.cut = true;
        run.closed = true;
        let bytes = self.buffer.get_mut(run.start..run.start + run.length).unwrap_or_default();
        for frame in bytes.chunks_mut(run.segment) {
            seal::seal(&run.flow, run.way.source_port, 0, frame);
        }
        true
    }

    /// Gives up the run at `index`, as a wire would lose it.
    fn drop_run(&mut self, index: usize, counters: &mut PortCounters) {
        if let Some(run) = self.runs.get_mut(index) {
            counters.send_errors += run.count() as u64;
            run.length = 0;
        }
    }

    /// Forgets the runs that are done with and makes room at the end of the buffer.
    fn reclaim(&mut self) {
        self.runs.retain(|run| run.length > 0);
        let Some(start) = self.runs.first().map(|run| run.start) else {
            self.tail = 0;
            return;
        };
        if start >= BUFFER_LEN / 2 {
            self.buffer.copy_within(start..self.tail, 0);
            self.tail -= start;
            for run in &mut self.runs {
                run.start -= start;
            }
        }
    }
}
