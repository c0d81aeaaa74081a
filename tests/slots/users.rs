//! Processes of several users.

use uroce::verbs::Backend;

use super::worker::{Worker, join};
use super::{address, is_root, skipped};

/// Nobody in particular: a user without any privilege.
const NOBODY: u32 = 65534;

/// Whoever was first, those of another user share the address, and go on when the first is killed.
#[test]
fn other_users_share() {
    if !is_root() {
        return skipped("starting processes as other users needs root");
    }
    for (test, users) in [(7, [None, Some(NOBODY), Some(NOBODY - 1)]), (8, [Some(NOBODY), None, Some(NOBODY - 1)])] {
        let address = address(test);
        let [first, mut a, mut b] = users.map(|user| Worker::start_as(address, Backend::Udp, user));
        drop(first);
        join((&mut a, &mut 0), (&mut b, &mut 0));
        [&mut a, &mut b].into_iter().for_each(|worker| worker.tell("exchange 0..1 50"));
        [&mut a, &mut b].into_iter().for_each(|worker| assert_eq!(worker.line(), "exchanged"));
        Worker::start_as(address, Backend::Udp, users[0]);
    }
}
