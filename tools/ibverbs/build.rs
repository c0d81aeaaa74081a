//! Gives the library the name and the symbol versions that programs were linked against.

fn main() {
    let nodes = concat!(env!("CARGO_MANIFEST_DIR"), "/nodes.map");
    println!("cargo:rerun-if-changed={nodes}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // A program may close the library while threads of it run, and while the handlers of `fork`, `exit` and faults are in place.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Only the nodes: which symbol belongs to which stands beside its function (src/exports.rs).
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={nodes}");
}
