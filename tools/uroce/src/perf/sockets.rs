//! The same measurements with plain TCP and UDP sockets, to compare with.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;

use super::control::Control;
use super::latency::Times;
use super::plan::{Goal, Measure, Operation, Plan, Traffic};

/// Bytes that a TCP server reads at once.
const READ: usize = 256 << 10;
/// How long the other end of a socket may be silent.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long to wait for a datagram before it counts as lost.
const LOST: Duration = Duration::from_millis(200);
/// One that polls gives way so often.
const POLLS_PER_YIELD: u32 = 64;

/// What waits for the client: a socket that it can connect to.
pub(super) enum Server {
    /// TCP.
    Tcp(TcpListener),
    /// UDP.
    Udp(UdpSocket),
}

impl Server {
    /// Opens a socket at `address`, on any port.
    pub(super) fn open(operation: Operation, address: IpAddr) -> Result<Self> {
        Ok(match operation {
            Operation::Udp => Self::Udp(UdpSocket::bind((address, 0))?),
            _ => Self::Tcp(TcpListener::bind((address, 0))?),
        })
    }

    /// Its port.
    pub(super) fn port(&self) -> Result<u16> {
        Ok(match self {
            Self::Tcp(listener) => listener.local_addr()?.port(),
            Self::Udp(socket) => socket.local_addr()?.port(),
        })
    }

    /// Serves one run of messages of `size` bytes, until the client ends it.
    pub(super) fn serve(&self, plan: &Plan, control: &mut Control, size: u32) -> Result<()> {
        match self {
            Self::Tcp(listener) => {
                let stream = accept(listener)?;
                match plan.measure {
                    Measure::Bw => swallow(stream),
                    Measure::Lat => echo_stream(stream, size, !plan.events),
                }
            }
            Self::Udp(socket) => echo_datagrams(socket, control, !plan.events),
        }
    }
}

/// The client's part of a bandwidth run: TCP only.
pub(super) fn bandwidth(server: SocketAddr, size: u32, goal: Goal) -> Result<Traffic> {
    let mut stream = connect(server)?;
    let buffer = vec![0x5a; size as usize];
    let start = Instant::now();
    let mut messages = 0;
    loop {
        let enough = match goal {
            Goal::Messages(count) => messages >= count,
            Goal::Time(time) => start.elapsed() >= time,
        };
        if enough {
            break;
        }
        stream.write_all(&buffer).context("the peer closed the connection")?;
        messages += 1;
    }
    // All is there when the server closes in turn.
    stream.shutdown(std::net::Shutdown::Write)?;
    let _ = stream.read(&mut [0]);
    let traffic = Traffic { messages, seconds: start.elapsed().as_secs_f64(), ..Traffic::default() };
    Ok(Traffic { peak_rate: traffic.rate(), ..traffic })
}

/// The client's part of a latency run.
pub(super) fn latency(plan: &Plan, server: SocketAddr, size: u32, goal: Goal) -> Result<Histogram<u64>> {
    let polling = !plan.events;
    if plan.operation == Operation::Udp {
        return datagram_latency(server, size, goal, polling);
    }
    let mut stream = connect(server)?;
    stream.set_nonblocking(polling)?;
    let mut buffer = vec![0x5a; size as usize];
    let mut times = Times::new(goal)?;
    while !times.are_enough() {
        let start = Instant::now();
        write_all(&mut stream, &buffer)?;
        ensure!(read_exact(&mut stream, &mut buffer)?, "the peer closed the connection");
        times.note(start.elapsed());
    }
    Ok(times.into_histogram())
}

fn datagram_latency(server: SocketAddr, size: u32, goal: Goal, polling: bool) -> Result<Histogram<u64>> {
    let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    configure(&socket, polling)?;
    let mut buffer = vec![0x5a; size as usize];
    let mut times = Times::new(goal)?;
    let mut lost = 0;
    while !times.are_enough() {
        let start = Instant::now();
        socket.send(&buffer)?;
        match receive(|| socket.recv(&mut buffer), start)? {
            Some(_) => times.note(start.elapsed()),
            None => lost += 1,
        }
        ensure!(lost < 20, "{lost} datagrams were lost: a firewall may drop them");
    }
    Ok(times.into_histogram())
}

fn echo_datagrams(socket: &UdpSocket, control: &mut Control, polling: bool) -> Result<()> {
    configure(socket, polling)?;
    let mut buffer = vec![0; 1 << 16];
    while !control.has_message()? {
        if let Some((length, client)) = receive(|| socket.recv_from(&mut buffer), Instant::now())? {
            socket.send_to(buffer.get(..length).unwrap_or_default(), client)?;
        }
    }
    Ok(())
}

fn configure(socket: &UdpSocket, polling: bool) -> Result<()> {
    socket.set_nonblocking(polling)?;
    Ok(socket.set_read_timeout(Some(LOST))?)
}

/// Receives one datagram; `None` when none comes.
fn receive<T>(mut attempt: impl FnMut() -> std::io::Result<T>, start: Instant) -> Result<Option<T>> {
    let mut polls = 0_u32;
    loop {
        match attempt() {
            Ok(received) => return Ok(Some(received)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        polls += 1;
        if polls.is_multiple_of(POLLS_PER_YIELD) {
            std::thread::yield_now();
        }
        if start.elapsed() > LOST {
            return Ok(None);
        }
    }
}

fn connect(server: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, PATIENCE)
        .with_context(|| format!("cannot connect to {server} for the measurement"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Takes the client's connection, which it has announced.
fn accept(listener: &TcpListener) -> Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if start.elapsed() > PATIENCE => bail!("the client does not connect"),
            Err(_) => std::thread::sleep(Duration::from_micros(100)),
        }
    }
}

fn swallow(mut stream: TcpStream) -> Result<()> {
    let mut buffer = vec![0; READ];
    while stream.read(&mut buffer).context("the client is silent")? > 0 {}
    Ok(())
}

fn echo_stream(mut stream: TcpStream, size: u32, polling: bool) -> Result<()> {
    stream.set_nonblocking(polling)?;
    let mut buffer = vec![0; size as usize];
    while read_exact(&mut stream, &mut buffer)? {
        write_all(&mut stream, &buffer)?;
    }
    Ok(())
}

/// Fills `buffer`; `false` when the stream ends before it.
fn read_exact(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<bool> {
    let mut filled = 0;
    let mut wait = Spin::new();
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest) {
            Ok(0) => return Ok(false),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait.turn()?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

fn write_all(stream: &mut TcpStream, mut bytes: &[u8]) -> Result<()> {
    let mut wait = Spin::new();
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait.turn()?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Polling that gives way, and gives up.
struct Spin {
    polls: u32,
    start: Option<Instant>,
}

impl Spin {
    fn new() -> Self {
        Self { polls: 0, start: None }
    }

    fn turn(&mut self) -> Result<()> {
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_YIELD) {
            std::thread::yield_now();
            let start = self.start.get_or_insert_with(Instant::now);
            ensure!(start.elapsed() < PATIENCE, "the peer has been silent for {} s", PATIENCE.as_secs());
        }
        Ok(())
    }
}
