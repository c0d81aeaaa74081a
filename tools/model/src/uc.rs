//! Unreliable connection: each message at most once, in order, whole; of what is lost a beginning may be in memory.

use uroce::work::{Completion, Status};

use crate::check::Fate;
use crate::direction::{Direction, End, Op};
use crate::pool::Pool;

/// Checks what one queue pair received, and the memory that was written; `is_lossless`: whether all must have arrived.
pub(crate) fn check(
    direction: &Direction,
    completions: &[Completion],
    pool: &mut Pool,
    (far, fate, is_lossless): (&End, &Fate, bool),
) -> Result<u64, String> {
    let ops = &direction.ops;
    let mut arrived = vec![false; ops.len()];
    let mut next = 0;
    for completion in completions {
        let bytes = pool.take(completion)?;
        if completion.status != Status::Success {
            if completion.status != Status::FlushError || fate.far_lives && !fate.far_failed {
                return Err(format!("a receive fails without a reason: {completion:?}"));
            }
            continue;
        }
        // Of two that are reported in the same way one may be lost; where the bytes are tells which.
        let fits = |op: &Op| {
            op.is_received_as(completion)
                && holds(ops, &op.sent, &bytes)
                && op.far.as_ref().is_none_or(|(offset, bytes)| far.area.read(*offset, bytes.len()) == *bytes)
        };
        let Some(ahead) = ops[next..].iter().position(fits) else {
            return Err(format!("no message from request {next} on that this receive holds: {completion:?}"));
        };
        arrived[next + ahead] = true;
        next += ahead + 1;
    }
    for (index, op) in ops.iter().enumerate() {
        if is_lossless && op.message.is_some() && !arrived[index] {
            return Err(format!("request {index} ({:?}) did not arrive, and nothing was lost", op.verb));
        }
        let Some((offset, bytes)) = &op.far else { continue };
        let found = far.area.read(*offset, bytes.len());
        let from = found.iter().zip(bytes).position(|(a, b)| a != b).unwrap_or(bytes.len());
        if is_lossless && from < bytes.len() || found[from..] != far.image[*offset + from..*offset + bytes.len()] {
            return Err(format!("request {index} ({:?}): memory differs from byte {from} on", op.verb));
        }
    }
    Ok((completions.len() + ops.len()) as u64)
}

/// Whether a receive holds a message; behind it may be what is left of longer ones that were given up.
fn holds(ops: &[Op], sent: &[u8], bytes: &[u8]) -> bool {
    let left_over = |(at, &byte): (usize, &u8)| byte == 0 || ops.iter().any(|op| op.sent.get(at) == Some(&byte));
    bytes[..sent.len()] == *sent && bytes.iter().enumerate().skip(sent.len()).all(left_over)
}
