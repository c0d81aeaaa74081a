//! The files by which programs look for RDMA devices, as the kernel's rxe shows them in sysfs and in `/dev`.
//!
//! Below the folder: `class/infiniband/DEVICE`, `class/infiniband_verbs/uverbsN`, and `dev` with a character device for
//! each, which programs open, look at, and do nothing else with: a link to `/dev/null`.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use uroce::verbs::{Device, LinkState};

/// The folder of this user, for the variables that `uroce env` prints: it stays. Not the one in which devices answer
/// `uroce stat`, which nobody else may enter.
///
/// # Errors
/// When it cannot be made, or belongs to somebody else.
pub(super) fn of_user() -> Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) if !runtime.is_empty() => PathBuf::from(runtime).join("uroce-tree"),
        _ => std::env::temp_dir().join(format!("uroce-tree-{uid}")),
    };
    match fs::DirBuilder::new().mode(0o755).create(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error).with_context(|| format!("cannot make {}", folder.display())),
    }
    let metadata = fs::symlink_metadata(&folder)?;
    if !metadata.is_dir() || metadata.uid() != uid {
        bail!("{}: not a folder of this user; set XDG_RUNTIME_DIR", folder.display());
    }
    Ok(folder)
}

/// Writes the files of these devices into `folder`, in place of those that are there.
///
/// Loopback gets a node in `dev` only where it was asked for by name, or no other device works: UCX takes every device that has
/// one, and between hosts it would wait for ever for what goes through loopback.
///
/// # Errors
/// When one cannot be written.
pub(super) fn write(folder: &Path, devices: &[Device], were_named: bool) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    // A program that gives up privileges still reads them.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for part in ["class", "dev"] {
        match fs::remove_dir_all(folder.join(part)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{}", folder.join(part).display()));
            }
            _ => {}
        }
    }
    let nodes = folder.join("dev");
    fs::create_dir_all(&nodes).with_context(|| format!("{}", nodes.display()))?;
    file(&folder.join("class/infiniband_verbs/abi_version"), "6")?;
    fs::create_dir_all(folder.join("class/infiniband"))?;
    let is_real = |device: &Device| !device.loopback && device.state == LinkState::Active;
    let loopback_has_node = were_named || !devices.iter().any(is_real);
    for (index, device) in devices.iter().enumerate() {
        device_files(&folder.join("class/infiniband").join(&device.name), device)?;
        let verbs = format!("uverbs{index}");
        let place = folder.join("class/infiniband_verbs").join(&verbs);
        file(&place.join("ibdev"), &device.name)?;
        file(&place.join("abi_version"), "2")?;
        if device.loopback && !loopback_has_node {
            continue;
        }
        // UCX looks for the device's own name.
        for node in [&verbs, &device.name] {
            symlink("/dev/null", nodes.join(node)).with_context(|| format!("{node} in {}", nodes.display()))?;
        }
    }
    Ok(())
}

fn device_files(place: &Path, device: &Device) -> Result<()> {
    let guid = colons(&format!("{:016x}", device.guid));
    file(&place.join("node_type"), "1: CA")?;
    file(&place.join("node_guid"), &guid)?;
    file(&place.join("sys_image_guid"), &guid)?;
    file(&place.join("node_desc"), &device.name)?;
    file(&place.join("fw_ver"), env!("CARGO_PKG_VERSION"))?;
    file(&place.join("hca_type"), "uroce")?;
    file(&place.join("parent"), &device.interface)?;
    file(&place.join("device/numa_node"), "-1")?;
    fs::create_dir_all(place.join("device/net").join(&device.interface))?;
    let port = place.join("ports/1");
    let (state, physical) = match device.state {
        LinkState::Active => ("4: ACTIVE", "5: LinkUp"),
        LinkState::Down | LinkState::NoCarrier => ("1: DOWN", "3: Disabled"),
    };
    for (name, value) in [
        ("state", state),
        ("phys_state", physical),
        ("link_layer", "Ethernet"),
        ("rate", "10 Gb/sec (4X SDR)"),
        ("lid", "0x0"),
        ("lid_mask_count", "0"),
        ("sm_lid", "0x0"),
        ("sm_sl", "0"),
        ("cap_mask", "0x04050000"),
        ("pkeys/0", "0xffff"),
    ] {
        file(&port.join(name), value)?;
    }
    // An address that comes later has the next index.
    const INDICES: usize = 16;
    for index in 0..device.gids.len().max(INDICES) {
        let gid = device.gids.get(index).map_or([0; 16], |gid| gid.0);
        let text: String = gid.iter().map(|byte| format!("{byte:02x}")).collect();
        file(&port.join(format!("gids/{index}")), &colons(&text))?;
        file(&port.join(format!("gid_attrs/types/{index}")), "RoCE v2")?;
        file(&port.join(format!("gid_attrs/ndevs/{index}")), &device.interface)?;
    }
    Ok(())
}

/// Hexadecimal digits in groups of four.
fn colons(digits: &str) -> String {
    let groups: Vec<_> = digits.as_bytes().chunks(4).map(String::from_utf8_lossy).collect();
    groups.join(":")
}

/// A file of one line, and the folders above it.
fn file(path: &Path, text: &str) -> Result<()> {
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(path, format!("{text}\n"))
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_described_as_the_kernel_does_it() {
        let folder = tempfile::tempdir().unwrap();
        let devices = uroce::verbs::devices().unwrap();
        // Twice: what was there is replaced.
        write(folder.path(), &devices, true).unwrap();
        write(folder.path(), &devices, true).unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
        let lo = devices.iter().position(|device| device.loopback).unwrap();
        let name = &devices[lo].name;
        assert_eq!(read(&format!("class/infiniband_verbs/uverbs{lo}/ibdev")), format!("{name}\n"));
        let port = format!("class/infiniband/{name}/ports/1");
        assert_eq!(read(&format!("{port}/gid_attrs/types/0")), "RoCE v2\n");
        assert_eq!(read(&format!("{port}/gids/0")), "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
        let node = folder.path().join("dev").join(name).metadata().unwrap();
        use std::os::unix::fs::FileTypeExt;
        assert!(node.file_type().is_char_device());
        assert_ne!(read(&format!("class/infiniband/{name}/node_guid")), "0000:0000:0000:0000\n");
    }

    /// UCX between two hosts took the loopback device as well, and hung.
    #[test]
    fn loopback_has_a_node_when_nothing_else_works_or_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let lo = uroce::verbs::devices().unwrap().into_iter().find(|device| device.loopback).unwrap();
        let mut other = lo.clone();
        (other.name, other.loopback) = ("uroce_eth9".into(), false);
        let mut down = other.clone();
        (down.name, down.state) = ("uroce_eth8".into(), LinkState::Down);
        let nodes = |devices: &[Device], were_named| {
            write(folder.path(), devices, were_named).unwrap();
            assert!(folder.path().join("class/infiniband").join(&lo.name).exists(), "it is described all the same");
            folder.path().join("dev").join(&lo.name).exists()
        };
        assert!(!nodes(&[other.clone(), lo.clone()], false));
        assert!(nodes(&[other, lo.clone()], true));
        assert!(nodes(&[down, lo.clone()], false));
        assert!(nodes(std::slice::from_ref(&lo), false));
    }
}
