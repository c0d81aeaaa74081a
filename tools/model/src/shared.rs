//! RC and XRC over a shared receive queue: each message once, in the order of its queue pair, in whichever receive.

use uroce::work::{Completion, Status};

use crate::check::{Fate, Reach};
use crate::direction::{Direction, Op};
use crate::pool::Pool;

/// Checks what one queue pair received.
pub(crate) fn check(
    direction: &Direction,
    completions: &[Completion],
    pool: &mut Pool,
    fate: &Fate,
) -> Result<Reach, String> {
    let ops = &direction.ops;
    let messages: Vec<(usize, &Op)> = ops.iter().enumerate().filter(|(_, op)| op.message.is_some()).collect();
    let mut done = 0;
    for (n, completion) in completions.iter().enumerate() {
        let bytes = pool.take(completion)?;
        if completion.status != Status::Success {
            // Only the receive that a message had begun to fill belongs to the queue pair.
            if completion.status != Status::FlushError
                || n + 1 != completions.len()
                || fate.far_lives && !fate.far_failed
            {
                return Err(format!("a receive fails without a reason: {completion:?}"));
            }
            continue;
        }
        let Some(&(_, op)) = messages.get(done) else { return Err(format!("a receive of no message: {completion:?}")) };
        if !op.is_received_as(completion) {
            return Err(format!("not what was sent, {:?} of {} bytes: {completion:?}", op.verb, op.length));
        }
        if bytes[..op.sent.len()] != op.sent[..] || bytes[op.sent.len()..].iter().any(|&byte| byte != 0) {
            return Err(format!("receive {done} does not hold the {} bytes that were sent", op.sent.len()));
        }
        done += 1;
    }
    let least = done.checked_sub(1).map_or(0, |last| messages[last].0 + 1);
    let most = messages.get(done).map_or(ops.len(), |next| next.0);
    Ok(Reach { least, most })
}
