//! The rules of keys, windows and fast registration.

use std::sync::Arc;

use rand_chacha::rand_core::SeedableRng;

use super::*;
use crate::memory::{Buffer, FastRegister, WindowBind, next_key};

fn table() -> Table {
    Table::new(ChaCha12Rng::seed_from_u64(1))
}

fn region(access: Access, pd: PdNumber) -> Region {
    Region::owned(Arc::new(Buffer::zeroed(64)), 0x4000, access, pd)
}

#[test]
fn a_key_opens_what_it_was_made_for_and_nothing_else() {
    let mut table = table();
    let (pd, other) = (table.allocate_pd(), table.allocate_pd());
    let key = table.register(region(Access::LOCAL_WRITE | Access::REMOTE_WRITE, pd)).unwrap();
    let error = |key, pd, address, length, access| table.resolve(key, pd, address, length, access).err();
    assert_eq!(error(key, pd, 0x4000, 64, Access::REMOTE_WRITE), None);
    assert_eq!(error(key ^ 1, pd, 0x4000, 64, Access::REMOTE_WRITE), Some(AccessError::UnknownKey));
    assert_eq!(error(key, other, 0x4000, 64, Access::REMOTE_WRITE), Some(AccessError::WrongDomain));
    assert_eq!(error(key, pd, 0x4000, 64, Access::REMOTE_READ), Some(AccessError::Denied));
    assert_eq!(error(key, pd, 0x4001, 64, Access::REMOTE_WRITE), Some(AccessError::OutOfRange));
}

#[test]
fn a_deregistered_key_is_dead() {
    let mut table = table();
    let pd = table.allocate_pd();
    let key = table.register(region(Access::LOCAL_WRITE, pd)).unwrap();
    assert!(table.uses_pd(pd));
    assert_eq!(table.deregister(key).unwrap().length(), 64);
    assert_eq!(table.resolve(key, pd, 0x4000, 1, Access::empty()).err(), Some(AccessError::UnknownKey));
    assert_eq!(table.deregister(key).unwrap_err().errno(), 2);
    assert!(!table.uses_pd(pd));
}

#[test]
fn a_peer_may_not_change_what_we_may_not() {
    let mut table = table();
    let pd = table.allocate_pd();
    let error = table.register(region(Access::REMOTE_WRITE, pd)).unwrap_err();
    assert_eq!(error.errno(), 22);
}

const BASE: u64 = 0x4000;

/// A table with one region of 64 bytes, which allows windows, and a queue pair that may use it.
struct Bench {
    table: Table,
    holder: Holder,
    region: u32,
}

impl Bench {
    fn new() -> Self {
        let mut table = table();
        let pd = table.allocate_pd();
        let region = table.register(region(Access::LOCAL_WRITE | Access::MW_BIND, pd)).unwrap();
        Self { table, holder: Holder { pd, qpn: Qpn::new(17) }, region }
    }

    fn window(&mut self, window_type: WindowType) -> u32 {
        self.table.allocate_window(self.holder.pd, window_type).unwrap()
    }

    /// A bind of bytes 8 to 24 for remote writing, which is right but for what the test changes.
    fn bind(&self, window: u32) -> WindowBind {
        WindowBind {
            window,
            rkey: next_key(window),
            lkey: self.region,
            address: BASE + 8,
            length: 16,
            access: Access::REMOTE_WRITE,
        }
    }

    fn open(&self, key: u32, holder: Holder, address: u64, length: u64) -> Option<AccessError> {
        self.table.resolve_remote(key, holder, address, length, Access::REMOTE_WRITE).err()
    }
}

#[test]
fn a_window_opens_its_part_to_its_queue_pair_and_nothing_else() {
    let mut bench = Bench::new();
    let window = bench.window(WindowType::Two);
    let holder = bench.holder;
    assert_eq!(bench.open(window, holder, BASE + 8, 16), Some(AccessError::UnknownKey), "not bound");
    let bind = bench.bind(window);
    bench.table.bind_window(holder, &bind).unwrap();
    assert_eq!(bench.open(window, holder, BASE + 8, 16), Some(AccessError::UnknownKey), "its former key");
    assert_eq!(bench.open(bind.rkey, holder, BASE + 8, 16), None);
    assert_eq!(bench.open(bind.rkey, holder, BASE + 7, 1), Some(AccessError::OutOfRange));
    assert_eq!(bench.open(bind.rkey, holder, BASE + 24, 1), Some(AccessError::OutOfRange));
    let other = Holder { qpn: Qpn::new(18), ..holder };
    assert_eq!(bench.open(bind.rkey, other, BASE + 8, 1), Some(AccessError::WrongDomain));
    let denied = bench.table.resolve_remote(bind.rkey, holder, BASE + 8, 1, Access::REMOTE_READ).err();
    assert_eq!(denied, Some(AccessError::Denied));
    let local = bench.table.resolve(bind.rkey, holder.pd, BASE + 8, 1, Access::empty()).err();
    assert_eq!(local, Some(AccessError::UnknownKey), "a window has no local key");
    assert_eq!(bench.table.invalidate(bind.rkey, other), Err(AccessError::WrongDomain));
    bench.table.invalidate(bind.rkey, holder).unwrap();
    assert_eq!(bench.open(bind.rkey, holder, BASE + 8, 1), Some(AccessError::UnknownKey));
    assert_eq!(bench.table.invalidate(bind.rkey, holder), Err(AccessError::UnknownKey));
    let again = bench.bind(bind.rkey);
    bench.table.bind_window(holder, &again).unwrap();
    assert_eq!(bench.open(again.rkey, holder, BASE + 8, 16), None);
}

