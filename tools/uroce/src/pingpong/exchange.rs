//! One end of the exchange: its queue pair, its buffer, and the turns it takes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use uroce::verbs::{
    Access, Capacity, Completion, CompletionKind, ConnectOptions, Context, MemoryRegion, Operation, QpConfig,
    QueuePair, ReceiveRequest, SendRequest, Status,
};

use super::Arguments;
use super::inbox::Inbox;

/// Completions taken at once.
const BURST: usize = 2;

/// One end, ready to be connected.
pub(super) struct End {
    qp: QueuePair,
    inbox: Inbox,
    region: MemoryRegion,
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
    pub(super) fn new(context: &Context, arguments: &Arguments, client: bool) -> Result<Self> {
        let (size, rx_depth) = (arguments.size, arguments.rx_depth);
        let inbox = Inbox::new(context, rx_depth as usize + 1, arguments.events)?;
        let cq = inbox.cq();
        let pd = context.alloc_pd();
        let region = pd.register(size as usize, Access::LOCAL_WRITE)?;
        let capacity = Capacity { max_send_wr: 1, max_receive_wr: rx_depth, ..Capacity::default() };
        let qp = pd.create_qp(&QpConfig { capacity, ..QpConfig::new(cq, cq) })?;
        // The kernel's tool fills like this, and its server expects zeros at the start of each page when it checks.
        let fill = if client && arguments.chk { 0 } else { 0x7b + u8::from(!client) };
        region.write(0, &vec![fill; size as usize])?;
        qp.to_init(&ConnectOptions { access: Access::empty(), ..ConnectOptions::default() })?;
        let end = Self { qp, inbox, region, size, rx_depth, client };
        end.post_receives(rx_depth)?;
        Ok(end)
    }

    /// The queue pair, in INIT.
    pub(super) fn qp(&self) -> &QueuePair {
        &self.qp
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
            self.region.read(offset, &mut byte)?;
            if byte != [0] {
                bail!("invalid data in page {}: {:#04x} (does the client run with -c?)", offset / PAGE, byte[0]);
            }
        }
        Ok(())
    }

    fn post_send(&self) -> Result<()> {
        let request = SendRequest::new(0, Operation::Send, &[self.region.sge(0, self.size)]);
        Ok(self.qp.post_send([request])?)
    }

    fn post_receives(&self, count: u32) -> Result<()> {
        let sge = self.region.sge(0, self.size);
        Ok(self.qp.post_receive((0..count).map(|_| ReceiveRequest::new(0, &[sge])))?)
    }
}
