//! Frames out of a capture file.

use std::borrow::Cow;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use pcap_file::pcap::PcapReader;
use pcap_file::{DataLink, PcapError};

/// An open capture file.
pub(super) struct Capture {
    path: PathBuf,
    reader: PcapReader<BufReader<File>>,
    link: Link,
    number: u64,
    start: Option<Duration>,
}

/// What frames begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Ethernet,
    Ip,
}

/// One frame of it.
pub(super) struct Frame<'a> {
    /// Counted from 1.
    pub(super) number: u64,
    /// Since the first.
    pub(super) time: Duration,
    pub(super) link: Link,
    /// Bytes it had on the wire; `data` has fewer when the capture cut it off.
    pub(super) length: u32,
    pub(super) data: Cow<'a, [u8]>,
}

impl Capture {
    /// Opens a file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let reader = PcapReader::new(BufReader::new(file)).map_err(|error| {
            anyhow!(
                "{}: not a pcap file ({error}); pcapng can be converted: tcpdump -r FILE -w FILE.pcap",
                path.display()
            )
        })?;
        let link = match reader.header().datalink {
            DataLink::ETHERNET => Link::Ethernet,
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Link::Ip,
            other => bail!("{}: link type {other:?}; Ethernet and raw IP can be read", path.display()),
        };
        Ok(Self { path: path.into(), reader, link, number: 0, start: None })
    }

    /// The next frame, `None` at the end.
    pub(super) fn next_frame(&mut self) -> Result<Option<Frame<'_>>> {
        let (number, path) = (self.number + 1, &self.path);
        let Some(packet) = self.reader.next_packet() else { return Ok(None) };
        let packet = packet.map_err(|error| match error {
            PcapError::IncompleteBuffer => anyhow!("{}: the file ends in the middle of frame {number}", path.display()),
            error => anyhow!("{}: frame {number}: {error}", path.display()),
        })?;
        self.number = number;
        let start = *self.start.get_or_insert(packet.timestamp);
        // Frames of several processors may be a little out of order.
        let time = packet.timestamp.saturating_sub(start);
        Ok(Some(Frame { number, time, link: self.link, length: packet.orig_len, data: packet.data }))
    }
}
