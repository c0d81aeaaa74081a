//! A client for the guest's agent, which drives the kernel's rxe0 (`tools/guest/README.md` has the protocol).

use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::Duration;

/// The longest that any request may take, in seconds; `shell` and `poll` are the slow ones.
const ANSWER_TIMEOUT_S: u64 = 120;

/// Why a request failed.
#[derive(Debug)]
pub enum AgentError {
    /// When the connection failed.
    Io(io::Error),
    /// When the agent, or the kernel behind it, refused.
    Refused {
        /// A Linux error number.
        errno: i32,
        /// What was wrong.
        text: String,
    },
    /// When an answer is not what the protocol says.
    Garbled(String),
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "connection: {error}"),
            Self::Refused { errno, text } => write!(f, "refused with errno {errno}: {text}"),
            Self::Garbled(answer) => write!(f, "not an answer of the protocol: {answer}"),
        }
    }
}

impl std::error::Error for AgentError {}

impl From<io::Error> for AgentError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What a request gives.
pub type Result<T> = std::result::Result<T, AgentError>;

/// One session: a connection to the agent and the objects made through it, which end with it.
pub struct Agent {
    reader: BufReader<TcpStream>,
}

/// A memory region of the guest.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRegion {
    /// Its virtual address, page-aligned.
    pub addr: u64,
    /// The key for the guest's own work requests.
    pub lkey: u32,
    /// The key for ours.
    pub rkey: u32,
}

/// A work completion of the guest, numbers as in `infiniband/verbs.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkCompletion {
    /// As given when the request was posted.
    pub wr_id: u64,
    /// `ibv_wc_status`; 0 is success.
    pub status: u32,
    /// `ibv_wc_opcode`; meaningless unless `status` is 0, as is all that follows but `qp_num`.
    pub opcode: u32,
    /// The device's own error code.
    pub vendor_err: u32,
    /// Bytes moved.
    pub byte_len: u32,
    /// Immediate data in host order, or the R_Key that was invalidated.
    pub imm: u32,
    /// `ibv_wc_flags`: 1 GRH, 2 immediate data, 8 invalidated.
    pub flags: u32,
    /// The guest's QP.
    pub qp_num: u32,
    /// UD: the sender's QP.
    pub src_qp: u32,
}

impl Agent {
    /// Connects to the agent at `address`.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(ANSWER_TIMEOUT_S)))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sends one request line and takes its answer.
    pub fn request(&mut self, line: &str) -> Result<Answer> {
        self.reader.get_mut().write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        if self.reader.read_line(&mut answer)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Answer::parse(answer.trim_end())
    }

    /// Allocates and registers `length` bytes; `access` is a mask of `ibv_access_flags`.
    pub fn mr(&mut self, name: &str, length: usize, access: u32) -> Result<RemoteRegion> {
        let answer = self.request(&format!("mr {name} {length} {access:#x}"))?;
        Ok(RemoteRegion { addr: answer.number("addr")?, lkey: answer.number("lkey")?, rkey: answer.number("rkey")? })
    }

    /// Creates a completion queue.
    pub fn cq(&mut self, name: &str, depth: u32) -> Result<()> {
        self.request(&format!("cq {name} {depth}")).map(drop)
    }

    /// Creates a QP of `kind` (`rc`, `uc`, `ud`) with `options` (`cq=cq depth=64`); gives its number.
    pub fn qp(&mut self, name: &str, kind: &str, options: &str) -> Result<u32> {
        self.request(&format!("qp {name} {kind} {options}"))?.number("qpn")
    }

