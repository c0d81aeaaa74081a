//! What a caller did wrong, or what the system refused: an error names the argument and carries an errno.

use std::io;

/// Why a verb failed. [`errno`](Error::errno) is what a C caller would find.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument is out of its range; EINVAL.
    #[error("{argument}: {reason}")]
    Invalid {
        /// Which argument.
        argument: &'static str,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A queue, a table or a device limit is used up; ENOMEM.
    #[error("{what} is full ({limit})")]
    Full {
        /// Which queue or table.
        what: &'static str,
        /// How many fit.
        limit: usize,
    },
    /// The object does not exist (any more); ENOENT.
    #[error("no such {what}: {name}")]
    Missing {
        /// What kind of object.
        what: &'static str,
        /// Its number or name as the caller gave it.
        name: String,
    },
    /// The object is still used by others; EBUSY.
    #[error("{what} is in use by {by}")]
    Busy {
        /// Which object.
        what: &'static str,
        /// By what.
        by: String,
    },
    /// Not offered by this device; EOPNOTSUPP.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The system refused.
    #[error("{context}: {source}")]
    System {
        /// What was tried.
        context: String,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// Whether a signal interrupted a wait.
    pub(crate) fn is_interruption(&self) -> bool {
        matches!(self, Self::System { source, .. } if source.kind() == io::ErrorKind::Interrupted)
    }

    /// An [`Error::Invalid`].
    pub fn invalid(argument: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { argument, reason: reason.into() }
    }

    /// An [`Error::System`].
    pub fn system(context: impl Into<String>, source: io::Error) -> Self {
        Self::System { context: context.into(), source }
    }

    /// The errno of `<errno.h>` (Linux) that stands for this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        const ENOENT: i32 = 2;
        const EIO: i32 = 5;
        const ENOMEM: i32 = 12;
        const EBUSY: i32 = 16;
        const EINVAL: i32 = 22;
        const EOPNOTSUPP: i32 = 95;
        match self {
            Self::Invalid { .. } => EINVAL,
            Self::Full { .. } => ENOMEM,
            Self::Missing { .. } => ENOENT,
            Self::Busy { .. } => EBUSY,
            Self::Unsupported(_) => EOPNOTSUPP,
            Self::System { source, .. } => {
                source.raw_os_error().or_else(|| errno_of_kind(source.kind())).unwrap_or(EIO)
            }
        }
    }
}

/// The errno of an error of the system whose text was made clearer, so that only its kind is left.
fn errno_of_kind(kind: io::ErrorKind) -> Option<i32> {
    Some(match kind {
        io::ErrorKind::NotFound => 2,
        io::ErrorKind::PermissionDenied => 13,
        io::ErrorKind::Unsupported => 95,
        io::ErrorKind::AddrInUse => 98,
        io::ErrorKind::AddrNotAvailable => 99,
        io::ErrorKind::NetworkDown => 100,
        io::ErrorKind::TimedOut => 110,
        _ => return None,
    })
}

/// What verbs return.
pub type Result<T> = std::result::Result<T, Error>;
