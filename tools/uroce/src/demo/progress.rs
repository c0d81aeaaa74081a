//! What is shown while the demonstration runs: a bar on a terminal, a line for each stage elsewhere; on stderr.

use std::io::{IsTerminal, Write, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// How far it is.
pub(super) struct Progress {
    /// `None` where there is no terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins with `steps` to do.
    pub(super) fn new(steps: u64) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(steps);
            if let Ok(style) = ProgressStyle::with_template("{wide_msg} [{bar:30}] {pos}/{len}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        Self { bar }
    }

    /// Says what comes next.
    pub(super) fn stage(&self, what: impl Into<String>) {
        match &self.bar {
            Some(bar) => bar.set_message(what.into()),
            // Not worth ending for when nobody reads it.
            None => drop(writeln!(stderr(), "uroce demo: {}", what.into())),
        }
    }

    /// One step is done.
    pub(super) fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