#[test]
fn a_type_1_window_opens_for_its_whole_domain_and_is_bound_again_and_unbound() {
    let mut bench = Bench::new();
    let window = bench.window(WindowType::One);
    let holder = bench.holder;
    let first = bench.bind(window);
    bench.table.bind_window(holder, &first).unwrap();
    let other = Holder { qpn: Qpn::new(18), ..holder };
    assert_eq!(bench.open(first.rkey, other, BASE + 8, 16), None);
    assert_eq!(bench.table.invalidate(first.rkey, holder), Err(AccessError::Denied));
    let second = WindowBind { address: BASE, length: 8, ..bench.bind(first.rkey) };
    bench.table.bind_window(holder, &second).unwrap();
    assert_eq!(bench.open(first.rkey, holder, BASE + 8, 8), Some(AccessError::UnknownKey));
    assert_eq!(bench.open(second.rkey, holder, BASE, 8), None);
    let unbind = WindowBind { length: 0, lkey: 0, ..bench.bind(second.rkey) };
    bench.table.bind_window(holder, &unbind).unwrap();
    assert_eq!(bench.open(unbind.rkey, holder, BASE, 8), Some(AccessError::UnknownKey));
    assert!(bench.table.deregister(bench.region).is_ok(), "nothing is bound any more");
}

#[test]
fn a_zero_based_window_counts_from_its_first_byte() {
    let mut bench = Bench::new();
    let window = bench.window(WindowType::Two);
    let access = Access::REMOTE_WRITE | Access::ZERO_BASED;
    let bind = WindowBind { access, ..bench.bind(window) };
    bench.table.bind_window(bench.holder, &bind).unwrap();
    bench
        .table
        .resolve_remote(bind.rkey, bench.holder, 0, 16, Access::REMOTE_WRITE)
        .unwrap()
        .copy_in(&[7; 16])
        .unwrap();
    let mut bytes = [0; 18];
    let span = bench.table.resolve(bench.region, bench.holder.pd, BASE + 7, 18, Access::empty());
    span.unwrap().copy_out(&mut bytes).unwrap();
    assert_eq!((bytes[0], &bytes[1..17], bytes[17]), (0, &[7; 16][..], 0));
    assert_eq!(bench.open(bind.rkey, bench.holder, 16, 1), Some(AccessError::OutOfRange));
}

