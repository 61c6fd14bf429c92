//! Which of several transactions waits for which, and who holds the priority: pure functions, tested over all of
//! their inputs.
//!
//! Owns: the verdicts. Guarantees: of two that both ask for the priority the older gets it, so they do not wait
//! in a circle; a transaction whose end may take any time is waited for by none. Does not: look into the table
//! ([`super::priority`], [`super::slots`]), or wait (`recovery/wait.rs`, `commit/validate.rs`).

use super::slots::SlotState;
use crate::id::TxId;
use crate::mutant::{self, Mutant};
use crate::outcome::Waiting;

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

/// Bits of a rank below the nice value.
const AGE_BITS: u32 = 56;

/// The rank of a piece of work in contention: a lower nice value counts before a lower number of the first try. The
/// lower rank wins.
pub(crate) fn rank(nice: i8, first: TxId) -> TxId {
    let nice = if mutant::on(Mutant::NiceUnseen) { 0 } else { nice.clamp(-20, 19) };
    TxId(u64::from(nice.abs_diff(-20)) << AGE_BITS | first.0 & ((1 << AGE_BITS) - 1))
}

/// Returns true if a transaction of one rank waits, before it is numbered, for the holder of the priority that it
/// overlaps: also an older one, which has not lost as often, but not a nicer one's better.
pub(crate) fn waits_for_holder(holder: TxId, me: TxId) -> bool {
    holder != me && holder.0 >> AGE_BITS <= me.0 >> AGE_BITS
}

/// Returns true if a try that is to begin waits for the holder, which was given what this one asked for.
pub(crate) fn stalls(holder: TxId, me: TxId) -> bool {
    holder < me
}

/// Decides between the holder, if there is one, and a transaction that asks, by their ranks.
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
pub(crate) fn wait_for(entry: Entry, waiting: Waiting, owner: impl FnOnce() -> Owner) -> Wait {
    let (state, hold) = match entry {
        Entry::Apart => return Wait::No,
        Entry::InTheWay(state, hold) => (state, hold),
    };
    // The coordinator decides, not the owner.
    if state == SlotState::Prepared {
        return Wait::Stuck;
    }
    match (owner(), hold, waiting) {
        (Owner::Dead, _, _) => Wait::Help,
        (Owner::Alive, Hold::Left, _) => Wait::FinishLeft,
        (Owner::Alive, Hold::Working, Waiting::Never) if !mutant::on(Mutant::NeverWaits) => Wait::Stuck,
        (Owner::Alive, Hold::Working, _) => Wait::ForOwner,
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
    fn a_rank_goes_by_nice_value_then_by_age_and_the_better_one_waits_for_no_holder() {
        let all: Vec<(i8, TxId)> = (-20..20).flat_map(|nice| [(nice, TxId(3)), (nice, TxId(7))]).collect();
        for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other))) {
            let [a, b] = [one, other].map(|(nice, first)| rank(nice, first));
            assert_eq!(a.cmp(&b), one.cmp(&other), "{one:?} {other:?}");
            assert_ne!(a, TxId(0), "0 is none");
            let waits = waits_for_holder(a, b);
            assert_eq!(waits, one != other && one.0 <= other.0, "holds {one:?}, comes {other:?}");
            // Of two, each waits for the other only as long as one alone holds the priority.
            assert!(waits || waits_for_holder(b, a) || a == b);
        }
        // Beyond what nice(1) gives.
        assert_eq!((rank(-128, TxId(1)), rank(127, TxId(1))), (rank(-20, TxId(1)), rank(19, TxId(1))));
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
        let owners = [Owner::Alive, Owner::Dead];
        let both = |owner| [(owner, Waiting::Waits), (owner, Waiting::Never)];
        for (owner, waiting) in owners.into_iter().flat_map(both) {
            assert_eq!(wait_for(Entry::Apart, waiting, || owner), Wait::No);
            for (state, hold) in states.into_iter().flat_map(|s| [(s, Hold::Working), (s, Hold::Left)]) {
                let expected = match (state, hold, owner) {
                    (SlotState::Prepared, _, _) => Wait::Stuck,
                    (_, _, Owner::Dead) => Wait::Help,
                    (_, Hold::Left, Owner::Alive) => Wait::FinishLeft,
                    (_, Hold::Working, Owner::Alive) if waiting == Waiting::Never => Wait::Stuck,
                    (_, Hold::Working, Owner::Alive) => Wait::ForOwner,
                };
                let found = wait_for(Entry::InTheWay(state, hold), waiting, || owner);
                assert_eq!(found, expected, "{state:?} {hold:?} {owner:?} {waiting:?}");
            }
        }
    }

    #[test]
    fn whether_an_owner_lives_is_asked_only_where_it_decides() {
        let asked = |entry| {
            let mut asked = false;
            wait_for(entry, Waiting::Waits, || {
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
