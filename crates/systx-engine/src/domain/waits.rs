//! Which of several transactions waits for which, and who holds the priority: pure functions, tested over all of
//! their inputs.
//!
//! Owns: the verdicts. Guarantees: of two that both ask for the priority the older gets it, so they do not wait
//! in a circle; a transaction whose end may take any time is waited for by none. Does not: look into the table
//! ([`super::priority`], [`super::slots`]), or wait (`recovery/wait.rs`, `commit/validate.rs`).

use super::slots::SlotState;
use crate::id::TxId;

// ---- the priority -----------------------------------------------------------------------------------------------------

/// The answer to a transaction that asks for the priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// An older one holds it.
    Refused,
    /// It holds it already, and keeps its deadline: one that it could move would keep all others out for ever.
    Kept,
    /// It gets it, from none or from a younger one.
    Given,
}

/// Decides between the holder, if there is one, and a transaction that asks, by the numbers of their first tries.
pub fn priority(holder: Option<TxId>, asks: TxId) -> Priority {
    match holder {
        Some(holder) if holder < asks => Priority::Refused,
        Some(holder) if holder == asks => Priority::Kept,
        _ => Priority::Given,
    }
}

/// True if what stands in the table is a priority that counts at `now_ns`, as long as its owner lives.
///
/// The clock of another time namespace may be days ahead: the priority never lasts longer than was asked for.
pub fn counts(age: TxId, deadline_ns: u64, length_ns: u64, now_ns: u64) -> bool {
    age.0 != 0 && now_ns < deadline_ns && deadline_ns - now_ns <= length_ns
}

/// How a try has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryEnd {
    /// It lost to another transaction.
    Lost,
    /// It was committed, given up, or in conflict with an outsider.
    Otherwise,
}

/// The future of the work of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    AnotherTry,
    Nothing,
}

/// Which try of its work a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    First,
    /// It has taken over an age, and with it perhaps the priority.
    Further,
}

/// An act about the priority, at the end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    Ask,
    Resign,
    Nothing,
}

/// Decides what a transaction does about the priority at its end: only one that goes on may hold it.
pub(crate) fn at_end(end: TryEnd, next: Next, which: Try) -> AtEnd {
    match (end, next, which) {
        (TryEnd::Lost, Next::AnotherTry, _) => AtEnd::Ask,
        (_, _, Try::Further) => AtEnd::Resign,
        (_, _, Try::First) => AtEnd::Nothing,
    }
}

// ---- an active entry ----------------------------------------------------------------------------------------------------

/// An active entry that a transaction has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It is not: its record is known to change nothing that the waiter is about.
    Apart,
    /// It may be in the way.
    InTheWay(SlotState, Hold),
}

/// The owner's work on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Working,
    /// It could not be finished: each transaction that meets it may try.
    Left,
}

/// The process that owns an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Alive,
    Dead,
}

/// The act of a transaction that has met an active entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It goes on.
    No,
    /// It waits: the owner works.
    ForOwner,
    /// It tries to finish what this process has left.
    FinishLeft,
    /// It finishes the entry in the place of its dead owner.
    Help,
    /// It conflicts: the end may take any time.
    Stuck,
}

/// Decides what a transaction does about an entry. Whether the owner lives is asked only where that decides.
pub(crate) fn wait_for(entry: Entry, owner: impl FnOnce() -> Owner) -> Wait {
    let (state, hold) = match entry {
        Entry::Apart => return Wait::No,
        Entry::InTheWay(state, hold) => (state, hold),
    };
    // The coordinator decides, not the owner.
    if state == SlotState::Prepared {
        return Wait::Stuck;
    }
    match (owner(), hold) {
        (Owner::Dead, _) => Wait::Help,
        (Owner::Alive, Hold::Left) => Wait::FinishLeft,
        (Owner::Alive, Hold::Working) => Wait::ForOwner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_goes_by_age_alone() {
        let (old, young) = (TxId(3), TxId(7));
        for (holder, asks, expected) in [
            (None, old, Priority::Given),
            (None, young, Priority::Given),
            (Some(old), young, Priority::Refused),
            (Some(young), old, Priority::Given),
            (Some(old), old, Priority::Kept),
        ] {
            assert_eq!(priority(holder, asks), expected, "{holder:?} holds it, {asks:?} asks");
        }
        // Of two that ask for each other's, one gets it.
        for (a, b) in [(old, young), (young, old)] {
            let given = [priority(Some(a), b), priority(Some(b), a)];
            assert_eq!(given.iter().filter(|p| **p == Priority::Refused).count(), 1);
        }
    }

    #[test]
    fn a_priority_counts_until_its_deadline_and_for_no_longer_than_was_asked_for() {
        for (age, deadline, length, now, expected) in [
            (0, 10, 10, 5, false),
            (1, 10, 10, 0, true),
            (1, 10, 10, 9, true),
            (1, 10, 10, 10, false),
            (1, 10, 10, 11, false),
            (1, 100, 10, 89, false),
            (1, 100, 10, 90, true),
        ] {
            assert_eq!(counts(TxId(age), deadline, length, now), expected, "{age} {deadline} {length} {now}");
        }
    }

    #[test]
    fn only_work_that_goes_on_holds_the_priority() {
        let (lost, otherwise) = (TryEnd::Lost, TryEnd::Otherwise);
        for (end, next, first, further) in [
            (lost, Next::AnotherTry, AtEnd::Ask, AtEnd::Ask),
            (lost, Next::Nothing, AtEnd::Nothing, AtEnd::Resign),
            (otherwise, Next::AnotherTry, AtEnd::Nothing, AtEnd::Resign),
            (otherwise, Next::Nothing, AtEnd::Nothing, AtEnd::Resign),
        ] {
            assert_eq!(at_end(end, next, Try::First), first, "{end:?} {next:?}");
            assert_eq!(at_end(end, next, Try::Further), further, "{end:?} {next:?}");
        }
    }

    #[test]
    fn a_transaction_waits_only_for_an_owner_that_works() {
        let states = [
            SlotState::Free,
            SlotState::Validated,
            SlotState::Publishing,
            SlotState::Aborting,
            SlotState::Prepared,
        ];
        for owner in [Owner::Alive, Owner::Dead] {
            assert_eq!(wait_for(Entry::Apart, || owner), Wait::No);
            for (state, hold) in states.into_iter().flat_map(|s| [(s, Hold::Working), (s, Hold::Left)]) {
                let expected = match (state, hold, owner) {
                    (SlotState::Prepared, _, _) => Wait::Stuck,
                    (_, _, Owner::Dead) => Wait::Help,
                    (_, Hold::Left, Owner::Alive) => Wait::FinishLeft,
                    (_, Hold::Working, Owner::Alive) => Wait::ForOwner,
                };
                assert_eq!(wait_for(Entry::InTheWay(state, hold), || owner), expected, "{state:?} {hold:?}");
            }
        }
    }

    #[test]
    fn whether_an_owner_lives_is_asked_only_where_it_decides() {
        let asked = |entry| {
            let mut asked = false;
            wait_for(entry, || {
                asked = true;
                Owner::Alive
            });
            asked
        };
        assert!(!asked(Entry::Apart));
        assert!(!asked(Entry::InTheWay(SlotState::Prepared, Hold::Left)));
        assert!(asked(Entry::InTheWay(SlotState::Publishing, Hold::Working)));
    }
}
