//! Contexts: an open device.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use uroce::verbs::{self, AsyncEvents, LinkState};

use crate::abi;
use crate::ah;
use crate::cq;
use crate::device;
use crate::edge::{Failure, Result, errno_of, filled, minus_one, number, object, quick, say, store_part};
use crate::environment;
use crate::gid;
use crate::handle::{self, Handle, live, object as declare};
use crate::memory;
use crate::post;
use crate::qp;
use crate::srq;
use crate::xrc;

declare!(Context: abi::Context as abi::VerbsContext, Opened, "context", at offset_of!(abi::VerbsContext, context));

/// Our part of a context.
pub(crate) struct Opened {
    pub(crate) verbs: verbs::Context,
    pub(crate) events: AsyncEvents,
    /// The context's `cmd_fd`.
    _commands: File,
    /// What programs hold of this context, to be taken from them when it closes.
    children: Mutex<HashMap<usize, unsafe fn(usize)>>,
    /// Pointers by the numbers that events name objects by.
    numbers: Mutex<HashMap<(Numbered, u32), usize>>,
    next_handle: AtomicU32,
}

/// What events name by a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Numbered {
    Cq,
    Qp,
    Srq,
}

impl Opened {
    /// A number for the `handle` of a new object, which the kernel would have given.
    pub(crate) fn next_handle(&self) -> u32 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    fn children(&self) -> MutexGuard<'_, HashMap<usize, unsafe fn(usize)>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn numbers(&self) -> MutexGuard<'_, HashMap<(Numbered, u32), usize>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of this number, or a null pointer when it is gone.
    pub(crate) fn numbered<T>(&self, kind: Numbered, number: u32) -> *mut T {
        self.numbers().get(&(kind, number)).map_or(ptr::null_mut(), |address| *address as *mut T)
    }

    /// From now on events that name this number mean the object at `pointer`.
    pub(crate) fn name<T>(&self, kind: Numbered, number: u32, pointer: *mut T) {
        self.numbers().insert((kind, number), pointer as usize);
    }

    /// The number is free again.
    pub(crate) fn unname(&self, kind: Numbered, number: u32) {
        self.numbers().remove(&(kind, number));
    }
}

/// A context as other objects refer to it.
pub(crate) type ContextHandle = &'static Handle<Context>;

/// Makes an object of a context; closing the context takes it away.
pub(crate) fn adopt<O: handle::Object>(context: ContextHandle, shape: O::Shape, inner: O::Inner) -> *mut O::Seen {
    /// # Safety
    /// `address` must be a pointer that `adopt` made.
    unsafe fn abandon<O: handle::Object>(address: usize) {
        // SAFETY: the caller makes the same promise.
        if let Ok(handle) = unsafe { live::<O>(address as *mut O::Seen) } {
            drop(handle.abandon());
        }
    }
    let pointer = Handle::<O>::make(shape, inner);
    context.inner().children().insert(pointer as usize, abandon::<O>);
    pointer
}

/// Takes an object from its context: it is destroyed.
///
/// # Errors
/// EBUSY while others stand on it.
pub(crate) fn release<O: handle::Object>(context: ContextHandle, handle: &'static Handle<O>) -> Result<O::Inner> {
    let inner = handle.retire()?;
    context.inner().children().remove(&(handle.seen() as usize));
    Ok(inner)
}

pub(crate) extern "C" fn ibv_open_device(device: *mut abi::Device) -> *mut abi::Context {
    object("ibv_open_device", || {
        prepare_process();
        let name = device::name(device)?;
        // Programs unmap what is registered, and are told so by a device.
        let mut options = verbs::Context::options(&name).survive_unmapped(cfg!(target_arch = "x86_64"));
        if let Some(backend) = environment::backend()? {
            options = options.backend(backend);
        }
        if let Some(capture) = environment::capture() {
            options = options.pcap(capture);
        }
        let verbs = options.open().inspect_err(|error| {
            // Programs say no more than that they could not open it.
            say(format_args!("cannot open {name}: {error}"));
        })?;
        let events = verbs.events();
        let commands = no_commands()?;
        let shape = shape(device, &verbs, commands.as_raw_fd(), events.as_raw_fd());
        let inner = Opened {
            verbs,
            events,
            _commands: commands,
            children: Mutex::default(),
            numbers: Mutex::default(),
            next_handle: AtomicU32::new(1),
        };
        let context = Handle::<Context>::make(shape, inner);
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).push(context as usize);
        Ok(context)
    })
}

