//! Whether a direction's completions and memory are what they must be.

use uroce::work::{Completion, Status};

use crate::direction::{Direction, End, Message, Op, RECEIVES, SHARED};
use crate::pool::Pool;
use crate::shared;

/// How the two ends of a direction ended, and what may have ended them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    /// Whether a failure has an excuse.
    pub(crate) may_fail: bool,
    /// Whether the peer may have fallen silent.
    pub(crate) may_exceed_retries: bool,
    /// Whether receives may have come too late.
    pub(crate) may_exceed_rnr_retries: bool,
    /// Whether the requester could report to the end: neither destroyed nor restarted.
    pub(crate) near_lives: bool,
    /// Whether the responder could.
    pub(crate) far_lives: bool,
    /// Whether the responder ended in ERR.
    pub(crate) far_failed: bool,
}

/// How far a direction came: requests below `least` are done, those from `most` on are not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

/// Checks a direction; returns how many things were compared.
pub(crate) fn direction(
    direction: &Direction,
    fate: &Fate,
    sends: &[Completion],
    receives: &[Completion],
    (near, far): (&End, &End),
    pool: Option<&mut Pool>,
) -> Result<u64, String> {
    let ops = &direction.ops;
    let reported = check_sends(ops, sends, fate)?;
    let received = match pool {
        Some(pool) => shared::check(direction, receives, pool, fate)?,
        None => check_receives(direction, receives, fate)?,
    };
    if !fate.may_fail && reported.least < ops.len() {
        return Err(format!("{} of {} requests done, and no reason why not all", reported.least, ops.len()));
    }
    let first_bad = ops.iter().position(|op| op.verb.is_bad()).unwrap_or(ops.len());
    let executed =
        Reach { least: reported.least.max(received.least), most: received.most.min(first_bad).max(reported.least) };
    if executed.least > executed.most {
        return Err(format!("requests executed by completions {executed:?}: {reported:?}, {received:?}"));
    }
    placed("the requester", ops, reported, near, |op| op.near.as_ref())?;
    placed("the responder", ops, executed, far, |op| op.far.as_ref())?;
    cells(ops, executed, far)?;
    Ok((sends.len() + receives.len() + 2 * ops.len()) as u64)
}

/// Success in order, signalled requests all; then perhaps one failure, then every request flushed.
pub(crate) fn check_sends(ops: &[Op], completions: &[Completion], fate: &Fate) -> Result<Reach, String> {
    let mut next = 0;
    let mut failed_at = None;
    for completion in completions {
        let index = completion.id as usize;
        let wrong = |what: &str| Err(format!("{what}: {completion:?}; next is {next}"));
        let Some(op) = ops.get(index) else { return wrong("a completion of no request") };
        if index < next {
            return wrong("out of order, or twice");
        }
        match failed_at {
            None => {
                if ops[next..index].iter().any(|op| op.is_signalled) {
                    return wrong("a signalled request has no completion");
                }
                if completion.status != Status::Success {
                    allowed(op, completion.status, fate).map_err(|what| format!("{what}: {completion:?}"))?;
                    failed_at = Some(index);
                } else if !op.is_signalled || completion.kind != op.kind || completion.byte_length != op.length as u32 {
                    return wrong("not what was posted");
                } else if op.verb.is_bad() {
                    return wrong("success of what must fail");
                }
            }
            Some(_) if index != next || completion.status != Status::FlushError => return wrong("not the next flush"),
            Some(_) => {}
        }
        next = index + 1;
    }
    match failed_at {
        Some(at) if next == ops.len() || !fate.near_lives => Ok(Reach { least: at, most: at }),
        Some(at) => Err(format!("{at} failed, but {next} and those behind it were not flushed")),
        None if !fate.near_lives => Ok(Reach { least: next, most: ops.len() }),
        None if ops[next..].iter().any(|op| op.is_signalled) => {
            Err(format!("no completion of {next} or one behind it, of {}", ops.len()))
        }
        None => Ok(Reach { least: ops.len(), most: ops.len() }),
    }
}

/// Whether a request may fail like this.
fn allowed(op: &Op, status: Status, fate: &Fate) -> Result<(), String> {
    let is_allowed = match status {
        Status::FlushError => fate.may_fail,
        Status::RetryExceededError => fate.may_exceed_retries,
        Status::RnrRetryExceededError => fate.may_exceed_rnr_retries,
        other => op.failure() == Some(other),
    };
    if is_allowed { Ok(()) } else { Err(format!("{:?} has no reason to fail like this", op.verb)) }
}

