//! The transmit queue: datagrams in one buffer, gathered into runs that the kernel takes in one piece.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use smallvec::SmallVec;

use super::local::{DEFAULT_HOP_LIMIT, Local, TransmitterIndex};
use crate::port::message::{Address, Outgoing};
use crate::port::sys::{self, SEND_BATCH};
use crate::port::{PortCounters, seal};
use crate::wire::{Flow, ICRC_LEN, MAX_DATAGRAM, UDP_PORT};

/// Bytes of the buffer.
const BUFFER_LEN: usize = 512 << 10;
/// The most runs that wait at a time.
const RUNS: usize = 1024;
/// The most datagrams of a run: `UDP_MAX_SEGMENTS` of kernels before 6.9, later ones take 128.
const RUN_DATAGRAMS: usize = 64;
/// The most bytes of a run. UDP over IPv4 would take 65,507, but a run that with its IP and Ethernet headers reaches a
/// device's `gso_max_size` of 64 KiB is cut in software (`gso_features_check`), so leave room for them.
const RUN_BYTES: usize = (64 << 10) - 128;

/// Datagrams that wait for [`flush`](Queue::flush).
pub(super) struct Queue {
    buffer: Box<[u8]>,
    /// Where the next datagram begins.
    tail: usize,
    runs: Vec<Run>,
    /// Whether the last flush left runs behind because sockets were full.
    backlog: bool,
}

/// Consecutive datagrams of one flow, all of `segment` bytes but the last, which may be shorter.
struct Run {
    flow: Flow,
    local: usize,
    transmitter: TransmitterIndex,
    source_port: u16,
    /// Where in the buffer it begins.
    start: usize,
    /// Bytes of it, 0 once it is sent or dropped.
    length: usize,
    /// Bytes of each datagram, ICRC included.
    segment: usize,
    /// Whether it takes no further datagram.
    closed: bool,
    /// Whether the kernel refused it in one piece, so that its datagrams go one by one.
    cut: bool,
}

impl Run {
    /// How many datagrams it has.
    fn count(&self) -> usize {
        self.length.div_ceil(self.segment)
    }

    /// Whether a datagram of `flow`, `length` bytes with its ICRC, may be appended.
    fn takes(&self, flow: &Flow, length: usize) -> bool {
        !self.closed
            && length <= self.segment
            && self.length + length <= RUN_BYTES
            && self.count() < RUN_DATAGRAMS
            && self.flow == *flow
    }

