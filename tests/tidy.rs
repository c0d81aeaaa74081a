//! The rules of the house, held over the source itself: which module may use which, where `unsafe` may stand, how long
//! a file and a function may be.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of code that a file may have: neither blank nor comment, tests apart.
const FILE_LINES: usize = 400;
/// Lines of code that a function may have, from its `fn` to its closing brace.
const FUNCTION_LINES: usize = 70;

/// Modules by layer; each may use those of earlier layers only.
const LAYERS: &[&[&str]] = &[
    &["time", "wire", "error", "counters"],
    &["memory"],
    &["work", "event"],
    &["queue", "congestion"],
    &["qp"],
    &["endpoint", "cm"],
    &["driver"],
    &["verbs"],
];
/// What ports may use: they know nothing of queue pairs.
const PORT_USES: &[&str] = &["time", "wire"];
/// Who may use ports.
const PORT_USERS: &[&str] = &["driver", "verbs"];

/// Files and folders where `unsafe` may stand.
const UNSAFE: &[&str] = &[
    "src/memory/guard",
    "src/memory/region.rs",
    "src/port/sys.rs",
    "src/port/xdp",
    "tools/ibverbs",
    "tools/rdmacm",
    "tools/redirect",
];
/// Functions in which it may stand beside: the promise about raw memory is the caller's, and is handed on.
const UNSAFE_HANDED_ON: &[(&str, &str)] = &[
    ("src/verbs/pd.rs", "register_raw"),
    ("src/verbs/pd.rs", "register_implicit"),
    ("src/verbs/mr.rs", "raw"),
    ("src/verbs/mr.rs", "implicit"),
    ("src/verbs/mr.rs", "reregister_raw"),
];

