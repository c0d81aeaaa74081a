//! What a capture held in total.

use std::collections::BTreeMap;
use std::fmt;

use super::dissect::{Dissection, Icrc, Refusal, Roce};

/// Counts.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) frames: u64,
    /// RoCE v2, malformed ones aside.
    pub(super) packets: u64,
    pub(super) malformed: u64,
    pub(super) others: u64,
    pub(super) right: u64,
    pub(super) wrong: u64,
    pub(super) unknown: u64,
    /// By opcode.
    pub(super) opcodes: BTreeMap<u8, (&'static str, u64)>,
}

impl Summary {
    /// Counts a frame.
    pub(super) fn add(&mut self, dissection: &Dissection<'_>) {
        self.frames += 1;
        match &dissection.verdict {
            Err(Refusal::Other(_)) => self.others += 1,
            Err(Refusal::Malformed(_)) => self.malformed += 1,
            Ok(Roce { icrc, packet, .. }) => {
                match icrc {
                    Icrc::Right => self.right += 1,
                    Icrc::Wrong { .. } => self.wrong += 1,
                    Icrc::Unknown => self.unknown += 1,
                }
                match packet {
                    Ok(packet) => {
                        self.packets += 1;
                        self.opcodes.entry(packet.bth.opcode.value()).or_insert((packet.info.name, 0)).1 += 1;
                    }
                    Err(_) => self.malformed += 1,
                }
            }
        }
    }

    /// How many ICRCs are wrong.
    pub(super) fn wrong_icrcs(&self) -> u64 {
        self.wrong
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} frames: {} RoCE v2, {} malformed, {} others",
            self.frames, self.packets, self.malformed, self.others
        )?;
        for (value, (name, count)) in &self.opcodes {
            writeln!(f, "  {value:02x} {name:<24} {count:>8}")?;
        }
        write!(f, "ICRC: {} right, {} wrong", self.right, self.wrong)?;
        if self.unknown > 0 {
            write!(f, ", {} that cannot be told (IPv4 options)", self.unknown)?;
        }
        writeln!(f)
    }
}
