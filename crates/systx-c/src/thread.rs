//! The transaction that the calling thread is in.
//!
//! Owns: the stack of each thread. Guarantees: a forked child is in nothing.

use crate::border::{on_panic, Answer};
use crate::current::Current;
use crate::errors::held;
use crate::options::Begin;
use crate::outcome::{Code, Outcome};
use crate::running::{Again, End, Running};
use crate::structures::systx_token;
use crate::world::World;
use std::cell::RefCell;
use std::sync::Arc;
use systx::posix::{Errno, OpenPart};

#[derive(Default)]
struct Thread {
    /// Of this process; in a child it is another one.
    world: Option<&'static World>,
    current: Option<Current>,
    /// Those that wait below it.
    pushed: Vec<Current>,
    last: Option<Outcome>,
    /// For its next try.
    again: Option<Again>,
    /// The report that C was given on a transaction that goes on.
    shown: Option<Outcome>,
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.forget_parents();
    }
}

impl Thread {
    /// In a child: leaves everything to the parent, without touching it.
    fn forget_parents(&mut self) {
        let now = World::now();
        let is_ours = match (self.world, now) {
            (Some(ours), Some(now)) => std::ptr::eq(ours, now),
            (None, _) => true,
            (Some(_), None) => false,
        };
        if !is_ours {
            std::mem::forget((self.current.take(), std::mem::take(&mut self.pushed), self.again.take()));
        }
        self.world = now;
    }
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// # Errors
/// `EINVAL` in the last steps of a thread: it is in nothing any more.
fn with<T>(call: impl FnOnce(&mut Thread) -> Answer<T>) -> Answer<T> {
    let answer = THREAD.try_with(|thread| {
        let mut thread = thread.borrow_mut();
        thread.forget_parents();
        call(&mut thread)
    });
    answer.unwrap_or(Err(Errno::INVAL))
}

/// A bug of ours has panicked in a call of this thread.
pub fn broken() {
    let _ = with(|thread| {
        if let Some(current) = &thread.current {
            current.running.doom();
        }
        thread.shown = Some(Outcome::broken());
        Ok(())
    });
}

/// The transaction that the thread is in.
///
/// # Errors
/// `EINVAL`: it is in none.
pub fn current() -> Answer<Arc<Running>> {
    with(|thread| thread.current.as_ref().map(|current| current.running.clone()).ok_or(Errno::INVAL))
}

/// Returns how many begins wait for their ends.
pub fn depth() -> u32 {
    with(|thread| Ok(thread.current.as_ref().map_or(0, |current| current.depth))).unwrap_or(0)
}

/// Returns true if the thread's last transaction has met a conflict.
pub fn can_retry() -> bool {
    with(|thread| Ok(thread.last.as_ref().is_some_and(|last| last.code == Code::Conflict))).unwrap_or(false)
}

/// Begins a transaction, or joins the one that the thread is in.
pub fn begin(begin: &Begin) -> Answer<()> {
    let joined = with(|thread| match &mut thread.current {
        // A number is that of a whole.
        Some(_) if begin.ordered => Err(Errno::INVAL),
        Some(current) if current.running.is_lost() => Err(Errno::CANCELED),
        Some(current) => {
            current.depth = current.depth.checked_add(1).ok_or(Errno::AGAIN)?;
            Ok(Some(current.running.clone()))
        }
        None => Ok(None),
    })?;
    if let Some(running) = joined {
        return if begin.part { begin_part(&running) } else { Ok(()) };
    }
    let again = with(|thread| Ok(thread.again.take()))?;
    let world = World::make()?;
    on_panic(broken);
    let running = Running::begin(&world.users, begin, again)?;
    let current = Current { running, home: world, depth: 1, parts: Vec::new() };
    with(|thread| {
        thread.world = Some(world);
        (thread.current, thread.shown) = (Some(current), None);
        Ok(())
    })
}

fn begin_part(running: &Running) -> Answer<()> {
    let part = running.begin_part();
    with(|thread| {
        let current = thread.current.as_mut().ok_or(Errno::INVAL)?;
        match part {
            Ok(part) => current.parts.extend(part.map(|part| (current.depth, part))),
            Err(error) => {
                current.depth -= 1;
                return Err(error);
            }
        }
        Ok(())
    })
}

/// Ends the transaction that the thread is in, or takes back one begin.
///
/// # Errors
/// `EINVAL`: it is in none. `ECANCELED`: it has not committed. `EIO`: that is in doubt.
pub fn end(end: End) -> Answer<()> {
    let inner = with(|thread| {
        let current = thread.current.as_mut().ok_or(Errno::INVAL)?;
        if current.depth == 1 {
            return Ok(None);
        }
        let is_part = current.parts.last().is_some_and(|(depth, _)| *depth == current.depth);
        let part = if is_part { current.parts.pop() } else { None };
        current.depth -= 1;
        Ok(Some((current.running.clone(), part)))
    })?;
    if let Some((running, part)) = inner {
        return end_inner(&running, part.map(|(_, part)| part), end);
    }
    let current = with(|thread| thread.current.take().ok_or(Errno::INVAL))?;
    let world = World::now().ok_or(Errno::INVAL)?;
    let (outcome, again) = current.running.end(world, end);
    let code = outcome.code;
    ended(outcome, again)?;
    match (end, code) {
        (End::Abort, _) | (_, Code::Committed | Code::Displaced | Code::Pending) => Ok(()),
        (_, Code::InDoubt) => Err(Errno::IO),
        (_, Code::WouldWait) => Err(Errno::AGAIN),
        _ => Err(Errno::CANCELED),
    }
}

/// Remembers the end of the thread's transaction.
fn ended(outcome: Outcome, again: Option<Again>) -> Answer<()> {
    with(|thread| {
        (thread.last, thread.again, thread.shown) = (Some(outcome), again, None);
        Ok(())
    })
}

fn end_inner(running: &Running, part: Option<OpenPart>, end: End) -> Answer<()> {
    if running.is_lost() {
        return if end == End::Abort { Ok(()) } else { Err(Errno::CANCELED) };
    }
    match (part, end) {
        (Some(part), end) => running.end_part(part, end),
        (None, End::Abort) => {
            running.doom();
            Ok(())
        }
        (None, End::Commit) => Ok(()),
    }
}

/// Forgets what was done, sleeps until something that was read changes, and ends the transaction.
///
/// # Errors
/// `EINVAL`: the thread is in none, or in an inner begin.
pub fn retry() -> Answer<()> {
    let current = with(|thread| {
        let current = thread.current.take_if(|current| current.depth == 1);
        current.ok_or(Errno::INVAL)
    })?;
    let world = World::now().ok_or(Errno::INVAL)?;
    let waited = current.running.wait(world);
    let (again, answer) = match waited {
        Ok(again) => (again, Ok(())),
        Err(error) => (None, Err(error)),
    };
    ended(Outcome::aborted(), again)?;
    answer
}

/// Calls `show` with the report on the transaction that the thread is in, or else on its last.
///
/// # Errors
/// `EINVAL`: there was none.
pub fn outcome<T>(show: impl FnOnce(&Outcome) -> Answer<T>) -> Answer<T> {
    with(|thread| {
        let Some(current) = &thread.current else {
            return show(thread.last.as_ref().ok_or(Errno::INVAL)?);
        };
        let outcome = current.running.outcome();
        let known = thread.shown.take().filter(|shown| shown.code != Code::Running);
        show(thread.shown.insert(known.unwrap_or(outcome)))
    })
}

/// Takes the thread out of its transaction.
///
/// # Errors
/// `EINVAL`: it is in none. `ECANCELED`: it can't go on, and has ended.
pub fn pause() -> Answer<systx_token> {
    let (world, current) = with(|thread| {
        let world = thread.world.ok_or(Errno::INVAL)?;
        Ok((world, thread.current.take().ok_or(Errno::INVAL)?))
    })?;
    match current.running.pause() {
        Ok(bits) => {
            let token = systx_token { bytes: bits.to_ne_bytes() };
            held(&world.paused.0).insert(token, current);
            Ok(token)
        }
        Err(outcome) => {
            current.running.close(world);
            ended(outcome, None)?;
            Err(Errno::CANCELED)
        }
    }
}

/// Puts the thread into a transaction that it has taken part in.
///
/// # Errors
/// `EBUSY`: it is in one. `EPERM`: the token is none, or is used, or of a transaction of other threads.
pub fn resume(token: systx_token) -> Answer<()> {
    with(|thread| {
        if thread.current.is_some() {
            return Err(Errno::BUSY);
        }
        let world = World::now().ok_or(Errno::PERM)?;
        let mut paused = held(&world.paused.0);
        let known = paused.get(&token).ok_or(Errno::PERM)?;
        match known.running.resume(u128::from_ne_bytes(token.bytes)) {
            Ok(()) => thread.current = paused.remove(&token),
            Err(error) => {
                // It was aborted when the last of its threads had ended.
                if !matches!(error, systx::Error::NoParticipant) {
                    paused.remove(&token).into_iter().for_each(|gone| gone.running.close(world));
                }
                return Err(Errno::PERM);
            }
        }
        (thread.world, thread.shown) = (Some(world), None);
        Ok(())
    })
}

/// Sets aside the transaction that the thread is in.
pub fn push() -> Answer<()> {
    with(|thread| {
        let current = thread.current.take().ok_or(Errno::INVAL)?;
        thread.pushed.push(current);
        Ok(())
    })
}

/// Goes back to the transaction that was set aside last.
///
/// # Errors
/// `EBUSY`: the thread is in another. `EINVAL`: none was.
pub fn pop() -> Answer<()> {
    with(|thread| {
        if thread.current.is_some() {
            return Err(Errno::BUSY);
        }
        thread.current = Some(thread.pushed.pop().ok_or(Errno::INVAL)?);
        thread.shown = None;
        Ok(())
    })
}
