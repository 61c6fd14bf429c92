//! Two file systems: the rules hold in every order of mounting, and each of them is needed.

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
