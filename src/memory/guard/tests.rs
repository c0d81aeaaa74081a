use std::ptr;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::*;

/// Every length to here, then some more.
const SHORT: usize = 300;

#[test]
fn copies_are_exact_at_every_length_and_offset() {
    let from: Vec<u8> = (0..8192_u32).map(|at| (at * 7 + at / 251) as u8).collect();
    for length in (0..SHORT).chain([511, 512, 513, 1024, 4095, 4096, 4097]) {
        for (source, target) in [(0, 0), (1, 0), (0, 3), (13, 58), (63, 1)] {
            let mut to = vec![0xee; length + 128];
            // SAFETY: both are long enough, and two.
            unsafe { copy(from.as_ptr().add(source), to.as_mut_ptr().add(target), length) }.unwrap();
            assert_eq!(
                to[target..target + length],
                from[source..source + length],
                "{length} from {source} to {target}"
            );
            assert!(
                to[..target].iter().chain(&to[target + length..]).all(|byte| *byte == 0xee),
                "{length} to {target}"
            );
        }
    }
}

#[test]
fn cells_change_in_one_step() {
    let mut cell = 5;
    let place = &raw mut cell;
    // SAFETY: a cell of this function's.
    unsafe {
        assert_eq!(fetch_and_add(place, 2), Ok(5));
        assert_eq!(compare_and_swap(place, 6, 9), Ok(7));
        assert_eq!(compare_and_swap(place, 7, 9), Ok(7));
        assert_eq!(store(place, u64::MAX), Ok(()));
        assert_eq!(fetch_and_add(place, 1), Ok(u64::MAX));
    }
    assert_eq!(cell, 0);
}

/// Three pages, the last two of which are gone: accesses that reach there end as errors, whatever
/// instruction it is that faults.
#[test]
#[cfg(all(target_arch = "x86_64", not(miri), not(fuzzing)))]
fn memory_that_is_gone_is_an_error() {
    const PAGE: usize = 4096;
    watch().unwrap();
    watch().unwrap();
    // SAFETY: the system picks the place; what goes away is part of that.
    let pages = unsafe {
        let pages = mmap_anonymous(ptr::null_mut(), 3 * PAGE, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let pages = pages.unwrap().cast::<u8>();
        // As good as unmapped, and no other thread's memory comes there.
        mprotect(pages.add(PAGE).cast(), 2 * PAGE, MprotectFlags::empty()).unwrap();
        pages
    };
    let mut bytes = [7; PAGE];
    for length in (1..SHORT).chain([512, 1000, PAGE]) {
        for inside in [0, 1, length / 2, length - 1].into_iter().filter(|inside| *inside < length) {
            // SAFETY: inside the pages; from `inside` on they are gone.
            unsafe {
                let place = pages.add(PAGE - inside);
                assert_eq!(copy(bytes.as_ptr(), place, length), Err(Fault), "to {length}, {inside} are there");
                assert_eq!(copy(place, bytes.as_mut_ptr(), length), Err(Fault), "from {length}, {inside} are there");
            }
        }
        // SAFETY: inside the page that is there.
        let kept = unsafe { copy(bytes.as_ptr(), pages.add(PAGE - length), length) };
        assert_eq!(kept, Ok(()), "{length} that are there");
    }
    // SAFETY: cells in pages that are gone.
    unsafe {
        let cell = pages.add(PAGE).cast();
        assert_eq!(fetch_and_add(cell, 1), Err(Fault));
        assert_eq!(compare_and_swap(cell, 0, 1), Err(Fault));
        assert_eq!(store(cell, 1), Err(Fault));
        munmap(pages.cast(), 3 * PAGE).unwrap();
    }
}
