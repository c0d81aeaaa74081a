//! Names and options for devices, kept in a file of the user: what `uroce link` works on, as `rdma link` does for the kernel.
//!
//! The file is the one that `UROCE_CONFIG` names, else `uroce/links.toml` in `XDG_CONFIG_HOME`, else in `~/.config`.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::open::Backend;
use crate::error::{Error, Result};
use crate::port::interfaces;
use crate::qp::Mtu;

/// A device that the user named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The device's name.
    pub name: String,
    /// The network interface it stands on.
    pub netdev: String,
    /// How it reaches the network.
    #[serde(default)]
    pub backend: Backend,
    /// The largest path MTU in bytes, when it is to be less than the interface's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

impl Link {
    /// A link with the usual options.
    #[must_use]
    pub fn new(name: impl Into<String>, netdev: impl Into<String>) -> Self {
        Self { name: name.into(), netdev: netdev.into(), backend: Backend::default(), mtu: None }
    }

    /// The largest path MTU, when it is limited.
    pub(super) fn path_mtu(&self) -> Option<Mtu> {
        self.mtu.and_then(Mtu::from_bytes)
    }

    fn check(&self) -> Result<()> {
        // The kernel's limit is IB_DEVICE_NAME_MAX, 64 with the zero; names end up in paths.
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if !(1..64).contains(&self.name.len()) || !self.name.chars().all(fits) || self.name.starts_with('.') {
            let reason = format!("{:?}; 1 to 63 letters, digits, and _ - . not at the start", self.name);
            return Err(Error::invalid("name", reason));
        }
        if self.mtu.is_some() && self.path_mtu().is_none() {
            let reason = format!("{}; 256, 512, 1024, 2048 or 4096", self.mtu.unwrap_or_default());
            return Err(Error::invalid("mtu", reason));
        }
        Ok(())
    }
}

/// The links that there are. None where they would be in a home that this user may not enter: a program that gave up its
/// privileges keeps the `HOME` of who it was.
///
/// # Errors
/// [`Error::System`] when the file cannot be read, [`Error::Invalid`] when it is malformed; both name it.
pub fn list() -> Result<Vec<Link>> {
    match Store::locate() {
        Some(store) if !store.is_of_another_user() => store.read(),
        _ => Ok(Vec::new()),
    }
}

/// Adds a link.
///
/// # Errors
/// [`Error::Busy`] when a device has the name already, [`Error::Missing`] when there is no such interface,
/// [`Error::Invalid`] for a name or an option that cannot be, [`Error::System`] when the file cannot be written.
pub fn add(link: Link) -> Result<()> {
    let interfaces = interfaces().map_err(|error| Error::system("listing the network interfaces", error))?;
    let names: Vec<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
    if !names.contains(&link.netdev.as_str()) {
        let name = format!("{} (there are: {})", link.netdev, names.join(", "));
        return Err(Error::Missing { what: "network interface", name });
    }
    // The devices of other interfaces have names, too.
    let taken = names.iter().find(|name| **name != link.netdev && link.name == format!("uroce_{name}"));
    if let Some(netdev) = taken {
        return Err(Error::Busy { what: "the name", by: format!("the device of {netdev}") });
    }
    Store::required()?.add(link)
}

/// Deletes the link of this name; its interface has the device `uroce_<interface>` again.
///
/// # Errors
/// [`Error::Missing`] when there is none, [`Error::System`] when the file cannot be written.
pub fn delete(name: &str) -> Result<()> {
    Store::required()?.delete(name)
}

/// The file.
struct Store {
    path: PathBuf,
    /// Whether it was asked for by name, not only looked for.
    is_named: bool,
}

/// What is in it.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    #[serde(default)]
    link: Vec<Link>,
}

impl Store {
    /// Where the environment says it is; `None` for a user without a home.
    fn locate() -> Option<Self> {
        let given = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(path) = given("UROCE_CONFIG") {
            return Some(Self { path, is_named: true });
        }
        let config = given("XDG_CONFIG_HOME").or_else(|| Some(given("HOME")?.join(".config")))?;
        Some(Self { path: config.join("uroce").join("links.toml"), is_named: false })
    }

    /// Whether its folder is closed to this user, who then has not written it either. A file that is seen but cannot be read is
    /// another matter, and an error.
    fn is_of_another_user(&self) -> bool {
        let is_closed = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        !self.is_named && fs::symlink_metadata(&self.path).is_err_and(is_closed)
    }

