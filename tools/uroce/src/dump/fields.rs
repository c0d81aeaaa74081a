//! The headers of a packet as lists of named values: what `-v` and `--json` both show.

use std::fmt;

use serde_json::{Map, Value, json};
use uroce::wire::net::{Ethernet, Frame, Ip};
use uroce::wire::{Aeth, Bth, Extensions, NakCode, Packet, Selectivity, Syndrome};

/// One header.
pub(super) struct Header {
    pub(super) name: &'static str,
    pub(super) fields: Vec<(&'static str, Field)>,
}

/// The value of a field.
pub(super) enum Field {
    Number(u64),
    /// A number that is written in hexadecimal with so many digits.
    Hex(u64, usize),
    Flag(bool),
    Text(String),
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Hex(number, digits) => write!(f, "0x{number:0digits$x}"),
            Self::Flag(flag) => write!(f, "{}", u8::from(*flag)),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Header {
    fn new<const N: usize>(name: &'static str, fields: [(&'static str, Field); N]) -> Self {
        Self { name, fields: fields.into() }
    }

    /// As a JSON object.
    pub(super) fn json(&self) -> Value {
        let value = |field: &Field| match field {
            Field::Number(number) | Field::Hex(number, _) => json!(number),
            Field::Flag(flag) => json!(flag),
            Field::Text(text) => json!(text),
        };
        Value::Object(self.fields.iter().map(|(name, field)| ((*name).into(), value(field))).collect::<Map<_, _>>())
    }
}

/// What lies under the transport: Ethernet, VLAN tags, IP, UDP.
pub(super) fn network(frame: &Frame<'_>) -> Vec<Header> {
    let mut headers = Vec::new();
    if let Some(ethernet) = &frame.ethernet {
        headers.extend(link(ethernet));
    }
    headers.push(ip(&frame.ip));
    headers.push(Header::new(
        "UDP",
        [
            ("source_port", Field::Number(frame.udp.source_port.into())),
            ("destination_port", Field::Number(frame.udp.destination_port.into())),
            ("length", Field::Number(frame.udp.length.into())),
            ("checksum", Field::Hex(frame.udp.checksum.into(), 4)),
        ],
    ));
    headers
}

/// The transport's headers.
pub(super) fn transport(packet: &Packet<'_>) -> Vec<Header> {
    let mut headers = vec![bth(&packet.bth, packet.info.name)];
    headers.extend(extensions(&packet.extensions));
    headers
}

fn link(ethernet: &Ethernet) -> Vec<Header> {
    let mac = |bytes: [u8; 6]| Field::Text(bytes.map(|byte| format!("{byte:02x}")).join(":"));
    let mut headers = vec![Header::new(
        "Ethernet",
        [
            ("source", mac(ethernet.source)),
            ("destination", mac(ethernet.destination)),
            ("ethertype", Field::Hex(ethernet.ethertype.into(), 4)),
        ],
    )];
    headers.extend(ethernet.vlan.iter().flatten().map(|tag| {
        Header::new(
            "VLAN",
            [
                ("protocol", Field::Hex(tag.protocol.into(), 4)),
                ("priority", Field::Number((tag.control >> 13).into())),
                ("id", Field::Number((tag.control & 0xfff).into())),
            ],
        )
    }));
    headers
}

fn ip(ip: &Ip<'_>) -> Header {
    let text = |address: &dyn fmt::Display| Field::Text(address.to_string());
    match ip {
        Ip::V4(ip) => Header::new(
            "IPv4",
            [
                ("source", text(&ip.source)),
                ("destination", text(&ip.destination)),
                ("type_of_service", Field::Hex(ip.type_of_service.into(), 2)),
                ("total_length", Field::Number(ip.total_length.into())),
                ("identification", Field::Hex(ip.identification.into(), 4)),
                ("dont_fragment", Field::Flag(ip.dont_fragment)),
                ("time_to_live", Field::Number(ip.time_to_live.into())),
                ("checksum", Field::Hex(ip.checksum.into(), 4)),
                ("option_bytes", Field::Number(ip.options.len() as u64)),
            ],
        ),
        Ip::V6(ip) => Header::new(
            "IPv6",
            [
                ("source", text(&ip.source)),
                ("destination", text(&ip.destination)),
                ("traffic_class", Field::Hex(ip.traffic_class.into(), 2)),
                ("flow_label", Field::Hex(ip.flow_label.into(), 5)),
                ("payload_length", Field::Number(ip.payload_length.into())),
                ("hop_limit", Field::Number(ip.hop_limit.into())),
            ],
        ),
    }
}

