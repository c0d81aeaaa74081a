//! Regions, windows and fast regions through the API: what can be dropped when, changed, and refused.

use std::ptr::NonNull;

use uroce::verbs::{Flush, Placement, ReceiveRequest, Remote, Reregister, Selectivity, Sge, WindowType};

use super::*;

fn request(id: u64, operation: Operation) -> SendRequest {
    SendRequest::new(id, operation, &[])
}

/// A region of B that windows can be bound to, and one bound over its first 64 bytes.
fn with_window(b: &Side, window_type: WindowType) -> (MemoryRegion, uroce::verbs::MemoryWindow) {
    let region = b.pd.register(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let window = b.pd.allocate_window(window_type).unwrap();
    assert_eq!(window.window_type(), window_type);
    let before = window.rkey();
    b.qp.post_send([request(1, window.bind(&region, 0, 64, Access::REMOTE_WRITE))]).unwrap();
    assert_success(b.poll(), CompletionKind::BindWindow);
    assert_eq!(window.rkey() >> 8, before >> 8);
    assert_ne!(window.rkey(), before);
    (region, window)
}

#[test]
fn a_region_with_windows_is_busy_until_they_are_dropped() {
    let (_a, b) = Side::pair();
    let (mut region, window) = with_window(&b, WindowType::Two);
    let change = Reregister { access: Some(Access::LOCAL_WRITE), ..Reregister::default() };
    assert_eq!(region.reregister(&change).unwrap_err().errno(), 16);
    let (region, error) = region.deregister().unwrap_err();
    assert_eq!(error.errno(), 16);
    assert!(error.to_string().contains("1 memory windows"), "{error}");
    drop(window);
    region.deregister().unwrap();
}

#[test]
fn a_region_that_is_dropped_takes_its_memory_from_windows() {
    for window_type in [WindowType::One, WindowType::Two] {
        let (a, b) = Side::pair();
        let (region, window) = with_window(&b, window_type);
        let remote = window.remote(&region, 0);
        a.post(Operation::Write(remote), 8);
        assert_success(a.poll(), CompletionKind::Write);
        drop(region);
        a.post(Operation::Write(remote), 8);
        assert_eq!(a.poll().status, Status::RemoteAccessError);
    }
}

#[test]
fn a_window_that_is_dropped_is_closed() {
    let (a, b) = Side::pair();
    let (region, window) = with_window(&b, WindowType::One);
    let remote = window.remote(&region, 0);
    drop(window);
    a.post(Operation::Write(remote), 8);
    assert_eq!(a.poll().status, Status::RemoteAccessError);
}

#[test]
fn a_fast_region_serves_a_peer_and_ourselves() {
    let (a, b) = Side::pair();
    let region = b.pd.register(8192, Access::LOCAL_WRITE).unwrap();
    let fast = b.pd.allocate_fast_region(1).unwrap();
    assert_eq!(fast.max_length(), 4096);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    b.qp.post_send([request(1, fast.register(&region, 4096, 4096, access))]).unwrap();
    assert_success(b.poll(), CompletionKind::FastRegister);
    let address = region.remote(4096).address;
    a.region.write(0, b"through it").unwrap();
    a.post(Operation::Write(fast.remote(address)), 10);
    assert_success(a.poll(), CompletionKind::Write);
    let write = SendRequest::new(2, Operation::Write(a.region.remote(100)), &[fast.sge(address, 10)]);
    b.qp.post_send([write, request(3, fast.invalidate())]).unwrap();
    assert_success(b.poll(), CompletionKind::Write);
    assert_success(b.poll(), CompletionKind::LocalInvalidate);
    assert_eq!(a.bytes(100, 10), b"through it");
    a.post(Operation::Write(fast.remote(address)), 10);
    assert_eq!(a.poll().status, Status::RemoteAccessError);
}

#[test]
fn a_region_changes_rights_memory_and_domain_under_its_key() {
    let (a, b) = Side::pair();
    let mut region = b.pd.register(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let key = region.rkey();
    let change = |region: &mut MemoryRegion, change: Reregister<'_>| region.reregister(&change);
    change(&mut region, Reregister { length: Some(4096), ..Reregister::default() }).unwrap();
    a.post(Operation::Write(region.remote(4000)), 96);
    assert_success(a.poll(), CompletionKind::Write);
    let zero_based = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::ZERO_BASED;
    change(&mut region, Reregister { access: Some(zero_based), ..Reregister::default() }).unwrap();
    assert_eq!((region.address(), region.rkey(), region.len()), (0, key, 4096));
    a.post(Operation::Write(Remote { address: 4088, rkey: key }), 8);
    assert_success(a.poll(), CompletionKind::Write);

    let refused = Reregister { access: Some(Access::REMOTE_WRITE), length: Some(1), ..Reregister::default() };
    assert_eq!(change(&mut region, refused).unwrap_err().errno(), 22);
    assert_eq!((region.access(), region.len()), (zero_based, 4096), "as it was");
    let foreign = a.pd.clone();
    let error = change(&mut region, Reregister { pd: Some(&foreign), ..Reregister::default() }).unwrap_err();
    assert!(error.to_string().contains("another context"), "{error}");

    let other = b.context.alloc_pd();
    change(&mut region, Reregister { pd: Some(&other), ..Reregister::default() }).unwrap();
    a.post(Operation::Write(Remote { address: 0, rkey: key }), 8);
    assert_eq!(a.poll().status, Status::RemoteAccessError);
}

/// Memory of the program's own that only raw pointers reach.
struct Own(NonNull<[u8; 256]>);

impl Own {
    fn new(byte: u8) -> Self {
        Self(NonNull::from(Box::leak(Box::new([byte; 256]))))
    }

    fn start(&self) -> NonNull<u8> {
        self.0.cast()
    }

    fn bytes(&self) -> [u8; 256] {
        // SAFETY: the box lives as long as `self`, and no request that changes it is under way.
        unsafe { self.0.as_ptr().read_volatile() }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: leaked in `new`, freed only here.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[test]
fn raw_memory_is_registered_anew_in_one_step() {
    let (a, b) = Side::pair();
    let (first, second) = (Own::new(0), Own::new(0));
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    // SAFETY: `first` and `second` outlive the region, and are read only when nothing is under way.
    let mut region = unsafe { b.pd.register_raw(first.start(), 256, 0x1000, access) }.unwrap();
    let error = region.reregister(&Reregister { length: Some(1), ..Reregister::default() }).unwrap_err();
    assert_eq!(error.errno(), 95);
    // SAFETY: as above.
    unsafe { region.reregister_raw(second.start(), 256, 0x2000, access, None) }.unwrap();
    a.region.write(0, &[7; 8]).unwrap();
    a.post(Operation::Write(region.remote(0)), 8);
    assert_success(a.poll(), CompletionKind::Write);
    assert_eq!((first.bytes()[0], second.bytes()[..9].to_vec()), (0, [&[7; 8][..], &[0]].concat()));
    region.reregister(&Reregister { access: Some(Access::LOCAL_WRITE), ..Reregister::default() }).unwrap();
    a.post(Operation::Write(region.remote(0)), 8);
    assert_eq!(a.poll().status, Status::RemoteAccessError);
    // SAFETY: nothing is registered.
    let error = unsafe { b.pd.register_raw(first.start(), 256, 1, access | Access::ZERO_BASED) }.unwrap_err();
    assert!(error.to_string().contains("count from 0"), "{error}");
    drop(region);
}

#[test]
fn an_implicit_region_must_be_asked_for() {
    let side = Side::new();
    // SAFETY: nothing is registered.
    let error = unsafe { side.pd.register_implicit(Access::LOCAL_WRITE) }.unwrap_err();
    assert_eq!(error.errno(), 95);
    assert!(error.to_string().contains("OpenOptions::implicit_on_demand"), "{error}");
    // SAFETY: as above.
    let error = unsafe { side.pd.register_raw(NonNull::dangling(), usize::MAX, 0, Access::ON_DEMAND) }.unwrap_err();
    assert!(error.to_string().contains("register_implicit"), "{error}");
}

#[test]
fn an_implicit_region_reaches_what_is_mapped_and_writable() {
    let (from, to) = (Own::new(5), Own::new(0));
    let open = || Side::on(Context::options("uroce_lo").implicit_on_demand(true).open().unwrap());
    static CONSTANT: [u8; 8] = [1; 8];
    let constant = CONSTANT.as_ptr().expose_provenance() as u64;
    let address = |own: &Own| own.start().as_ptr().expose_provenance() as u64;
    for (story, target, expected) in [
        ("mapped", address(&to), Status::Success),
        ("null", 0, Status::RemoteAccessError),
        ("a page that nobody mapped", 4096, Status::RemoteAccessError),
        ("the kernel's half", u64::MAX - 16, Status::RemoteAccessError),
        ("a constant", constant, Status::RemoteAccessError),
    ] {
        let (a, b) = (open(), open());
        connect(&a, &b);
        // SAFETY: requests name `from` and `to` only, which outlive them, or memory that is refused.
        let source = unsafe { a.pd.register_implicit(Access::LOCAL_WRITE) }.unwrap();
        // SAFETY: as above.
        let sink = unsafe { b.pd.register_implicit(Access::LOCAL_WRITE | Access::REMOTE_WRITE) }.unwrap();
        let sge = Sge { address: address(&from), length: 8, lkey: source.lkey() };
        let write = Operation::Write(Remote { address: target, rkey: sink.rkey() });
        a.qp.post_send([SendRequest::new(1, write, &[sge])]).unwrap();
        assert_eq!(a.poll().status, expected, "{story}");
    }
    assert_eq!(to.bytes()[..9], [5, 5, 5, 5, 5, 5, 5, 5, 0]);
}

#[test]
fn a_flush_makes_a_file_persistent() {
    let path = std::env::temp_dir().join(format!("uroce-verbs-flush-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.set_len(8192).unwrap();
    let (a, b) = (Side::new(), Side::new());
    let options = ConnectOptions { access: Access::REMOTE | Access::FLUSH, ..ConnectOptions::default() };
    let (to_a, to_b) = (a.qp.local(random_psn()), b.qp.local(random_psn()));
    a.qp.connect(to_a.psn, &to_b, &options).unwrap();
    b.qp.connect(to_b.psn, &to_a, &options).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::FLUSH;
    let region = b.pd.register_file(&file, 4096, 4096, access).unwrap();
    a.region.write(0, b"kept").unwrap();
    a.post(Operation::Write(region.remote(10)), 4);
    let placement = Placement::PERSISTENCE | Placement::GLOBAL_VISIBILITY;
    let flush = Flush { remote: region.remote(10), length: 4, placement, selectivity: Selectivity::Range };
    a.qp.post_send([request(1, Operation::Flush(flush))]).unwrap();
    assert_success(a.poll(), CompletionKind::Write);
    assert_success(a.poll(), CompletionKind::Flush);
    assert_eq!(std::fs::read(&path).unwrap()[4106..4110], *b"kept");
    std::fs::remove_file(&path).unwrap();

    let error = b.pd.register_file(&file, 1, 4096, access).unwrap_err();
    assert!(error.to_string().contains("at 1 of the file"), "{error}");
    let error = b.pd.register(4096, access).unwrap_err();
    assert_eq!(error.errno(), 22, "{error}");
}

/// What a program sends from nowhere is zero, what it receives there is lost, and nobody else gets there.
#[test]
fn a_null_region_is_nowhere() {
    let (a, b) = Side::pair();
    let (from, to) = (a.pd.register_null().unwrap(), b.pd.register_null().unwrap());
    b.region.write(0, &[7; 9000]).unwrap();
    let send = |id, sges: &[Sge]| a.qp.post_send([SendRequest::new(id, Operation::Send, sges)]).unwrap();
    b.qp.post_receive([ReceiveRequest::new(1, &[b.region.sge(0, 9000)])]).unwrap();
    send(1, &[from.sge(1 << 40, 5000), a.region.sge(0, 1000)]);
    assert_success(a.poll(), CompletionKind::Send);
    assert_eq!(b.poll().byte_length, 6000);
    assert_eq!(b.bytes(0, 6001), [vec![0; 6000], vec![7]].concat());

    a.region.write(0, &[9; 6000]).unwrap();
    b.qp.post_receive([ReceiveRequest::new(2, &[to.sge(0, 5000), b.region.sge(0, 1000)])]).unwrap();
    send(2, &[a.region.sge(0, 6000)]);
    assert_success(a.poll(), CompletionKind::Send);
    assert_success(b.poll(), CompletionKind::Receive);
    assert_eq!(b.bytes(0, 1001), [vec![9; 1000], vec![0]].concat());

    let mut to = to;
    let change = Reregister { access: Some(Access::LOCAL_WRITE | Access::REMOTE), ..Reregister::default() };
    assert_eq!(to.reregister(&change).unwrap_err().errno(), 95);
    a.post(Operation::Write(to.remote(0)), 8);
    assert_eq!(a.poll().status, Status::RemoteAccessError);
    to.deregister().unwrap();
}

#[test]
fn pages_are_brought_in_on_request() {
    let side = Side::new();
    let region = side.pd.register(8192, Access::empty()).unwrap();
    let errno = |list: &[Sge], changes| side.pd.prefetch(list, changes).err().map(|error| error.errno());
    assert_eq!(errno(&[region.sge(0, 8192), side.region.sge(100, 1)], false), None);
    let dropped = side.pd.register(64, Access::LOCAL_WRITE).map(|region| region.sge(0, 64)).unwrap();
    assert_eq!(errno(&[dropped], true), Some(14), "nothing has the key");
    let nowhere = side.pd.register_null().unwrap();
    assert_eq!(errno(&[nowhere.sge(0, u32::MAX)], true), None);
    assert_eq!(errno(&[region.sge(0, 8192)], true), Some(1), "not to be written");
    assert_eq!(errno(&[region.sge(1, 8192)], false), Some(14), "a byte too far");
    let other = side.context.alloc_pd();
    assert_eq!(other.prefetch(&[region.sge(0, 1)], false).unwrap_err().errno(), 1);
}

/// A file that becomes shorter while it is registered: what is gone is an error on both sides, and the program goes on.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_file_that_becomes_shorter_is_an_error() {
    let path = std::env::temp_dir().join(format!("uroce-verbs-shorter-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(8192).unwrap();
    let open = || Context::options("uroce_lo").survive_unmapped(true).open().unwrap();
    let (a, b) = (Side::on(open()), Side::on(open()));
    connect(&a, &b);
    let region = b.pd.register_file(&file, 0, 8192, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
    file.set_len(4096).unwrap();
    a.post(Operation::Write(region.remote(4000)), 96);
    assert_success(a.poll(), CompletionKind::Write);
    assert_eq!(region.write(4096, b"gone").unwrap_err().errno(), 14);
    assert_eq!(region.read(4090, &mut [0; 16]).unwrap_err().errno(), 14);
    a.post(Operation::Read(region.remote(4000)), 200);
    assert_eq!(a.poll().status, Status::RemoteAccessError);
    let event = b.context.events().wait(None).unwrap();
    assert_eq!(event, Some(uroce::verbs::AsyncEvent::QpAccessError(b.qp.qpn())));
}
