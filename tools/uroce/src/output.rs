//! What goes to stdout. A reader that has enough and closes the pipe (`uroce dump … | head`) ends the program without a word.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use anyhow::Result;

/// Prints a line on stdout; as `println!`, but it returns what went wrong.
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::output::line(format_args!($($argument)*))
    };
}
pub(crate) use say;

/// Prints one line.
pub(crate) fn line(line: fmt::Arguments<'_>) -> Result<()> {
    check(writeln!(io::stdout().lock(), "{line}"))
}

/// Tells a reader that has gone from what is really wrong.
pub(crate) fn check(outcome: io::Result<()>) -> Result<()> {
    outcome.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => anyhow::Error::new(error).context("cannot write to stdout"),
    })
}

/// An error on one line: what was tried, then why it failed. Errors that name their cause themselves do not name it twice.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line.replace('\n', " ")
}

/// Nobody reads stdout any more.
#[derive(Debug)]
pub(crate) struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads stdout")
    }
}

impl std::error::Error for ReaderGone {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_named_once() {
        let cause = io::Error::from(ErrorKind::PermissionDenied);
        let error = anyhow::Error::new(uroce::error::Error::system("reading", cause)).context("links");
        assert_eq!(describe(&error), "links: reading: permission denied");
    }
}