fn bth(bth: &Bth, name: &str) -> Header {
    Header::new(
        "BTH",
        [
            ("opcode", Field::Text(name.into())),
            ("opcode_value", Field::Hex(bth.opcode.value().into(), 2)),
            ("solicited", Field::Flag(bth.solicited)),
            ("migration", Field::Flag(bth.migration)),
            ("pad", Field::Number(bth.pad.into())),
            ("pkey", Field::Hex(bth.pkey.into(), 4)),
            ("fecn", Field::Flag(bth.fecn)),
            ("becn", Field::Flag(bth.becn)),
            ("destination_qp", Field::Hex(bth.destination.value().into(), 6)),
            ("ack_request", Field::Flag(bth.ack_request)),
            ("psn", Field::Hex(bth.psn.value().into(), 6)),
        ],
    )
}

/// The headers behind the BTH, in the order of the wire.
fn extensions(extensions: &Extensions) -> Vec<Header> {
    let Extensions { xrceth, deth, flush, reth, atomic, aeth, atomic_ack, immediate, invalidate } = extensions;
    let headers = [
        xrceth.map(|xrceth| Header::new("XRCETH", [("srq", Field::Hex(xrceth.srq.value().into(), 6))])),
        deth.map(|deth| {
            let source = Field::Hex(deth.source.value().into(), 6);
            Header::new("DETH", [("qkey", Field::Hex(deth.qkey.into(), 8)), ("source_qp", source)])
        }),
        flush.map(|flush| {
            let selectivity = match flush.selectivity {
                Selectivity::Range => 0,
                Selectivity::Region => 1,
                Selectivity::Reserved(value) => value,
            };
            let placement = Field::Hex(flush.placement.bits().into(), 1);
            Header::new("FETH", [("placement", placement), ("selectivity", Field::Number(selectivity.into()))])
        }),
        reth.map(|reth| {
            let (address, rkey) = (Field::Hex(reth.address, 16), Field::Hex(reth.rkey.into(), 8));
            Header::new("RETH", [("address", address), ("rkey", rkey), ("length", Field::Number(reth.length.into()))])
        }),
        atomic.map(|atomic| {
            Header::new(
                "AtomicETH",
                [
                    ("address", Field::Hex(atomic.address, 16)),
                    ("rkey", Field::Hex(atomic.rkey.into(), 8)),
                    ("swap_or_add", Field::Hex(atomic.swap_add, 16)),
                    ("compare", Field::Hex(atomic.compare, 16)),
                ],
            )
        }),
        aeth.map(|aeth| {
            let fields = [
                ("syndrome", Field::Text(syndrome(&aeth))),
                ("syndrome_value", Field::Hex(aeth.syndrome.value().into(), 2)),
                ("msn", Field::Number(aeth.msn.into())),
            ];
            Header::new("AETH", fields)
        }),
        atomic_ack.map(|original| Header::new("AtomicAckETH", [("original", Field::Hex(original, 16))])),
        immediate.map(|immediate| Header::new("ImmDt", [("immediate", Field::Hex(immediate.into(), 8))])),
        invalidate.map(|rkey| Header::new("IETH", [("rkey", Field::Hex(rkey.into(), 8))])),
    ];
    headers.into_iter().flatten().collect()
}

/// A responder's verdict in words.
pub(super) fn syndrome(aeth: &Aeth) -> String {
    match aeth.syndrome {
        Syndrome::Ack { credits: Syndrome::NO_CREDITS } => "ACK".into(),
        Syndrome::Ack { credits } => format!("ACK, credits {credits}"),
        Syndrome::ReceiverNotReady { timer } => format!("RNR NAK, timer {timer}"),
        Syndrome::Nak(NakCode::SequenceError) => "NAK, PSN sequence error".into(),
        Syndrome::Nak(NakCode::InvalidRequest) => "NAK, invalid request".into(),
        Syndrome::Nak(NakCode::RemoteAccess) => "NAK, remote access error".into(),
        Syndrome::Nak(NakCode::RemoteOperational) => "NAK, remote operational error".into(),
        other => format!("undefined syndrome {:#04x}", other.value()),
    }
}
