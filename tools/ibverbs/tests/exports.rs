//! The names and versions of the library that was built, against those of rdma-core 44 (`exports-44.txt`, versions that new
//! programs are not linked against in brackets): what a program was linked against is found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// The library of this build.
fn library() -> PathBuf {
    // target/<profile>/deps/<this test>
    let profile = env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", env!("CARGO_PKG_NAME")]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "the library could not be built");
    profile.join("libibverbs.so")
}

/// What `tool` prints of the library; `None`, loudly, where there is no such tool.
fn printed(tool: &str, arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new(tool).args(arguments).arg(library()).output() else {
        eprintln!("SKIPPED: it needs {tool} (apt-get install binutils)");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn everything_that_rdma_core_exports_is_there_under_its_version() {
    let Some(symbols) = printed("nm", &["-D", "--defined-only", "--with-symbol-versions"]) else { return };
    let mut found = BTreeSet::new();
    let mut defaults = BTreeMap::new();
    for symbol in symbols.lines().filter_map(|line| line.split_whitespace().last()) {
        // name@@VERSION is what new programs are linked against, name@VERSION serves old ones.
        let Some((name, version)) = symbol.split_once('@') else { continue };
        found.insert(match version.strip_prefix('@') {
            Some(version) => {
                assert_eq!(defaults.insert(name, version), None, "{name} has two versions for new programs");
                format!("{version} {name}")
            }
            None => format!("({version}) {name}"),
        });
    }
    let wanted = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/exports-44.txt")).unwrap();
    let missing: Vec<_> = wanted.lines().filter(|line| !found.contains(*line)).collect();
    assert!(missing.is_empty(), "not exported: {missing:#?}");
    assert!(wanted.lines().count() > 150, "the list is whole");
}

/// Its threads and handlers must not find their code gone when a program closes the library.
#[test]
fn it_is_called_what_programs_ask_for_and_stays_loaded() {
    let Some(section) = printed("readelf", &["-d", "-W"]) else { return };
    assert!(section.contains("Library soname: [libibverbs.so.1]"), "{section}");
    assert!(section.lines().any(|line| line.contains("(FLAGS_1)") && line.contains("NODELETE")), "{section}");
}
