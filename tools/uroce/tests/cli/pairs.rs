//! Two programs on one machine: the demonstration, measurements, pingpong. Over loopback, so without privilege.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use crate::command::{Server, failure, finish, json, succeed, text, uroce};
use serde_json::Value;

#[test]
fn the_demonstration_verifies_and_measures() {
    let output = json(&["demo", "--json", "--measure-ms", "5"]);
    assert!(output["verified"].as_u64().unwrap() > 4_000_000, "{output}");
    let operations: Vec<_> = array(&output["verification"]["operations"]).map(|row| row["operation"].clone()).collect();
    assert_eq!(operations, ["SEND", "WRITE", "READ", "ATOMIC"]);
    assert_eq!(array(&output["bandwidth"]).count(), 16);
    assert!(array(&output["bandwidth"]).all(|row| row["bits_per_second"].as_f64().unwrap() > 0.0), "{output}");
    assert!(array(&output["latency"]).all(|row| row["messages"].as_u64().unwrap() > 0), "{output}");
}

#[test]
fn the_demonstration_ends_in_words() {
    let output = succeed(&["demo", "--measure-ms", "1"]);
    let last = output.lines().last().unwrap();
    assert!(last.starts_with("Shown in ") && last.contains("bytes verified"), "{last}");
    assert!(output.contains("WRITE") && output.contains("TCP"), "{output}");
}

#[test]
fn the_demonstration_survives_no_peer() {
    // The child is the process whose parent is the demonstration.
    let child = uroce(&["demo", "--measure-ms", "2000"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let peer = (0..500)
        .find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let children = format!("/proc/{0}/task/{0}/children", child.id());
            std::fs::read_to_string(children).ok()?.split_whitespace().next().map(String::from)
        })
        .expect("the second process");
    std::thread::sleep(Duration::from_millis(300));
    assert!(std::process::Command::new("kill").args(["-KILL", &peer]).status().unwrap().success());
    let output = finish(child);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    let last = stderr.lines().last().unwrap();
    assert!(last.starts_with("uroce: the second process ended (signal: 9"), "{stderr}");
}

#[test]
fn every_operation_is_measured() {
    for (operation, measure, options) in [
        ("send", "bw", &["-s", "1000", "-q", "2", "-l", "4"][..]),
        ("send", "bw", &["-b", "-s", "64", "-I", "64"]),
        ("send", "bw", &["-t", "1", "-r", "2", "-e"]),
        ("write", "bw", &["-m", "1024", "-s", "100000"]),
        ("write", "bw", &["-b", "-q", "3", "-t", "10", "-l", "4", "-Q", "10"]),
        ("read", "bw", &["-o", "4", "-s", "10001"]),
        ("atomic", "bw", &[]),
        ("atomic", "bw", &["-A", "CMP_AND_SWAP"]),
        ("send", "lat", &["-e"]),
        ("send", "lat", &["-I", "64", "-s", "33"]),
        ("write", "lat", &["-s", "5000"]),
        ("read", "lat", &[]),
        ("atomic", "lat", &[]),
        ("send", "bw", &["-c", "UC", "-s", "10000"]),
        ("send", "bw", &["-c", "UC", "-b", "-q", "2", "-l", "4"]),
        ("write", "bw", &["-c", "UC"]),
        ("write", "lat", &["-c", "UC", "-s", "5000"]),
        ("send", "bw", &["-c", "UD"]),
        ("send", "bw", &["-c", "UD", "-b", "-q", "2", "-e", "-I", "64", "-s", "64"]),
        ("send", "lat", &["-c", "UD", "-s", "4096"]),
        ("tcp", "bw", &[]),
        ("tcp", "lat", &["-e"]),
        ("udp", "lat", &[]),
    ] {
        let result = perf(operation, measure, &[options, &["-n", "50"]].concat());
        let queue_pairs: u64 = option(options, "-q").unwrap_or(1);
        let ways = if options.contains(&"-b") { 2 } else { 1 };
        let row = &result["results"][0];
        assert_eq!(row["messages"], 50 * queue_pairs * ways, "{operation} {measure} {options:?}: {result}");
        let value = if measure == "bw" { "average_bits_per_second" } else { "typical_us" };
        assert!(row[value].as_f64().unwrap() > 0.0, "{result}");
    }
}

