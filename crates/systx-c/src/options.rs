//! The options of a transaction, as C gives them.

use crate::border::{Answer, In, Text};
use libc::{c_char, size_t};
use systx::posix::Errno;
use systx::{Durability, Options, Unsupported};

/// `struct systx_options`.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct systx_options {
    /// In bytes, as the program was compiled.
    pub size: size_t,
    /// SYSTX_DURABLE or SYSTX_NOT_DURABLE.
    pub durability: u32,
    /// SYSTX_UNSUPPORTED_ABORT or SYSTX_UNSUPPORTED_DENY.
    pub unsupported: u32,
    /// Null: the name of the program.
    pub label: *const c_char,
    /// Of `systx_atomically`: most tries after the first; 0: 100.
    pub retries: u32,
    /// Zero.
    pub reserved: u32,
}

/// Size of the structure in the first version.
const LEAST_BYTES: usize = 32;

/// The begin of a transaction.
pub struct Begin {
    pub options: Options,
    /// After a conflict it is begun again.
    pub again: bool,
    pub retries: u32,
}

/// SYSTX_AGAIN.
const AGAIN: u32 = 1;
/// As of `Options::new`.
const RETRIES: u32 = 100;

impl Begin {
    /// # Errors
    /// `EINVAL` for flags and values that are not known; those of [`In::sized`].
    pub fn new(flags: u32, options: &In<systx_options>) -> Answer<Begin> {
        if flags & !AGAIN != 0 {
            return Err(Errno::INVAL);
        }
        let again = flags & AGAIN != 0;
        if options.is_null() {
            return Ok(Begin { options: Options::new(), again, retries: RETRIES });
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
            _ => return Err(Errno::INVAL),
        };
        if given.reserved != 0 {
            return Err(Errno::INVAL);
        }
        let mut options = Options::new().durability(durability).unsupported(unsupported);
        if !given.label.is_null() {
            let label = Text::of(given.label);
            options = options.label(String::from_utf8_lossy(label.bytes()?));
        }
        let retries = if given.retries == 0 { RETRIES } else { given.retries };
        Ok(Begin { options, again, retries })
    }
}
