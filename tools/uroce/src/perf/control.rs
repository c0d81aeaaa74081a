//! The conversation of client and server: one JSON value a line, over TCP.
//!
//! A thread reads, so that a measuring loop can ask whether something has come without a system call.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::plan::{Plan, Traffic};

/// What the two ends say.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum Message {
    /// Both, first: which program, and which conversation it knows. This message never changes.
    Hello { program: String, version: u32 },
    /// The client: what to do, and with whom.
    Plan { plan: Plan, side: Side },
    /// The server: it is ready, here.
    Welcome { side: Side },
    /// The server: it will not, or cannot go on.
    Refuse { reason: String },
    /// The client: messages of this size come next.
    Begin { size: u32 },
    /// The server: they may come.
    Ready,
    /// The client: that was all of them.
    End,
    /// The server: what it sent itself meanwhile.
    Done { traffic: Traffic },
}

/// How to reach one end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Side {
    /// By queue pairs.
    QueuePairs {
        /// Each as address, number and first PSN.
        peers: Vec<String>,
        /// The region that the other end may use.
        address: u64,
        rkey: u32,
        /// Its largest path MTU.
        path_mtu: u32,
    },
    /// By a socket at this port (0 for the client).
    Socket { port: u16 },
}

/// The name in [`Message::Hello`].
const PROGRAM: &str = "uroce perf";
/// The conversation described here.
const VERSION: u32 = 2;
/// Longest line.
const LINE: u64 = 1 << 20;
/// How long the other end may take for an answer that needs no measuring.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// One end of a conversation.
pub(super) struct Control {
    stream: TcpStream,
    incoming: Receiver<Result<Message>>,
    /// Something that came while nobody asked for it.
    early: Option<Message>,
}

impl Control {
    /// Takes over a connection, and finds out whether the other end speaks the same.
    pub(super) fn open(stream: TcpStream) -> Result<Self> {
        // A server that a client has left must not wait for it for ever.
        stream.set_write_timeout(Some(PATIENCE))?;
        let reader = stream.try_clone()?;
        let (sender, incoming) = sync_channel(16);
        std::thread::Builder::new().name("control".into()).spawn(move || {
            let mut reader = BufReader::new(reader);
            loop {
                let message = read(&mut reader);
                let over = message.is_err();
                if sender.send(message).is_err() || over {
                    break;
                }
            }
        })?;
        let mut control = Self { stream, incoming, early: None };
        control.say(&Message::Hello { program: PROGRAM.into(), version: VERSION })?;
        match control.hear()? {
            Message::Hello { program, version } if program == PROGRAM && version == VERSION => Ok(control),
            Message::Hello { program, version } => bail!(
                "the peer is {program:?}, version {version} of the conversation; this is {PROGRAM:?}, version {VERSION}: use the same release at both ends"
            ),
            other => Err(unexpected(other)),
        }
    }

    /// The address of the connection at this end.
    pub(super) fn local(&self) -> Result<SocketAddr> {
        Ok(self.stream.local_addr()?)
    }

    /// The address of the other end.
    pub(super) fn remote(&self) -> Result<SocketAddr> {
        Ok(self.stream.peer_addr()?)
    }

    /// Says something.
    pub(super) fn say(&mut self, message: &Message) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.write_all(&line).context("the peer closed the connection")
    }

    /// Waits for what the other end says, for as long as it may reasonably take.
    pub(super) fn hear(&mut self) -> Result<Message> {
        self.hear_within(PATIENCE)?.ok_or_else(|| anyhow!("the peer is silent: it does not speak as `{PROGRAM}` does"))
    }

    /// Waits for what the other end says, up to `timeout`.
    pub(super) fn hear_within(&mut self, timeout: Duration) -> Result<Option<Message>> {
        if let Some(message) = self.early.take() {
            return Ok(Some(message));
        }
        match self.incoming.recv_timeout(timeout) {
            Ok(message) => message.and_then(reasonable).map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(closed()),
        }
    }

    /// Whether the other end has said something that [`hear`](Self::hear) has not returned yet.
    pub(super) fn has_message(&mut self) -> Result<bool> {
        if self.early.is_none() {
            match self.incoming.try_recv() {
                Ok(message) => self.early = Some(message.and_then(reasonable)?),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(closed()),
            }
        }
        Ok(self.early.is_some())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Ends the thread that reads.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// The error for a message that does not belong here.
pub(super) fn unexpected(message: Message) -> anyhow::Error {
    anyhow!("the peer is out of step: it says {}", serde_json::to_string(&message).unwrap_or_default())
}

fn closed() -> anyhow::Error {
    anyhow!("the peer closed the connection")
}

/// A refusal is an error wherever it comes.
fn reasonable(message: Message) -> Result<Message> {
    match message {
        Message::Refuse { reason } => bail!("the peer says: {reason}"),
        message => Ok(message),
    }
}

fn read(reader: &mut impl BufRead) -> Result<Message> {
    match reader.fill_buf() {
        Ok([b'{', ..]) => {}
        Ok([]) | Err(_) => return Err(closed()),
        Ok(_) => bail!("the peer is another program: it does not speak as `{PROGRAM}` does"),
    }
    let mut line = Vec::new();
    reader.take(LINE).read_until(b'\n', &mut line).context("the peer closed the connection")?;
    serde_json::from_slice(&line)
        .map_err(|error| anyhow!("the peer is another program, or another release: {error} in what it says"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What a control makes of a peer that says `text` and then closes.
    fn hears(text: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            let mut hello = [0; 8];
            stream.read_exact(&mut hello).unwrap();
        });
        let error = Control::open(TcpStream::connect(address).unwrap()).map(|_| ()).unwrap_err();
        peer.join().unwrap();
        error.to_string()
    }

    #[test]
    fn other_programs_are_told_apart() {
        assert!(hears("0000:000011:abcdef:0000").contains("another program"));
        assert!(hears("{\"program\": 1}\n").contains("another program, or another release"));
        assert!(hears("{\"say\":\"hello\",\"program\":\"uroce perf\",\"version\":99}\n").contains("version 99"));
        assert!(hears("{\"say\":\"refuse\",\"reason\":\"tired\"}\n").contains("the peer says: tired"));
        assert!(hears("").contains("closed the connection"));
    }
}
