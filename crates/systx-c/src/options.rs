//! Options of a begin, as C gives them.

use crate::border::{Answer, In, Text};
use crate::structures::systx_options;
use std::time::Duration;
use systx::posix::Errno;
use systx::{Durability, Isolation, Options, Policy, Unsupported};

/// Size of the structure in the first version.
const LEAST_BYTES: usize = 48;
/// SYSTX_NO_STALL.
const NO_STALL: u32 = u32::MAX;

/// The begin of a transaction.
pub struct Begin {
    pub options: Options,
    /// After a conflict it is begun again.
    pub again: bool,
    /// In a transaction it is a part that can be undone alone.
    pub part: bool,
    pub ordered: bool,
    pub retries: u32,
}

/// SYSTX_AGAIN.
pub const AGAIN: u32 = 1;
/// SYSTX_PART.
const PART: u32 = 2;
/// SYSTX_ORDERED.
const ORDERED: u32 = 4;
/// SYSTX_RESET.
const RESET: u32 = 8;
/// SYSTX_NONBLOCK.
const NONBLOCK: u32 = 16;
/// The default, that of `Options::new`.
const RETRIES: u32 = 100;

fn options_of(flags: u32) -> Options {
    if flags & NONBLOCK == 0 {
        Options::new()
    } else {
        Options::new().non_blocking()
    }
}

impl Begin {
    /// # Errors
    /// `EINVAL` for flags and values that are not known; those of [`In::sized`].
    pub fn new(flags: u32, options: &In<systx_options>) -> Answer<Begin> {
        if flags & !(AGAIN | PART | ORDERED | RESET | NONBLOCK) != 0 {
            return Err(Errno::INVAL);
        }
        let (again, part, ordered) = (flags & AGAIN != 0, flags & PART != 0, flags & ORDERED != 0);
        let resets = flags & RESET != 0;
        if options.is_null() || resets && !ordered {
            let plain = Begin { options: options_of(flags), again, part, ordered, retries: RETRIES };
            return if ordered || resets { Err(Errno::INVAL) } else { Ok(plain) };
        }
        let given = options.sized(LEAST_BYTES)?;
        let durability = match given.durability {
            0 => Durability::Durable,
            1 => Durability::None,
            _ => return Err(Errno::INVAL),
        };
        let unsupported = match given.unsupported {
            0 => Unsupported::Abort,
            1 => Unsupported::Deny,
            2 => Unsupported::Allow,
            _ => return Err(Errno::INVAL),
        };
        let policy = match given.policy {
            0 => Policy::Oldest,
            1 => Policy::FirstCommitter,
            2 => Policy::Priority,
            _ => return Err(Errno::INVAL),
        };
        let isolation = match given.isolation {
            0 => Isolation::Serializable,
            1 => Isolation::Committed,
            _ => return Err(Errno::INVAL),
        };
        let mut options = options_of(flags).durability(durability).unsupported(unsupported).policy(policy);
        options = options.isolation(isolation);
        if ordered {
            let number = given.sequence;
            options = if resets { options.sequence_from(number) } else { options.sequence(number) };
        }
        match given.stall_ms {
            0 => {}
            NO_STALL => options = options.stall(Duration::ZERO),
            longest => options = options.stall(Duration::from_millis(longest.into())),
        }
        if !given.label.is_null() {
            let label = Text::of(given.label);
            options = options.label(String::from_utf8_lossy(label.bytes()?));
        }
        let retries = if given.retries == 0 { RETRIES } else { given.retries };
        Ok(Begin { options, again, part, ordered, retries })
    }
}
