//! The list behind a completion queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_queue::SegQueue;

use crate::wire::Qpn;
use crate::work::Completion;

/// Completions in order, from one thread at a time to any number of them; those of one queue pair can be removed.
///
/// Usually the list is the lock-free queue and nothing else. Such a queue gives entries only in front, so a removal empties it
/// and sets aside what stays. As long as something is aside, who takes goes there first, under a lock; then the way without one
/// is open again. A thread that had an entry in its hands when a removal began finds out by looking once more: it puts the entry
/// in its place among those aside, and takes the first. So nobody sees completions of a queue pair out of order.
#[derive(Debug, Default)]
pub(super) struct CompletionList {
    queue: SegQueue<Entry>,
    /// The number of the next entry.
    next: AtomicU64,
    /// Whether something is aside, or a removal is at it.
    has_aside: AtomicBool,
    /// How many entries are aside.
    aside_length: AtomicUsize,
    aside: Mutex<Aside>,
}

#[derive(Debug)]
struct Entry {
    /// Entries are numbered as they are pushed.
    number: u64,
    completion: Completion,
}

/// What removals left. Older than everything in the lock-free queue.
#[derive(Debug, Default)]
struct Aside {
    entries: VecDeque<Entry>,
    /// The queue pairs whose entries below a number were removed, for entries that were in a thread's hands meanwhile. At most
    /// one place for each queue pair; empty when the entries are.
    removed: Vec<(Qpn, u64)>,
}

