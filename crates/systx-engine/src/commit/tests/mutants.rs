//! A rule is left out, and one of the checks must notice: each mutant with the test that fails under it.
//!
//! The check runs in a process of its own, this very test binary with `SYSTX_MUTANT` set: the other tests go on undisturbed.

use crate::mutant::Mutant;
use std::process::Command;

/// The check that fails when a rule is left out, below `commit::tests`.
fn check_of(mutant: Mutant) -> &'static str {
    match mutant {
        Mutant::NoV2 => "interleaving::interleaved_transactions_are_strictly_serializable_and_opaque",
        Mutant::NoV3 => "interleaving::interleaved_transactions_are_strictly_serializable_and_opaque",
        Mutant::NoV4 => "interleaving::no_durable_commit_survives_what_it_builds_on",
        Mutant::NoFinalLook => "outsider::nothing_of_an_outsider_is_lost",
        Mutant::NoV6 => "outsider::what_an_outsider_did_during_a_commit_survives_a_redo",
        Mutant::EarlyRelease => "interleaving::interleaved_transactions_are_strictly_serializable_and_opaque",
        Mutant::NoStageBarrier => "crash::a_power_loss_at_every_call_leaves_all_or_nothing_on_ext4",
        Mutant::HeaderNotSynced => "interleaving::no_commit_that_was_reported_is_lost_with_the_power",
        Mutant::NoExchangeBack => "outsider::what_comes_between_a_look_and_its_rename_is_given_back",
        Mutant::UnconditionalRedo => "outsider::what_an_outsider_did_after_a_commit_survives_a_redo",
        Mutant::AbortNotSynced => "outsider::an_abort_that_was_told_is_not_redone",
        Mutant::PublishBeforeSync => "crash::a_power_loss_at_every_call_leaves_all_or_nothing_on_ext4",
        Mutant::DropWithoutSyncfs => "checkpointing::what_a_checkpoint_covers_survives_a_power_loss",
        Mutant::CheckpointTooHigh => "checkpointing::a_checkpoint_during_a_commit_does_not_cover_it",
        Mutant::NoSlotWait => "interleaving::interleaved_transactions_are_strictly_serializable_and_opaque",
        Mutant::NoRefreshAfterLook => {
            "interleaving::interleaved_transactions_are_strictly_serializable_and_opaque"
        }
        Mutant::NoSeal => "crash::a_power_loss_at_every_call_leaves_all_or_nothing_without_barrier",
        Mutant::HelperPublishesValidated => "outsider::a_kill_before_the_commit_point_is_an_abort",
        Mutant::NextBeforeSlot => {
            "interleaving::interleaved_transactions_are_so_at_every_access_to_the_table"
        }
    }
}

fn is_noticed(mutant: Mutant) {
    let test = format!("commit::tests::{}", check_of(mutant));
    let exe = std::env::current_exe().expect("this test has a file");
    let run = Command::new(exe)
        .args(["--exact", "--test-threads=1", &test])
        .env("SYSTX_MUTANT", format!("{mutant:?}"))
        .env("RUST_BACKTRACE", "0")
        .env_remove("SYSTX_LONG")
        .output()
        .expect("starts");
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(told.contains("running 1 test"), "there is no test {test}");
    assert!(told.contains("0 passed; 1 failed"), "{mutant:?} survives {test}: {told}");
}

macro_rules! noticed {
    ($($name:ident: $mutant:ident,)*) => {
        $(#[test]
        fn $name() {
            is_noticed(Mutant::$mutant);
        })*
    };
}

noticed! {
    a_number_beside_an_overlapping_slot_is_noticed: NoV2,
    a_number_for_stale_reads_is_noticed: NoV3,
    a_commit_on_what_is_not_durable_is_noticed: NoV4,
    a_missing_final_look_is_noticed: NoFinalLook,
    a_missing_look_before_the_header_is_noticed: NoV6,
    a_slot_freed_too_early_is_noticed: EarlyRelease,
    a_missing_stage_barrier_is_noticed: NoStageBarrier,
    a_header_that_is_not_synced_is_noticed: HeaderNotSynced,
    an_exchange_that_is_not_taken_back_is_noticed: NoExchangeBack,
    a_redo_that_ignores_its_slot_is_noticed: UnconditionalRedo,
    an_abort_that_is_not_synced_is_noticed: AbortNotSynced,
    steps_before_the_sync_of_their_header_are_noticed: PublishBeforeSync,
    a_checkpoint_without_a_sync_is_noticed: DropWithoutSyncfs,
    a_checkpoint_over_what_is_in_flight_is_noticed: CheckpointTooHigh,
    a_look_that_waits_for_no_slot_is_noticed: NoSlotWait,
    a_look_without_a_refresh_is_noticed: NoRefreshAfterLook,
    staging_under_its_final_name_is_noticed: NoSeal,
    a_helper_that_publishes_too_early_is_noticed: HelperPublishesValidated,
    a_number_before_its_slot_is_noticed: NextBeforeSlot,
}
