//! State of a process that all of its threads share.
//!
//! Owns: [`World`]. Guarantees: a forked child finds none, and makes its own; no lock that a thread of the parent
//! held is waited for. A world is never freed: threads refer to it.

use crate::border::{nothing, Answer};
use crate::listing::Streams;
use crate::numbers::Numbers;
use crate::thread::Paused;
use std::io;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard};
use systx::posix::Errno;
use systx::Systx;

pub struct World {
    /// For the user who came first; this one also tells a fork.
    first: Systx,
    /// For users that threads have acted for since.
    others: Mutex<Vec<Systx>>,
    pub numbers: Numbers,
    pub streams: Streams,
    pub paused: Paused,
}

static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());

/// Locks what is consistent between any two statements.
pub fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The number of an error that is no transaction's own.
pub fn number_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl World {
    /// That of this process, if it has one.
    pub fn now() -> Option<&'static World> {
        let world = crate::border::leaked(&WORLD)?;
        (!world.first.is_forked()).then_some(world)
    }

    /// That of this process, which is made if need be.
    pub fn make() -> Answer<&'static World> {
        let before = WORLD.load(Ordering::Acquire);
        if let Some(world) = World::now() {
            return Ok(world);
        }
        let world = World {
            first: Systx::new().map_err(|error| number_of(&error))?,
            others: Mutex::default(),
            numbers: Numbers::new(nothing()?)?,
            streams: Streams::default(),
            paused: Paused::default(),
        };
        let made = Box::into_raw(Box::new(world));
        // If another thread was first, this one is left lying: freeing it is not worth unsafe code.
        let _ = WORLD.compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire);
        World::now().ok_or(Errno::IO)
    }

    /// Transactions for the user that the calling thread acts for.
    pub fn systx<T>(&self, begin: impl Fn(&Systx) -> io::Result<T>) -> io::Result<(Systx, T)> {
        let is_others = |error: &io::Error| matches!(systx::Error::of(error), Some(systx::Error::OtherUser));
        let others = held(&self.others).clone();
        for systx in std::iter::once(&self.first).chain(&others) {
            match begin(systx) {
                Err(error) if is_others(&error) => {}
                done => return done.map(|begun| (systx.clone(), begun)),
            }
        }
        let systx = Systx::new()?;
        held(&self.others).push(systx.clone());
        begin(&systx).map(|begun| (systx, begun))
    }

    /// Makes the checkpoints that are waited with.
    pub fn finish(&self) {
        self.first.finish();
        let others = held(&self.others).clone();
        others.iter().for_each(Systx::finish);
    }
}
