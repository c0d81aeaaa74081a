//! Programs in C on the drop-in `libibverbs.so.1`, as they are or as they were written for these tests.

#[path = "programs/program.rs"]
mod program;
#[path = "programs/robust.rs"]
mod robust;
