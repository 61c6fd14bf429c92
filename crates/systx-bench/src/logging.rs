//! What does `SYSTX_LOG` cost a program that does not ask for it?

use crate::measure::Samples;
use crate::report::Report;
use crate::world::fresh;
use crate::{Outcome, Setup};
use std::path::Path;
use std::process::{Command, Stdio};

/// Small commits, each a run, of which the CPU time is taken together.
const COMMITS: usize = 20;
/// Files that one run makes: some requests each.
const FILES: usize = 2_000;

/// CPU time of `$COUNT` runs, of systx and all that it has waited for. bash has it in milliseconds.
const TIMED: &str = "TIMEFORMAT='%3U %3S'; time for ((n = 0; n < COUNT; n++)); do \"$@\" || exit; done";

pub fn measure(setup: &Setup, report: &mut Report) -> Outcome<()> {
    report.heading("10. A log that is off");
    let without = setup.systx.with_file_name("systx-without-log");
    if !without.exists() {
        return Err("there is no systx-without-log beside systx; scripts/bench.sh builds it".into());
    }
    let dir = fresh(setup, "logging")?;
    let work = dir.join("work");
    std::fs::create_dir(&work)?;
    let (commits, files) = (setup.size(COMMITS, 3), setup.size(FILES, 50));
    let many = format!("for ((n = 0; n < {files}; n++)); do : > made$n; done");
    let mut changing: [Samples; 3] = Default::default();
    let mut making: [Samples; 3] = Default::default();
    let log = dir.join("log");
    for _ in 0..setup.repeats.max(1) * 3 {
        // In turn, so that whatever else the machine does meets all of them.
        for (way, (systx, logs)) in
            [(&without, false), (&setup.systx, false), (&setup.systx, true)].into_iter().enumerate()
        {
            let log = logs.then_some(&*log);
            changing[way].push(cpu_ms(systx, &work, ("echo x > a", commits), log)? / commits as f64);
            making[way].push(cpu_ms(systx, &work, (&many, 1), log)?);
            std::fs::remove_dir_all(&work)?;
            std::fs::create_dir(&work)?;
        }
    }
    let names = ["built without the log", "with it, off", "with it, `SYSTX_LOG=debug` to a file"];
    for (what, samples) in [
        ("CPU of `systx run -- bash -c 'echo x > a'`, durable".to_owned(), &changing),
        (format!("CPU of a run that makes {files} files, commit included"), &making),
    ] {
        let rows: Vec<_> = names.into_iter().zip(samples).collect();
        report.compared(&format!("{what} (target: off within the noise)."), "ms", &rows);
    }
    Ok(())
}

/// Milliseconds of CPU of so many runs of a script, with a log or without.
fn cpu_ms(systx: &Path, work: &Path, (script, count): (&str, usize), log: Option<&Path>) -> Outcome<f64> {
    let mut runs = Command::new("bash");
    runs.args(["-c", TIMED, "bash"])
        .arg(systx)
        .args(["run", "--only"])
        .arg(work)
        .args(["--", "bash", "-c", script]);
    runs.current_dir(work).env("COUNT", count.to_string()).stdin(Stdio::null());
    // No process that a run leaves behind works beside the next one.
    runs.env("SYSTX_CHECKPOINT", "never").env_remove("SYSTX_LOG").env_remove("SYSTX_LOG_FILE");
    if let Some(log) = log {
        runs.env("SYSTX_LOG", "debug").env("SYSTX_LOG_FILE", log);
    }
    let output = runs.output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    match (output.status.success(), numbers.next(), numbers.next()) {
        (true, Some(Ok(user)), Some(Ok(system))) => Ok((user + system) * 1e3),
        _ => Err(format!("{runs:?}: {}: {text}", output.status).into()),
    }
}
