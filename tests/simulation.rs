//! Plans drawn from seeds, run on a simulated network and held against the model (`tools/model`).
//!
//! `UROCE_SEEDS=2000 cargo test --test simulation` draws as many; `UROCE_SEED=17` runs that one alone, and prints its packets when
//! it fails. A failing plan is shrunk and printed: kept as a file in `tests/simulation/`, with its story, it is run for ever.

use std::fs;
use std::path::PathBuf;

use uroce_model::{Plan, attempt, campaign, explain, run};

/// Seeds that a run without `UROCE_SEEDS` draws.
const USUAL: u64 = 200;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value}, not a number")))
}

#[test]
fn seeds() {
    let seeds = match number("UROCE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("UROCE_SEEDS").unwrap_or(USUAL),
    };
    let count = seeds.end - seeds.start;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let (stats, failures) = campaign(seeds.start, jobs, |progress| progress.begun < count);
    println!("{stats:?}");
    let list: Vec<_> = failures.iter().map(|(seed, error)| format!("seed {seed}: {error}")).collect();
    if let Some((seed, _)) = failures.first() {
        panic!("{} fail:\n{}\n{}", list.len(), list.join("\n"), explain(&Plan::draw(*seed)));
    }
    assert_eq!(stats.runs, count);
    assert!(stats.packets > 0 && stats.checks > 0, "{stats:?}");
    // One seed need not have all services.
    assert!(count < USUAL || stats.keyed > 0 && stats.received.iter().all(|&messages| messages > 0), "{stats:?}");
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
            failures.push(format!("{name}: {error}\n{}\n{}", plan.story, explain(&plan)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
