//! The public API on loopback devices, which need no privilege: two contexts in one process, and in two.
//!
//! Each context has an address of its own, so every packet really goes through the kernel.

mod following;
mod memory;
mod objects;
mod opening;
mod operations;
mod processes;
mod receive;
mod sleeping;
mod stat;

use uroce::verbs::{
    Access, Arm, Completion, CompletionChannel, CompletionKind, CompletionQueue, ConnectOptions, Context, MemoryRegion,
    Operation, ProtectionDomain, QpConfig, QueuePair, SendRequest, Status, random_psn,
};

/// One end of a connection and all that it stands on.
struct Side {
    qp: QueuePair,
    cq: CompletionQueue,
    channel: CompletionChannel,
    region: MemoryRegion,
    pd: ProtectionDomain,
    context: Context,
}

impl Side {
    fn new() -> Self {
        Self::on(Context::open("uroce_lo").unwrap())
    }

    fn on(context: Context) -> Self {
        let pd = context.alloc_pd();
        let channel = context.create_completion_channel().unwrap();
        let cq = context.create_cq(64, Some(&channel)).unwrap();
        let qp = pd.create_qp(&QpConfig::new(&cq, &cq)).unwrap();
        let region = pd.register(64 * 1024, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        Self { qp, cq, channel, region, pd, context }
    }

    /// Two ends, connected.
    fn pair() -> (Self, Self) {
        let (a, b) = (Self::new(), Self::new());
        connect(&a, &b);
        (a, b)
    }

    fn post(&self, operation: Operation, length: u32) {
        self.qp.post_send([SendRequest::new(7, operation, &[self.region.sge(0, length)])]).unwrap();
    }

    /// The next completion, polling.
    fn poll(&self) -> Completion {
        loop {
            if let Some(completion) = self.cq.poll_one() {
                return completion;
            }
        }
    }

    /// The next completion, sleeping on the channel.
    fn sleep(&self) -> Completion {
        loop {
            self.cq.arm(Arm::Any);
            if let Some(completion) = self.cq.poll_one() {
                return completion;
            }
            let fired = self.channel.wait(None).unwrap().expect("no time-out");
            assert_eq!(fired.number(), self.cq.number());
        }
    }

    fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.region.read(offset, &mut bytes).unwrap();
        bytes
    }
}

fn connect(a: &Side, b: &Side) {
    let (to_a, to_b) = (a.qp.local(random_psn()), b.qp.local(random_psn()));
    a.qp.connect(to_a.psn, &to_b, &ConnectOptions::default()).unwrap();
    b.qp.connect(to_b.psn, &to_a, &ConnectOptions::default()).unwrap();
}

#[track_caller]
fn assert_success(completion: Completion, kind: CompletionKind) {
    assert_eq!((completion.status, completion.kind), (Status::Success, kind), "{completion:?}");
}