    /// Modifies a QP: `state=rtr dest_qpn=17 dgid=10.99.0.1 …`.
    ///
    /// The kernel resolves the peer's address when it is told it, and gives up (`ETIMEDOUT`) when the answer is late, as it
    /// is over IPv6 on an emulated guest now and then: that is tried again.
    pub fn modify(&mut self, name: &str, attributes: &str) -> Result<()> {
        const TIMED_OUT: i32 = 110;
        const TRIES: usize = 5;
        let request = format!("modify {name} {attributes}");
        for _ in 1..TRIES {
            match self.request(&request) {
                Err(AgentError::Refused { errno: TIMED_OUT, .. }) => {}
                result => return result.map(drop),
            }
        }
        self.request(&request).map(drop)
    }

    /// Takes a QP from RESET to RTS: `rtr` and `rts` are the attributes of these two steps.
    pub fn establish(&mut self, name: &str, rtr: &str, rts: &str) -> Result<()> {
        self.modify(name, "state=init")?;
        self.modify(name, &format!("state=rtr {rtr}"))?;
        self.modify(name, &format!("state=rts {rts}"))
    }

    /// The state of a QP: `reset`, `init`, `rtr`, `rts`, `sqd`, `sqe` or `err`.
    pub fn state(&mut self, name: &str) -> Result<String> {
        Ok(self.request(&format!("query {name}"))?.text("state")?.to_owned())
    }

    /// Attaches a UD QP to a multicast group (an IP address), and has the guest's IP stack join it.
    pub fn attach(&mut self, qp: &str, group: &str) -> Result<()> {
        self.request(&format!("join mgid={group}"))?;
        self.request(&format!("attach {qp} mgid={group}")).map(drop)
    }

    /// Destroys an object, whatever it is.
    pub fn destroy(&mut self, name: &str) -> Result<()> {
        self.request(&format!("destroy {name}")).map(drop)
    }

    /// Posts a receive to a QP or SRQ; `sge` is `MR:offset:length,…` or empty.
    pub fn recv(&mut self, queue: &str, wr_id: u64, sge: &str) -> Result<()> {
        self.request(&format!("recv {queue} {wr_id} {sge}")).map(drop)
    }

    /// Posts a send request: `op=write sge=mr:0:4096 raddr=0x… rkey=0x…`.
    pub fn send(&mut self, qp: &str, wr_id: u64, request: &str) -> Result<Answer> {
        self.request(&format!("send {qp} {wr_id} {request}"))
    }

    /// Waits for `count` completions, at most `timeout`; gives those that came.
    pub fn poll(&mut self, cq: &str, count: usize, timeout: Duration) -> Result<Vec<WorkCompletion>> {
        let answer = self.request(&format!("poll {cq} {count} {}", timeout.as_millis()))?;
        let list = answer.text("wc")?;
        list.split(',').filter(|wc| !wc.is_empty()).map(WorkCompletion::parse).collect()
    }

    /// Fills a range with the pattern of `seed` (see [`pattern`](super::pattern)).
    pub fn fill(&mut self, mr: &str, offset: usize, length: usize, seed: u64) -> Result<()> {
        self.request(&format!("fill {mr} {offset} {length} {seed}")).map(drop)
    }

    /// The first byte of a range, counted from its start, that differs from the pattern of `seed`.
    pub fn mismatch(&mut self, mr: &str, offset: usize, length: usize, seed: u64) -> Result<Option<usize>> {
        let answer = self.request(&format!("check {mr} {offset} {length} {seed}"))?;
        if answer.number::<u32>("same")? == 1 { Ok(None) } else { answer.number("at").map(Some) }
    }

    /// CRC-32 (IEEE) of a range.
    pub fn hash(&mut self, mr: &str, offset: usize, length: usize) -> Result<u32> {
        self.request(&format!("hash {mr} {offset} {length}"))?.number("crc32")
    }

    /// The bytes of a range.
    pub fn peek(&mut self, mr: &str, offset: usize, length: usize) -> Result<Vec<u8>> {
        let answer = self.request(&format!("peek {mr} {offset} {length}"))?;
        let hex = answer.text("hex")?;
        let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
        bytes.ok_or_else(|| AgentError::Garbled(hex.to_owned()))
    }

