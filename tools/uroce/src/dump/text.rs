//! A packet as text: one line, or every header.

use std::fmt::Write as _;
use std::io::{self, Write};

use uroce::wire::net::Frame;
use uroce::wire::{Packet, WireError};

use super::dissect::{Dissection, Icrc, Refusal, Roce};
use super::fields::{self, Header};

/// Prints a packet on one line.
pub(super) fn line(out: &mut impl Write, dissection: &Dissection<'_>) -> io::Result<()> {
    write!(out, "{:>6} {:>11.6}  ", dissection.number, dissection.time.as_secs_f64())?;
    match &dissection.verdict {
        Ok(Roce { frame, icrc, packet }) => {
            writeln!(
                out,
                "{} > {}  {}  {}",
                frame.ip.source(),
                frame.ip.destination(),
                gist(packet),
                state(frame, *icrc)
            )
        }
        Err(Refusal::Malformed(reason)) => writeln!(out, "malformed: {reason}"),
        Err(Refusal::Other(reason)) => writeln!(out, "not RoCE v2: {reason}"),
    }
}

/// Prints a packet on one line, and every header below.
pub(super) fn headers(out: &mut impl Write, dissection: &Dissection<'_>) -> io::Result<()> {
    line(out, dissection)?;
    let Ok(Roce { frame, packet, .. }) = &dissection.verdict else { return Ok(()) };
    let transport = packet.as_ref().map(fields::transport).unwrap_or_default();
    for Header { name, fields } in fields::network(frame).into_iter().chain(transport) {
        write!(out, "         {name}:")?;
        for (field, value) in fields {
            write!(out, " {field} {value}")?;
        }
        writeln!(out)?;
    }
    if let Ok(packet) = packet {
        writeln!(out, "         payload: {} bytes and {} of pad", packet.payload.len(), packet.bth.pad)?;
    }
    Ok(())
}

/// What a packet is about.
fn gist(packet: &Result<Packet<'_>, WireError>) -> String {
    let packet = match packet {
        Ok(packet) => packet,
        Err(error) => return format!("malformed: {error}"),
    };
    let Packet { bth, info, extensions, payload } = packet;
    let mut text = format!("{:<22} qp {:#08x} psn {:#08x}", info.name, bth.destination.value(), bth.psn.value());
    // Writing to a string does not fail.
    if let Some(deth) = &extensions.deth {
        let _ = write!(text, " from qp {:#08x} qkey {:#010x}", deth.source.value(), deth.qkey);
    }
    if let Some(reth) = &extensions.reth {
        let _ = write!(text, " va {:#x} rkey {:#010x} length {}", reth.address, reth.rkey, reth.length);
    }
    if let Some(atomic) = &extensions.atomic {
        let _ = write!(text, " va {:#x} rkey {:#010x} add/swap {:#x}", atomic.address, atomic.rkey, atomic.swap_add);
    }
    if let Some(aeth) = &extensions.aeth {
        let _ = write!(text, " {}, msn {}", fields::syndrome(aeth), aeth.msn);
    }
    if let Some(original) = extensions.atomic_ack {
        let _ = write!(text, " original {original:#x}");
    }
    if let Some(immediate) = extensions.immediate {
        let _ = write!(text, " immediate {immediate:#010x}");
    }
    if let Some(rkey) = extensions.invalidate {
        let _ = write!(text, " invalidate {rkey:#010x}");
    }
    for (flag, name) in [(bth.ack_request, " AckReq"), (bth.solicited, " SE"), (bth.fecn, " FECN"), (bth.becn, " BECN")]
    {
        text.push_str(if flag { name } else { "" });
    }
    if !payload.is_empty() {
        let _ = write!(text, " {} bytes", payload.len());
    }
    text
}

fn state(frame: &Frame<'_>, icrc: Icrc) -> String {
    match icrc {
        Icrc::Right => "ICRC right".into(),
        Icrc::Wrong { computed } => format!("ICRC WRONG: {:#010x}, not {computed:#010x}", frame.icrc),
        Icrc::Unknown => "ICRC unknown: IPv4 options".into(),
    }
}