impl CompletionList {
    /// Entries that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.aside_length.load(Ordering::SeqCst)
    }

    /// Adds one at the end. One thread at a time pushes or removes.
    pub(super) fn push(&self, completion: Completion) {
        let number = self.next.load(Ordering::Relaxed);
        self.next.store(number + 1, Ordering::Relaxed);
        self.queue.push(Entry { number, completion });
    }

    /// Takes the first. No lock, unless a removal left something aside.
    pub(super) fn pop(&self) -> Option<Completion> {
        if self.has_aside.load(Ordering::SeqCst) {
            return self.pop_aside(None);
        }
        let popped = self.queue.pop();
        // A removal says that it begins before it takes its first entry: whoever took one after that, or found none because of it,
        // sees that here.
        if self.has_aside.load(Ordering::SeqCst) {
            return self.pop_aside(popped);
        }
        popped.map(|entry| entry.completion)
    }

    /// Removes what waits of a queue pair. One thread at a time pushes or removes.
    pub(super) fn remove(&self, qpn: Qpn) {
        let mut aside = self.lock();
        self.has_aside.store(true, Ordering::SeqCst);
        aside.entries.retain(|entry| entry.completion.qpn != qpn);
        let rest = std::iter::from_fn(|| self.queue.pop());
        aside.entries.extend(rest.filter(|entry| entry.completion.qpn != qpn));
        aside.removed.retain(|&(other, _)| other != qpn);
        aside.removed.push((qpn, self.next.load(Ordering::Relaxed)));
        self.settle(&mut aside);
    }

    /// Takes the first while something is aside; `popped` is what this thread took before it knew.
    #[cold]
    fn pop_aside(&self, popped: Option<Entry>) -> Option<Completion> {
        let mut aside = self.lock();
        if let Some(entry) = popped {
            aside.put_back(entry);
        }
        let taken = aside.entries.pop_front().or_else(|| self.queue.pop());
        self.settle(&mut aside);
        taken.map(|entry| entry.completion)
    }

    /// Tells the others what is aside now.
    fn settle(&self, aside: &mut Aside) {
        self.aside_length.store(aside.entries.len(), Ordering::SeqCst);
        if aside.entries.is_empty() {
            aside.removed.clear();
            self.has_aside.store(false, Ordering::SeqCst);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Aside> {
        // Nothing panics in between; a list that is half moved would still hold each entry once.
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Aside {
    /// Puts an entry where it belongs, unless it was removed.
    fn put_back(&mut self, entry: Entry) {
        let was_removed = |&(qpn, below)| qpn == entry.completion.qpn && entry.number < below;
        if self.removed.iter().any(was_removed) {
            return;
        }
        let place = self.entries.partition_point(|other| other.number < entry.number);
        self.entries.insert(place, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(qpn: u32, id: u64) -> Completion {
        Completion { id, qpn: Qpn::new(qpn), ..Completion::default() }
    }

    fn ids(list: &CompletionList) -> Vec<u64> {
        std::iter::from_fn(|| list.pop()).map(|completion| completion.id).collect()
    }

    #[test]
    fn what_stays_keeps_its_order_and_what_is_pushed_later_follows() {
        let list = CompletionList::default();
        (0..6).for_each(|id| list.push(completion(1 + id as u32 % 3, id)));
        list.remove(Qpn::new(2));
        assert_eq!((list.len(), list.pop().map(|taken| taken.id)), (4, Some(0)));
        // Reused at once, as a queue pair is after RESET.
        (6..9).for_each(|id| list.push(completion(1 + id as u32 % 3, id)));
        assert_eq!((list.len(), ids(&list)), (6, vec![2, 3, 5, 6, 7, 8]));
        assert_eq!(list.len(), 0);
    }

    #[test]
    fn a_removal_also_takes_what_an_earlier_one_set_aside() {
        let list = CompletionList::default();
        (0..4).for_each(|id| list.push(completion(1 + id as u32 % 2, id)));
        list.remove(Qpn::new(3));
        (4..6).for_each(|id| list.push(completion(1 + id as u32 % 2, id)));
        list.remove(Qpn::new(1));
        assert_eq!(ids(&list), [1, 3, 5]);
        list.push(completion(1, 6));
        list.remove(Qpn::new(1));
        assert!(!list.has_aside.load(Ordering::SeqCst), "with nothing aside there is no lock");
        assert_eq!(list.pop(), None);
    }

    /// A thread took entry 1 between those that a removal took, and comes to look afterwards.
    #[test]
    fn who_had_an_entry_in_its_hands_puts_it_back_in_order() {
        for removed in [1, 9] {
            let list = CompletionList::default();
            (0..3).for_each(|id| list.push(completion(id as u32, id)));
            let [first, second, third] = [(); 3].map(|()| list.queue.pop().unwrap());
            [first, third].into_iter().for_each(|entry| list.queue.push(entry));
            list.remove(Qpn::new(removed));
            let taken = list.pop_aside(Some(second)).unwrap();
            let rest = ids(&list);
            assert_eq!((taken.id, rest), (0, if removed == 1 { vec![2] } else { vec![1, 2] }));
        }
    }

    /// Interleavings by chance; Miri (`tools/check`) tries many.
    #[test]
    fn a_removal_beside_who_takes_keeps_each_queue_pair_in_order() {
        const ROUNDS: usize = if cfg!(miri) { 2 } else { 500 };
        for _ in 0..ROUNDS {
            let list = CompletionList::default();
            (0..12).for_each(|id| list.push(completion(1 + id as u32 % 2, id)));
            let taken = std::thread::scope(|scope| {
                let takers = [(); 2].map(|()| scope.spawn(|| (0..6).filter_map(|_| list.pop()).collect::<Vec<_>>()));
                list.remove(Qpn::new(1));
                list.push(completion(2, 12));
                list.remove(Qpn::new(3));
                takers.map(|taker| taker.join().unwrap())
            });
            let mut all: Vec<_> = taken.iter().flatten().map(|completion| completion.id).collect();
            let rest = ids(&list);
            for one in &taken {
                let of_2: Vec<_> = one.iter().filter(|taken| taken.qpn.value() == 2).map(|taken| taken.id).collect();
                assert!(of_2.is_sorted(), "{taken:?}");
                assert!(rest.iter().all(|later| of_2.iter().all(|earlier| earlier < later)), "{taken:?}, {rest:?}");
            }
            assert!(rest.iter().all(|id| id % 2 == 1 || *id == 12), "removed: {rest:?}");
            all.extend(rest);
            all.sort_unstable();
            let of_2: Vec<_> = all.into_iter().filter(|id| id % 2 == 1 || *id == 12).collect();
            assert_eq!(of_2, [1, 3, 5, 7, 9, 11, 12], "each once");
        }
    }
}
