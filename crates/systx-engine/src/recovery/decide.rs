//! The fate of a transaction whose owner is dead: a pure function, tested over all of its inputs.

use crate::domain::SlotState;
use crate::mutant::{self, Mutant};
use crate::outcome::Durability;

/// Fate of an in-flight slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// ABORT into the log, synced, before the entry is free: its facts died with the owner, and no caller got
    /// an outcome.
    Abort,
    /// Nothing is in the log: the slot is just freed.
    Drop,
    /// The steps that are left are taken.
    Publish,
    /// Its coordinator decides.
    Keep,
}

/// State of the coordinator's slot as a participant finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coordinator {
    /// The slot is the coordinator's own, or there is one domain only.
    Myself,
    /// In this state; FREE counts as aborted: a coordinator frees its slot last.
    In(SlotState),
    /// Its domain is not open in this process.
    Unknown,
}

/// Decides by the slot's state, the durability, and the coordinator's state.
pub(super) fn fate(state: SlotState, durability: Durability, coordinator: Coordinator) -> Fate {
    let undone = match durability {
        Durability::Durable => Fate::Abort,
        Durability::None => Fate::Drop,
    };
    match (state, coordinator) {
        (SlotState::Free, _) => Fate::Keep,
        // Past the commit point, whatever else is known: a participant is PUBLISHING only after its coordinator was.
        (SlotState::Publishing, _) => Fate::Publish,
        (SlotState::Prepared, _) => Fate::Keep,
        (SlotState::Validated, Coordinator::Myself) if mutant::on(Mutant::HelperPublishesValidated) => {
            Fate::Publish
        }
        (SlotState::Validated | SlotState::Aborting, Coordinator::Myself) => undone,
        (SlotState::Aborting, Coordinator::In(SlotState::Publishing) | Coordinator::Unknown)
            if mutant::on(Mutant::AbortingIsAborted) =>
        {
            undone
        }
        // One that was about to be taken back, too: the coordinator's file system may have lost its ABORT
        // with the power.
        (SlotState::Validated | SlotState::Aborting, Coordinator::In(SlotState::Publishing)) => Fate::Publish,
        (SlotState::Validated | SlotState::Aborting, Coordinator::In(SlotState::Prepared)) => Fate::Keep,
        // Its ABORT comes first: with a participant's alone a power loss would leave half of the transaction.
        (
            SlotState::Validated | SlotState::Aborting,
            Coordinator::In(SlotState::Validated | SlotState::Aborting),
        ) if !mutant::on(Mutant::ParticipantFirst) => Fate::Keep,
        (SlotState::Validated | SlotState::Aborting, Coordinator::In(_)) => undone,
        (SlotState::Validated | SlotState::Aborting, Coordinator::Unknown) => Fate::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [SlotState; 5] = [
        SlotState::Free,
        SlotState::Validated,
        SlotState::Publishing,
        SlotState::Aborting,
        SlotState::Prepared,
    ];

    fn all() -> impl Iterator<Item = (SlotState, Durability, Coordinator)> {
        let coordinators =
            STATES.into_iter().map(Coordinator::In).chain([Coordinator::Myself, Coordinator::Unknown]);
        coordinators.flat_map(|c| {
            STATES.into_iter().flat_map(move |s| [(s, Durability::None, c), (s, Durability::Durable, c)])
        })
    }

    #[test]
    fn nothing_is_published_before_some_slot_has_passed_the_commit_point() {
        for (state, durable, coordinator) in all() {
            let past =
                state == SlotState::Publishing || coordinator == Coordinator::In(SlotState::Publishing);
            if !past {
                assert_ne!(fate(state, durable, coordinator), Fate::Publish, "{state:?} {coordinator:?}");
            }
        }
    }

    #[test]
    fn nothing_past_the_commit_point_is_taken_back() {
        for (state, durable, coordinator) in all().filter(|(s, ..)| *s == SlotState::Publishing) {
            assert_eq!(fate(state, durable, coordinator), Fate::Publish);
        }
    }

    #[test]
    fn a_durable_transaction_is_never_dropped_without_a_mark() {
        for (state, durable, coordinator) in all().filter(|(_, durable, _)| *durable == Durability::Durable) {
            assert_ne!(fate(state, durable, coordinator), Fate::Drop);
        }
    }

    #[test]
    fn a_participant_is_not_taken_back_before_its_coordinator() {
        for (state, durable, coordinator) in all() {
            let open = [SlotState::Validated, SlotState::Aborting].map(Coordinator::In);
            if open.contains(&coordinator) {
                let fate = fate(state, durable, coordinator);
                assert!(![Fate::Abort, Fate::Drop].contains(&fate), "{state:?} {coordinator:?}");
            }
        }
    }

    #[test]
    fn a_participant_never_decides_while_its_coordinator_is_unknown() {
        for state in [SlotState::Validated, SlotState::Aborting] {
            for durability in [Durability::Durable, Durability::None] {
                assert_eq!(fate(state, durability, Coordinator::Unknown), Fate::Keep);
            }
        }
    }

    #[test]
    fn a_participant_follows_a_coordinator_whose_abort_is_lost() {
        for state in [SlotState::Validated, SlotState::Aborting] {
            assert_eq!(
                fate(state, Durability::Durable, Coordinator::In(SlotState::Publishing)),
                Fate::Publish
            );
        }
    }
}
