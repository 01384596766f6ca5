//! The simulation: the seeds that failed once, then many. `GEMINGA_SIM_SEEDS` says how many, `GEMINGA_SIM_FIRST` from which
//! one on; `GEMINGA_SIM_SEED` runs one alone. A failure shows its last `GEMINGA_SIM_TRACE` lines.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use geminga_tests::sim::{Failure, Report, TRACED, attempt, run};

const SEEDS: u64 = 500;
const THREADS: usize = 2;
/// More would say nothing new.
const MOST_FAILURES: usize = 5;

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
    let failures = Mutex::new(Vec::<Box<Failure>>::new());
    let reports = Mutex::new(Vec::<Report>::new());
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            match run(*seed, traced) {
                Ok(report) => reports.lock().unwrap().push(report),
                Err(failure) => failures.lock().unwrap().push(failure),
            }
            if failures.lock().unwrap().len() >= MOST_FAILURES {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|_| {
            scope.spawn(work);
        });
    });
    let reports = reports.into_inner().unwrap();
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    eprintln!(
        "{} seeds in {:.1?}: {} messages sent, {} delivered, {} steps, {} virtual hours",
        reports.len(),
        start.elapsed(),
        sum(|r| r.sent as u64),
        sum(|r| r.delivered as u64),
        sum(|r| r.steps),
        sum(|r| r.took.as_secs()) / 3600
    );
    let failures = failures.into_inner().unwrap();
    failures.iter().for_each(|failure| eprintln!("{failure}"));
    let failed: Vec<u64> = failures.iter().map(|failure| failure.seed).collect();
    assert!(failed.is_empty(), "seeds {failed:?} failed; add them to tests/sim/seeds.txt");
}

#[test]
fn a_seed_gives_the_same_run_every_time() {
    for seed in 0..5 {
        assert_eq!(attempt(seed, 0).ok(), attempt(seed, 50).ok(), "seed {seed}");
    }
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

/// The seeds that failed once.
fn committed() -> Vec<u64> {
    let lines = include_str!("../sim/seeds.txt").lines();
    let seeds = lines.map(|line| line.split('#').next().unwrap_or_default().trim());
    seeds.filter(|seed| !seed.is_empty()).map(|seed| seed.parse().expect("a seed a line")).collect()
}
