//! The client: asks, measures, and has the results.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use uroce::verbs::{Counters, PortCounters};

use super::bandwidth;
use super::control::{Control, Message, Side, unexpected};
use super::plan::{Goal, Measure, Plan, Role, Traffic};
use super::session::Session;
use super::{latency, sockets};
use crate::device::{self, Backend};

/// What was measured at one size.
pub(crate) struct Row {
    pub(crate) size: u32,
    pub(crate) outcome: Outcome,
}

/// The numbers of one size.
pub(crate) enum Outcome {
    /// Bandwidth: what this end sent and, when both did, the other.
    Bandwidth { own: Traffic, other: Traffic },
    /// Times in nanoseconds, whole round trips where turns are taken.
    Latency(Histogram<u64>),
}

/// Which device and address to measure with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) device: Option<String>,
    pub(crate) gid_index: Option<u8>,
    pub(crate) backend: Option<Backend>,
}

/// A client that a server has welcomed.
pub(crate) struct Client {
    control: Control,
    plan: Plan,
    means: Means,
}

/// What the client measures with.
enum Means {
    Verbs(Box<Session>),
    Socket(SocketAddr),
}

/// What this end looks like, for the heading.
pub(crate) struct Setting {
    pub(crate) device: String,
    pub(crate) path_mtu: u32,
    pub(crate) own: String,
    pub(crate) peer: String,
}

impl Client {
    /// Tells the server at the other end of `stream` the plan, and connects to it.
    pub(crate) fn open(stream: TcpStream, plan: Plan, place: &Place) -> Result<Self> {
        let mut control = Control::open(stream)?;
        let means = if plan.operation.uses_sockets() {
            control.say(&Message::Plan { plan: plan.clone(), side: Side::Socket { port: 0 } })?;
            let Side::Socket { port } = welcome(&mut control)? else { return Err(unexpected(Message::Ready)) };
            Means::Socket(SocketAddr::new(control.remote()?.ip(), port))
        } else {
            let (mut session, index) = prepare(&control, plan.clone(), place, Role::Client)?;
            control.say(&Message::Plan { plan: plan.clone(), side: session.side() })?;
            session.connect(index, &welcome(&mut control)?)?;
            Means::Verbs(Box::new(session))
        };
        Ok(Self { control, plan, means })
    }

    /// The sizes to [`measure`](Self::measure), one after the other.
    pub(crate) fn sizes(&self) -> Vec<u32> {
        self.plan.sizes.clone()
    }

    /// Measures one size.
    pub(crate) fn measure(&mut self, size: u32) -> Result<Row> {
        self.control.say(&Message::Begin { size })?;
        match self.control.hear()? {
            Message::Ready => {}
            other => return Err(unexpected(other)),
        }
        let goal = self.plan.amount.goal(size);
        let outcome = match &mut self.means {
            Means::Verbs(session) => with_verbs(session, &mut self.control, size, goal)?,
            Means::Socket(server) => with_sockets(&self.plan, &mut self.control, *server, size, goal)?,
        };
        let Message::Done { traffic } = self.control.hear()? else { return Err(unexpected(Message::Ready)) };
        let outcome = match outcome {
            Outcome::Bandwidth { own, .. } => Outcome::Bandwidth { own, other: traffic },
            latency => latency,
        };
        Ok(Row { size, outcome })
    }

    /// What is measured with; `None` for sockets.
    pub(crate) fn setting(&self) -> Result<Option<Setting>> {
        let Means::Verbs(session) = &self.means else { return Ok(None) };
        let own = session.own().map_or_else(String::new, |peer| peer.to_string());
        let (device, path_mtu) = (session.device().to_string(), session.path_mtu().bytes());
        Ok(Some(Setting { device, path_mtu, own, peer: self.control.remote()?.ip().to_canonical().to_string() }))
    }

    /// What was counted; nothing for sockets.
    pub(crate) fn counters(&self) -> Option<(Counters, PortCounters)> {
        match &self.means {
            Means::Verbs(session) => Some(session.counters()),
            Means::Socket(_) => None,
        }
    }
}

/// Opens the device and makes the queue pairs for `plan`; with the index of the GID.
pub(super) fn prepare(control: &Control, plan: Plan, place: &Place, role: Role) -> Result<(Session, u8)> {
    let local = control.local()?;
    let name = device::choose(place.device.as_deref(), local)?;
    let context = device::options(&name, place.backend).open()?;
    let index = device::gid_index(&context, place.gid_index, local)?;
    Ok((Session::new(context, index, plan, role)?, index))
}

fn welcome(control: &mut Control) -> Result<Side> {
    match control.hear()? {
        Message::Welcome { side } => Ok(side),
        other => Err(unexpected(other)),
    }
}

fn with_verbs(session: &mut Session, control: &mut Control, size: u32, goal: Goal) -> Result<Outcome> {
    match session.plan.measure {
        Measure::Lat => latency::measure(session, control, size, goal).map(Outcome::Latency),
        Measure::Bw => {
            let own = bandwidth::run(session, control, size, Some(goal), Role::Client)?;
            Ok(Outcome::Bandwidth { own, other: Traffic::default() })
        }
    }
}

fn with_sockets(plan: &Plan, control: &mut Control, server: SocketAddr, size: u32, goal: Goal) -> Result<Outcome> {
    ensure!(server.port() != 0, "the peer offers no socket");
    let outcome = match plan.measure {
        Measure::Bw => {
            let own = sockets::bandwidth(server, size, goal)?;
            Outcome::Bandwidth { own, other: Traffic::default() }
        }
        Measure::Lat => Outcome::Latency(sockets::latency(plan, server, size, goal)?),
    };
    control.say(&Message::End)?;
    Ok(outcome)
}
