//! The command line: help, devices, links, the dissector, and what a user is told who asks for something that cannot be.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{fail, free_port, json, run, succeed, text, uroce};
use serde_json::{Value, json};

const SUBCOMMANDS: [&str; 7] = ["demo", "devices", "devinfo", "link", "perf", "pingpong", "dump"];

#[test]
fn every_subcommand_explains_itself_with_examples() {
    let help = succeed(&["--help"]);
    for subcommand in SUBCOMMANDS {
        assert!(help.contains(subcommand), "{subcommand} in {help}");
        let help = succeed(&[subcommand, "--help"]);
        assert!(help.contains("Examples:") && help.contains(&format!("uroce {subcommand}")), "{help}");
    }
}

#[test]
fn devices_are_listed_as_ibv_devices_lists_them() {
    let list = succeed(&["devices"]);
    let mut lines = list.lines();
    assert_eq!(lines.next(), Some("    device          \t   node GUID"));
    assert_eq!(lines.next(), Some("    ------          \t----------------"));
    assert!(lines.any(|line| line.starts_with("    uroce_lo        \t")), "{list}");
    assert!(json(&["devices", "--json"]).as_array().unwrap().iter().any(|device| device["name"] == "uroce_lo"));
}

#[test]
fn devinfo_has_the_lines_of_ibv_devinfo() {
    let info = succeed(&["devinfo", "-d", "uroce_lo"]);
    let lines: Vec<_> = info.lines().collect();
    assert_eq!(lines[0], "hca_id:\turoce_lo");
    assert_eq!(lines[1], "\ttransport:\t\t\tInfiniBand (0)");
    assert_eq!(lines[9], "\t\tport:\t1");
    assert_eq!(lines[10], "\t\t\tstate:\t\t\tPORT_ACTIVE (4)");
    assert_eq!(lines[12], "\t\t\tactive_mtu:\t\t4096 (5)");
    let verbose = succeed(&["devinfo", "-d", "uroce_lo", "-v"]);
    assert!(verbose.contains("\t\t\tGID[  0]:\t\t::ffff:127.0.0.1, RoCE v2\n"), "{verbose}");
    assert!(verbose.contains("\tmax_cqe:\t\t\t32767\n"), "{verbose}");
    assert_eq!(json(&["devinfo", "-d", "uroce_lo", "--json"])[0]["ports"][0]["active_mtu"], 4096);
}