    fn required() -> Result<Self> {
        Self::locate().ok_or_else(|| {
            Error::invalid("UROCE_CONFIG", "not set, and neither is HOME: there is no place to keep links in")
        })
    }

    /// The links; none when the file does not exist.
    fn read(&self) -> Result<Vec<Link>> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed("reading", error)),
        };
        let bad = |reason: String| Error::invalid("links", format!("{}: {reason}", self.path.display()));
        let Contents { link: links } = toml::from_str(&text).map_err(|error| bad(error.to_string()))?;
        links.iter().try_for_each(Link::check).map_err(|error| bad(error.to_string()))?;
        Ok(links)
    }

    fn add(&self, link: Link) -> Result<()> {
        link.check()?;
        self.change(|links| {
            if let Some(other) = links.iter().find(|other| other.name == link.name) {
                return Err(Error::Busy {
                    what: "the name",
                    by: format!("the link {} on {}", other.name, other.netdev),
                });
            }
            links.push(link);
            Ok(())
        })
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.change(|links| {
            let before = links.len();
            links.retain(|link| link.name != name);
            if links.len() == before {
                return Err(Error::Missing { what: "link", name: name.into() });
            }
            Ok(())
        })
    }

    /// Reads, changes and replaces the file, one program at a time; a reader finds the old file or the new one.
    fn change(&self, change: impl FnOnce(&mut Vec<Link>) -> Result<()>) -> Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(|error| self.failed("making the folder of", error))?;
        // The folder stays when the file is replaced, so it is what to lock.
        let lock = File::open(folder).map_err(|error| self.failed("locking", error))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| self.failed("locking", error.into()))?;
        let mut links = self.read()?;
        change(&mut links)?;
        self.replace(links).map_err(|error| self.failed("writing", error))
    }

    fn replace(&self, links: Vec<Link>) -> io::Result<()> {
        let text = toml::to_string(&Contents { link: links }).map_err(io::Error::other)?;
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    fn failed(&self, what: &str, error: io::Error) -> Error {
        Error::system(format!("{what} {}", self.path.display()), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in a folder of its own, removed at the end.
    struct Scratch(Store);

    impl Scratch {
        fn new(name: &str) -> Self {
            let folder = env::temp_dir().join(format!("uroce-links-{name}-{}", std::process::id()));
            Self(Store { path: folder.join("links.toml"), is_named: true })
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.path.parent().unwrap());
        }
    }

    #[test]
    fn links_come_and_go() {
        let Scratch(store) = &Scratch::new("come-and-go");
        assert_eq!(store.read().unwrap(), []);
        let first = Link { backend: Backend::Packet, mtu: Some(1024), ..Link::new("rxe_0", "eth0") };
        store.add(first.clone()).unwrap();
        store.add(Link::new("rxe_1", "eth1")).unwrap();
        assert_eq!(store.read().unwrap(), [first.clone(), Link::new("rxe_1", "eth1")]);
        let error = store.add(Link::new("rxe_1", "eth0")).unwrap_err();
        assert_eq!((error.errno(), error.to_string().contains("eth1")), (16, true), "{error}");
        store.delete("rxe_1").unwrap();
        assert_eq!(store.delete("rxe_1").unwrap_err().errno(), 2);
        assert_eq!(store.read().unwrap(), [first]);
        assert_eq!(fs::read_dir(store.path.parent().unwrap()).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let Scratch(store) = &Scratch::new("refused");
        for name in ["", "a/b", "..", "a b", &"x".repeat(64)] {
            assert_eq!(store.add(Link::new(name, "eth0")).unwrap_err().errno(), 22, "{name:?}");
        }
        let link = Link { mtu: Some(1500), ..Link::new("rxe_0", "eth0") };
        assert!(store.add(link).unwrap_err().to_string().contains("1500; 256, 512"));
    }

    #[test]
    fn a_malformed_file_is_named_with_its_line() {
        let Scratch(store) = &Scratch::new("malformed");
        fs::create_dir_all(store.path.parent().unwrap()).unwrap();
        fs::write(&store.path, "[[link]]\nname = \"a\"\nnetdev = 3\n").unwrap();
        let error = store.read().unwrap_err().to_string();
        assert!(error.contains("links.toml") && error.contains("line 3"), "{error}");
    }

    #[test]
    fn an_unknown_interface_names_those_there_are() {
        let error = add(Link::new("rxe_0", "nonesuch0")).unwrap_err();
        assert!(error.to_string().starts_with("no such network interface: nonesuch0 (there are: "), "{error}");
    }
}
