//! Why a command did not begin, and what to do about it.

use crate::failure::Failure;
use crate::report::{Ending, NOT_EXECUTABLE, NOT_FOUND};
use crate::words::shown;
use std::ffi::OsString;
use systx_os::sandbox::spawn::News;
use systx_os::Errno;

/// Returns the end of a run whose command did not begin.
pub fn not_started(command: &[OsString], news: News) -> Ending {
    match news {
        News::NotExecuted(e) => not_executed(command, e),
        News::NotBuilt { at, error } => {
            let at = at.map_or(Vec::new(), |at| [b"/", at.to_bytes()].concat());
            let doing =
                format!("could not mount {} for the command", shown(if at.is_empty() { b"/" } else { &at }));
            let why = Failure::new(doing, error);
            Ending::Failed(match (at.as_slice(), error) {
                // mount_too_revealing in the kernel: root of a user namespace sees no more of /proc than its
                // parent shows.
                (b"/proc", Errno::PERM) => why.hint(
                    "parts of /proc are hidden here, as in a container: unmask it there (podman, docker: --security-opt \
                     systempaths=unconfined), or run systx as root",
                ),
                _ => why.with_step(),
            })
        }
        News::NoDirectory(e) => Ending::Failed(
            Failure::new("could not enter the working directory", e)
                .hint("start in one that is there, and open to you, by the same path inside"),
        ),
        News::NotWatched(e) => {
            let hint = match e {
                Errno::BUSY => {
                    "another program watches the calls here already, a sandbox or a container's manager"
                }
                _ => "leave --network out, or allow seccomp and network namespaces here",
            };
            Ending::Failed(Failure::new("could not watch the command's calls", e).hint(hint))
        }
        News::NotEntered(e) => Ending::Failed(
            Failure::new("could not enter the transaction", e)
                .hint("`systx list` shows whether it is still open"),
        ),
        News::NotFinished => Ending::Failed("a subtransaction that was cut off could not be finished".into()),
        News::Stopped | News::Continued | News::Ended(_) | News::Ready | News::Finished => Ending::Failed(
            "pid 1 of the command ended too early; run again, it was killed from outside".into(),
        ),
    }
}

/// Returns the end of a run whose command could not be executed.
pub fn not_executed(command: &[OsString], error: Errno) -> Ending {
    let name = command.first().map_or(&b""[..], |name| name.as_encoded_bytes());
    let (why, code) = match error {
        Errno::NOENT => {
            let step = if name.contains(&b'/') {
                "check its path, and for a script the program in its first line"
            } else {
                "check its name, and PATH"
            };
            (Failure::at(name, "command not found").hint(step), NOT_FOUND)
        }
        e => {
            let step = match e {
                Errno::ACCESS => "make it executable (chmod +x), or name the program that is to run it",
                Errno::NOEXEC => "give it a first line like #!/bin/sh, or name the program that is to run it",
                _ => "try it without systx",
            };
            (Failure::at(name, format!("can't be executed: {e}")).hint(step), NOT_EXECUTABLE)
        }
    };
    Ending::NotStarted(why, code)
}
