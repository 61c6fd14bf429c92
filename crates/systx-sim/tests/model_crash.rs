//! One transaction against an outsider, kills and power losses: the rules hold, and each of them is needed.

use systx_sim::model::checker::{explore, Report};
use systx_sim::model::crash::*;
use systx_sim::model::{long, Mutant};

const STATES_MAX: usize = 40_000_000;

fn base(kind: Kind) -> Crash {
    Crash {
        kinds: [kind, Kind::Place],
        storage: Storage::Prefix,
        kills: 1,
        losses: 2,
        calls: 2,
        restores: true,
        check_claim: true,
        mutant: None,
    }
}

fn larger(model: Crash) -> Crash {
    if long() {
        return Crash { kills: 2, losses: 2, calls: 3, ..model };
    }
    model
}

fn run(model: Crash) -> Report {
    let report = explore(&model, STATES_MAX);
    assert!(report.complete && report.finals > 0, "{model:?}: {report}");
    report
}

fn clean(model: Crash) {
    let report = run(model);
    assert!(report.is_clean(), "{model:?}: {report}");
}

/// Asserts that every violation is one of `allowed`, and that each of them occurs.
fn only(model: Crash, allowed: &[&str]) {
    let report = run(model);
    let found: Vec<&str> = report.violations.keys().copied().collect();
    assert_eq!(found, allowed, "{model:?}: {report}");
}

/// The mutant breaks `rule` in the same configuration in which the protocol breaks nothing.
fn killed(model: Crash, mutant: Mutant, rule: &str) {
    clean(model);
    let report = run(Crash { mutant: Some(mutant), ..model });
    assert!(report.breaks(rule), "{mutant:?} survives: {report}");
}

#[test]
fn names_are_all_or_nothing_and_conserve_what_an_outsider_did() {
    for kind in [Kind::Place, Kind::Remove, Kind::Move, Kind::Link] {
        clean(larger(base(kind)));
    }
}

#[test]
fn every_outcome_is_reached_by_every_kind() {
    let all = [ABORTED, COMMITTED, FORWARD_BY_HELPER, FORWARD_BY_RECOVERY, NOTHING_HAPPENED];
    for kind in [&Kind::NAMES[..], &[Kind::PatchLeased, Kind::Attr]].concat() {
        let report = run(base(kind));
        assert!(report.outcomes.iter().eq(all.iter()), "{kind:?}: {:?}", report.outcomes);
        println!("{kind:?}: {} states", report.states);
    }
}

#[test]
fn without_anything_staged_there_is_no_barrier_and_none_is_needed() {
    for kind in [Kind::Remove, Kind::Move, Kind::Link] {
        clean(larger(Crash { kinds: [kind, Kind::Remove], ..base(kind) }));
    }
}

#[test]
fn steps_may_be_written_back_in_any_order_behind_the_directory() {
    for kind in [Kind::Place, Kind::Remove, Kind::Move, Kind::Link] {
        clean(larger(Crash { storage: Storage::StepsInAnyOrder, ..base(kind) }));
        clean(Crash { storage: Storage::StepsInAnyOrder, kinds: [kind, Kind::Remove], ..base(kind) });
    }
}

#[test]
fn replace_leaves_only_residue_h_and_that_only_with_a_kill() {
    only(larger(base(Kind::Replace)), &[RESIDUE_H]);
    clean(Crash { kills: 0, losses: 0, calls: 3, ..base(Kind::Replace) });
}

#[test]
fn a_patch_under_a_lease_conserves_what_an_outsider_wrote() {
    clean(larger(Crash { restores: false, ..base(Kind::PatchLeased) }));
}

#[test]
fn the_exact_old_value_written_back_is_residue_c() {
    only(base(Kind::PatchLeased), &[LATER_UNDONE]);
}

#[test]
fn a_patch_without_a_lease_and_an_attribute_leave_only_residue_d() {
    for kind in [Kind::Patch, Kind::Attr] {
        only(Crash { restores: false, kills: 0, losses: 0, ..base(kind) }, &[LOST]);
        // No outsider acts in the two calls between compare and write: nothing is lost.
        clean(Crash { calls: 0, ..base(kind) });
    }
}

