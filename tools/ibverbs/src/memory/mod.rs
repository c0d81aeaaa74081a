//! Protection domains, memory regions, memory windows.

pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;

use uroce::verbs::Access;

use crate::abi;
use crate::edge::{Failure, Result};

/// What the bits of a program allow; what may be ignored is.
///
/// # Errors
/// EINVAL for bits that mean nothing here.
pub(crate) fn access(bits: u32) -> Result<Access> {
    let ignored = abi::ACCESS_HUGETLB | (abi::ACCESS_OPTIONAL_RANGE & !Access::all().bits());
    Access::from_bits(bits & !ignored).ok_or_else(|| Failure::invalid(format!("access flags {bits:#x}")))
}
