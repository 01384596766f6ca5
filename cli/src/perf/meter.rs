//! What a measurement costs: wall time, CPU time of this process, and its largest resident set.

use std::io;
use std::time::Instant;

/// Time and CPU time since its start.
pub(crate) struct Meter {
    cpu: Cpu,
    wall: Instant,
}

/// What a [`Meter`] read. Units: seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) wall: f64,
    pub(crate) user: f64,
    pub(crate) system: f64,
}

impl Meter {
    /// Starts measuring.
    pub(crate) fn start() -> io::Result<Self> {
        let cpu = Cpu::now()?;
        Ok(Meter { cpu, wall: Instant::now() })
    }

    /// What it took since the start.
    pub(crate) fn stop(&self) -> io::Result<Cost> {
        let wall = self.wall.elapsed().as_secs_f64();
        let cpu = Cpu::now()?;
        Ok(Cost { wall, user: cpu.user - self.cpu.user, system: cpu.system - self.cpu.system })
    }
}

/// The largest resident set of this process so far. Units: MiB.
pub(crate) fn max_rss_mib() -> io::Result<f64> {
    Ok(Cpu::now()?.max_rss_mib)
}

#[derive(Clone, Copy, Debug)]
struct Cpu {
    user: f64,
    system: f64,
    max_rss_mib: f64,
}

impl Cpu {
    #[cfg(unix)]
    fn now() -> io::Result<Self> {
        use nix::sys::resource::{UsageWho, getrusage};
        use nix::sys::time::TimeVal;

        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let seconds = |t: TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
        // Linux counts in KiB, macOS in bytes.
        let per_mib = if cfg!(target_os = "macos") { 1024.0 * 1024.0 } else { 1024.0 };
        Ok(Cpu {
            user: seconds(usage.user_time()),
            system: seconds(usage.system_time()),
            max_rss_mib: usage.max_rss() as f64 / per_mib,
        })
    }

    #[cfg(not(unix))]
    fn now() -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "CPU time is measured on Unix only"))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn work_costs_cpu_time_and_memory_is_in_use() {
        let meter = Meter::start().unwrap();
        let mut sum = 0u64;
        let cost = loop {
            sum = (0..100_000u64).fold(sum, |a, b| std::hint::black_box(a ^ b.wrapping_mul(31)));
            let cost = meter.stop().unwrap();
            if cost.user + cost.system > 0.0 {
                break cost;
            }
        };
        assert!(cost.wall > 0.0);
        assert!(max_rss_mib().unwrap() > 1.0);
    }
}
