//! A line at the terminal while a commit takes long.
//!
//! Owns: one line on standard error (of `systx commit`, whose session daemon commits, on that one's): the
//! side of the commit point, and how far the commit is. Guarantees: it is removed when the commit is over;
//! nothing is written where standard error is no terminal, or the commit is quick. Does not: slow the commit
//! down: a thread of its own reads two numbers.

use crate::words::Voice;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;
use systx_os::{process, progress};

/// A commit that is over by then is not spoken of.
const QUICK: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(200);
/// To the first column, and nothing on the line.
const ERASE: &str = "\r\x1b[K";

/// Shows the progress until it is dropped.
pub struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

impl Progress {
    /// Begins at standard error, if that is a terminal and not for programs.
    pub fn begin(voice: Voice) -> Progress {
        Progress::at(if voice.json { None } else { terminal() })
    }

    /// Begins at a terminal, perhaps another process's.
    pub fn at(terminal: Option<OwnedFd>) -> Progress {
        let Some(mut to) = terminal.map(File::from).filter(File::is_terminal) else { return Progress(None) };
        progress::note(0, 0);
        let (over, told) = channel();
        let tell = move || {
            let mut wait = QUICK;
            let mut shown = false;
            while told.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = BETWEEN;
                if takes_more(&to) {
                    let _ = to.write_all(format!("{ERASE}systx: {}", line(progress::now())).as_bytes());
                    shown = true;
                }
            }
            if shown && takes_more(&to) {
                let _ = to.write_all(ERASE.as_bytes());
            }
        };
        // Without a thread no progress is shown.
        let thread = std::thread::Builder::new().name("systx-progress".into()).spawn(tell);
        Progress(thread.ok().map(|thread| (over, thread)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((over, thread)) = self.0.take() {
            drop(over);
            let _ = thread.join();
        }
    }
}

/// Returns true if a line can be written without waiting for a reader of the terminal.
fn takes_more(terminal: &File) -> bool {
    process::takes_more(terminal.as_fd())
}

/// Standard error, if it is a terminal.
pub fn terminal() -> Option<OwnedFd> {
    let stderr = std::io::stderr();
    stderr.is_terminal().then(|| stderr.as_fd().try_clone_to_owned().ok()).flatten()
}

fn line(now: Option<(usize, usize)>) -> String {
    match now {
        None => "preparing the commit; nothing has happened yet".into(),
        Some((taken, of)) => format!("committed; step {taken} of {of}"),
    }
}