/// A source file: its path from the root of the project, and its code, in which comments, strings and tests are blank.
struct Source {
    path: String,
    code: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below these folders, build results aside.
fn sources(folders: &[&str]) -> Vec<Source> {
    let mut files = Vec::new();
    for folder in folders {
        collect(&root().join(folder), &mut files);
    }
    assert!(!files.is_empty(), "no source below {folders:?}");
    files.sort();
    let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let read = |file: &PathBuf| {
        let path = file.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
        Source { path, code: without_tests(&blank(&fs::read_to_string(file).unwrap())) }
    };
    files.iter().map(read).filter(|source| !is_test(&source.path)).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The text with comments and the contents of strings and characters as spaces; lines stay where they are.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + token_to_blank(&bytes[at..], at == 0 || !is_word(bytes[at - 1]));
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out).unwrap()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Bytes of the comment, string or character that `rest` starts with; 0 when it starts with something else.
fn token_to_blank(rest: &[u8], is_word_start: bool) -> usize {
    let until = |from: usize, end: &[u8]| {
        let found = rest[from..].windows(end.len()).position(|window| window == end);
        found.map_or(rest.len(), |position| from + position + end.len())
    };
    match rest {
        [b'/', b'/', ..] => until(0, b"\n"),
        [b'/', b'*', ..] => until(2, b"*/"),
        [b'r' | b'b', ..] if is_word_start => {
            let prefix = rest.iter().take_while(|byte| matches!(byte, b'r' | b'b')).count();
            let hashes = rest[prefix..].iter().take_while(|&&byte| byte == b'#').count();
            match rest.get(prefix + hashes) {
                Some(b'"') if rest[..prefix].contains(&b'r') => {
                    until(prefix + hashes + 1, &[b"\"", &b"#".repeat(hashes)[..]].concat())
                }
                Some(b'"') if hashes == 0 => prefix + quoted(&rest[prefix..]),
                _ => 0,
            }
        }
        [b'"', ..] => quoted(rest),
        // A character; a lifetime has no second quote there.
        [b'\'', b'\\', _, ..] => until(3, b"'"),
        [b'\'', first, ..] => {
            let length = std::str::from_utf8(&rest[1..rest.len().min(5)])
                .map_or_else(|error| error.valid_up_to(), str::len)
                .min(if first.is_ascii() { 1 } else { 4 });
            (1..=length.max(1)).find(|&n| rest.get(1 + n) == Some(&b'\'')).map_or(0, |n| n + 2)
        }
        _ => 0,
    }
}

/// Bytes of the string that `rest` starts with.
fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The code with each item behind `#[cfg(test)]` as spaces.
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = code.to_owned();
    let mut from = 0;
    while let Some(start) = out[from..].find(MARK).map(|found| from + found) {
        let end = item_end(&out, start + MARK.len());
        let blanked: String = out[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(start..end, &blanked);
        from = start + blanked.len();
    }
    out
}

/// Where the item that starts at `from` ends: behind its semicolon, or behind its braces.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[from..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth -= 1;
                if depth == 0 && c == '}' {
                    return from + at + 1;
                }
            }
            ';' if depth == 0 => return from + at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The words of the code with their places.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr() as usize - code.as_ptr() as usize, word))
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// Lines that are not blank.
fn lines_of_code(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

/// The functions of the code: name, where they start, and their text with the body.
fn functions(code: &str) -> Vec<(&str, usize, &str)> {
    let all: Vec<_> = words(code).collect();
    let named = all.windows(2).filter(|pair| pair[0].1 == "fn" && code[pair[0].0 + 2..pair[1].0].trim().is_empty());
    named.map(|pair| (pair[1].1, pair[0].0, &code[pair[0].0..item_end(code, pair[0].0)])).collect()
}

/// The modules of the crate that a file's code names: `crate::module…` and `crate::{module…, module…}`.
fn uses(code: &str) -> BTreeSet<&str> {
    let mut modules = BTreeSet::new();
    for (at, _) in code.match_indices("crate::").filter(|&(at, _)| at == 0 || !is_word(code.as_bytes()[at - 1])) {
        let rest = &code[at + "crate::".len()..];
        let group = rest.strip_prefix('{').map(|inner| &inner[..item_end(rest, 0) - 2]);
        let mut depth = 0;
        let parts = group.unwrap_or(rest).split(|c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0 && c == ','
        });
        let parts = parts.take(if group.is_some() { usize::MAX } else { 1 });
        modules.extend(parts.filter_map(|part| words(part).next()).map(|(_, word)| word));
    }
    modules
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

#[test]
fn modules_use_only_what_stands_below_them() {
    let mut wrong = Vec::new();
    for source in sources(&["src"]) {
        let module = source.path["src/".len()..].split(['/', '.']).next().unwrap().to_owned();
        if module == "lib" {
            continue;
        }
        assert!(
            module == "port" || layer(&module).is_some(),
            "{}: give the module a layer in tests/tidy.rs",
            source.path
        );
        for used in uses(&source.code).into_iter().filter(|&used| used != module) {
            let allowed = match (module.as_str(), used) {
                ("port", used) => PORT_USES.contains(&used),
                (user, "port") => PORT_USERS.contains(&user),
                (user, used) => layer(used).is_none_or(|used| Some(used) < layer(user)),
            };
            if !allowed {
                wrong.push(format!("{}: `{module}` may not use `{used}`", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unsafe_stands_behind_its_fence() {
    let mut wrong = Vec::new();
    for source in sources(&["src", "tools"]) {
        if UNSAFE.iter().any(|allowed| source.path.starts_with(allowed)) {
            continue;
        }
        let handed_on: Vec<_> = functions(&source.code)
            .into_iter()
            .filter(|(name, ..)| UNSAFE_HANDED_ON.contains(&(source.path.as_str(), name)))
            // The word before `fn` belongs to it.
            .map(|(_, start, text)| start.saturating_sub("unsafe ".len())..start + text.len())
            .collect();
        for (at, _) in words(&source.code).filter(|(_, word)| *word == "unsafe") {
            if !handed_on.iter().any(|range| range.contains(&at)) {
                wrong.push(format!("{}:{}", source.path, line_of(&source.code, at)));
            }
        }
    }
    assert!(wrong.is_empty(), "`unsafe` outside of {UNSAFE:?}: {wrong:#?}");
}

#[test]
fn files_and_functions_are_short() {
    let mut wrong = Vec::new();
    for source in sources(&["src", "tools", "benches", "fuzz/fuzz_targets", "tests"]) {
        let lines = lines_of_code(&source.code);
        if lines > FILE_LINES {
            wrong.push(format!("{}: {lines} lines of code; {FILE_LINES} at most", source.path));
        }
        for (name, at, text) in functions(&source.code) {
            let lines = lines_of_code(text);
            if lines > FUNCTION_LINES {
                let line = line_of(&source.code, at);
                wrong.push(format!("{}:{line}: `{name}` has {lines} lines; {FUNCTION_LINES} at most", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_the_rules_are_read_from_is_read_right() {
    let code = blank(
        "fn a() { // fn b\n  let s = \"fn c() {\"; let c = '\\''; let q = '\"'; let r = r#\"x\"y\"#; let l: &'static str; }",
    );
    assert_eq!(functions(&code).iter().map(|(name, ..)| *name).collect::<Vec<_>>(), ["a"]);
    assert!(code.contains("&'static str; }"), "{code}");
    assert_eq!(code.matches('"').count(), 0, "{code}");
    let code =
        without_tests("use x;\n#[cfg(test)]\nmod tests;\nfn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}");
    assert_eq!(functions(&code).iter().map(|(name, ..)| *name).collect::<Vec<_>>(), ["a", "c"]);
    let used = uses("use crate::a::{x, y};\nuse crate::{b::c, d, e::{f, g}};\nlet _ = crate::h::I;");
    assert_eq!(used.into_iter().collect::<Vec<_>>(), ["a", "b", "d", "e", "h"]);
}
