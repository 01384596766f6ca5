//! `cargo xtask test`: chooses the parts, closes the gap to the machine, runs them in turn, reports.

use crate::machine::{Lacking, Need};
use crate::parts::{self, Part, Stage};
use crate::repo::Workspace;
use crate::report::{Report, Row, Verdict};
use anyhow::{Result, bail};
use std::time::Instant;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A part that this machine cannot run is a failure
    #[arg(long)]
    require_all: bool,
    /// Run only these parts (see --list)
    #[arg(long, value_name = "PART,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Name the parts and stop
    #[arg(long)]
    list: bool,
    /// Install missing system packages with apt-get (also where CI=true)
    #[arg(long)]
    install_system: bool,
    /// Also the checks of `cargo xtask ci`
    #[arg(skip)]
    with_ci: bool,
}

impl Options {
    /// What `cargo xtask ci` runs.
    pub(crate) fn everything() -> Self {
        Self { require_all: true, only: Vec::new(), list: false, install_system: false, with_ci: true }
    }
}

/// Runs the tests. Returns whether all that had to pass did.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let parts = select(parts(options)?, &options.only)?;
    if options.list {
        let width = parts.iter().map(|part| part.name.len()).max().unwrap_or(0);
        for part in &parts {
            println!("{:width$}  {}", part.name, part.about);
        }
        return Ok(true);
    }
    let install = options.install_system || std::env::var("CI").is_ok_and(|value| value == "true");
    let lacking = Lacking::after_setting_up(&needs(&parts), install);
    let mut report = Report::default();
    let mut stage = Stage::default();
    for part in &parts {
        println!("\n== {}: {}", part.name, part.about);
        let start = Instant::now();
        let verdict = match lacking.reason(&part.needs) {
            Some(reason) => Verdict::Skipped(reason),
            None => part
                .run(&mut stage)
                .map_or_else(|error| Verdict::Failed(format!("{error:#}")), |()| Verdict::Passed),
        };
        match &verdict {
            Verdict::Passed => {}
            Verdict::Failed(why) => println!("FAILED: {why}"),
            Verdict::Skipped(why) => println!("skipped: {why}"),
        }
        println!("== {} took {:.1} s", part.name, start.elapsed().as_secs_f64());
        report.add(Row { name: part.name.clone(), verdict, took: start.elapsed() });
    }
    drop(stage);
    print!("\n{}", report.render());
    Ok(report.is_success(options.require_all))
}

fn parts(options: &Options) -> Result<Vec<Part>> {
    let mut parts = parts::test(&Workspace::read()?);
    // Named one by one, the slower checks can be run without the rest.
    if options.with_ci || options.list || !options.only.is_empty() {
        parts.extend(parts::ci());
    }
    Ok(parts)
}

fn select(parts: Vec<Part>, only: &[String]) -> Result<Vec<Part>> {
    if let Some(unknown) = only.iter().find(|name| !parts.iter().any(|part| part.name == **name)) {
        bail!("no part is named {unknown}; `cargo xtask test --list` names them");
    }
    Ok(parts.into_iter().filter(|part| only.is_empty() || only.contains(&part.name)).collect())
}

fn needs(parts: &[Part]) -> Vec<Need> {
    let mut needs: Vec<Need> = parts.iter().flat_map(|part| part.needs.iter().copied()).collect();
    needs.sort();
    needs.dedup();
    needs
}
