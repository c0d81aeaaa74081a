//! Several connections on one shared receive queue, as `ibv_srq_pingpong` has them.

use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use uroce::verbs::{
    Access, Capacity, Completion, CompletionKind, ConnectOptions, Context, MemoryRegion, Operation, Peer, QpConfig,
    QueuePair, ReceiveRequest, SendRequest, SharedReceiveQueue, SrqConfig, Status, random_psn,
};

use super::exchange::Report;
use super::handshake::{self, Address};
use super::inbox::Inbox;
use super::{Arguments, Service, options, print, refusal};
use crate::output::say;

/// Completions taken at once.
const BURST: usize = 64;

/// Makes one end, gets to know the other, exchanges messages, and says how long it took.
pub(super) fn run(
    mut stream: TcpStream,
    context: &Context,
    index: u8,
    arguments: &Arguments,
    client: bool,
) -> Result<()> {
    let mut end = End::new(context, arguments)?;
    let address = context.address(index)?;
    let own: Vec<Peer> = end.links.iter().map(|link| link.qp.local(random_psn()).at(address)).collect();
    for peer in &own {
        say!("  local address:  {}", Address(*peer))?;
    }
    connect(&mut stream, context, &end, &own, index, arguments, client)?;
    let report = end.exchange(arguments.iters, client)?;
    print(&report, Service::Srq.size(arguments), arguments.iters)
}

/// As for a single connection: the server is ready to receive before it answers.
fn connect(
    stream: &mut TcpStream,
    context: &Context,
    end: &End,
    own: &[Peer],
    index: u8,
    arguments: &Arguments,
    client: bool,
) -> Result<()> {
    let options = options(arguments, index);
    let ready = |peers: &[Peer]| {
        end.links.iter().zip(own).zip(peers).try_for_each(|((link, own), peer)| {
            link.qp.connect(own.psn, peer, &options).with_context(|| refusal(context, peer, index))
        })
    };
    let peers = if client {
        handshake::tell_all(stream, own)?;
        let peers = handshake::learn_all(stream, own.len())?;
        handshake::finish(stream)?;
        ready(&peers)?;
        peers
    } else {
        let peers = handshake::learn_all(stream, own.len())?;
        ready(&peers)?;
        handshake::tell_all(stream, own)?;
        handshake::await_finish(stream)?;
        peers
    };
    for peer in peers {
        say!("  remote address: {}", Address(peer))?;
    }
    Ok(())
}

/// One of the connections.
struct Link {
    qp: QueuePair,
    /// A message of ours has not completed.
    sending: bool,
    /// The peer's answer is not here.
    awaiting: bool,
}

/// One end: the connections, and what they share.
struct End {
    links: Vec<Link>,
    srq: SharedReceiveQueue,
    inbox: Inbox,
    region: MemoryRegion,
    size: u32,
    rx_depth: u32,
}

impl End {
    /// Makes what an end needs, and posts the receive requests.
    fn new(context: &Context, arguments: &Arguments) -> Result<Self> {
        let (size, rx_depth, count) = (Service::Srq.size(arguments), arguments.rx_depth, arguments.num_qp);
        if count > rx_depth {
            bail!("{rx_depth} receive requests are too few for {count} connections: each needs one, see -r");
        }
        let inbox = Inbox::new(context, (rx_depth + count) as usize, arguments.events)?;
        let pd = context.alloc_pd();
        let region = pd.register(size as usize, Access::LOCAL_WRITE)?;
        let srq = pd.create_srq(&SrqConfig { max_wr: rx_depth, max_sge: 1 })?;
        let capacity = Capacity { max_send_wr: 1, ..Capacity::default() };
        let config = QpConfig { capacity, srq: Some(srq.clone()), ..QpConfig::new(inbox.cq(), inbox.cq()) };
        let mut links = Vec::new();
        for _ in 0..count {
            let qp = pd.create_qp(&config)?;
            qp.to_init(&ConnectOptions { access: Access::empty(), ..ConnectOptions::default() })?;
            links.push(Link { qp, sending: false, awaiting: true });
        }
        let end = Self { links, srq, inbox, region, size, rx_depth };
        end.post_receives(rx_depth)?;
        Ok(end)
    }

    /// Sends and receives `iterations` messages each way, on all connections together. The client begins on each.
    fn exchange(&mut self, iterations: u64, client: bool) -> Result<Report> {
        let start = Instant::now();
        let (mut sent, mut received, mut receives) = (0, 0, self.rx_depth);
        if client {
            (0..self.links.len()).try_for_each(|link| self.post_send(link))?;
        }
        let mut completions = [Completion::default(); BURST];
        while sent < iterations || received < iterations {
            let count = self.inbox.next(&mut completions)?;
            for completion in completions.iter().take(count) {
                if completion.status != Status::Success {
                    bail!("the exchange broke off after {received} messages: {}", completion.status.as_str());
                }
                let at = self.links.iter().position(|link| link.qp.qpn() == completion.qpn);
                let at = at.ok_or_else(|| anyhow!("a completion of {}, which is not ours", completion.qpn))?;
                if completion.kind == CompletionKind::Receive {
                    received += 1;
                    receives -= 1;
                    self.links[at].awaiting = false;
                    if receives as usize <= self.links.len() {
                        self.post_receives(self.rx_depth - receives)?;
                        receives = self.rx_depth;
                    }
                } else {
                    sent += 1;
                    self.links[at].sending = false;
                }
                let Link { sending, awaiting, .. } = self.links[at];
                if !sending && !awaiting && sent < iterations {
                    self.post_send(at)?;
                }
            }
        }
        Ok(Report { elapsed: start.elapsed() })
    }

    fn post_send(&mut self, link: usize) -> Result<()> {
        let link = &mut self.links[link];
        let request = SendRequest::new(0, Operation::Send, &[self.region.sge(0, self.size)]);
        link.qp.post_send([request])?;
        (link.sending, link.awaiting) = (true, true);
        Ok(())
    }

    fn post_receives(&self, count: u32) -> Result<()> {
        let sge = self.region.sge(0, self.size);
        Ok(self.srq.post_receive((0..count).map(|_| ReceiveRequest::new(0, &[sge])))?)
    }
}