#[test]
fn without_a_journal_the_directory_proves_nothing() {
    for kind in [Kind::Remove, Kind::Move, Kind::Link] {
        let model =
            Crash { kinds: [kind, Kind::Remove], storage: Storage::AnySubset, calls: 0, ..base(kind) };
        let report = run(model);
        assert!(report.breaks(PROOF) && report.breaks(NOTHING), "{report}");
        let report = run(Crash { check_claim: false, ..model });
        assert!(report.breaks(STEP_MISSING), "{report}");
    }
}

#[test]
fn a_directory_built_in_place_takes_a_lost_token_for_an_applied_step() {
    let model = Crash { kinds: [Kind::Remove, Kind::Remove], calls: 0, ..base(Kind::Remove) };
    killed(model, Mutant::DirectoryBuiltInPlace, PROOF);
    killed(Crash { check_claim: false, ..model }, Mutant::DirectoryBuiltInPlace, STEP_MISSING);
}

#[test]
fn a_barrier_before_the_rename_leaves_staged_objects_without_their_directory() {
    let model = Crash { calls: 0, check_claim: false, ..base(Kind::Place) };
    killed(model, Mutant::BarrierBeforeRename, STEP_MISSING);
}

#[test]
fn a_directory_removed_at_done_makes_the_redo_repeat_a_removal() {
    let model = Crash { kinds: [Kind::Remove, Kind::Remove], check_claim: false, ..base(Kind::Remove) };
    killed(model, Mutant::DirectoryRemovedAtDone, LATER_UNDONE);
}

#[test]
fn without_v6_a_power_loss_sends_a_stale_commit_forward() {
    killed(base(Kind::Place), Mutant::NoV6, OVERTAKEN);
}

#[test]
fn publication_before_the_sync_acts_without_a_record() {
    killed(base(Kind::Place), Mutant::PublishBeforeSync, I4);
}

#[test]
fn without_an_abort_record_an_aborted_transaction_comes_back() {
    killed(base(Kind::Place), Mutant::NoAbortRecord, ABORTED_FORWARD);
}

#[test]
fn an_abort_reported_before_its_sync_comes_back() {
    killed(base(Kind::Place), Mutant::AbortNotSynced, ABORTED_FORWARD);
}

#[test]
fn without_the_exchange_back_a_foreign_object_is_lost() {
    let model = Crash { kills: 0, losses: 0, ..base(Kind::Replace) };
    killed(model, Mutant::NoExchangeBack, LOST);
}

#[test]
fn an_unconditional_redo_overwrites_what_an_outsider_did() {
    for kind in [Kind::Place, Kind::Remove, Kind::Move, Kind::Link, Kind::PatchLeased] {
        let report = run(Crash { mutant: Some(Mutant::UnconditionalRedo), restores: false, ..base(kind) });
        assert!(report.breaks("I6"), "{kind:?}: {report}");
    }
}

#[test]
fn a_displaced_object_left_in_its_slot_is_placed_by_a_later_redo() {
    killed(base(Kind::Place), Mutant::NoAside, LATER_UNDONE);
}

#[test]
fn without_a_token_a_redo_removes_what_an_outsider_restored() {
    killed(base(Kind::Remove), Mutant::NoToken, LATER_UNDONE);
}

#[test]
fn done_before_publication_leaves_half_a_commit_after_a_kill() {
    killed(base(Kind::Place), Mutant::DoneBeforePublish, STEP_MISSING);
}

#[test]
fn a_record_dropped_without_a_sync_loses_a_commit() {
    killed(base(Kind::Place), Mutant::RecordDroppedWithoutSync, STEP_MISSING);
}

#[test]
fn a_helper_that_publishes_a_validated_slot_acts_without_a_record() {
    killed(base(Kind::Place), Mutant::HelperPublishesValidated, I4);
}
