//! Two file systems: the rules hold in every order of mounting, and each of them is needed.

use systx_sim::model::away::{Away, HALF as HALF_AWAY, IN_DOUBT, LOST as NOT_DURABLE, UNDONE};
use systx_sim::model::checker::explore;
use systx_sim::model::participants::{Participants, HALF, LATER_LOST};
use systx_sim::model::{long, Mutant};

fn model(mutant: Option<Mutant>) -> Participants {
    let more = u8::from(long());
    Participants { kills: 1 + more, losses: 2 + more, mutant }
}

fn killed(mutant: Mutant, rule: &str) {
    let report = explore(&model(Some(mutant)), 20_000_000);
    assert!(report.breaks(rule), "{mutant:?} survives: {report}");
}

#[test]
fn a_transaction_over_two_file_systems_is_on_both_or_none() {
    let report = explore(&model(None), 20_000_000);
    assert!(report.is_clean() && report.finals > 0, "{report}");
}

#[test]
fn prepared_unsynced_before_the_header_leaves_half() {
    killed(Mutant::PreparedNotSynced, HALF);
}

#[test]
fn without_the_committed_mark_a_later_commit_is_lost_while_the_coordinator_is_away() {
    killed(Mutant::NoCommittedMark, LATER_LOST);
}

#[test]
fn a_helpers_abort_unsynced_before_the_slot_is_free_leaves_half() {
    killed(Mutant::HelperAbortNotSynced, HALF);
}

#[test]
fn a_coordinator_that_forgets_before_the_participant_is_synced_leaves_half() {
    killed(Mutant::NoCoordinatorSync, HALF);
}

#[test]
fn writing_to_what_is_in_doubt_leaves_half() {
    killed(Mutant::InDoubtNotBlocked, HALF);
}

fn away(mutant: Option<Mutant>) -> Away {
    let more = u8::from(long());
    Away {
        a_forgets: false,
        b_forgets: false,
        losses: 2,
        orderly: 1 + more,
        away: true,
        person: true,
        rolled_back: false,
        mutant,
    }
}

fn killed_away(model: Away, rules: &[&str]) {
    let report = explore(&model, 20_000_000);
    assert!(rules.iter().any(|rule| report.breaks(rule)), "{:?} survives: {report}", model.mutant);
}

#[test]
fn whoever_is_away_or_never_comes_back_is_neither_waited_for_nor_lost() {
    let all = away(None);
    for model in [
        all,
        Away { a_forgets: true, ..all },
        Away { b_forgets: true, ..all },
        Away { rolled_back: true, ..all },
        Away { losses: 1, orderly: 3, ..all },
    ] {
        let report = explore(&model, 20_000_000);
        assert!(report.is_clean() && report.finals > 0, "{model:?}: {report}");
    }
}

#[test]
fn a_tmpfs_that_decides_leaves_others_in_doubt_for_ever() {
    killed_away(Away { a_forgets: true, ..away(Some(Mutant::ForgetfulPromises)) }, &[IN_DOUBT, NOT_DURABLE]);
}

#[test]
fn a_participant_that_holds_the_log_makes_a_redo_undo_what_others_did() {
    killed_away(Away { losses: 1, orderly: 2, ..away(Some(Mutant::ParticipantHoldsLog)) }, &[UNDONE]);
}

#[test]
fn a_decision_that_is_kept_after_the_checkpoint_leaves_half() {
    killed_away(away(Some(Mutant::DecisionAfterCheckpoint)), &[HALF_AWAY, NOT_DURABLE]);
}

#[test]
fn a_decision_dropped_for_an_answer_that_is_not_synced_leaves_half() {
    killed_away(away(Some(Mutant::DecisionDroppedUnsynced)), &[HALF_AWAY, NOT_DURABLE]);
}

#[test]
fn a_decision_that_a_person_can_drop_leaves_half() {
    killed_away(away(Some(Mutant::DecisionGivenUp)), &[HALF_AWAY, NOT_DURABLE]);
}

#[test]
fn a_number_that_is_obeyed_whoever_has_it_leaves_half() {
    killed_away(Away { rolled_back: true, ..away(Some(Mutant::NumberIsIdentity)) }, &[HALF_AWAY]);
}
