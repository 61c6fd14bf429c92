//! The next step after an error of a system call, where one is known.
//!
//! Owns: the texts. Guarantees: a hint is something that the reader can do or look at; without a useful one
//! there is none. Does not: know what was being done; a caller that does has better words.

use systx_os::Errno;

/// Returns what to do, as a fragment that follows a semicolon.
pub fn step(error: Errno) -> Option<&'static str> {
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

/// The next step, to follow the words of an error.
pub fn and_step(error: Errno) -> String {
    step(error).map_or_else(String::new, |step| format!("; {step}"))
}
