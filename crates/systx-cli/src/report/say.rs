//! Where an outcome is written: standard error, and the descriptor of `--status-fd`.

use super::{Ending, Ours, Told};
use crate::args::Run;
use crate::words::Voice;
use std::io::Write;
use std::os::fd::OwnedFd;

/// Writes an outcome to standard error, and to `status` where `--status-fd` names one; returns the exit code.
pub fn say(told: &Told, voice: Voice, status: Option<OwnedFd>) -> u8 {
    let line = || format!("{}\n", told.json);
    if let Some(status) = status {
        // A reader that has closed it does not want the outcome.
        let _ = std::fs::File::from(status).write_all(line().as_bytes());
    }
    let text = if voice.json {
        line()
    } else if told.plain && !voice.verbose {
        String::new()
    } else {
        format!("systx: {}\n", told.sentence)
    };
    let warning = told.warning.as_ref().filter(|_| !voice.json);
    let warning = warning.map_or(String::new(), |why| format!("systx: warning: {why}\n"));
    let outside = told.outside.as_ref().filter(|_| !voice.json);
    let outside = outside.map_or(String::new(), |what| format!("systx: {what}\n"));
    let _ = std::io::stderr().write_all((text + &warning + &outside).as_bytes());
    told.code
}

/// Writes the outcome of a run that has begun no transaction; returns the exit code.
pub fn tell(args: &Run, status: Option<OwnedFd>, ending: &Ending) -> u8 {
    say(&Told::new(ending, &Ours::new(None, &args.command)), args.voice(), status)
}
