//! `uroce soak`: plans drawn from seeds on a simulated network, held against the model, for as long as wanted.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use uroce_model::{Plan, Stats, attempt, campaign, explain};

use crate::output::say;

/// How often it says how far it is.
const REPORT: Duration = Duration::from_secs(10);

/// Look for bugs: random programs on a simulated network with every fault, checked against a model
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// How long
    #[arg(long, default_value_t = 0.1, value_name = "H")]
    hours: f64,
    /// The first seed; by default one from the clock
    #[arg(long)]
    seed: Option<u64>,
    /// Plans that run at the same time; by default as many as there are processors
    #[arg(long)]
    jobs: Option<usize>,
    /// Run the plan in this file, once
    #[arg(long, value_name = "FILE", conflicts_with_all = ["hours", "seed", "jobs"])]
    replay: Option<PathBuf>,
    /// Print JSON, a line for each report
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
It needs no network and no privilege. It ends at the first failure, with exit status 1: the plan that failed is shrunk and printed,
and FILE with it reproduces the failure.

Examples:
  uroce soak --hours 8
  uroce soak --seed 17 --hours 0.01 --jobs 1
  uroce soak --replay plan.json";

/// Runs the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(file) = &arguments.replay {
        return replay(file, arguments.json);
    }
    ensure!(
        arguments.hours > 0.0 && arguments.hours <= 1000.0,
        "--hours {}: more than 0, at most 1000",
        arguments.hours
    );
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(arguments.hours * 3600.0);
    let clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    // Seeds of one run do not meet those of another.
    let first = arguments.seed.unwrap_or_else(|| clock() << 24);
    let jobs = arguments.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let (next_report, stopped) = (Mutex::new(begun + REPORT), AtomicBool::new(false));
    let (stats, failures) = campaign(first, jobs, |progress| {
        let now = Instant::now();
        if let Ok(mut due) = next_report.lock()
            && now >= *due
        {
            *due = now + REPORT;
            // Who reads no reports does not want more of them.
            if report(arguments.json, begun.elapsed(), first, &progress.stats).is_err() {
                stopped.store(true, Ordering::Relaxed);
            }
        }
        now < end && progress.failed == 0 && !stopped.load(Ordering::Relaxed)
    });
    report(arguments.json, begun.elapsed(), first, &stats)?;
    let Some((seed, error)) = failures.first() else { return Ok(ExitCode::SUCCESS) };
    fail(arguments.json, &format!("seed {seed}"), &Plan::draw(*seed), error)
}

/// Runs a kept plan.
fn replay(file: &PathBuf, as_json: bool) -> Result<ExitCode> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let plan: Plan = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a plan as `uroce soak` prints it", file.display()))?;
    let begun = Instant::now();
    match attempt(&plan) {
        Ok(stats) => report(as_json, begun.elapsed(), plan.seed, &stats).map(|()| ExitCode::SUCCESS),
        Err(error) => fail(as_json, &file.display().to_string(), &plan, &error),
    }
}

/// Says how far it is.
fn report(as_json: bool, elapsed: Duration, first: u64, stats: &Stats) -> Result<()> {
    if as_json {
        let mut value = serde_json::to_value(stats).unwrap_or_default();
        if let Value::Object(fields) = &mut value {
            fields.insert("seconds".into(), json!(elapsed.as_secs_f64()));
            fields.insert("first_seed".into(), json!(first));
        }
        return say!("{value}");
    }
    let Stats { runs, packets, faults, requests, failed, received, keyed, checks, .. } = stats;
    let [uc, ud, xrc, shared] = received;
    say!(
        "{:>6} s  {runs} plans from seed {first}, {packets} packets, {faults} faults, {requests} requests ({failed} failed as they \
         should), received over UC {uc}, UD {ud}, XRC {xrc}, from shared queues {shared}, through opened keys {keyed}, {checks} checks",
        elapsed.as_secs()
    )
}

/// Says what failed, and how to see it again.
fn fail(as_json: bool, name: &str, plan: &Plan, error: &str) -> Result<ExitCode> {
    let explanation = explain(plan);
    if as_json {
        say!("{}", json!({ "failed": name, "error": error, "explanation": explanation }))?;
    } else {
        say!("FAILED: {name}: {error}\n{explanation}")?;
    }
    Ok(ExitCode::FAILURE)
}
