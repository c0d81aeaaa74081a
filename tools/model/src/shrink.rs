//! Smaller plans that fail alike.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::plan::{Plan, Weather};
use crate::world::run;

/// Takes away steps, faults and connections as long as the plan still fails, in at most `attempts` runs.
///
/// Any failure counts, not only the one that was seen first. A panic is a failure.
#[must_use]
pub fn shrink(plan: &Plan, attempts: usize) -> Plan {
    let mut shrinking = Shrinking { best: plan.clone(), attempts };
    loop {
        let before = shrinking.best.clone();
        shrinking.drop_steps();
        shrinking.calm_down();
        if shrinking.best == before || shrinking.attempts == 0 {
            return shrinking.best;
        }
    }
}

struct Shrinking {
    best: Plan,
    attempts: usize,
}

impl Shrinking {
    /// Takes the candidate when it fails, too.
    fn offer(&mut self, candidate: Plan) -> bool {
        if self.attempts == 0 || candidate == self.best {
            return false;
        }
        self.attempts -= 1;
        let fails = catch_unwind(AssertUnwindSafe(|| run(&candidate, false).error.is_some())).unwrap_or(true);
        if fails {
            self.best = candidate;
        }
        fails
    }

    /// Ever smaller parts of the steps (delta debugging, Zeller and Hildebrandt 2002).
    fn drop_steps(&mut self) {
        let mut part = self.best.steps.len().div_ceil(2);
        while part > 0 {
            let mut from = 0;
            while from < self.best.steps.len() {
                let mut candidate = self.best.clone();
                candidate.steps.drain(from..(from + part).min(candidate.steps.len()));
                if !self.offer(candidate) {
                    from += part;
                }
            }
            part /= 2;
        }
    }

    /// One kind of fault after the other.
    fn calm_down(&mut self) {
        let calmer: [fn(&mut Weather); 6] = [
            |weather| weather.loss = 0,
            |weather| weather.duplicate = 0,
            |weather| weather.reorder = 0,
            |weather| weather.corrupt = 0,
            |weather| weather.delay_us = [5, 5],
            |weather| weather.rate = 0,
        ];
        for change in calmer {
            let mut candidate = self.best.clone();
            change(&mut candidate.weather);
            self.offer(candidate);
        }
    }
}
