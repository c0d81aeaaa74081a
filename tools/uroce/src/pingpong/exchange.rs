//! One end of the exchange: its queue pair, its buffer, and the turns it takes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use uroce::verbs::{
    Access, AddressVector, Capacity, Completion, CompletionKind, ConnectOptions, Context, Destination, Grh,
    MemoryRegion, Operation, Peer, ProtectionDomain, Psn, QpConfig, QpType, QueuePair, ReceiveRequest, SendRequest,
    Status,
};

use super::inbox::Inbox;
use super::{Arguments, Service};

/// Completions taken at once.
const BURST: usize = 2;

/// One end, ready to be connected.
pub(super) struct End {
    pd: ProtectionDomain,
    qp: QueuePair,
    /// Where datagrams go, once that is known.
    destination: Option<Destination>,
    inbox: Inbox,
    region: MemoryRegion,
    /// Bytes in front of a message that was received: on UD, the header that it came with.
    header: u32,
    size: u32,
    rx_depth: u32,
    client: bool,
}

/// What came out.
pub(super) struct Report {
    /// From the first message to the last.
    pub(super) elapsed: Duration,
}

impl End {
    /// Makes what an end needs, and posts the receive requests.
    pub(super) fn new(context: &Context, service: Service, arguments: &Arguments, client: bool) -> Result<Self> {
        let (size, rx_depth) = (service.size(arguments), arguments.rx_depth);
        let (qp_type, header) = match service {
            // Over a shared receive queue there are ends of another kind.
            Service::Rc | Service::Srq => (QpType::Rc, 0),
            Service::Uc => (QpType::Uc, 0),
            // The header of a datagram comes first.
            Service::Ud => (QpType::Ud, Grh::LEN as u32),
        };
        let inbox = Inbox::new(context, rx_depth as usize + 1, arguments.events)?;
        let cq = inbox.cq();
        let pd = context.alloc_pd();
        let region = pd.register((header + size) as usize, Access::LOCAL_WRITE)?;
        let capacity = Capacity { max_send_wr: 1, max_receive_wr: rx_depth, ..Capacity::default() };
        let qp = pd.create_qp(&QpConfig { qp_type, capacity, ..QpConfig::new(cq, cq) })?;
        // The kernel's tool fills like this, and its server expects zeros at the start of each page when it checks.
        let fill = if client && arguments.chk { 0 } else { 0x7b + u8::from(!client) };
        region.write(0, &vec![fill; (header + size) as usize])?;
        qp.to_init(&ConnectOptions { access: Access::empty(), ..ConnectOptions::default() })?;
        let end = Self { pd, qp, destination: None, inbox, region, header, size, rx_depth, client };
        end.post_receives(rx_depth)?;
        Ok(end)
    }

    /// The queue pair, in INIT.
    pub(super) fn qp(&self) -> &QueuePair {
        &self.qp
    }

    /// Makes the queue pair ready for `peer`; `psn` is the first that it sends.
    pub(super) fn connect(&mut self, psn: Psn, peer: &Peer, options: &ConnectOptions) -> uroce::verbs::Result<()> {
        if self.qp.qp_type() != QpType::Ud {
            return self.qp.connect(psn, peer, options);
        }
        self.qp.start(psn, options.qkey)?;
        let source_gid_index = options.source_gid_index.unwrap_or(0);
        let vector = AddressVector { source_gid_index, ..AddressVector::to(peer.address) };
        self.destination = Some(self.pd.create_ah(&vector)?.at(peer.qpn, options.qkey));
        Ok(())
    }

    /// Sends and receives `iterations` messages each way. The client begins.
    pub(super) fn exchange(&self, iterations: u64) -> Result<Report> {
        let start = Instant::now();
        let (mut sent, mut received, mut receives) = (0, 0, self.rx_depth);
        // The next message goes when the last one has gone, and its answer is here.
        let (mut sending, mut awaiting) = (false, true);
        if self.client {
            self.post_send()?;
            sending = true;
        }
        let mut completions = [Completion::default(); BURST];
        while sent < iterations || received < iterations {
            let count = self.inbox.next(&mut completions)?;
            for completion in completions.iter().take(count) {
                if completion.status != Status::Success {
                    bail!("the exchange broke off after {received} messages: {}", completion.status.as_str());
                }
                if completion.kind == CompletionKind::Receive {
                    received += 1;
                    receives -= 1;
                    awaiting = false;
                    if receives <= 1 {
                        self.post_receives(self.rx_depth - receives)?;
                        receives = self.rx_depth;
                    }
                } else {
                    sent += 1;
                    sending = false;
                }
                if !sending && !awaiting && sent < iterations {
                    self.post_send()?;
                    (sending, awaiting) = (true, true);
                }
            }
        }
        Ok(Report { elapsed: start.elapsed() })
    }

    /// Checks what the peer sent last: a zero at the start of each page, as the tools agree.
    pub(super) fn check(&self) -> Result<()> {
        const PAGE: usize = 4096;
        for offset in (0..self.size as usize).step_by(PAGE) {
            let mut byte = [0];
            self.region.read(self.header as usize + offset, &mut byte)?;
            if byte != [0] {
                bail!("invalid data in page {}: {:#04x} (does the client run with -c?)", offset / PAGE, byte[0]);
            }
        }
        Ok(())
    }

    fn post_send(&self) -> Result<()> {
        let request = SendRequest::new(0, Operation::Send, &[self.region.sge(self.header as usize, self.size)]);
        let request = match self.destination {
            Some(destination) => request.to(destination),
            None => request,
        };
        Ok(self.qp.post_send([request])?)
    }

    fn post_receives(&self, count: u32) -> Result<()> {
        let sge = self.region.sge(0, self.header + self.size);
        Ok(self.qp.post_receive((0..count).map(|_| ReceiveRequest::new(0, &[sge])))?)
    }
}
