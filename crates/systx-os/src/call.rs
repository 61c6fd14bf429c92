//! Calls of a program into the library, each of one thread.
//!
//! Owns: the number of the call that a thread is in. Guarantees: no two calls have one number, but those that count as one;
//! behind a wait the number is another. Does not: know what is kept by it ([`crate::guest`]).

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of calls that a thread takes at once.
const CALLS_TAKEN: u64 = 1 << 20;

/// The first that no thread has taken.
static CALLS: AtomicU64 = AtomicU64::new(CALLS_TAKEN);

thread_local! {
    /// The call that this thread is in; 0: none.
    static CALL: Cell<u64> = const { Cell::new(0) };
    /// That call waits for the disk.
    static IS_LONG: Cell<bool> = const { Cell::new(false) };
    /// The last call that it was in.
    static LAST_CALL: Cell<u64> = const { Cell::new(0) };
}

/// A call of the program into the library, by this thread, until it is dropped.
#[derive(Debug)]
pub struct InCall {
    outer: u64,
    outer_is_long: bool,
    /// It belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Drop for InCall {
    fn drop(&mut self) {
        // A descriptor that was known before may be lost: there may have been a wait.
        CALL.set(if self.outer == 0 { 0 } else { next_call() });
        IS_LONG.set(self.outer_is_long);
    }
}

impl InCall {
    /// Begins one.
    pub(crate) fn begin() -> InCall {
        InCall::of(next_call())
    }

    /// Begins one that waits for the disk: what it opens is in its program's way for longer than a moment.
    pub(crate) fn begin_long() -> InCall {
        let call = InCall::begin();
        IS_LONG.set(true);
        call
    }

    fn of(number: u64) -> InCall {
        InCall { outer: CALL.replace(number), outer_is_long: IS_LONG.get(), _here: PhantomData }
    }

    /// Begins one more of those that count as one; `these` is 0 before the first.
    pub(crate) fn begin_of(these: &mut u64) -> InCall {
        if *these == 0 {
            *these = next_call();
        }
        InCall::of(*these)
    }
}

/// The call that this thread is in; 0: none.
pub(crate) fn present() -> u64 {
    CALL.get()
}

/// Returns true in a call that is over in a moment.
pub(crate) fn is_short() -> bool {
    present() != 0 && !IS_LONG.get()
}

fn next_call() -> u64 {
    let last = LAST_CALL.get();
    let next = match (last + 1) % CALLS_TAKEN {
        0 | 1 => CALLS.fetch_add(CALLS_TAKEN, Ordering::Relaxed) + 1,
        _ => last + 1,
    };
    LAST_CALL.set(next);
    next
}

/// Something of the process as of this call of its program, since its last wait.
pub(crate) struct AsOfCall<T>(Cell<Option<(u64, T)>>);

impl<T: Copy> AsOfCall<T> {
    pub const fn never_asked() -> AsOfCall<T> {
        AsOfCall(Cell::new(None))
    }

    pub fn get(&self, ask: impl FnOnce() -> T) -> T {
        let call = CALL.get();
        match self.0.get() {
            Some((asked, known)) if asked == call && call != 0 => known,
            _ => {
                let now = ask();
                self.0.set(Some((call, now)));
                now
            }
        }
    }
}

/// Says that this thread has waited: its program's other threads have gone on, so descriptors are looked at anew.
pub(crate) fn waited() {
    if CALL.get() != 0 {
        CALL.set(next_call());
    }
}
