//! Names for what programs print: the words of the C library, which scripts look for.

use std::ffi::{CStr, c_char};

/// The word at `index` of a table.
fn word(words: &[&'static CStr], index: usize, unknown: &'static CStr) -> *const c_char {
    words.get(index).copied().unwrap_or(unknown).as_ptr()
}

pub(crate) extern "C" fn ibv_node_type_str(node_type: i32) -> *const c_char {
    let words = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    word(&words, usize::try_from(node_type).unwrap_or(0), c"unknown")
}

pub(crate) extern "C" fn ibv_port_state_str(state: u32) -> *const c_char {
    let words =
        [c"no state change (NOP)", c"PORT_DOWN", c"PORT_INIT", c"PORT_ARMED", c"PORT_ACTIVE", c"PORT_ACTIVE_DEFER"];
    word(&words, state as usize, c"invalid state")
}

pub(crate) extern "C" fn ibv_event_type_str(event_type: u32) -> *const c_char {
    let words = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
        c"device speed change",
    ];
    word(&words, event_type as usize, c"unknown")
}

pub(crate) extern "C" fn ibv_wc_status_str(status: u32) -> *const c_char {
    let words = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    word(&words, status as usize, c"unknown")
}

pub(crate) extern "C" fn ibv_wr_opcode_str(opcode: u32) -> *const c_char {
    let words = [
        c"rdma_write",
        c"rdma_write_with_imm",
        c"send",
        c"send_with_imm",
        c"rdma_read",
        c"atomic_cmp_and_swp",
        c"atomic_fetch_and_add",
        c"local_inv",
        c"bind_mw",
        c"send_with_inv",
        c"tso",
        c"driver1",
        c"unknown",
        c"unknown",
        c"flush",
        c"atomic_write",
    ];
    word(&words, opcode as usize, c"unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(word: *const c_char) -> &'static str {
        // SAFETY: every word is a constant of this file.
        unsafe { CStr::from_ptr(word) }.to_str().unwrap()
    }

    #[test]
    fn words_stand_where_the_header_numbers_them() {
        assert_eq!(text(ibv_wc_status_str(12)), "transport retry counter exceeded");
        assert_eq!(text(ibv_wc_status_str(999)), "unknown");
        assert_eq!(text(ibv_event_type_str(crate::abi::event_type::GID_CHANGE)), "GID table change");
        assert_eq!(text(ibv_node_type_str(crate::abi::NODE_CA)), "InfiniBand channel adapter");
        assert_eq!(text(ibv_node_type_str(-1)), "unknown");
        assert_eq!(text(ibv_port_state_str(4)), "PORT_ACTIVE");
        assert_eq!(text(ibv_wr_opcode_str(crate::abi::wr_opcode::ATOMIC_WRITE)), "atomic_write");
    }

    #[test]
    fn completions_are_called_what_the_engine_calls_them() {
        use uroce::verbs::Status;
        for status in
            [Status::Success, Status::FlushError, Status::MemoryWindowBindError, Status::RnrRetryExceededError]
        {
            assert_eq!(text(ibv_wc_status_str(status as u32)), status.as_str());
        }
    }
}
