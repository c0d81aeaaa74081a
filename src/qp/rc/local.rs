//! Requests that are carried out here, without a packet: windows, fast registration, invalidation of our own keys.
//!
//! Each is carried out when all before it are sent, and never again when those are sent again; it completes when all
//! before it are complete.

use super::requester::Requester;
use crate::qp::common::{Common, Surroundings};
use crate::work::{Operation, Status};

impl Requester {
    /// Whether the request at the cursor is one, and may be carried out (or passed over) now.
    pub(super) fn is_local_due(&self, common: &Common) -> bool {
        let index = self.queue.cursor.index;
        self.due(common, index).is_some_and(|wqe| match wqe.request.operation {
            // A peer may still be answering what came before (IBTA 10.6.5.1; rxe's `rxe_wqe_is_fenced`).
            Operation::LocalInvalidate(_) => wqe.begun.is_some() || index == 0,
            ref other => other.is_local(),
        })
    }

    /// Carries out those at the cursor, up to the next packet.
    pub(super) fn carry_out(&mut self, common: &mut Common, around: &mut Surroundings<'_>) {
        while self.is_local_due(common) {
            let index = self.queue.cursor.index;
            let Some(wqe) = self.queue.get(index) else { return };
            if wqe.begun.is_none()
                && let Err(status) = execute(common, around, &wqe.request.operation)
            {
                self.queue.refuse(index, status);
                return;
            }
            self.queue.begin(index);
            self.queue.advance(0);
            if index == 0 {
                self.complete_front(common, around);
            }
        }
    }
}

/// Does what the request asks; the status with which it fails (rxe's `rxe_do_local_ops`).
fn execute(common: &Common, around: &mut Surroundings<'_>, operation: &Operation) -> Result<(), Status> {
    let (memory, holder) = (&mut *around.memory, common.holder());
    match operation {
        Operation::BindWindow(bind) => memory.bind_window(holder, bind).map_err(|_| Status::MemoryWindowBindError),
        Operation::FastRegister(register) => {
            memory.register_fast(holder, register).map_err(|_| Status::LocalQpOperationError)
        }
        Operation::LocalInvalidate(key) => memory.invalidate(*key, holder).map_err(|_| Status::LocalQpOperationError),
        _ => Ok(()),
    }
}
