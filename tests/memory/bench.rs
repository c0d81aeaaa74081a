//! What the tests of memory share: a pair whose regions allow windows, and posting on either side.

use uroce::memory::{Access, FastRegister, Holder, WindowBind, WindowType, next_key};
use uroce::time::Duration;
use uroce::wire::Qpn;
use uroce::work::{Completion, CompletionKind, Operation, SendFlags, SendRequest, Sge, Status};

use crate::common::pair::{Options, Pair, Side};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How the pair is connected: every right there is on memory that maps no file.
pub(crate) fn options() -> Options {
    let access = Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND | Access::FLUSH_GLOBAL;
    Options { access, ..Options::default() }
}

pub(crate) fn pair() -> Pair {
    Pair::clean(options())
}

/// A window of `side` that is not bound.
pub(crate) fn window(side: &mut Side, window_type: WindowType) -> u32 {
    let pd = side.pd;
    side.endpoint.memory_mut().allocate_window(pd, window_type).unwrap()
}

/// A bind of `length` bytes from `offset` of the side's region, under the window's next key.
pub(crate) fn bind(side: &Side, window: u32, offset: usize, length: u64, access: Access) -> WindowBind {
    let address = side.buffer.address() + offset as u64;
    WindowBind { window, rkey: next_key(window), lkey: side.key, address, length, access }
}

/// A fast region of `side` of one page, and the registration of `length` bytes from `offset` of the side's region.
pub(crate) fn fast(side: &mut Side, offset: usize, length: u64, access: Access) -> FastRegister {
    let (pd, lkey, address) = (side.pd, side.key, side.buffer.address() + offset as u64);
    let key = side.endpoint.memory_mut().allocate_fast(pd, 1).unwrap();
    FastRegister { key: next_key(key), lkey, address, length, iova: address, access }
}

pub(crate) fn holder(side: &Side) -> Holder {
    Holder { pd: side.pd, qpn: side.qpn }
}

/// Posts requests on B.
pub(crate) fn post_b(pair: &mut Pair, id: u64, operation: Operation, sges: &[Sge]) {
    post_on(pair, None, SendRequest::new(id, operation, sges));
}

/// Posts a request on B's queue pair `qpn`, or on its usual one.
pub(crate) fn post_on(pair: &mut Pair, qpn: Option<Qpn>, request: SendRequest) {
    let qpn = qpn.unwrap_or(pair.b.qpn);
    pair.b.endpoint.post_send(pair.now, qpn, request).unwrap();
}

/// Posts a request without payload on A that reports no success.
pub(crate) fn post_quiet(pair: &mut Pair, id: u64, operation: Operation) {
    pair.post(SendRequest::new(id, operation, &[]).with_flags(SendFlags::empty()));
}

/// The completions since the last call: id, status and kind.
pub(crate) fn ended(completions: &mut Vec<Completion>) -> Vec<(u64, Status, CompletionKind)> {
    completions.drain(..).map(|done| (done.id, done.status, done.kind)).collect()
}

/// Asserts that one request completed, so.
#[track_caller]
pub(crate) fn assert_ended(completions: &mut Vec<Completion>, id: u64, status: Status, kind: CompletionKind) {
    assert_eq!(ended(completions), [(id, status, kind)]);
}