/// One success for each message, in order; then flushes.
fn check_receives(direction: &Direction, completions: &[Completion], fate: &Fate) -> Result<Reach, String> {
    let ops = &direction.ops;
    let messages: Vec<(usize, &Op, Message)> =
        ops.iter().enumerate().filter_map(|(index, op)| Some((index, op, op.message?))).collect();
    let mut done = 0;
    for (n, completion) in completions.iter().enumerate() {
        let wrong = |what: &str| Err(format!("{what}: {completion:?}"));
        if completion.id != RECEIVES + n as u64 {
            return wrong("a receive out of order, or twice");
        }
        if completion.status == Status::FlushError {
            // One that is gone may have failed before.
            if fate.far_lives && !fate.far_failed {
                return wrong("flushed without an error");
            }
            continue;
        }
        let Some(&(_, op, message)) = messages.get(n) else { return wrong("a receive of no message") };
        let is_right = completion.status == Status::Success
            && n == done
            && completion.kind == message.kind
            && completion.byte_length == op.length as u32
            && completion.tag == message.tag
            && completion.solicited == message.is_solicited;
        if !is_right {
            return wrong(&format!("not what was sent, {:?} of {} bytes, {message:?}", op.verb, op.length));
        }
        done += 1;
    }
    if fate.far_lives && fate.far_failed && completions.len() != direction.receives_posted {
        let posted = direction.receives_posted;
        return Err(format!("{} of {posted} receives reported by a queue pair in error", completions.len()));
    }
    if done > 0 && messages.len() < done {
        return Err("more receives than messages".into());
    }
    let least = done.checked_sub(1).map_or(0, |last| messages[last].0 + 1);
    let most = messages.get(done).map_or(ops.len(), |next| next.0);
    Ok(Reach { least, most })
}

/// Whether memory holds all of what requests put there below `reach.least`, nothing of those from `reach.most` + 1 on, and of those
/// between a beginning: whole, then at most one in part, then none.
fn placed(
    whose: &str,
    ops: &[Op],
    reach: Reach,
    end: &End,
    of: impl Fn(&Op) -> Option<&(usize, Vec<u8>)>,
) -> Result<(), String> {
    let mut is_broken = false;
    for (index, op) in ops.iter().enumerate() {
        let Some((offset, bytes)) = of(op).filter(|(_, bytes)| !bytes.is_empty()) else { continue };
        let found = end.area.read(*offset, bytes.len());
        let old = &end.image[*offset..offset + bytes.len()];
        let fail = |what: &str| {
            let at = found.iter().zip(bytes).position(|(a, b)| a != b);
            Err(format!(
                "{whose}: request {index} ({:?}, {} bytes), {reach:?}: {what}; byte {at:?}",
                op.verb, op.length
            ))
        };
        if found == *bytes && !is_broken && index <= reach.most {
            continue;
        }
        if index < reach.least {
            return fail("done, but not in memory");
        }
        let from = found.iter().zip(bytes).position(|(a, b)| a != b).unwrap_or(bytes.len());
        let is_old = found == old;
        if !is_old && (is_broken || index > reach.most) {
            return fail("executed before its turn");
        }
        // Bytes that are the same before and after may hide where the part that was done ends.
        if found[from..] != old[from..] {
            return fail("neither what was there nor a beginning of the message");
        }
        is_broken = true;
    }
    Ok(())
}

/// Whether the shared part of memory is as after one of the requests that may have been the last.
fn cells(ops: &[Op], reach: Reach, end: &End) -> Result<(), String> {
    let found = end.area.read(0, SHARED);
    let after = |count: usize| count.checked_sub(1).map_or([0; SHARED], |last| ops[last].shared);
    if (reach.least..=reach.most).any(|count| after(count)[..] == found[..]) {
        return Ok(());
    }
    Err(format!("cells are not as after {reach:?} requests: {found:x?}"))
}

/// Whether nothing was written where nobody may write.
pub(crate) fn untouched<'a>(end: &End, placed: impl Iterator<Item = &'a (usize, Vec<u8>)>) -> Result<(), String> {
    let mut expected = end.image.clone();
    let found = end.area.read(0, expected.len());
    expected[..SHARED].copy_from_slice(&found[..SHARED]);
    for (offset, bytes) in placed {
        // An atomic's answer of no known value is eight bytes.
        let length = if bytes.is_empty() { 8 } else { bytes.len() };
        expected[*offset..offset + length].copy_from_slice(&found[*offset..offset + length]);
    }
    match found.iter().zip(&expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at:#x} of an area was changed by nobody")),
    }
}