/// Each rule of binding, broken by itself; nothing is bound then.
#[test]
fn what_cannot_be_bound() {
    type Change = fn(&mut Bench, &mut WindowBind, &mut Holder);
    let cases: &[(&str, WindowType, Change)] = &[
        ("a stale key", WindowType::Two, |_, bind, _| bind.window ^= 1),
        ("a region's key for the window", WindowType::Two, |bench, bind, _| bind.window = bench.region),
        ("another index", WindowType::Two, |_, bind, _| bind.rkey ^= 0x100),
        ("no such region", WindowType::One, |_, bind, _| bind.lkey ^= 1),
        ("a window for the region", WindowType::One, |_, bind, _| bind.lkey = bind.window),
        ("one byte before", WindowType::One, |_, bind, _| bind.address = BASE - 1),
        ("one byte after", WindowType::Two, |_, bind, _| bind.length = 57),
        ("around the end", WindowType::Two, |_, bind, _| bind.length = u64::MAX),
        ("zero-based type 1", WindowType::One, |_, bind, _| bind.access |= Access::ZERO_BASED),
        ("type 2 of nothing", WindowType::Two, |_, bind, _| bind.length = 0),
        ("persistence of anonymous memory", WindowType::Two, |_, bind, _| bind.access = Access::FLUSH_PERSISTENT),
        ("a queue pair of another domain", WindowType::One, |bench, _, holder| {
            holder.pd = bench.table.allocate_pd();
        }),
        ("a region of another domain", WindowType::Two, |bench, bind, _| {
            let pd = bench.table.allocate_pd();
            bind.lkey = bench.table.register(region(Access::LOCAL_WRITE | Access::MW_BIND, pd)).unwrap();
        }),
        ("a region that allows none", WindowType::Two, |bench, bind, holder| {
            bind.lkey = bench.table.register(region(Access::LOCAL_WRITE, holder.pd)).unwrap();
        }),
        ("a zero-based region", WindowType::Two, |bench, bind, holder| {
            let access = Access::LOCAL_WRITE | Access::MW_BIND | Access::ZERO_BASED;
            bind.lkey = bench.table.register(region(access, holder.pd)).unwrap();
        }),
        ("writing where there is no local write", WindowType::Two, |bench, bind, holder| {
            bind.lkey = bench.table.register(region(Access::MW_BIND, holder.pd)).unwrap();
        }),
        ("atomics where there is no local write", WindowType::One, |bench, bind, holder| {
            bind.lkey = bench.table.register(region(Access::MW_BIND, holder.pd)).unwrap();
            bind.access = Access::REMOTE_ATOMIC;
        }),
        ("type 2 a second time", WindowType::Two, |bench, bind, holder| {
            bench.table.bind_window(*holder, bind).unwrap();
            *bind = WindowBind { window: bind.rkey, rkey: next_key(bind.rkey), ..*bind };
        }),
    ];
    for (story, window_type, change) in cases {
        let mut bench = Bench::new();
        let window = bench.window(*window_type);
        let (mut bind, mut holder) = (bench.bind(window), bench.holder);
        change(&mut bench, &mut bind, &mut holder);
        let before = bench.table.exclusive;
        assert!(bench.table.bind_window(holder, &bind).is_err(), "{story}");
        assert!(bench.open(bind.rkey, holder, bind.address, 1).is_some(), "{story}: bound all the same");
        assert_eq!(bench.table.exclusive, before, "{story}");
        assert!(bench.table.evict(bench.region).is_ok(), "{story}");
    }
}

#[test]
fn reading_needs_no_local_write() {
    let mut bench = Bench::new();
    let window = bench.window(WindowType::Two);
    let lkey = bench.table.register(region(Access::MW_BIND, bench.holder.pd)).unwrap();
    let bind = WindowBind { lkey, access: Access::REMOTE_READ, ..bench.bind(window) };
    bench.table.bind_window(bench.holder, &bind).unwrap();
}

#[test]
fn a_region_with_windows_stays_until_they_are_gone_or_it_is_evicted() {
    let mut bench = Bench::new();
    let windows = [bench.window(WindowType::One), bench.window(WindowType::Two)];
    let binds = windows.map(|window| bench.bind(window));
    for bind in &binds {
        bench.table.bind_window(bench.holder, bind).unwrap();
    }
    let (region, pd) = (bench.region, bench.holder.pd);
    assert_eq!(bench.table.deregister(region).unwrap_err().errno(), 16);
    assert_eq!(bench.table.change(region, Access::LOCAL_WRITE, pd).unwrap_err().errno(), 16);
    bench.table.deallocate_window(windows[0]).unwrap();
    assert_eq!(bench.table.deregister(region).unwrap_err().errno(), 16);
    bench.table.evict(region).unwrap();
    assert_eq!(bench.open(binds[1].rkey, bench.holder, BASE + 8, 1), Some(AccessError::UnknownKey));
    assert_eq!((bench.table.len(), bench.table.exclusive), (1, 0));
    bench.table.deallocate_window(windows[1]).unwrap();
    assert_eq!(bench.table.deallocate_window(windows[1]).unwrap_err().errno(), 2);
}

#[test]
fn a_queue_pair_that_goes_takes_its_windows_along() {
    let mut bench = Bench::new();
    let (one, two) = (bench.window(WindowType::One), bench.window(WindowType::Two));
    let (one, two) = (bench.bind(one), bench.bind(two));
    let holder = bench.holder;
    bench.table.bind_window(holder, &one).unwrap();
    bench.table.bind_window(holder, &two).unwrap();
    bench.table.release_pair(Qpn::new(18));
    assert_eq!(bench.open(two.rkey, holder, BASE + 8, 1), None);
    bench.table.release_pair(holder.qpn);
    assert_eq!(bench.open(two.rkey, holder, BASE + 8, 1), Some(AccessError::UnknownKey));
    assert_eq!(bench.open(one.rkey, holder, BASE + 8, 1), None, "type 1 is the domain's");
}

fn fast(bench: &mut Bench, max_pages: u32) -> FastRegister {
    let key = bench.table.allocate_fast(bench.holder.pd, max_pages).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    FastRegister { key: next_key(key), lkey: bench.region, address: BASE + 8, length: 16, iova: 0x9000, access }
}