/// The contexts that are open, by their addresses.
static OPEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A descriptor for `cmd_fd`. Programs duplicate it to share a context, and the verb that takes the duplicate says that this is
/// not possible; with -1 they failed before they asked. No command goes to the kernel, so whatever is written there fails.
fn no_commands() -> Result<File> {
    File::open("/dev/null").map_err(|error| {
        Failure::new(error.raw_os_error().unwrap_or(libc::EIO), format!("/dev/null for the context's cmd_fd: {error}"))
    })
}

/// Closes a context and, as the kernel does, everything that still belongs to it.
pub(crate) extern "C" fn ibv_close_device(context: *mut abi::Context) -> c_int {
    minus_one("ibv_close_device", || {
        // SAFETY: a context of the program's, as the verb requires.
        let handle = unsafe { live::<Context>(context) }?;
        let children: Vec<_> = handle.inner().children().drain().collect();
        for (address, abandon) in children {
            // SAFETY: `adopt` made it, with this function.
            unsafe { abandon(address) };
        }
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|address| *address != context as usize);
        drop(handle.abandon());
        Ok(())
    })
}

/// Contexts cannot be shared: a device lives in its process.
pub(crate) extern "C" fn ibv_import_device(_command_fd: c_int) -> *mut abi::Context {
    object("ibv_import_device", || Err(Failure::unsupported("contexts live in the process that opened them")))
}

pub(crate) extern "C" fn ibv_query_device(context: *mut abi::Context, place: *mut abi::DeviceAttr) -> c_int {
    filled("ibv_query_device", place, || {
        // SAFETY: a context of the program's, as the verb requires.
        Ok(device_attributes(&unsafe { live::<Context>(context) }?.inner().verbs))
    })
}

extern "C" fn query_device_ex(
    context: *mut abi::Context,
    input: *const abi::QueryDeviceExInput,
    place: *mut abi::DeviceAttrEx,
    room: usize,
) -> c_int {
    errno_of("ibv_query_device_ex", || {
        // SAFETY: a context of the program's, as the verb requires.
        let verbs = &unsafe { live::<Context>(context) }?.inner().verbs;
        // SAFETY: null or an input of the program's.
        if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0) {
            return Err(Failure::invalid("comp_mask of the input: no bit is known"));
        }
        // SAFETY: plain data, for which zero means that there is none of it.
        let mut attributes: abi::DeviceAttrEx = unsafe { std::mem::zeroed() };
        attributes.orig_attr = device_attributes(verbs);
        // Nanoseconds of a clock of 64 bits; the frequency is in kHz.
        attributes.completion_timestamp_mask = u64::MAX;
        attributes.hca_core_clock = 1_000_000;
        attributes.device_cap_flags_ex = u64::from(attributes.orig_attr.device_cap_flags)
            | abi::device_cap::FLUSH_GLOBAL
            | abi::device_cap::ATOMIC_WRITE;
        attributes.phys_port_cnt_ex = 1;
        // SAFETY: the program says how much room there is.
        unsafe { store_part(place, room, &attributes) }
    })
}

/// Writes the structure as it was before the link layer came to it: newer programs go through the context.
pub(crate) extern "C" fn ibv_query_port(context: *mut abi::Context, port: u8, place: *mut abi::PortAttr) -> c_int {
    query_port(context, port, place, abi::OLD_PORT_ATTR)
}

extern "C" fn query_port(context: *mut abi::Context, port: u8, place: *mut abi::PortAttr, room: usize) -> c_int {
    errno_of("ibv_query_port", || {
        // SAFETY: a context of the program's, as the verb requires.
        let verbs = &unsafe { live::<Context>(context) }?.inner().verbs;
        check_port(u32::from(port))?;
        // SAFETY: the program says how much room there is.
        unsafe { store_part(place, room, &port_attributes(verbs)) }
    })
}

/// In steps of 100 Mbit/s, what [`port_attributes`] says in its own way.
pub(crate) extern "C" fn ibv_query_port_speed(context: *mut abi::Context, port: u32, place: *mut u64) -> c_int {
    filled("ibv_query_port_speed", place, || {
        // SAFETY: a context of the program's, as the verb requires.
        unsafe { live::<Context>(context) }?;
        check_port(port)?;
        Ok(100)
    })
}

pub(crate) extern "C" fn ibv_query_pkey(context: *mut abi::Context, port: u8, index: c_int, place: *mut u16) -> c_int {
    let errno = filled("ibv_query_pkey", place, || {
        // SAFETY: a context of the program's, as the verb requires.
        let verbs = &unsafe { live::<Context>(context) }?.inner().verbs;
        check_port(u32::from(port))?;
        if index != 0 {
            return Err(Failure::invalid(format!("pkey index {index}; there is one partition key, at 0")));
        }
        Ok(verbs.query_port().pkey.to_be())
    });
    if errno == 0 { 0 } else { -1 }
}

