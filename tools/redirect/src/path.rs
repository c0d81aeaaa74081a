//! Which paths lead elsewhere.

use std::ffi::{CStr, c_char};

/// What stands below these leads to that part of the folder.
const PREFIXES: [(&[u8], &[u8]); 3] = [
    (b"/sys/class/infiniband", b"/class/infiniband"),
    (b"/sys/class/infiniband_verbs", b"/class/infiniband_verbs"),
    (b"/dev/infiniband", b"/dev"),
];

/// A path as the C library is to see it.
pub(crate) struct Redirected {
    original: *const c_char,
    /// The path in the folder, when the original is one of ours.
    buffer: [u8; Self::ROOM],
    is_ours: bool,
}

impl Redirected {
    /// `PATH_MAX`.
    const ROOM: usize = 4096;

    /// # Safety
    /// `original` must be null or a string.
    pub(crate) unsafe fn new(original: *const c_char) -> Self {
        let mut redirected = Self { original, buffer: [0; Self::ROOM], is_ours: false };
        if !original.is_null() {
            // SAFETY: the caller promises a string.
            let path = unsafe { CStr::from_ptr(original) }.to_bytes();
            if path.starts_with(b"/sys/class/infiniband") || path.starts_with(b"/dev/infiniband") {
                // SAFETY: asks the environment; a program that changes it meanwhile races with every reader of it.
                let tree = unsafe { libc::getenv(c"UROCE_TREE".as_ptr()) };
                if !tree.is_null() {
                    // SAFETY: what the environment holds is a string.
                    let tree = unsafe { CStr::from_ptr(tree) }.to_bytes();
                    redirected.is_ours = redirect(path, tree, &mut redirected.buffer);
                }
            }
        }
        redirected
    }

    /// The path to use; valid while `self` is.
    pub(crate) fn as_ptr(&self) -> *const c_char {
        if self.is_ours { self.buffer.as_ptr().cast() } else { self.original }
    }
}

/// Writes where `path` leads, with a zero behind it; false when it stays, or does not fit.
fn redirect(path: &[u8], tree: &[u8], buffer: &mut [u8]) -> bool {
    let below = |(prefix, part): &(&'static [u8], &'static [u8])| {
        let rest = path.strip_prefix(*prefix)?;
        matches!(rest.first(), None | Some(b'/')).then_some((*part, rest))
    };
    let Some((part, rest)) = PREFIXES.iter().find_map(below) else { return false };
    let mut at = 0;
    for piece in [tree, part, rest, &[0][..]] {
        let Some(place) = buffer.get_mut(at..at + piece.len()) else { return false };
        place.copy_from_slice(piece);
        at += piece.len();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lead(path: &str) -> Option<String> {
        let mut buffer = [0xff; 64];
        let is_ours = redirect(path.as_bytes(), b"/t", &mut buffer);
        let end = buffer.iter().position(|byte| *byte == 0);
        is_ours.then(|| String::from_utf8(buffer[..end.unwrap()].to_vec()).unwrap())
    }

    #[test]
    fn paths_of_devices_lead_to_the_folder_and_others_stay() {
        for (path, to) in [
            ("/sys/class/infiniband", Some("/t/class/infiniband")),
            ("/sys/class/infiniband/rxe0/ports/1/state", Some("/t/class/infiniband/rxe0/ports/1/state")),
            ("/sys/class/infiniband_verbs/uverbs0", Some("/t/class/infiniband_verbs/uverbs0")),
            ("/dev/infiniband/uverbs0", Some("/t/dev/uverbs0")),
            ("/sys/class/infiniband_cm", None),
            ("/sys/class/net", None),
            ("/dev/infiniband2/x", None),
        ] {
            assert_eq!(lead(path).as_deref(), to, "{path}");
        }
        assert_eq!(lead(&format!("/dev/infiniband/{}", "x".repeat(64))), None, "too long: not cut");
    }
}
