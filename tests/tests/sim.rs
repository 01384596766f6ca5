//! The simulation: the seeds that failed once, then many. `GEMINGA_SIM_SEEDS` says how many, `GEMINGA_SIM_FIRST` from which
//! one on; `GEMINGA_SIM_SEED` runs one alone. A failure shows its last `GEMINGA_SIM_TRACE` lines.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use geminga_tests::sim::{Failure, Report, TRACED, attempt, run};

const SEEDS: u64 = 500;
/// More would say nothing new.
const MOST_FAILURES: usize = 5;
/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);

#[test]
fn every_seed_converges_and_nothing_is_lost() {
    let seeds = match number("GEMINGA_SIM_SEED") {
        Some(seed) => vec![seed],
        None => {
            let first = number("GEMINGA_SIM_FIRST").unwrap_or(0);
            let many = first..first + number("GEMINGA_SIM_SEEDS").unwrap_or(SEEDS);
            committed().into_iter().chain(many).collect()
        }
    };
    let traced = number("GEMINGA_SIM_TRACE").map_or(TRACED, |lines| lines as usize);
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Outcomes { reports: Vec::new(), failures: Vec::new(), told: start });
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run(*seed, traced);
            let mut outcomes = outcomes.lock().expect("no thread panics while it holds them");
            outcomes.add(outcome);
            outcomes.progress(start, seeds.len());
            if outcomes.failures.len() >= MOST_FAILURES {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        // Each seed has a world of its own, so they divide among as many threads as there are cores.
        for _ in 0..available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    let Outcomes { reports, failures, .. } = outcomes.into_inner().expect("all threads ended");
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let failed: Vec<u64> = failures.iter().map(|failure| failure.seed).collect();
    eprintln!(
        "{} seeds in {} s: {} messages sent, {} delivered, {} steps, {} virtual hours",
        reports.len() + failures.len(),
        start.elapsed().as_secs(),
        sum(|r| r.sent as u64),
        sum(|r| r.delivered as u64),
        sum(|r| r.steps),
        sum(|r| r.took.as_secs()) / 3600
    );
    assert!(failed.is_empty(), "seeds {failed:?} failed; tests/sim/seeds.txt says what to do with them");
}

#[test]
fn a_seed_gives_the_same_run_every_time() {
    for seed in 0..5 {
        assert_eq!(attempt(seed, 0).ok(), attempt(seed, 50).ok(), "seed {seed}");
    }
}

#[test]
fn the_committed_list_is_read_without_its_comments() {
    assert_eq!(read("# words\n\n7 # found a lost permit\n12\n"), [7, 12]);
    committed();
}

/// What came of the seeds so far.
struct Outcomes {
    reports: Vec<Report>,
    failures: Vec<Failure>,
    /// When a line of progress was last written.
    told: Instant,
}

impl Outcomes {
    /// Keeps an outcome; a failure is shown at once, as the rest of the seeds may take long.
    fn add(&mut self, outcome: Result<Report, Box<Failure>>) {
        match outcome {
            Ok(report) => self.reports.push(report),
            Err(failure) => {
                eprintln!("{failure}");
                self.failures.push(*failure);
            }
        }
    }

    fn progress(&mut self, start: Instant, seeds: usize) {
        if self.told.elapsed() < PROGRESS {
            return;
        }
        self.told = Instant::now();
        let (done, failed) = (self.reports.len() + self.failures.len(), self.failures.len());
        eprintln!("{done} of {seeds} seeds, {failed} failed, {} s", start.elapsed().as_secs());
    }
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

/// The seeds that failed once.
fn committed() -> Vec<u64> {
    read(include_str!("../sim/seeds.txt"))
}

fn read(list: &str) -> Vec<u64> {
    let seeds = list.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    seeds.filter(|seed| !seed.is_empty()).map(|seed| seed.parse().expect("a seed a line")).collect()
}
