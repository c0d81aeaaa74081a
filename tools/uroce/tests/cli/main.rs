//! The command as its users meet it: its output, its errors, its exit status.

mod alone;
mod command;
mod pairs;
mod stat;
