//! State of a process that all of its threads share.
//!
//! Owns: [`World`]. Guarantees: a forked child finds none, and makes its own; no lock that a thread of the parent
//! held is waited for. A world is never freed: threads refer to it.

use crate::border::{nothing, Answer};
use crate::current::Paused;
use crate::errors::number_of;
use crate::numbers::Numbers;
use crate::running::{Home, Running};
use crate::streams::Streams;
use crate::users::Users;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;
use systx::posix::Errno;

pub struct World {
    pub users: Users,
    pub numbers: Numbers,
    pub streams: Streams,
    pub paused: Paused,
}

static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());

impl World {
    /// That of this process, if it has one.
    pub fn now() -> Option<&'static World> {
        let world = crate::border::leaked(&WORLD)?;
        (!world.users.is_forked()).then_some(world)
    }

    /// That of this process, which is made if need be.
    pub fn make() -> Answer<&'static World> {
        let before = WORLD.load(Ordering::Acquire);
        if let Some(world) = World::now() {
            return Ok(world);
        }
        let world = World {
            users: Users::new().map_err(|error| number_of(&error))?,
            numbers: Numbers::new(nothing()?)?,
            streams: Streams::default(),
            paused: Paused::default(),
        };
        let made = Box::into_raw(Box::new(world));
        // If another thread was first, this one is left lying: freeing it is not worth unsafe code.
        let _ = WORLD.compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire);
        World::now().ok_or(Errno::IO)
    }
}

impl Home for World {
    fn close_all_of(&self, running: &Arc<Running>) {
        self.numbers.close_all_of(running);
    }

    fn is_here(&self) -> bool {
        World::now().is_some_and(|now| std::ptr::eq(now, self))
    }
}