#[test]
fn links_come_and_go_as_with_rdma() {
    let scratch = Scratch::new("links");
    let file = scratch.path("links.toml");
    let link = |arguments: &[&str]| {
        let output = uroce(&[&["link"], arguments].concat()).env("UROCE_CONFIG", &file).output().unwrap();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(link(&["add", "rxe_0", "type", "rxe", "netdev", "lo"]), (true, String::new(), String::new()));
    let shown = "link rxe_0/1 state ACTIVE physical_state LINK_UP netdev lo \n";
    assert_eq!(link(&["show", "rxe_0"]), (true, shown.into(), String::new()));
    assert!(link(&[]).1.contains(shown));
    let (success, _, error) = link(&["add", "rxe_0", "netdev", "lo"]);
    assert!(!success && error.contains("rxe_0") && error.lines().count() == 1, "{error}");
    let (success, _, error) = link(&["add", "rxe_1", "netdev", "nonesuch0"]);
    assert!(!success && error.contains("nonesuch0"), "{error}");
    assert!(link(&["delete", "rxe_0"]).0);
    let (success, _, error) = link(&["show", "rxe_0"]);
    assert!(!success && error.contains("no such device: rxe_0 (there are: "), "{error}");
}

#[test]
fn an_unknown_device_is_told_with_those_there_are() {
    for arguments in [
        &["devinfo", "-d", "uroce_nonesuch"][..],
        &["pingpong", "-d", "uroce_nonesuch"],
        &["perf", "write", "bw", "-d", "uroce_nonesuch"],
        &["perf", "write", "bw", "-d", "uroce_nonesuch", "127.0.0.1"],
    ] {
        let line = fail(arguments);
        assert!(line.contains("no such device: uroce_nonesuch (there are: ") && line.contains("uroce_lo"), "{line}");
    }
}

#[test]
fn a_refused_peer_is_told_with_what_to_do() {
    let port = free_port();
    for arguments in [&["pingpong", "-p", &port, "127.0.0.1"][..], &["perf", "send", "lat", "-p", &port, "127.0.0.1"]] {
        let line = fail(arguments);
        assert!(line.contains("connection refused: start the server there first"), "{line}");
    }
    assert!(fail(&["pingpong", "host.invalid"]).contains("cannot find the host host.invalid"));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let refused = |arguments: &[&str]| fail(&[&["perf"], arguments, &["127.0.0.1"]].concat());
    assert!(refused(&["write", "lat", "-e"]).contains("leave out -e"));
    assert!(refused(&["send", "lat", "-q", "2"]).contains("leave out -q"));
    assert!(refused(&["udp", "bw"]).contains("measure lat"));
    assert!(refused(&["atomic", "bw", "-s", "16"]).contains("8 bytes"));
    assert!(refused(&["read", "bw", "-c", "UC"]).contains("UC cannot do RDMA_Read: SEND and WRITE are"));
    assert!(refused(&["write", "lat", "-c", "ud"]).contains("UD cannot do RDMA_Write: SEND is"));
    assert!(refused(&["send", "bw", "-c", "UD", "-m", "1024", "-s", "1025"]).contains("of 1024 bytes at most"));
    assert!(refused(&["tcp", "bw", "-c", "UC"]).contains("leave out -c"));
    assert!(refused(&["send", "bw", "-t", "0"]).contains("-t 0: from 1 to"));
    let output = run(&["perf", "teleport", "bw"]);
    assert_eq!(output.status.code(), Some(2), "a command line that cannot be understood");
}

#[test]
fn captures_are_dissected_with_the_counts_of_their_readme() {
    let readme = fs::read_to_string(vectors().join("README.md")).unwrap();
    let rows: Vec<_> = readme.lines().filter_map(row).collect();
    assert_eq!(rows.len(), 16, "the table of the README");
    for (name, expected) in rows {
        let file = vectors().join(format!("{name}.pcap"));
        let text = succeed(&["dump", file.to_str().unwrap()]);
        let mut counts: Vec<_> = text.lines().filter_map(count).collect();
        counts.sort();
        assert_eq!(counts, expected, "{name}");
        assert!(text.ends_with(" right, 0 wrong\n") && text.contains(", 0 malformed, 0 others\n"), "{name}");
    }
}

#[test]
fn a_wrong_icrc_is_found_and_fails() {
    let scratch = Scratch::new("icrc");
    let mut bytes = fs::read(vectors().join("atomic_fa.pcap")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let file = scratch.path("spoilt.pcap");
    fs::write(&file, bytes).unwrap();
    let output = run(&["dump", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let text = text(&output.stdout);
    assert!(text.contains("ICRC WRONG") && text.ends_with("ICRC: 19 right, 1 wrong\n"), "{text}");
}

#[test]
fn raw_ip_strangers_and_stumps_are_told_apart() {
    let scratch = Scratch::new("raw");
    let ethernet = fs::read(vectors().join("send_lat.pcap")).unwrap();
    // The first frame without its Ethernet header; the same to another UDP port; the same cut off; and with version 1 in
    // its BTH.
    let (_, frame) = frames(&ethernet).next().unwrap();
    let packet = &frame[14..];
    let changed = |at: usize, value: u8| {
        let mut packet = packet.to_vec();
        packet[at] = value;
        packet
    };
    let file = scratch.path("raw.pcap");
    let packets = [packet.to_vec(), changed(23, 1), packet[..30].to_vec(), changed(29, 1)];
    fs::write(&file, capture(101, packet.len(), &packets)).unwrap();
    let lines: Vec<Value> = {
        let output = run(&["dump", "--json", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "what is changed has a wrong ICRC");
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let kinds: Vec<_> = lines[..4].iter().map(|line| line["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["roce", "other", "malformed", "malformed"]);
    assert_eq!(lines[0]["headers"][0]["header"], "IPv4");
    assert!(lines[2]["reason"].as_str().unwrap().contains("the capture has 30 of its"));
    assert!(lines[3]["reason"].as_str().unwrap().contains("transport header version 1"));
    let summary = &lines[4]["summary"];
    assert_eq!((&summary["frames"], &summary["icrc_right"], &summary["icrc_wrong"]), (&json!(4), &json!(1), &json!(1)));
}

#[test]
fn verbose_shows_every_header() {
    let file = vectors().join("atomic_cs.pcap");
    let text = succeed(&["dump", "-v", file.to_str().unwrap()]);
    for header in ["Ethernet: ", "IPv4: ", "UDP: ", "BTH: ", "AtomicETH: ", "AETH: ", "AtomicAckETH: "] {
        assert!(text.contains(&format!("         {header}")), "{header}");
    }
}

#[test]
fn files_that_are_no_captures_are_named() {
    let scratch = Scratch::new("files");
    assert!(fail(&["dump", "/nonesuch.pcap"]).contains("/nonesuch.pcap: No such file"));
    let file = scratch.path("text");
    fs::write(&file, "not a capture, but long enough to have a header").unwrap();
    assert!(fail(&["dump", file.to_str().unwrap()]).contains("not a pcap file"));
    fs::write(&file, capture(113, 0, &[])).unwrap();
    assert!(fail(&["dump", file.to_str().unwrap()]).contains("link type LINUX_SLL; Ethernet and raw IP"));
}

#[test]
fn a_reader_that_goes_is_no_error() {
    use std::process::Stdio;
    let file = vectors().join("write_bw_loss.pcap");
    let mut child =
        uroce(&["dump", file.to_str().unwrap()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = crate::command::finish(child);
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

/// A row of the README's table: the file, and how often each opcode occurs.
fn row(line: &str) -> Option<(&str, Vec<(String, u64)>)> {
    let mut cells = line.strip_prefix("| `")?.split('|');
    let name = cells.next()?.trim().trim_end_matches('`');
    let mut counts: Vec<_> = cells
        .nth(1)?
        .split(',')
        .map(|pair| {
            let (opcode, count) = pair.split_once(':').unwrap();
            (opcode.trim().to_string(), count.trim().parse().unwrap())
        })
        .collect();
    counts.sort();
    Some((name, counts))
}

/// A line of the summary: `  0c RC_READ_REQUEST  5`.
fn count(line: &str) -> Option<(String, u64)> {
    let words: Vec<_> = line.split_whitespace().collect();
    match words[..] {
        [opcode, name, count] if name.contains('_') && line.starts_with("  ") => {
            Some((opcode.into(), count.parse().ok()?))
        }
        _ => None,
    }
}

/// The frames of a pcap file, with their offsets.
fn frames(file: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut offset = 24;
    std::iter::from_fn(move || {
        let length = u32::from_le_bytes(file.get(offset + 8..offset + 12)?.try_into().ok()?) as usize;
        let start = offset + 16;
        offset = start + length;
        Some((start, file.get(start..offset)?))
    })
}

/// A pcap file of `packets`, each with `length` bytes on the wire.
fn capture(link_type: u32, length: usize, packets: &[Vec<u8>]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, link_type]);
    for packet in packets {
        file.extend(words(&[1, 0, packet.len() as u32, length as u32]));
        file.extend(packet);
    }
    file
}

/// A folder of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("uroce-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