    /// The messages to the kernel that carry it: one, or one for each datagram when it is cut.
    fn messages<'a>(&self, buffer: &'a [u8], scope: u32) -> impl Iterator<Item = Outgoing<'a>> {
        let bytes = buffer
            .get(self.start..self.start + self.length)
            .unwrap_or(&[]);
        let whole = !self.cut && self.count() > 1;
        let segment = whole.then(|| u16::try_from(self.segment).unwrap_or(u16::MAX));
        let flow = self.flow;
        bytes
            .chunks(if self.cut { self.segment } else { RUN_BYTES })
            .map(move |bytes| Outgoing {
                bytes,
                destination: Some(Address::udp(flow.destination, UDP_PORT, scope)),
                segment,
                traffic_class: (flow.traffic_class != 0).then_some(flow.traffic_class),
                // A hop limit of 0 cannot be sent; programs that leave it unset mean the usual one.
                hop_limit: (!matches!(flow.hop_limit, 0 | DEFAULT_HOP_LIMIT))
                    .then_some(flow.hop_limit),
            })
    }
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER_LEN].into_boxed_slice(),
            tail: 0,
            runs: Vec::with_capacity(RUNS),
            backlog: false,
        }
    }

    /// See [`Port::room`](crate::port::Port::room).
    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        if self.runs.len() == RUNS {
            return None;
        }
        self.buffer
            .get_mut(self.tail..)
            .filter(|room| room.len() >= MAX_DATAGRAM)
    }

    /// See [`Port::backlog`](crate::port::Port::backlog).
    pub(super) fn backlog(&self) -> bool {
        self.backlog
    }

    /// The sockets whose runs the last flush left behind.
    pub(super) fn full_sockets(&self, locals: &[Local]) -> Vec<RawFd> {
        let socket = |run: &Run| Some(locals.get(run.local)?.socket(run.transmitter).as_raw_fd());
        let mut sockets: Vec<RawFd> = self
            .runs
            .iter()
            .filter(|_| self.backlog)
            .filter_map(socket)
            .collect();
        sockets.sort_unstable();
        sockets.dedup();
        sockets
    }

    /// See [`Port::commit`](crate::port::Port::commit).
    pub(super) fn commit(
        &mut self,
        flow: &Flow,
        length: usize,
        locals: &mut [Local],
        counters: &mut PortCounters,
    ) {
        let length = length + ICRC_LEN;
        let Some(frame) = self
            .buffer
            .get_mut(self.tail..)
            .and_then(|room| room.get_mut(..length))
        else {
            panic!("commit of {length} bytes, ICRC included, into a room that has fewer");
        };
        // The kernel numbers the datagrams of a run 0, 1, 2, ... in the IPv4 ID, which the ICRC covers.
        if let Some(run) = self.runs.last_mut().filter(|run| run.takes(flow, length)) {
            seal::seal(
                flow,
                run.source_port,
                u16::try_from(run.count()).unwrap_or(0),
                frame,
            );
            run.length += length;
            run.closed = length < run.segment;
        } else {
            let found = locals
                .iter_mut()
                .enumerate()
                .find(|(_, local)| local.address == flow.source);
            let Some((index, local)) =
                found.filter(|_| flow.source.is_ipv4() == flow.destination.is_ipv4())
            else {
                counters.send_errors += 1;
                return;
            };
            let transmitter = local.transmitter(flow.source_port);
            let source_port = local.source_port(transmitter);
            seal::seal(flow, source_port, 0, frame);
            self.runs.push(Run {
                flow: *flow,
                local: index,
                transmitter,
                source_port,
                start: self.tail,
                length,
                segment: length,
                closed: !local.segmentation,
                cut: false,
            });
        }
        self.tail += length;
    }

    /// See [`Port::flush`](crate::port::Port::flush).
    pub(super) fn flush(
        &mut self,
        locals: &mut [Local],
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        // A socket that is full must not hold up those of other flows, whose way out may be free.
        let mut full: SmallVec<[(usize, TransmitterIndex); 4]> = SmallVec::new();
        let mut next = 0;
        while let Some(run) = self.runs.get(next) {
            let socket = (run.local, run.transmitter);
            if full.contains(&socket) {
                next += 1;
                continue;
            }
            match self.send_from(next, locals, counters) {
                Ok(done) => next += done,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => full.push(socket),
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

    /// Sends the run at `first` and, in the same call, those behind it that the same socket sends. Returns how many
    /// are done with.
    fn send_from(
        &mut self,
        first: usize,
        locals: &mut [Local],
        counters: &mut PortCounters,
    ) -> io::Result<usize> {
        let runs = self.runs.get_mut(first..).unwrap_or_default();
        let Some((head, _)) = runs.split_first() else {
            return Ok(0);
        };
        let Some(local) = locals.get_mut(head.local) else {
            return Ok(1);
        };
        let (index, transmitter, cut) = (head.local, head.transmitter, head.cut);
        let same =
            |run: &&Run| run.local == index && run.transmitter == transmitter && run.cut == cut;
        let together = if cut { 1 } else { SEND_BATCH };
        let messages: SmallVec<[Outgoing<'_>; SEND_BATCH]> = runs
            .iter()
            .take_while(same)
            .take(together)
            .flat_map(|run| run.messages(&self.buffer, local.scope))
            .take(SEND_BATCH)
            .collect();
        let sent = sys::send_batch(local.socket(transmitter).as_fd(), &messages)?;
        counters.send_calls += 1;
        if cut {
            // The pieces go where the whole did not: this way out has no segmentation.
            local.segmentation = false;
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
        let Some(run) = self
            .runs
            .get_mut(index)
            .filter(|run| !run.cut && run.count() > 1)
        else {
            return false;
        };
        run.cut = true;
        run.closed = true;
        let bytes = self
            .buffer
            .get_mut(run.start..run.start + run.length)
            .unwrap_or_default();
        for frame in bytes.chunks_mut(run.segment) {
            seal::seal(&run.flow, run.source_port, 0, frame);
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
