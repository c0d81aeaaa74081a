//! Packets and the summary as JSON objects.

use serde_json::{Map, Value, json};

use super::dissect::{Dissection, Icrc, Refusal, Roce};
use super::fields::{self, Header};
use super::summary::Summary;

/// One packet.
pub(super) fn packet(dissection: &Dissection<'_>) -> Value {
    let mut object = Map::new();
    object.insert("number".into(), json!(dissection.number));
    object.insert("seconds".into(), json!(dissection.time.as_secs_f64()));
    match &dissection.verdict {
        Err(Refusal::Other(reason)) => {
            object.insert("kind".into(), json!("other"));
            object.insert("reason".into(), json!(reason.to_string()));
        }
        Err(Refusal::Malformed(reason)) => {
            object.insert("kind".into(), json!("malformed"));
            object.insert("reason".into(), json!(reason));
        }
        Ok(Roce { frame, icrc, packet }) => {
            object.insert("kind".into(), json!(if packet.is_ok() { "roce" } else { "malformed" }));
            object.insert("icrc".into(), json!(verdict(*icrc)));
            object.insert("icrc_value".into(), json!(frame.icrc));
            let mut headers = fields::network(frame);
            match packet {
                Ok(packet) => {
                    headers.extend(fields::transport(packet));
                    object.insert("payload_bytes".into(), json!(packet.payload.len()));
                }
                Err(reason) => {
                    object.insert("reason".into(), json!(reason.to_string()));
                }
            }
            object.insert("headers".into(), json!(headers.iter().map(named).collect::<Vec<_>>()));
        }
    }
    Value::Object(object)
}

/// The whole file.
pub(super) fn summary(summary: &Summary) -> Value {
    let opcodes: Map<_, _> = summary.opcodes.values().map(|(name, count)| ((*name).into(), json!(count))).collect();
    json!({
        "summary": {
            "frames": summary.frames,
            "roce": summary.packets,
            "malformed": summary.malformed,
            "other": summary.others,
            "opcodes": opcodes,
            "icrc_right": summary.right,
            "icrc_wrong": summary.wrong,
            "icrc_unknown": summary.unknown,
        }
    })
}

/// A list, because VLAN tags come twice.
fn named(header: &Header) -> Value {
    json!({ "header": header.name, "fields": header.json() })
}

fn verdict(icrc: Icrc) -> &'static str {
    match icrc {
        Icrc::Right => "right",
        Icrc::Wrong { .. } => "wrong",
        Icrc::Unknown => "unknown",
    }
}
