//! Programs in C, compiled against the installed headers and run on the drop-in library.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use super::built;
use super::launch::skip;

/// A program of this folder, compiled.
pub(crate) struct Program {
    binary: PathBuf,
}

/// Compiles the program of this name; `None`, loudly, where there is no compiler, or no headers.
pub(crate) fn built(name: &str) -> Option<Program> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).with_extension("c");
    if !Path::new("/usr/include/infiniband/verbs.h").exists() || Command::new("cc").arg("--version").output().is_err() {
        skip(&format!("{name} needs cc and <infiniband/verbs.h> (apt-get install gcc libibverbs-dev)"));
        return None;
    }
    // Tests run at once, in one process or in several.
    let number = {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    let binary = library().join(format!("{name}-{}-{number}", std::process::id()));
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&binary, &source])
        .args(["-Wl,--as-needed", "-libverbs", "-lpthread"])
        .output()
        .expect("cc");
    assert!(compiled.status.success(), "cc {name}: {}", Program::text(&compiled));
    Some(Program { binary })
}

impl Program {
    /// Runs it to its end. One that hangs is ended after two minutes: then its status is 124.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "120"]).arg(&self.binary).args(arguments).stdin(Stdio::null());
        command.env("LD_LIBRARY_PATH", library()).env_remove("UROCE_TRACE").env_remove("UROCE_DEVICE");
        command.output().expect("timeout(1)")
    }

    /// What a program wrote to its standard error.
    pub(crate) fn text(output: &Output) -> String {
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.binary);
    }
}

/// A folder with nothing but the library in it, under the name that programs look for.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let library = built::folder().join("programs");
        fs::create_dir_all(&library).unwrap();
        let name = library.join("libibverbs.so.1");
        let _ = fs::remove_file(&name);
        // Another run of these tests may make it at the same time.
        symlink("../libibverbs.so", &name).or_else(|error| if name.exists() { Ok(()) } else { Err(error) }).unwrap();
        library
    })
}
