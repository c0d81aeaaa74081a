//! What a packet costs before any queue pair sees it: ICRC, parsing, writing headers.

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use uroce::wire::icrc::{self, IpPseudo, Ipv4Pseudo, Ipv6Pseudo};
use uroce::wire::{Bth, Extensions, Opcode, Packet, Psn, Qpn, Reth, emit_headers, pad_of};

const V4: Ipv4Pseudo = Ipv4Pseudo {
    source: Ipv4Addr::new(10, 0, 0, 1),
    destination: Ipv4Addr::new(10, 0, 0, 2),
    identification: 0,
    dont_fragment: true,
};
const V6: Ipv6Pseudo = Ipv6Pseudo { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::LOCALHOST };
const SOURCE_PORT: u16 = 0xc000;

fn datagram(opcode: Opcode, payload: usize) -> Vec<u8> {
    let (bth, extensions) = headers(opcode, payload);
    let mut datagram = vec![0x5a; 64 + payload];
    let length = emit_headers(&bth, &extensions, &mut datagram).expect("64 bytes are room enough");
    datagram.truncate(length + payload + usize::from(bth.pad));
    datagram
}

fn headers(opcode: Opcode, payload: usize) -> (Bth, Extensions) {
    let bth = Bth {
        opcode,
        solicited: false,
        migration: true,
        pad: pad_of(payload),
        version: 0,
        pkey: 0xffff,
        fecn: false,
        becn: false,
        destination: Qpn::new(0x01_0002),
        ack_request: true,
        psn: Psn::new(0xab_cdef),
    };
    let reth = Reth { address: 0x7fff_0000_1000, rkey: 0x1234_5678, length: payload as u32 };
    (bth, Extensions { reth: Some(reth), ..Extensions::default() })
}

fn icrc(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("icrc");
    for payload in [8, 64, 256, 1024, 4096] {
        let datagram = datagram(Opcode::RC_WRITE_ONLY, payload);
        group.throughput(Throughput::Bytes(datagram.len() as u64));
        group.bench_with_input(BenchmarkId::new("v4", payload), &datagram, |bencher, datagram| {
            bencher.iter(|| icrc::compute(black_box(&IpPseudo::V4(V4)), SOURCE_PORT, black_box(datagram)));
        });
        group.bench_with_input(BenchmarkId::new("v6", payload), &datagram, |bencher, datagram| {
            bencher.iter(|| icrc::compute(black_box(&IpPseudo::V6(V6)), SOURCE_PORT, black_box(datagram)));
        });
        let other_id = Ipv4Pseudo { identification: 0xbeef, ..V4 };
        let received = icrc::compute(&IpPseudo::V4(other_id), SOURCE_PORT, &datagram);
        group.bench_with_input(BenchmarkId::new("unknown_id", payload), &datagram, |bencher, datagram| {
            bencher.iter(|| icrc::check_unknown_id(black_box(&V4), SOURCE_PORT, black_box(datagram), received));
        });
    }
    group.finish();
}

fn packet(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("packet");
    group.throughput(Throughput::Elements(1));
    for opcode in [Opcode::RC_WRITE_ONLY, Opcode::RC_WRITE_MIDDLE, Opcode::RC_ACKNOWLEDGE] {
        let payload = if opcode == Opcode::RC_ACKNOWLEDGE { 0 } else { 64 };
        let datagram = datagram(opcode, payload);
        group.bench_function(BenchmarkId::new("parse", opcode), |bencher| {
            bencher.iter(|| {
                black_box(&Packet::parse(black_box(&datagram)));
            });
        });
        let (bth, extensions) = headers(opcode, payload);
        let mut room = [0; 128];
        group.bench_function(BenchmarkId::new("emit", opcode), |bencher| {
            bencher.iter(|| emit_headers(black_box(&bth), black_box(&extensions), black_box(&mut room)));
        });
    }
    group.finish();
}

criterion_group!(benches, icrc, packet);
criterion_main!(benches);
