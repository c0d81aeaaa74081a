//! A conversation over TCP, one JSON value a line, that waits for no answer longer than it may take.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long an answer may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// Longest line.
const LINE: u64 = 1 << 16;

/// One end of it.
pub(super) struct Lines {
    reader: BufReader<TcpStream>,
}

impl Lines {
    pub(super) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Says something.
    pub(super) fn say(&mut self, value: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.reader.get_mut().write_all(&line).context("the other process does not listen")
    }

    /// Waits for what the other end says; `None` when it has closed.
    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut line = Vec::new();
        match self.reader.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(serde_json::from_slice(&line)?)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("the other process did not answer in {} s", PATIENCE.as_secs())
            }
            Err(error) => Err(error).context("the other process broke off"),
        }
    }
}
