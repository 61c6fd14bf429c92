//! A log of systx's own work, line by line, for bug reports: `SYSTX_LOG=debug`.
//!
//! Owns: the only subscriber of the events of all crates. Guarantees: without `SYSTX_LOG` there is none, and an event
//! costs the comparison of a level; a line is one write(2), to standard error or to `SYSTX_LOG_FILE`, never to
//! standard output; no lock and no descriptor is held between two lines, so that a process can be made at any time,
//! the command inherits none, and threads with descriptors of their own write, too. Does not: log for the command,
//! whose own systx does not see the variables.
//!
//! The helper process and the session daemon have let go of standard error: their lines need a file. Pid 1 of the
//! namespaces would find the file through the view, as a change of its own transaction: its lines need standard error.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use systx_os::own_file::append;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::prelude::*;

/// A filter as in `debug` or `systx_engine::commit=trace,systx_view=info`.
const FILTER: &str = "SYSTX_LOG";
/// A file to which lines are appended; it is made for its owner alone.
const FILE: &str = "SYSTX_LOG_FILE";

/// The part of systx that a process has.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Role {
    /// The process that a user has started.
    Systx,
    /// The process that finishes a commit which that one did not survive, and makes the checkpoint.
    Helper,
    /// The process that keeps a transaction open.
    Daemon,
    /// Pid 1 of the namespaces, which finishes subtransactions.
    Init,
    /// The process that finishes for processes of the library.
    Watcher,
}

/// Variables that the command does not inherit.
pub const VARIABLES: [&str; 2] = [FILTER, FILE];

/// This process's role. A process that is made has a copy.
static ROLE: AtomicU8 = AtomicU8::new(Role::Systx as u8);

/// Says what this process is from now on.
pub fn enter(role: Role) {
    ROLE.store(role as u8, Ordering::Relaxed);
    tracing::debug!("begins");
}

/// Begins to log, if that is asked for.
///
/// # Errors
/// The filter makes no sense, or the file can't be opened.
pub fn begin() -> Result<(), String> {
    let Some(filter) = std::env::var_os(FILTER).filter(|filter| !filter.is_empty()) else { return Ok(()) };
    let example = "as in SYSTX_LOG=debug or SYSTX_LOG=systx_engine::commit=trace";
    let filter = filter.to_str().ok_or(format!("{FILTER}: it is not UTF-8; write it {example}"))?;
    let filter: Targets = filter.parse().map_err(|e| format!("{FILTER}: {e}; write it {example}"))?;
    let file = match std::env::var_os(FILE).filter(|file| !file.is_empty()) {
        Some(file) => {
            // Processes that change their directory find it, too.
            let file = std::path::absolute(Path::new(&file)).map_err(|e| format!("{FILE}: {e}"))?;
            append(&file).map_err(|e| {
                format!(
                    "{FILE}: {}: {e}; name a file of your own, in a directory that exists, without links",
                    file.display()
                )
            })?;
            Some(file)
        }
        None => None,
    };
    let lines = fmt::layer().with_ansi(false).with_span_events(FmtSpan::CLOSE).with_writer(Lines { file });
    // It can only fail where there is a subscriber already.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    tracing::debug!(version = env!("CARGO_PKG_VERSION"), "begins");
    Ok(())
}

const INIT: &str = "init";

/// Where lines go: a file, or standard error.
struct Lines {
    file: Option<PathBuf>,
}

/// One line on its way.
struct Line<'a>(&'a Lines);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

impl Write for Line<'_> {
    /// Writes a whole line, with this process before it. A log that can't be written is no reason to fail.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let role = match ROLE.load(Ordering::Relaxed) {
            role if role == Role::Helper as u8 => "helper",
            role if role == Role::Daemon as u8 => "daemon",
            role if role == Role::Init as u8 => INIT,
            role if role == Role::Watcher as u8 => "watcher",
            _ => "systx",
        };
        let file = self.0.file.as_ref();
        if role == INIT && file.is_some() {
            return Ok(line.len());
        }
        let mut whole = format!("{role}[{}] ", std::process::id()).into_bytes();
        whole.extend_from_slice(line);
        let _ = match file {
            // Opened for each line: a descriptor that stays open would be inherited, or closed in a process that keeps
            // few, where another file then gets its number.
            Some(file) => append(file).and_then(|mut file| file.write_all(&whole)),
            None => io::stderr().write_all(&whole),
        };
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