#[test]
fn sizes_and_times_are_as_asked() {
    let result = perf("write", "lat", &["-a", "-n", "3"]);
    let sizes: Vec<_> = array(&result["results"]).map(|row| row["bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, (1..=23).map(|power| 1 << power).collect::<Vec<u64>>());
    let result = perf("send", "bw", &["-D", "0.2", "-s", "512", "-Q", "5"]);
    assert!(result["results"][0]["messages"].as_u64().unwrap() > 0, "{result}");
    assert!(result["results"][0]["seconds"].as_f64().unwrap() >= 0.2, "{result}");
}

/// One receive request for lists of 64: most datagrams find none. UC with one message at a time loses nothing.
#[test]
fn datagrams_that_arrive_are_counted() {
    let result = perf("send", "bw", &["-c", "UD", "-n", "2000", "-r", "1", "-l", "64"]);
    let row = &result["results"][0];
    let (sent, received) = (row["messages"].as_u64().unwrap(), row["received"].as_u64().unwrap());
    assert_eq!(sent, 2000, "{result}");
    assert!((1..=sent).contains(&received), "{result}");
    let result = perf("send", "bw", &["-c", "UC", "-n", "20", "-t", "1", "-s", "100"]);
    assert_eq!(result["results"][0]["received"], 20, "{result}");
    let result = perf("send", "bw", &["-c", "UD", "-a", "-n", "5"]);
    let sizes: Vec<_> = array(&result["results"]).map(|row| row["bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, (1..=10).map(|power| 1 << power).collect::<Vec<u64>>());
}

#[test]
fn tables_have_perftests_columns() {
    let server = Server::start(&["perf", "send", "bw"]);
    let table = succeed(&["perf", "send", "bw", "-n", "10", "-v", "--report_gbits", "-p", &server.port, "127.0.0.1"]);
    assert!(server.finish().status.success());
    assert!(
        table.contains(" #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"),
        "{table}"
    );
    assert!(table.contains("\n 65536      10 "), "{table}");
    assert!(table.contains("Counters of this end:") && table.contains("sent_pkts"), "{table}");
}

#[test]
fn both_ends_of_pingpong_agree() {
    for options in [&["-c"][..], &["-e", "-s", "5001", "-m", "256"], &["-r", "1", "-n", "20", "-s", "0"]] {
        let server = Server::start(&[&["pingpong", "rc"], options].concat());
        let client = succeed(&[&["pingpong"], options, &["-p", &server.port, "127.0.0.1"]].concat());
        let server = server.finish();
        assert!(server.status.success(), "{}", text(&server.stderr));
        let server = text(&server.stdout);
        let address = |output: &str, label: &str| {
            let line = output.lines().find_map(|line| line.strip_prefix(label));
            line.unwrap_or_else(|| panic!("{label} in {output}")).to_string()
        };
        assert_eq!(address(&client, "  local address:  "), address(&server, "  remote address: "));
        assert_eq!(address(&client, "  remote address: "), address(&server, "  local address:  "));
        let iterations = option(options, "-n").unwrap_or(1000);
        assert!(client.contains(&format!("\n{iterations} iters in ")), "{client}");
    }
}

#[test]
fn a_server_that_checks_finds_a_client_that_does_not_fill() {
    let server = Server::start(&["pingpong", "-c", "-n", "10"]);
    succeed(&["pingpong", "-n", "10", "-p", &server.port, "127.0.0.1"]);
    assert!(failure(server.finish()).contains("invalid data in page 0: 0x7b"));
}

#[test]
fn a_client_of_another_kind_is_told_apart() {
    for (arguments, greeting) in [
        (&["perf", "write", "bw"][..], "0000:000011:abcdef:00000000000000000000ffff0a630002\0"),
        (&["pingpong"], "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n     "),
    ] {
        let server = Server::start(arguments);
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", server.port)).unwrap();
        stream.write_all(greeting.as_bytes()).unwrap();
        let line = failure(server.finish());
        assert!(line.contains("does not speak"), "{line}");
    }
}

#[test]
fn a_server_of_another_kind_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&[b'x'; 60]).unwrap();
            // Until the client has read and gone.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    for arguments in [&["perf", "write", "bw"][..], &["pingpong"]] {
        let line = crate::command::fail(&[arguments, &["-p", &port, "127.0.0.1"]].concat());
        assert!(line.contains("does not speak"), "{line}");
    }
    server.join().unwrap();
}

#[test]
fn a_busy_port_is_told_with_its_address() {
    let devices = json(&["devinfo", "--json"]);
    let active = |device: &&Value| device["interface"] != "lo" && device["ports"][0]["state"] == "ACTIVE";
    let Some(device) = array(&devices).find(active) else {
        eprintln!("SKIPPED: there is no device but loopback, where every program has an address of its own");
        return;
    };
    let v4 = |gid: &&Value| gid.as_str().is_some_and(|gid| gid.contains('.'));
    let address = array(&device["ports"][0]["gids"]).find(v4).expect("an IPv4 address").as_str().unwrap();
    // When it is busy anyway, all the better.
    let _holder = std::net::UdpSocket::bind((address, 4791));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let name = device["name"].as_str().unwrap();
    let line = crate::command::fail(&["pingpong", "-d", name, "-p", &port, "127.0.0.1"]);
    assert!(line.contains("4791") && line.contains(address) && line.contains("in use"), "{line}");
}

/// Measures with a server of its own, and returns the JSON.
fn perf(operation: &str, measure: &str, options: &[&str]) -> Value {
    let server = Server::start(&["perf", operation, measure]);
    let result = json(&[&["perf", operation, measure], options, &["--json", "-p", &server.port, "127.0.0.1"]].concat());
    let output = server.finish();
    assert!(output.status.success(), "{operation} {measure} {options:?}: {}", text(&output.stderr));
    result
}

/// The number behind an option.
fn option(options: &[&str], name: &str) -> Option<u64> {
    let index = options.iter().position(|option| *option == name)?;
    options.get(index + 1)?.parse().ok()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("a list").iter()
}