#[test]
fn a_fast_region_is_registered_invalidated_and_registered_again() {
    let mut bench = Bench::new();
    let register = fast(&mut bench, 1);
    let holder = bench.holder;
    assert_eq!(bench.open(register.key, holder, 0x9000, 16), Some(AccessError::UnknownKey));
    bench.table.register_fast(holder, &register).unwrap();
    assert_eq!(bench.open(register.key, holder, 0x9000, 16), None);
    assert!(bench.table.resolve(register.key, holder.pd, 0x9000, 16, Access::LOCAL_WRITE).is_ok(), "a local key, too");
    assert_eq!(bench.open(register.key, holder, 0x9001, 16), Some(AccessError::OutOfRange));
    assert_eq!(bench.table.deregister(bench.region).unwrap_err().errno(), 16);
    assert!(bench.table.register_fast(holder, &register).is_err(), "twice");
    bench.table.invalidate(register.key, holder).unwrap();
    assert_eq!(bench.open(register.key, holder, 0x9000, 16), Some(AccessError::UnknownKey));
    let again = FastRegister { key: next_key(register.key), ..register };
    bench.table.register_fast(holder, &again).unwrap();
    assert_eq!(bench.open(register.key, holder, 0x9000, 1), Some(AccessError::UnknownKey), "the former key");
    assert_eq!(bench.open(again.key, holder, 0x9000, 1), None);
    bench.table.deallocate_fast(register.key).unwrap();
    assert!(bench.table.deregister(bench.region).is_ok());
}

#[test]
fn what_cannot_be_registered_fast() {
    type Change = fn(&mut Bench, &mut FastRegister, &mut Holder);
    let cases: &[(&str, Change)] = &[
        ("another index", |_, register, _| register.key ^= 0x100),
        ("a region's key", |bench, register, _| register.key = bench.region),
        ("no such memory", |_, register, _| register.lkey ^= 1),
        ("outside", |_, register, _| register.length = 57),
        ("too many pages", |_, register, _| register.length = 4097),
        ("around the end", |_, register, _| register.address = u64::MAX),
        ("remote write alone", |_, register, _| register.access = Access::REMOTE_WRITE),
        ("windows", |_, register, _| register.access |= Access::MW_BIND),
        ("persistence of anonymous memory", |_, register, _| register.access |= Access::FLUSH_PERSISTENT),
        ("another domain", |bench, _, holder| holder.pd = bench.table.allocate_pd()),
        ("writing to what may be read only", |bench, register, holder| {
            register.lkey = bench.table.register(region(Access::empty(), holder.pd)).unwrap();
        }),
    ];
    for (story, change) in cases {
        let mut bench = Bench::new();
        let (mut register, mut holder) = (fast(&mut bench, 1), bench.holder);
        change(&mut bench, &mut register, &mut holder);
        assert!(bench.table.register_fast(holder, &register).is_err(), "{story}");
        assert!(bench.table.deregister(bench.region).is_ok(), "{story}: memory was lent all the same");
    }
    let mut bench = Bench::new();
    for pages in [0, Table::MAX_FAST_PAGES + 1] {
        assert_eq!(bench.table.allocate_fast(bench.holder.pd, pages).unwrap_err().errno(), 22);
    }
}

#[test]
fn an_ordinary_key_is_safe_from_invalidation() {
    let mut bench = Bench::new();
    assert_eq!(bench.table.invalidate(bench.region, bench.holder), Err(AccessError::Denied));
    assert!(bench.table.resolve(bench.region, bench.holder.pd, BASE, 1, Access::empty()).is_ok());
}

#[test]
fn a_region_is_registered_anew_all_or_nothing() {
    let mut bench = Bench::new();
    let (key, pd) = (bench.region, bench.holder.pd);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    assert_eq!(bench.table.change(key, Access::REMOTE_WRITE, pd).unwrap_err().errno(), 22);
    assert!(bench.table.resolve(key, pd, BASE, 64, Access::LOCAL_WRITE).is_ok(), "as it was");
    let other = bench.table.allocate_pd();
    bench.table.change(key, access, other).unwrap();
    assert_eq!(bench.open(key, bench.holder, BASE, 1), Some(AccessError::WrongDomain));
    let moved = Region::owned(Arc::new(Buffer::zeroed(8)), 0, access, pd);
    assert_eq!(bench.table.reregister(key, moved).unwrap().length(), 64);
    assert_eq!(bench.open(key, bench.holder, 0, 8), None);
    assert_eq!(bench.open(key, bench.holder, BASE, 1), Some(AccessError::OutOfRange));
    let refused = Region::owned(Arc::new(Buffer::zeroed(8)), 0, Access::REMOTE_ATOMIC, pd);
    assert_eq!(bench.table.reregister(key, refused).unwrap_err().errno(), 22);
    assert_eq!(bench.open(key, bench.holder, 0, 8), None, "as it was");
}
