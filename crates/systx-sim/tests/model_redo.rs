//! Transactions that build on each other over power losses: the rules hold, and each of them is needed.

use systx_sim::model::chain::{self, Chain, CHAINS};
use systx_sim::model::checker::{explore, Report};
use systx_sim::model::redo::*;
use systx_sim::model::{long, Mutant};

const STATES_MAX: usize = 20_000_000;

fn redo(second: Second, durable: [bool; 2]) -> Redo {
    let more = u8::from(long());
    Redo { second, durable, prepared_before: false, kills: 1 + more, losses: 2 + more, mutant: None }
}

const CHAINED: [Second; 3] = [Second::Reads, Second::Overwrites, Second::Restores];

fn clean(model: Redo) {
    let report = explore(&model, STATES_MAX);
    assert!(report.is_clean() && report.finals > 0, "{model:?}: {report}");
}

/// The mutant's report; the protocol itself is clean in the same configuration.
fn mutated(model: Redo, mutant: Mutant) -> Report {
    clean(model);
    explore(&Redo { mutant: Some(mutant), ..model }, STATES_MAX)
}

fn killed(model: Redo, mutant: Mutant, rule: &str) {
    let report = mutated(model, mutant);
    assert!(report.breaks(rule), "{mutant:?} survives: {report}");
}

#[test]
fn durable_chains_survive_as_a_prefix() {
    for second in CHAINED {
        clean(redo(second, [true, true]));
    }
}

#[test]
fn a_durable_commit_never_survives_a_none_commit_it_builds_on() {
    for second in CHAINED {
        clean(redo(second, [false, true]));
        clean(redo(second, [true, false]));
    }
}

#[test]
fn an_ordered_pair_survives_in_order() {
    clean(redo(Second::NextInOrder, [true, true]));
}

#[test]
fn a_hole_that_is_skipped_lets_a_later_commit_overtake() {
    killed(redo(Second::NextInOrder, [true, true]), Mutant::HoleSkipped, OUT_OF_ORDER);
}

#[test]
fn a_record_of_a_none_commit_is_redone_without_its_data() {
    killed(redo(Second::Reads, [false, true]), Mutant::NoneInLog, GARBAGE);
    killed(redo(Second::Reads, [false, true]), Mutant::NoneInLog, ABORTED_REDONE);
}

#[test]
fn without_v4_a_durable_commit_outlives_what_it_builds_on() {
    killed(redo(Second::Reads, [false, true]), Mutant::NoV4, BUILT_ON_LOST);
}

#[test]
fn a_segment_written_before_the_older_one_is_synced_is_lost_behind_a_hole() {
    killed(redo(Second::NextInOrder, [true, true]), Mutant::SegmentNotSynced, DURABLE_LOST);
}

#[test]
fn a_segment_dropped_before_an_older_one_redoes_the_older_one_alone() {
    let model = Redo { prepared_before: true, ..redo(Second::Restores, [true, true]) };
    killed(model, Mutant::SegmentDroppedEarly, NOT_SERIAL);
}

#[test]
fn a_header_before_its_slot_is_overtaken_after_a_kill() {
    killed(redo(Second::Overwrites, [true, true]), Mutant::HeaderBeforeSlot, NOT_SERIAL);
}

#[test]
fn without_a_sync_of_the_log_a_reported_commit_is_lost() {
    killed(redo(Second::Reads, [true, true]), Mutant::NoLogSync, DURABLE_LOST);
}

#[test]
fn a_checkpoint_of_few_records_that_does_not_write_their_bytes_loses_them() {
    killed(redo(Second::Overwrites, [true, true]), Mutant::CoveredNotWritten, NOT_SERIAL);
}

#[test]
fn chains_on_the_same_names_are_redone_to_the_serial_result() {
    for (name, ops) in CHAINS {
        for calls in [0, if long() { 3 } else { 2 }] {
            let model = Chain { ops, calls, losses: 2, mutant: None };
            let report = explore(&model, STATES_MAX);
            assert!(report.is_clean() && report.finals > 0, "{name}: {report}");
        }
    }
}

#[test]
fn without_a_token_a_redo_of_a_chain_undoes_an_outsiders_removal() {
    let (_, ops) = CHAINS[3];
    let report = explore(&Chain { ops, calls: 2, losses: 2, mutant: Some(Mutant::NoToken) }, STATES_MAX);
    assert!(report.breaks(chain::UNDONE), "{report}");
}
