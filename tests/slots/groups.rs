//! Multicast groups on a shared address: each open device that has joined gets a copy.

use std::net::IpAddr;
use std::time::Instant;

use uroce::verbs::{
    Access, AddressVector, CompletionQueue, Context, Gid, Grh, MemoryRegion, Operation, QpConfig, QpType, Qpn,
    QueuePair, ReceiveRequest, SendRequest, random_psn,
};

use super::{PATIENCE, address};

const QKEY: u32 = 0x1111_1111;
const GROUP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 91, 9, 1));

struct Member {
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
    context: Context,
}

impl Member {
    fn new() -> Self {
        let context = Context::options("uroce_lo").addresses([address(9)]).open().unwrap();
        let (pd, cq) = (context.alloc_pd(), context.create_cq(16, None).unwrap());
        let qp = pd.create_qp(&QpConfig { qp_type: QpType::Ud, ..QpConfig::new(&cq, &cq) }).unwrap();
        qp.start(random_psn(), QKEY).unwrap();
        let region = pd.register(4096, Access::LOCAL_WRITE).unwrap();
        qp.post_receive([ReceiveRequest::new(1, &[region.sge(0, 2048)])]).unwrap();
        Self { qp, cq, region, context }
    }

    fn next(&self) -> uroce::verbs::Completion {
        let started = Instant::now();
        loop {
            if let Some(completion) = self.cq.poll_one() {
                return completion;
            }
            assert!(started.elapsed() < PATIENCE, "nothing came");
        }
    }
}

#[test]
fn each_member_gets_a_copy() {
    let [sender, a, b] = [(); 3].map(|()| Member::new());
    for member in [&a, &b] {
        member.qp.attach_multicast(Gid::from(GROUP)).unwrap();
    }
    sender.region.write(2048, b"to everybody").unwrap();
    let group = a.context.alloc_pd().create_ah(&AddressVector::to(GROUP)).unwrap();
    let request = SendRequest::new(2, Operation::Send, &[sender.region.sge(2048, 12)]);
    sender.qp.post_send([request.to(group.at(Qpn::MULTICAST, QKEY))]).unwrap();
    for member in [&a, &b] {
        let received = member.next();
        assert_eq!((received.byte_length as usize, received.source_qpn), (Grh::LEN + 12, sender.qp.qpn()));
        let mut bytes = [0; 12];
        member.region.read(Grh::LEN, &mut bytes).unwrap();
        assert_eq!(&bytes, b"to everybody");
    }
    assert_eq!(sender.next().id, 2, "it is no member");
}
