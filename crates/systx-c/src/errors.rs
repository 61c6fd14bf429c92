//! Errors of calls as numbers, and locks.

use std::io;
use std::sync::{Mutex, MutexGuard};
use systx::posix::Errno;
use systx::OrderError;

/// Locks what is consistent between any two statements.
pub fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The number of an error that is no transaction's own.
pub fn number_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The number of an error of a call. An error that is the transaction's own is `ECANCELED`: it can only end.
pub fn refusal(error: io::Error) -> Errno {
    match systx::Error::of(&error) {
        None => number_of(&error),
        Some(systx::Error::Ended) => Errno::BADF,
        Some(systx::Error::Paused) => Errno::BUSY,
        Some(systx::Error::NotPaused | systx::Error::NoParticipant) => Errno::PERM,
        Some(systx::Error::Order(OrderError::Full)) => Errno::AGAIN,
        Some(systx::Error::Order(OrderError::Used { .. } | OrderError::Taken { .. })) => Errno::EXIST,
        Some(systx::Error::Forked | systx::Error::OtherUser) => Errno::PERM,
        Some(systx::Error::WouldWait(_)) => Errno::AGAIN,
        Some(systx::Error::InDoubt(_)) => Errno::IO,
        Some(_) => Errno::CANCELED,
    }
}
