//! The server: does what the client asks.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail};

use super::bandwidth;
use super::client::{Place, prepare};
use super::control::{Control, Message, Side, unexpected};
use super::latency;
use super::plan::{Measure, Plan, Role, Traffic};
use super::session::Session;
use super::sockets;
use crate::output;

/// How long a client may take between two sizes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a client asked for, and got.
pub(crate) struct Served {
    pub(crate) client: SocketAddr,
    pub(crate) plan: Plan,
}

/// Serves the client at the other end of `stream` until it goes.
pub(crate) fn serve(stream: TcpStream, place: &Place) -> Result<Served> {
    let mut control = Control::open(stream)?;
    let client = control.remote()?;
    let outcome = converse(&mut control, place);
    if let Err(error) = &outcome {
        // It may be gone, and then knows why.
        let _ = control.say(&Message::Refuse { reason: output::describe(error) });
    }
    outcome.map(|plan| Served { client, plan })
}

fn converse(control: &mut Control, place: &Place) -> Result<Plan> {
    let (plan, side) = match control.hear()? {
        Message::Plan { plan, side } => (plan, side),
        other => return Err(unexpected(other)),
    };
    plan.check()?;
    let mut means = if plan.operation.uses_sockets() {
        let server = sockets::Server::open(plan.operation, control.local()?.ip())?;
        control.say(&Message::Welcome { side: Side::Socket { port: server.port()? } })?;
        Means::Socket(server)
    } else {
        let (mut session, index) = prepare(control, plan.clone(), place, Role::Server)?;
        // Before connecting, which settles on the path MTU of both.
        let own = session.side();
        session.connect(index, &side)?;
        control.say(&Message::Welcome { side: own })?;
        Means::Verbs(Box::new(session))
    };
    for size in &plan.sizes {
        begin(control, *size)?;
        let traffic = means.run(&plan, control, *size)?;
        match control.hear_within(PATIENCE)? {
            Some(Message::End) => control.say(&Message::Done { traffic })?,
            Some(other) => return Err(unexpected(other)),
            None => bail!("the client is silent"),
        }
    }
    // The client closes first, when it has read everything.
    let _ = control.hear_within(super::control::PATIENCE);
    Ok(plan)
}

/// Waits until the client begins with the next size.
fn begin(control: &mut Control, size: u32) -> Result<()> {
    match control.hear_within(PATIENCE)? {
        Some(Message::Begin { size: asked }) if asked == size => control.say(&Message::Ready),
        Some(other) => Err(unexpected(other)),
        None => bail!("the client is silent"),
    }
}

/// What the server serves with.
enum Means {
    Verbs(Box<Session>),
    Socket(sockets::Server),
}

impl Means {
    fn run(&mut self, plan: &Plan, control: &mut Control, size: u32) -> Result<Traffic> {
        match (self, plan.measure) {
            (Self::Socket(server), _) => server.serve(plan, control, size).map(|()| Traffic::default()),
            (Self::Verbs(session), Measure::Lat) => {
                latency::answer(session, control, size).map(|()| Traffic::default())
            }
            (Self::Verbs(session), Measure::Bw) => {
                let goal = plan.bidirectional.then(|| plan.amount.goal(size));
                bandwidth::run(session, control, size, goal, Role::Server)
            }
        }
    }
}
