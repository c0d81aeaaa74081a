//! Reliable connection: requester and responder are separate machines; each knows only its own direction.

mod completer;
mod execute;
mod inflight;
mod probe;
mod replay;
mod reply;
mod request;
mod requester;
mod responder;
mod retry;

pub(crate) use requester::Requester;
pub(crate) use responder::Responder;
