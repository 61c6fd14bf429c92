//! The next step after an error of a system call, where one is known.
//!
//! Owns: the texts. Guarantees: a hint is something that the reader can do or look at; without a useful one
//! there is none. Does not: know what was being done; a caller that does has better words.

use crate::words::shown;
use systx_engine::outcome::VerbError;
use systx_os::Errno;

/// Returns what to do, as a fragment that follows a semicolon.
fn step(error: Errno) -> Option<&'static str> {
    Some(match error {
        Errno::MFILE => "raise its limit on open files (ulimit -n)",
        Errno::NFILE => "close files of other programs, or raise sysctl fs.file-max",
        Errno::NOMEM => "free memory, or give its container or service more",
        Errno::AGAIN => "raise the limit on processes (ulimit -u, or pids.max of its container or service)",
        Errno::NOSPC => "make room on that file system",
        Errno::DQUOT => "make room, or ask for a larger quota",
        Errno::ROFS => "mount it writable; if it was, the kernel's log (dmesg) says why it is not any more",
        Errno::IO => "look at the kernel's log (dmesg): the disk may be failing",
        Errno::PERM | Errno::ACCESS => "`systx doctor` says what is forbidden here",
        Errno::NOSYS => "it takes Linux 5.12 or later, and a sandbox that lets it call the kernel",
        _ => return None,
    })
}

/// An error with what was being done and the next step.
pub fn with_step(doing: &str, error: Errno) -> String {
    format!("{doing}: {error}{}", and_step(error))
}

/// The next step, to follow the words of an error.
pub fn and_step(error: Errno) -> String {
    step(error).map_or_else(String::new, |step| format!("; {step}"))
}

/// Makes a closure for `map_err`: an error of a system call with what was being done and the next step.
pub fn failed(doing: &'static str) -> impl Fn(Errno) -> String {
    move |e| with_step(doing, e)
}

/// An error of a verb of the engine with what was being done and the next step.
pub fn verb_failed(doing: &str, error: &VerbError) -> String {
    match error {
        VerbError::Os(e) => with_step(doing, *e),
        VerbError::Doomed(conflict) => format!("{doing}: {conflict}"),
    }
}

/// A directory whose mount is not among those that the kernel lists.
pub fn on_no_mount(dir: &[u8]) -> String {
    format!(
        "{} is on none of the mounts in /proc/self/mountinfo; in a chroot make its root a mount (mount --bind ROOT ROOT), \
         and where something has been mounted just now, run again",
        shown(dir)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_follows_where_one_is_known() {
        assert_eq!(
            with_step("opening /dev/null", Errno::MFILE),
            "opening /dev/null: Too many open files (os error 24); raise its limit on open files (ulimit -n)"
        );
        assert_eq!(with_step("forking", Errno::BUSY), "forking: Device or resource busy (os error 16)");
    }
}
