//! Reliable connection: requester and responder are separate machines; each knows only its own direction.

mod completer;
mod connection;
mod execute;
mod held;
mod inflight;
mod local;
mod place;
mod probe;
mod replay;
mod reply;
mod requester;
mod responder;
mod retry;

pub(crate) use connection::ReliableConnection;
pub(crate) use held::HoldBudget;
use requester::Requester;
use responder::Responder;
