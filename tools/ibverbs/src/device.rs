//! The devices of the host.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use uroce::verbs;

use crate::abi;
use crate::edge::{Failure, Result, errno_of, given, number, object, quick};
use crate::environment;

/// Lists the devices, ending with a null pointer; the program frees the list with [`ibv_free_device_list`].
pub(crate) extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut abi::Device {
    let mut found = 0;
    let list = object("ibv_get_device_list", || {
        let devices = shown()?;
        // SAFETY: plain allocation; one more than there are devices, for the null pointer at the end.
        let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut abi::Device>()) };
        let list = list.cast::<*mut abi::Device>();
        if list.is_null() {
            return Err(Failure::new(libc::ENOMEM, "no memory for the list"));
        }
        found = c_int::try_from(devices.len()).unwrap_or(c_int::MAX);
        for (index, device) in devices.iter().enumerate() {
            // SAFETY: the list has room for all of them.
            unsafe { *list.add(index) = known(device) };
        }
        Ok(list)
    });
    // SAFETY: the program's place for the count, where it gave one.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = found;
    }
    list
}

/// Frees a list. The devices stay: contexts refer to them.
pub(crate) extern "C" fn ibv_free_device_list(list: *mut *mut abi::Device) {
    // SAFETY: it came from `calloc` above, or is null.
    unsafe { libc::free(list.cast()) };
}

pub(crate) extern "C" fn ibv_get_device_name(device: *mut abi::Device) -> *const c_char {
    quick(ptr::null(), || {
        // SAFETY: a device of ours, or null; a name is written once and then only read.
        unsafe { device.as_ref() }.map_or(ptr::null(), |device| device.name.as_ptr().cast())
    })
}

/// The GUID of the node, in network order.
pub(crate) extern "C" fn ibv_get_device_guid(device: *mut abi::Device) -> u64 {
    let mut guid = 0;
    errno_of("ibv_get_device_guid", || {
        guid = find(device)?.guid;
        Ok(())
    });
    guid.to_be()
}

/// The kernel numbers its devices; ours have the number of their place in `/sys/class/infiniband_verbs`.
pub(crate) extern "C" fn ibv_get_device_index(device: *mut abi::Device) -> c_int {
    number("ibv_get_device_index", || {
        let name = find(device)?.name;
        let place = shown()?.iter().position(|device| device.name == name);
        place.and_then(|place| c_int::try_from(place).ok()).ok_or_else(|| Failure::invalid("the device is gone"))
    })
}

/// What is known of a device now.
pub(crate) fn find(device: *mut abi::Device) -> Result<verbs::Device> {
    let name = name(device)?;
    let found = verbs::devices()?.into_iter().find(|device| device.name == name);
    found.ok_or_else(|| Failure::new(libc::ENODEV, format!("the device {name} is gone")))
}

/// The name of a device that a program means.
pub(crate) fn name(device: *mut abi::Device) -> Result<String> {
    // SAFETY: a device of ours, which is never freed, or null.
    let device = unsafe { given("the device", device) }?;
    let end = device.name.iter().position(|byte| *byte == 0).unwrap_or(device.name.len());
    Ok(String::from_utf8_lossy(&device.name[..end]).into_owned())
}

/// The devices that the program is to see.
fn shown() -> Result<Vec<verbs::Device>> {
    let mut devices = verbs::devices()?;
    if let Some(names) = environment::devices() {
        devices.retain(|device| names.contains(&device.name));
    }
    Ok(devices)
}

/// The structure of a device: one for each name, for as long as the process lives.
fn known(device: &verbs::Device) -> *mut abi::Device {
    static KNOWN: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    let index = known.len();
    let address = known.entry(device.name.clone()).or_insert_with(|| {
        let shape = Box::leak(Box::new(shape(&device.name, index)));
        ptr::from_mut(shape) as usize
    });
    *address as *mut abi::Device
}

fn shape(name: &str, index: usize) -> abi::Device {
    let verbs_name = format!("uverbs{index}");
    abi::Device {
        obsolete: [0; 2],
        node_type: abi::NODE_CA,
        transport_type: abi::TRANSPORT_IB,
        name: text(name),
        dev_name: text(&verbs_name),
        dev_path: text(&format!("/sys/class/infiniband_verbs/{verbs_name}")),
        ibdev_path: text(&format!("/sys/class/infiniband/{name}")),
        tail: [0; 360],
    }
}

/// Text in a field of `N` bytes, cut so that a zero ends it.
pub(crate) fn text<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let length = text.len().min(N - 1);
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
    field
}
