//! Simulation: a seed picks clients, workload and faults; then faults stop, and everything must converge.
//!
//! [`run`] is the whole of it. The same seed gives the same run, so a failure is repeated with a trace.

mod chaos;
pub mod consuming;
pub mod history;
pub mod plan;
mod producing;
mod simulation;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use plan::Plan;
use simulation::Simulation;

/// Lines of trace that a failure shows.
pub const TRACED: usize = 300;

/// What a run came to, to compare runs by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it was drawn from.
    pub seed: u64,
    /// How many things happened.
    pub steps: u64,
    /// How long it took, in virtual time.
    pub took: Duration,
    /// What the clients said.
    pub events: usize,
    /// Messages handed to producers.
    pub sent: usize,
    /// Messages handed to consumers and readers.
    pub delivered: usize,
}

/// A run that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What it was drawn from.
    pub seed: u64,
    /// What is wrong.
    pub what: String,
    /// What the seed stands for.
    pub plan: String,
    /// The last inputs and outputs.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} failed: {}", self.seed, self.what)?;
        writeln!(f, "replay it: cargo xtask sim --seed {}", self.seed)?;
        writeln!(f, "--- the plan\n{}", self.plan)?;
        writeln!(f, "--- the last {} lines", self.trace.len())?;
        self.trace.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl std::error::Error for Failure {}

/// Runs a seed. A failure is run again for the last `traced` lines of its trace.
pub fn run(seed: u64, traced: usize) -> Result<Report, Box<Failure>> {
    attempt(seed, 0).or_else(|_| attempt(seed, traced))
}

/// Runs a seed and keeps so many lines of trace.
pub fn attempt(seed: u64, traced: usize) -> Result<Report, Box<Failure>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let plan = Plan::draw(&mut rng);
    let described = format!("{plan:#?}");
    let lines = std::sync::Arc::default();
    let run = catch_unwind(AssertUnwindSafe(|| {
        let mut simulation = Simulation::new(seed, plan, rng, traced, std::sync::Arc::clone(&lines));
        let result = simulation.run();
        result.map_err(|what| format!("{what}\n{}", simulation.status()))
    }));
    let what = match run {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(what)) => what,
        Err(panic) => match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast_ref::<&str>().map_or("a panic", |text| text).to_string(),
        },
    };
    let trace = lines.lock().map(|lines| lines.iter().cloned().collect()).unwrap_or_default();
    Err(Box::new(Failure { seed, what, plan: described, trace }))
}
