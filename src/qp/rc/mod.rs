//! Reliable connection: requester and responder are separate machines; each knows only its own direction.

mod completer;
mod inflight;
mod replay;
mod reply;
mod request;
mod requester;
mod responder;
mod retry;

pub(crate) use requester::Requester;
pub(crate) use responder::Responder;
