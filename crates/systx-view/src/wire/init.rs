//! The agreement of the two sides of a connection.

use super::layout::{InitIn, InitOut};

/// Bytes of the largest READ and WRITE.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
const PAGE_BYTES: u32 = 4096;

/// Capabilities, `fuse_init_in.flags` and, from bit 32 on, `flags2`.
#[allow(missing_docs)]
pub mod flag {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const DONT_MASK: u64 = 1 << 6;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const SETXATTR_EXT: u64 = 1 << 29;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub const PASSTHROUGH: u64 = 1 << 37;
}

/// Without these the view would be wrong, not slow: caches that drop themselves, a truncation apart from its open,
/// permission bits masked twice.
const NEEDED: u64 = flag::ATOMIC_O_TRUNC
    | flag::BIG_WRITES
    | flag::DONT_MASK
    | flag::POSIX_ACL
    | flag::MAX_PAGES
    | flag::NO_OPENDIR_SUPPORT
    | flag::EXPLICIT_INVAL_DATA
    | flag::HANDLE_KILLPRIV_V2;

/// No WRITEBACK_CACHE: the server must see each write when it happens. No READDIRPLUS_AUTO: the server decides by
/// itself which entries it describes. No locks: those that stay inside the view are the kernel's.
const WANTED: u64 = NEEDED
    | flag::ASYNC_READ
    | flag::EXPORT_SUPPORT
    | flag::DO_READDIRPLUS
    | flag::PARALLEL_DIROPS
    | flag::CACHE_SYMLINKS
    | flag::SETXATTR_EXT
    | flag::INIT_EXT
    | flag::DIRECT_IO_ALLOW_MMAP
    | flag::PASSTHROUGH;

/// The capabilities of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// The wanted capabilities that the kernel has.
    pub flags: u64,
    /// The kernel forgets nodes when it is asked to ([`super::forget_unused`]).
    pub prunes: bool,
}

impl Agreed {
    /// Returns true if a capability was agreed on.
    pub fn has(self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}

/// Result of a negotiation.
#[derive(Debug)]
pub enum Answer {
    /// The kernel's major version is newer: it asks again with ours.
    Again(InitOut),
    /// The connection works.
    Ready(InitOut, Agreed),
    /// The kernel lacks what the view can't do without (these capabilities; 0: the protocol version).
    Unusable(u64),
}

/// Answers an INIT. `stack_depth` is how deep the file systems behind the view are stacked themselves.
///
/// Minimum kernel version: 5.12 (HANDLE_KILLPRIV_V2); 6.9 for passthrough.
pub fn negotiate(asked: &InitIn, stack_depth: u32) -> Answer {
    const MINOR: u32 = 45;
    const PRUNE_MINOR: u32 = 45;
    let mut out = InitOut { major: 7, minor: MINOR, ..Default::default() };
    if asked.major > 7 {
        return Answer::Again(out);
    }
    if asked.major < 7 || asked.minor < 33 {
        return Answer::Unusable(0);
    }
    let offered = u64::from(asked.flags)
        | if u64::from(asked.flags) & flag::INIT_EXT != 0 { u64::from(asked.flags2) << 32 } else { 0 };
    if NEEDED & !offered != 0 {
        return Answer::Unusable(NEEDED & !offered);
    }
    let flags = WANTED & offered;
    out.max_readahead = asked.max_readahead.max(TRANSFER_BYTES_MAX);
    out.flags = flags as u32;
    out.flags2 = (flags >> 32) as u32;
    out.max_background = 64;
    out.congestion_threshold = 48;
    out.max_write = TRANSFER_BYTES_MAX;
    out.time_gran = 1;
    out.max_pages = (TRANSFER_BYTES_MAX / PAGE_BYTES) as u16;
    if flags & flag::PASSTHROUGH != 0 {
        // The backing file's file system must be below this depth; 2 is the kernel's limit for whole stacks.
        out.max_stack_depth = (stack_depth + 1).min(2);
    }
    Answer::Ready(out, Agreed { flags, prunes: asked.minor >= PRUNE_MINOR })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(flags: u64) -> InitIn {
        InitIn {
            major: 7,
            minor: 45,
            max_readahead: 1 << 17,
            flags: flags as u32,
            flags2: (flags >> 32) as u32,
            unused: [0; 11],
        }
    }

    #[test]
    fn only_what_is_offered_is_agreed_on() {
        let Answer::Ready(out, agreed) = negotiate(&asked(u64::MAX), 0) else { panic!() };
        assert_eq!(agreed.flags, WANTED);
        assert_eq!((u64::from(out.flags2) << 32) | u64::from(out.flags), WANTED);
        assert_eq!((out.max_write, out.max_pages, out.max_stack_depth), (1 << 20, 256, 1));
        let Answer::Ready(out, agreed) = negotiate(&asked(NEEDED), 1) else { panic!() };
        assert_eq!((agreed.flags, out.max_stack_depth), (NEEDED, 0));
    }

    #[test]
    fn upper_flags_count_only_with_init_ext() {
        let offer = NEEDED | flag::PASSTHROUGH;
        let Answer::Ready(_, agreed) = negotiate(&asked(offer), 0) else { panic!() };
        assert!(!agreed.has(flag::PASSTHROUGH));
        let Answer::Ready(_, agreed) = negotiate(&asked(offer | flag::INIT_EXT), 0) else { panic!() };
        assert!(agreed.has(flag::PASSTHROUGH));
    }

    #[test]
    fn a_kernel_that_lacks_a_needed_capability_is_refused_by_name() {
        let Answer::Unusable(missing) = negotiate(&asked(!flag::DONT_MASK), 0) else { panic!() };
        assert_eq!(missing, flag::DONT_MASK);
        assert!(matches!(negotiate(&InitIn { minor: 20, ..asked(u64::MAX) }, 0), Answer::Unusable(0)));
        assert!(matches!(negotiate(&InitIn { major: 8, ..asked(0) }, 0), Answer::Again(_)));
    }
}