    /// Writes `bytes` into a region.
    pub fn poke(&mut self, mr: &str, offset: usize, bytes: &[u8]) -> Result<()> {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.request(&format!("poke {mr} {offset} {hex}")).map(drop)
    }

    /// Waits for a first asynchronous event, at most `timeout`; gives all as (`ibv_event_type`, QPN or 0).
    pub fn events(&mut self, timeout: Duration) -> Result<Vec<(u32, u32)>> {
        let answer = self.request(&format!("events {}", timeout.as_millis()))?;
        let list = answer.text("events")?;
        let parse = |event: &str| {
            let (kind, qpn) = event.split_once(':')?;
            Some((kind.parse().ok()?, qpn.parse().ok()?))
        };
        let events: Option<Vec<_>> = list.split(',').filter(|event| !event.is_empty()).map(parse).collect();
        events.ok_or_else(|| AgentError::Garbled(list.to_owned()))
    }

    /// A counter of rxe0, by the kernel's name (`duplicate_request`, `completer_retry_err`, …).
    pub fn counter(&mut self, name: &str) -> Result<u64> {
        self.request("counters")?.number(name)
    }

    /// Runs a shell command in the guest: its exit status, and its output with errors.
    pub fn shell(&mut self, command: &str) -> Result<(i32, String)> {
        let answer = self.request(&format!("shell {command}"))?;
        Ok((answer.number::<u32>("status")?.cast_signed(), percent_decode(answer.text("output")?)))
    }
}

/// The `key=value`s of an answer.
#[derive(Clone, Debug)]
pub struct Answer(HashMap<String, String>);

impl Answer {
    fn parse(line: &str) -> Result<Self> {
        if let Some(error) = line.strip_prefix("err ") {
            let (errno, text) = error.split_once(' ').unwrap_or((error, ""));
            let errno = errno.parse().map_err(|_| AgentError::Garbled(line.to_owned()))?;
            return Err(AgentError::Refused { errno, text: text.to_owned() });
        }
        let mut words = line.split(' ');
        if words.next() != Some("ok") {
            return Err(AgentError::Garbled(line.to_owned()));
        }
        let pairs = words.filter_map(|word| word.split_once('='));
        Ok(Self(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()))
    }

    /// The value of `key`.
    pub fn text(&self, key: &str) -> Result<&str> {
        let value = self.0.get(key).map(String::as_str);
        value.ok_or_else(|| AgentError::Garbled(format!("no {key} in {:?}", self.0)))
    }

    /// The value of `key`, decimal or with 0x.
    pub fn number<T: TryFrom<u64>>(&self, key: &str) -> Result<T> {
        parse_number(self.text(key)?)
    }
}

impl WorkCompletion {
    /// Whether it says that the request succeeded.
    pub fn is_success(&self) -> bool {
        self.status == 0
    }

    fn parse(text: &str) -> Result<Self> {
        let fields: Vec<&str> = text.split(':').collect();
        let [wr_id, status, opcode, vendor_err, byte_len, imm, flags, qp_num, src_qp] = fields[..] else {
            return Err(AgentError::Garbled(text.to_owned()));
        };
        Ok(Self {
            wr_id: parse_number(wr_id)?,
            status: parse_number(status)?,
            opcode: parse_number(opcode)?,
            vendor_err: parse_number(vendor_err)?,
            byte_len: parse_number(byte_len)?,
            imm: parse_number(imm)?,
            flags: parse_number(flags)?,
            qp_num: parse_number(qp_num)?,
            src_qp: parse_number(src_qp)?,
        })
    }
}

fn parse_number<T: TryFrom<u64>>(text: &str) -> Result<T> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => u64::from_str(text),
    };
    let number = number.ok().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| AgentError::Garbled(format!("{text} is not a number, or too large")))
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => {
                std::str::from_utf8(&[*high, *low]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok())
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
