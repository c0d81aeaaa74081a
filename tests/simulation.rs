//! Plans drawn from seeds, run on a simulated network and held against the model (`tools/model`).
//!
//! `UROCE_SEEDS=2000 cargo test --test simulation` draws as many; `UROCE_SEED=17` runs that one alone, and prints its packets when
//! it fails. A failing plan is shrunk and printed: kept as a file in `tests/simulation/`, with its story, it is run for ever.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use uroce_model::{Outcome, Plan, Stats, run, shrink};

/// Seeds that a run without `UROCE_SEEDS` draws.
const USUAL: u64 = 200;
/// Runs that shrinking may take.
const ATTEMPTS: usize = 400;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value}, not a number")))
}

/// Runs a plan; what it did, or what is wrong.
fn attempt(plan: &Plan) -> Result<Stats, String> {
    match catch_unwind(AssertUnwindSafe(|| run(plan, false))) {
        Ok(Outcome { error: None, stats, .. }) => Ok(stats),
        Ok(Outcome { error: Some(error), .. }) => Err(error),
        Err(_) => Err("a panic, see above".to_owned()),
    }
}

/// Says how a plan fails, and how little of it is needed for that.
fn report(name: &str, plan: &Plan, error: &str) -> String {
    let small = shrink(plan, ATTEMPTS);
    let traced = catch_unwind(AssertUnwindSafe(|| run(&small, true)));
    let (still, trace) =
        traced.map_or((Some("a panic".to_owned()), Vec::new()), |outcome| (outcome.error, outcome.trace));
    let from = trace.len().saturating_sub(60);
    format!(
        "{name}: {error}\nshrunk from {} steps to {}: {still:?}\n{}\nthe last packets of {}:\n{}",
        plan.steps.len(),
        small.steps.len(),
        serde_json::to_string_pretty(&small).unwrap(),
        trace.len(),
        trace[from..].join("\n")
    )
}

#[test]
fn seeds() {
    let seeds = match number("UROCE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("UROCE_SEEDS").unwrap_or(USUAL),
    };
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let (mut stats, mut failures) = (Stats::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return (stats, failures);
            }
            match attempt(&Plan::draw(seed)) {
                Ok(done) => stats += done,
                Err(error) => failures.push((seed, error)),
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (mut stats, mut failures) = (Stats::default(), Vec::new());
    for (done, failed) in results {
        stats += done;
        failures.extend(failed);
    }
    failures.sort();
    println!("{stats:?}");
    let list: Vec<_> = failures.iter().map(|(seed, error)| format!("seed {seed}: {error}")).collect();
    if let Some((seed, error)) = failures.first() {
        panic!(
            "{} fail:\n{}\n{}",
            list.len(),
            list.join("\n"),
            report(&format!("seed {seed}"), &Plan::draw(*seed), error)
        );
    }
    assert_eq!(stats.runs, seeds.end - seeds.start);
    assert!(stats.packets > 0 && stats.checks > 0, "{stats:?}");
}

#[test]
fn a_plan_is_a_history() {
    for seed in [3, 14, 15] {
        let plan = Plan::draw(seed);
        let again: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(again, plan);
        assert_eq!(run(&plan, true).trace, run(&again, true).trace, "seed {seed}");
    }
}

/// What once failed.
#[test]
fn kept_plans() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/simulation");
    let mut failures = Vec::new();
    for file in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let plan: Plan =
            serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!plan.story.is_empty(), "{name} has no story");
        if let Err(error) = attempt(&plan) {
            failures.push(report(&format!("{name}, {}", plan.story), &plan, &error));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
