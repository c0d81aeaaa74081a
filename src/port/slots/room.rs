//! Room for many descriptors at once.

use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Slot;

/// Descriptors beyond the limit that is in force: some groups' worth.
const MORE: u64 = 64 * Slot::COUNT as u64;

/// Runs `work`, which opens or sends the sockets of a group; when it fails for want of descriptors, once more with a higher
/// limit (`RLIMIT_NOFILE`), which then goes back to what it was.
///
/// The limit of an ordinary login is 1024, for programs that use `select(2)`, but may be raised. It counts descriptors that
/// are open here, and for a user without privilege those in flight between processes as well.
pub(super) fn with_room<T>(work: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match work() {
        Err(error) if is_want_of_room(&error) => {}
        result => return result,
    }
    static RAISED: Mutex<()> = Mutex::new(());
    let _alone = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
    let before = getrlimit(Resource::Nofile);
    let raised = before.current.map(|soft| before.maximum.unwrap_or(u64::MAX).min(soft.saturating_add(MORE)));
    setrlimit(Resource::Nofile, Rlimit { current: raised, ..before })?;
    let result = work();
    let _ = setrlimit(Resource::Nofile, before);
    result.map_err(|error| if is_want_of_room(&error) { explain(&error) } else { error })
}

fn is_want_of_room(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ETOOMANYREFS))
}

fn explain(error: &io::Error) -> io::Error {
    let count = Slot::COUNT;
    let text = format!(
        "{error}: each address that is shared takes {count} descriptors of the user who came first: raise the hard limit \
         (`ulimit -Hn`, LimitNOFILE= of a service)"
    );
    io::Error::new(error.kind(), text)
}