pub(crate) extern "C" fn ibv_get_pkey_index(context: *mut abi::Context, port: u8, pkey: u16) -> c_int {
    number("ibv_get_pkey_index", || {
        // SAFETY: a context of the program's, as the verb requires.
        let verbs = &unsafe { live::<Context>(context) }?.inner().verbs;
        check_port(u32::from(port))?;
        if u16::from_be(pkey) == verbs.query_port().pkey {
            return Ok(0);
        }
        Err(Failure::invalid(format!("no partition key {:#x}", u16::from_be(pkey))))
    })
}

/// Nothing is pinned, so a fork needs no care; the child must not use what the parent opened, and is told so.
pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`.
pub(crate) extern "C" fn ibv_is_fork_initialized() -> c_int {
    2
}

pub(crate) extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

pub(crate) extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// A device has one port.
pub(crate) fn check_port(port: u32) -> Result<()> {
    if port == 1 { Ok(()) } else { Err(Failure::invalid(format!("port {port}; the only port is 1"))) }
}

/// The clock of the device, as completions are stamped with it.
extern "C" fn query_rt_values(context: *mut abi::Context, values: *mut abi::ValuesEx) -> c_int {
    errno_of("ibv_query_rt_values_ex", || {
        // SAFETY: a context of the program's, as the verb requires.
        let now = unsafe { live::<Context>(context) }?.inner().verbs.now().as_nanos();
        // SAFETY: a structure of the program's.
        let values = unsafe { values.as_mut() }.ok_or_else(|| Failure::invalid("no place for the values"))?;
        // What cannot be had is not marked, as the kernel's drivers do.
        values.comp_mask &= abi::VALUES_MASK_RAW_CLOCK;
        (values.seconds, values.nanoseconds) = ((now / 1_000_000_000) as i64, (now % 1_000_000_000) as i64);
        Ok(())
    })
}

/// What the first context of a process needs: children of a fork know that nothing is theirs, and a program that ends with
/// contexts open owes its peers nothing.
fn prepare_process() {
    static PREPARED: Once = Once::new();
    extern "C" fn in_child() {
        handle::forget_all();
    }
    extern "C" fn at_exit() {
        quick((), || {
            // A thread that runs on may be opening or closing one, and a program may end from within a verb.
            let Ok(open) = OPEN.try_lock() else { return };
            for address in open.iter() {
                // SAFETY: a context of ours; those of a parent process are not this one's.
                if let Ok(context) = unsafe { live::<Context>(*address as *mut abi::Context) } {
                    context.inner().verbs.flush();
                }
            }
        });
    }
    PREPARED.call_once(|| {
        // SAFETY: the handler does one atomic addition.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // SAFETY: the library stays loaded (`-z nodelete`), so the function is there at the end.
        unsafe { libc::atexit(at_exit) };
    });
}

fn shape(device: *mut abi::Device, verbs: &verbs::Context, cmd_fd: c_int, async_fd: c_int) -> abi::VerbsContext {
    let ops = abi::ContextOps {
        alloc_mw: Some(memory::mw::alloc_mw),
        bind_mw: Some(memory::mw::bind_mw),
        dealloc_mw: Some(memory::mw::dealloc_mw),
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        post_srq_recv: Some(post::post_srq_recv),
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        ..abi::ContextOps::default()
    };
    let context = abi::Context {
        device,
        ops,
        cmd_fd,
        async_fd,
        num_comp_vectors: c_int::try_from(verbs.device_attributes().completion_vectors).unwrap_or(1),
        mutex: [0; 5],
        abi_compat: abi::ABI_IS_EXTENDED,
    };
    abi::VerbsContext {
        free_buf: None,
        alloc_buf: None,
        dm_export_dmabuf_fd: None,
        reg_mr_ex: Some(memory::mr::ibv_reg_mr_ex),
        dealloc_dmah: None,
        alloc_dmah: None,
        query_port: Some(query_port),
        advise_mr: Some(memory::mr::advise_mr),
        alloc_null_mr: Some(memory::mr::alloc_null_mr),
        counters_memory_and_flows: [None; 10],
        modify_qp_rate_limit: None,
        alloc_parent_domain: Some(memory::pd::alloc_parent_domain),
        dealloc_td: Some(memory::pd::dealloc_td),
        alloc_td: Some(memory::pd::alloc_td),
        modify_cq: Some(cq::modify_cq),
        post_srq_ops: None,
        receive_work_queues: [None; 5],
        query_rt_values: Some(query_rt_values),
        create_cq_ex: Some(cq::create_cq_ex),
        private: ptr::null_mut(),
        query_device_ex: Some(query_device_ex),
        flows: [None; 4],
        open_qp: None,
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        placeholder: 0,
        sz: size_of::<abi::VerbsContext>(),
        context,
    }
}

fn device_attributes(verbs: &verbs::Context) -> abi::DeviceAttr {
    use abi::device_cap as cap;
    let own = verbs.device_attributes();
    let int = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    // SAFETY: plain data, for which zero means that there is none of it.
    let mut attributes: abi::DeviceAttr = unsafe { std::mem::zeroed() };
    attributes.fw_ver = device::text(env!("CARGO_PKG_VERSION"));
    (attributes.node_guid, attributes.sys_image_guid) = (own.node_guid.to_be(), own.node_guid.to_be());
    (attributes.max_mr_size, attributes.page_size_cap) = (own.max_mr_size, 0xffff_f000);
    // As the kernel's rxe: no vendor's number.
    attributes.vendor_id = 0x00ff_ffff;
    attributes.device_cap_flags = cap::RESIZE_MAX_WR
        | cap::BAD_PKEY_CNTR
        | cap::BAD_QKEY_CNTR
        | cap::UD_AV_PORT_ENFORCE
        | cap::PORT_ACTIVE_EVENT
        | cap::SYS_IMAGE_GUID
        | cap::RC_RNR_NAK_GEN
        | cap::SRQ_RESIZE
        | cap::MEM_WINDOW
        | cap::XRC
        | cap::MEM_MGT_EXTENSIONS
        | cap::MEM_WINDOW_TYPE_2B;
    (attributes.max_qp, attributes.max_qp_wr) = (int(own.max_qp), int(own.max_qp_wr));
    (attributes.max_sge, attributes.max_sge_rd) = (int(own.max_sge), int(own.max_sge));
    (attributes.max_cq, attributes.max_cqe) = (int(own.max_cq), int(own.max_cqe));
    (attributes.max_mr, attributes.max_mw, attributes.max_pd) = (int(own.max_mr), int(own.max_mw), int(own.max_pd));
    let outstanding = c_int::from(own.max_qp_rd_atomic);
    (attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom) = (outstanding, outstanding);
    attributes.max_res_rd_atom = outstanding.saturating_mul(int(own.max_qp));
    attributes.atomic_cap = abi::ATOMIC_HCA;
    (attributes.max_mcast_grp, attributes.max_mcast_qp_attach) = (int(own.max_mcast_grp), int(own.max_mcast_qp_attach));
    attributes.max_total_mcast_qp_attach = int(own.max_mcast_grp.saturating_mul(own.max_mcast_qp_attach));
    // An address handle is a value: memory is the limit.
    attributes.max_ah = ah::MAX_AH;
    (attributes.max_srq, attributes.max_srq_wr) = (int(own.max_srq), int(own.max_srq_wr));
    (attributes.max_srq_sge, attributes.max_pkeys) = (int(own.max_srq_sge), own.max_pkeys);
    (attributes.local_ca_ack_delay, attributes.phys_port_cnt) = (own.local_ca_ack_delay, own.port_count);
    attributes
}

fn port_attributes(verbs: &verbs::Context) -> abi::PortAttr {
    /// `IBV_LINK_LAYER_ETHERNET`.
    const ETHERNET: u8 = 2;
    /// `IBV_QPF_GRH_REQUIRED`.
    const GRH_REQUIRED: u8 = 1;
    /// `IBV_PORT_CM_SUP`, `IBV_PORT_REINIT_SUP`, `IBV_PORT_IP_BASED_GIDS`.
    const CAPABILITIES: u32 = 1 << 16 | 1 << 18 | 1 << 26;
    let own = verbs.query_port();
    let is_up = own.state == LinkState::Active;
    abi::PortAttr {
        // IBV_PORT_ACTIVE or IBV_PORT_DOWN; physically LinkUp or Disabled.
        state: if is_up { 4 } else { 1 },
        max_mtu: own.max_mtu as u32,
        active_mtu: own.active_mtu as u32,
        gid_tbl_len: gid::TABLE_LENGTH as c_int,
        port_cap_flags: CAPABILITIES,
        max_msg_sz: own.max_message_size,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        // 4X of SDR, 10 Gbit/s: a software device has no speed of its own, and this is what most interfaces are.
        active_width: 2,
        active_speed: 1,
        phys_state: if is_up { 5 } else { 3 },
        link_layer: ETHERNET,
        flags: GRH_REQUIRED,
        port_cap_flags2: 0,
        active_speed_ex: 1,
    }
}
