//! The end of a process whose store into a mapping finds no room.
//!
//! Owns: the handler of SIGBUS. The kernel answers a store into a shared mapping with it when the file system
//! has no block left for the page; btrfs needs a new one after each write-out, also for allocated pages. The
//! process can't go on, and no other may rely on its half-made store: it prints a message and ends at once,
//! as if it were killed. Does not: tell a full disk from a bug of ours by more than the address.

use crate::types::Phase;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How far the process is, in what its last words say of the commit point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It commits nothing.
    Idle = 0,
    /// It runs a transaction, before its commit.
    Before = 1,
    /// Its record is on the way to the log.
    Commit = 2,
    /// It has committed.
    Committed = 3,
}

const WORDS: [&str; 4] = [
    "systx: the file system is full, over a quota, or its disk fails: systx's own table can't be written. Make room and try again.\n",
    "systx: aborted, nothing was changed: the file system is full, over a quota, or its disk fails: systx's own table can't be written.\n",
    "systx: in doubt: the file system is full, over a quota, or its disk fails: systx's own table can't be written. Make room, then \
     run `systx recover` to learn whether it is committed; don't run the command again before.\n",
    "systx: committed; but then the file system was full, over a quota, or its disk failed: systx's own table can't be written. \
     Don't run the command again; make room, then run `systx recover`.\n",
];

static STAGE: AtomicUsize = AtomicUsize::new(Stage::Idle as usize);

/// Says how far this process is.
pub fn stage(stage: Stage) {
    STAGE.store(stage as usize, Ordering::Relaxed);
}

/// Goes on to the stage of a commit's phase, in a process that has said before that it runs a transaction.
pub fn follow(phase: Phase) {
    let stage = match phase {
        Phase::Decide => Stage::Commit,
        Phase::Withdrawn => Stage::Before,
        Phase::Publish | Phase::Reclaim => Stage::Committed,
    };
    if STAGE.load(Ordering::Relaxed) != Stage::Idle as usize {
        self::stage(stage);
    }
}

/// Makes this process end with words and status 125 where a store finds no room. Programs that it starts are
/// not affected.
///
/// Source: sigaction(2); execve(2) takes handlers away.
pub fn end_with_words() {
    let handler: extern "C" fn(libc::c_int) = last_words;
    // SAFETY: all zeros is a valid sigaction: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESETHAND;
    // SAFETY: the handler is async-signal-safe, and `action` lives until the call returns.
    let _ = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
}

extern "C" fn last_words(_signal: libc::c_int) {
    let words = WORDS[STAGE.load(Ordering::Relaxed).min(WORDS.len() - 1)].as_bytes();
    // SAFETY: write(2) is async-signal-safe; the bytes are static.
    let _ = unsafe { libc::write(2, words.as_ptr().cast(), words.len()) };
    // SAFETY: _exit(2) is async-signal-safe and does not return.
    unsafe { libc::_exit(125) }
}
