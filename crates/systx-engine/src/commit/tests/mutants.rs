//! A rule is left out, and one of the checks must notice: each mutant with the test that fails under it.
//!
//! The check runs in a process of its own, this very test binary with `SYSTX_MUTANT` set: the other tests go
//! on undisturbed.

use crate::mutant::Mutant;
use std::process::Command;

/// How the absence of a rule is noticed.
struct Check {
    /// A rule that is left out with it: where it stands, nothing is lost, and only its absence shows the damage.
    with: Option<Mutant>,
    /// The test that fails: below `commit::tests`, or from `crate::` on.
    test: &'static str,
    /// The message of that failure: the damage, not a symptom of it. ` | ` stands between one and another.
    says: &'static str,
}

/// The history checker has found a cycle, a lost append, an impossible list.
const HISTORY: &str = "no strictly serial order";

/// Either that, or two that should have waited for one another, or half of one is shown: whichever the
/// schedules meet first.
const EITHER: &str =
    "no strictly serial order | overlap, and are in flight at one time | I9: shown at one time";

/// Commits that are watched at every call.
const EVERYTHING: &str = "invariants::they_hold_before_every_call_of_a_commit_of_every_kind_of_step";
const INLINE: &str = "invariants::they_hold_before_every_call_of_a_commit_without_slots";

const BY_RECORDS: &str =
    "interleaving::interleaved_transactions_are_so_when_who_waits_goes_by_records_instead_of_filters";

fn check_of(mutant: Mutant) -> Check {
    let check = |test, says| Check { with: None, test, says };
    match mutant {
        // R1 and V3 keep what it read true, F aborts it if that changes after all: see docs/testing.md.
        Mutant::NoV2 => check(
            "interleaving::interleaved_transactions_are_strictly_serializable_and_opaque",
            "overlap, and are in flight at one time",
        ),
        Mutant::PagesTooCoarse => {
            check("pages::who_writes_different_pages_of_a_file_does_not_conflict", "conflict on w/f")
        }
        Mutant::PagesTooFine => check(
            "interleaving::transactions_on_pages_of_a_file_are_strictly_serializable_and_opaque",
            EITHER,
        ),
        Mutant::PageHashNotKept => check(
            "pages::an_outsider_on_a_page_that_was_read_is_a_conflict_and_on_another_one_stays",
            "was read, and changed",
        ),
        Mutant::EndUnclaimed => check(
            "pages::who_knows_the_size_conflicts_with_a_growth_and_a_cut_and_with_no_overwrite",
            "asked, grows",
        ),
        Mutant::PagesSetSize => {
            check("pages::what_was_appended_meanwhile_stays_behind_an_overwrite", "cut off, or left out")
        }
        Mutant::AppendsUnclaimed => check(
            "interleaving::transactions_that_append_unseen_are_strictly_serializable_and_opaque",
            EITHER,
        ),
        Mutant::EndsFoundOnce => check("appends::an_append_beside_any_call_of_another_one_loses_neither", "contents changed"),
        Mutant::EndsNotLookedAt => check(
            "appends::an_outsider_that_appends_beside_any_call_of_an_append_loses_nothing_and_nothing_of_ours_is_lost",
            "half",
        ),
        Mutant::MovedNotSynced => check(
            "appends::an_outsider_that_appends_beside_any_call_of_an_append_loses_nothing_and_nothing_of_ours_is_lost",
            "ours is lost",
        ),
        Mutant::MovedForgotten => check(
            "appends::an_append_that_came_behind_zeros_of_an_outsider_is_there_once_after_a_power_loss",
            "is there 2 times",
        ),
        Mutant::AppendedTwice => check(
            "appends::an_outsider_that_appends_beside_any_call_of_an_append_loses_nothing_and_nothing_of_ours_is_lost",
            "twice",
        ),
        Mutant::ChainsOfFiles => check(
            "pages::a_page_is_redone_though_an_outsider_came_between_records_of_another_one",
            "a page that was committed is lost",
        ),
        // F compares everything that was read.
        Mutant::NoV3 => Check {
            with: Some(Mutant::NoFinalLook),
            ..check("interleaving::interleaved_transactions_are_so_with_and_without_durability", HISTORY)
        },
        Mutant::NoV4 => check("interleaving::no_durable_commit_survives_what_it_builds_on", "lost ["),
        Mutant::NoFinalLook => {
            check("outsider::nothing_of_an_outsider_is_lost", "changed before the final look, and displaced")
        }
        Mutant::NoV6 => check(
            "outsider::what_an_outsider_did_during_a_commit_survives_a_redo",
            "changed before V6, and displaced by a recovery",
        ),
        Mutant::EarlyRelease => check(
            "interleaving::interleaved_transactions_are_so_with_and_without_durability",
            "I9: shown at one time, and true at no one number | no strictly serial order",
        ),
        // The base of the commit is synced with what is staged (C10), and on ext4 the one carries the other.
        Mutant::NoStageBarrier => Check {
            with: Some(Mutant::BaseNotSynced),
            ..check("crash::a_power_loss_at_every_call_leaves_all_or_nothing_on_ext4", "a mixture")
        },
        Mutant::HeaderNotSynced => {
            check("interleaving::no_commit_that_was_reported_is_lost_with_the_power", "lost append")
        }
        Mutant::NoExchangeBack => {
            check("outsider::what_comes_between_a_look_and_its_rename_is_given_back", "committed, and")
        }
        Mutant::UnconditionalRedo => check(
            "outsider::what_an_outsider_did_after_a_commit_survives_a_redo",
            "CreateExclusive of removed",
        ),
        Mutant::AbortNotSynced => {
            check("outsider::an_abort_that_was_told_is_not_redone", "aborted, before call")
        }
        Mutant::PublishBeforeSync => {
            check("crash::a_power_loss_at_every_call_leaves_all_or_nothing_on_ext4", "a mixture")
        }
        Mutant::DropWithoutSyncfs => {
            check("checkpointing::what_a_checkpoint_covers_survives_a_power_loss", "left == right")
        }
        Mutant::CheckpointTooHigh => {
            check("checkpointing::a_checkpoint_during_a_commit_does_not_cover_it", "a mixture")
        }
        Mutant::NoSlotWait => {
            check("interleaving::interleaved_transactions_are_so_with_and_without_durability", EITHER)
        }
        Mutant::ActiveUnasked => {
            check("interleaving::interleaved_transactions_are_so_with_and_without_durability", EITHER)
        }
        Mutant::NoRefreshAfterLook => {
            check("interleaving::interleaved_transactions_are_strictly_serializable_and_opaque", HISTORY)
        }
        Mutant::NoSeal => {
            check("crash::a_power_loss_at_every_call_leaves_all_or_nothing_without_barrier", "a mixture")
        }
        Mutant::SealNotNoted => check(
            "crash::a_recovery_beside_any_call_of_a_commit_takes_nothing_from_it",
            "what a live commit had staged was taken from it",
        ),
        Mutant::AgeNotKept => check(
            "contention::who_is_slow_and_tried_again_is_overtaken_once",
            "loses again although it has priority",
        ),
        Mutant::NiceUnseen => check(
            "contention::a_holder_that_is_nicer_holds_up_nicer_ones_alone",
            "waits for 5",
        ),
        Mutant::ResignUnheard => {
            check("contention::who_stalls_is_woken_when_the_better_one_has_its_number", "ns late")
        }
        Mutant::SleepersHold => check(
            "contention::who_sleeps_for_something_else_holds_nobody_up_and_keeps_its_age",
            "a sleeper holds others up",
        ),
        Mutant::NeverWaits => check(
            "apart::who_never_waits_ends_at_once_beside_a_commit_that_stands_still",
            "it did not end",
        ),
        Mutant::CountedEarly => {
            check("contention::a_commit_point_is_told_of_when_it_is_passed_and_once", "told of too early")
        }
        Mutant::HelperPublishesValidated => {
            check("outsider::a_kill_before_the_commit_point_is_an_abort", "killed before call")
        }
        Mutant::NextBeforeSlot => check(
            "apart::who_looks_twice_beside_a_commit_that_stands_still_anywhere_sees_it_whole",
            "half of it is shown",
        ),
        Mutant::LateHeader => check(INLINE, "I3: the slot of"),
        Mutant::PreparedNotSynced => check(
            "invariants::they_hold_before_every_call_of_a_commit_over_two_file_systems",
            "I4: 1 is decided on",
        ),
        // Both look at what the other process has finished, before any redo; which comes at the REPLACE goes
        // by the number of calls.
        Mutant::ReplaceAgain => check(
            EVERYTHING,
            "I5: Kill: what another process finished | I5: KillAndRedo: what another process finished",
        ),
        Mutant::HelperKeepsSlot => check(INLINE, "I11: Kill: in flight after a recovery"),
        Mutant::LogGoesOn => check(
            "invariants::what_survives_of_records_that_were_not_synced_is_a_prefix_of_them",
            "which is before it in the log, is not",
        ),
        Mutant::ParticipantFirst => check(
            "invariants::they_hold_before_every_call_of_whoever_finishes_for_the_dead_on_two_file_systems",
            ": a mixture: ",
        ),
        Mutant::RealHitPassed => check(BY_RECORDS, EITHER),
        Mutant::RecordOfAnother => check(BY_RECORDS, EITHER),
        Mutant::BodyLeft => check(
            "checkpointing::a_record_that_has_no_number_yet_is_found_though_the_log_has_left_it",
            "half of it is published, and nobody can go on",
        ),
        Mutant::SkippedNotTold => check(
            "log_end::what_stands_behind_a_damaged_cell_is_told",
            "two durable commits are left out without a word",
        ),
        Mutant::UnknownIsAnEnd => check(
            "log_end::a_cell_of_an_unknown_kind_is_refused_before_anything_is_redone",
            "durable commits are dropped silently",
        ),
        Mutant::RedoBeforeUnderstood => check(
            "log_end::a_record_of_an_unknown_version_is_refused_before_anything_is_redone",
            "each opening redoes the first half",
        ),
        Mutant::TableOutlivesMount => check(
            "life::what_was_committed_survives_each_loss_of_the_cache_within_one_boot",
            "committed, and lost with the cache",
        ),
        Mutant::LogOverwritten => {
            check("life::an_older_table_beside_the_log_is_not_gone_on_with", "overwritten in the log")
        }
        Mutant::FullForgets => check(
            "redone::a_redo_that_finds_no_room_for_a_new_log_is_not_repeated_over_what_others_do_meanwhile",
            "put back, and redone once more",
        ),
        Mutant::StaleFirst => check(
            "life::of_two_that_find_an_older_table_none_goes_on_with_it",
            "one goes on with an older table",
        ),
        Mutant::NextNotRaised => check(
            "life::the_number_of_a_dead_owners_slot_is_given_to_nobody_else",
            "a commit has inherited an ABORT",
        ),
        Mutant::AnyCheckpointCovers => check(
            "covering::of_many_who_want_a_checkpoint_each_gets_one_that_covers_it",
            "it is done again after an orderly reboot",
        ),
        Mutant::BoundWithoutLock => check(
            "covering::a_checkpoint_beside_a_commit_does_not_take_its_number_for_free",
            "reported, and lost with the power",
        ),
        Mutant::KindsMixed => check(
            "identity::an_area_stays_the_same_whatever_a_kernel_tells_of_its_file_system",
            "the same area is taken for a copy",
        ),
        Mutant::CopyGoesOn => {
            check("identity::what_a_copied_area_has_to_redo_is_not_redone_in_the_copy", "redone in a copy")
        }
        Mutant::SignsNotNeeded => {
            check("identity::a_log_that_an_archive_has_brought_is_not_redone", "redone from an archive")
        }
        Mutant::LocksOfAnybody => {
            check("identity::a_lock_on_a_file_that_an_archive_has_linked_proves_nothing", "redone from an archive")
        }
        Mutant::FormatOfAnybody => check(
            "identity::a_format_that_an_archive_has_brought_into_an_area_is_not_believed",
            "redone from an archive",
        ),
        Mutant::OldIdentityCounts => check(
            "identity::nothing_is_redone_under_an_identity_that_an_area_had_before",
            "redone from an archive",
        ),
        Mutant::MadeAtAnyTime => {
            check("identity::a_log_that_an_archive_has_brought_is_not_redone", "redone from an archive")
        }
        Mutant::AllocatedByAnybody => check(
            "identity::an_archive_that_guesses_the_instant_of_its_unpacking_is_not_redone",
            "redone from an archive",
        ),
        Mutant::FormatOfOthers => {
            check("identity::a_format_that_another_user_can_write_is_not_believed", "redone from an archive")
        }
        Mutant::HandlesLeadOut => {
            check("forged::a_log_in_a_part_of_a_file_system_reaches_nothing_outside_of_it", "reached outside")
        }
        Mutant::AreaByItsName => check(
            "forged::a_directory_that_is_called_as_areas_are_is_a_directory_like_others",
            "an area because of its name",
        ),
        Mutant::OwnAreaSetAside => check(
            "forged::what_a_user_leaves_in_an_area_is_an_ordinary_directory_in_the_end",
            "root's own is left out, too",
        ),
        Mutant::ReplayWithoutTable => check(
            "forged::the_log_of_a_subtransaction_is_never_replayed_without_its_table",
            "replayed without its table",
        ),
        Mutant::SyncCountsLate => check(
            "group::a_commit_that_the_sync_of_another_acknowledges_is_on_the_disk",
            "acknowledged, and lost",
        ),
        Mutant::RemovalNotSynced => check(
            "checkpointing::segments_that_go_leave_no_hole_wherever_a_checkpoint_loses_power",
            "the log has a hole",
        ),
        Mutant::RebuiltNotSynced => check(
            "crash::slots_that_a_recovery_makes_again_survive_the_next_power_loss",
            "a durable commit is lost",
        ),
        Mutant::XattrsNotCompared => check(
            "repeatable::extended_attributes_that_were_read_are_compared",
            "was read and changed by an outsider, and committed",
        ),
        Mutant::ListingStampLate => check(
            "repeatable::a_name_that_is_made_during_a_listing_is_in_it_or_a_conflict",
            "is not in it, and that is committed",
        ),
        Mutant::TypesNotCompared => check(
            "repeatable::types_that_a_listing_has_shown_are_compared",
            "a type was listed and changed by an outsider, and committed",
        ),
        Mutant::KnownByName => check(
            "repeatable::a_name_that_was_looked_at_before_has_the_object_that_it_has_now",
            "the object before",
        ),
        Mutant::PagesUnasked => check(
            "repeatable::two_reads_of_a_file_show_no_commit_between_them",
            "bytes from before and from behind a commit",
        ),
        Mutant::NumbersUnasked => check(
            "repeatable::a_look_at_a_path_during_which_something_commits_does_not_count",
            "half of a commit may be shown",
        ),
        Mutant::TypesNotAnnounced => check(
            "repeatable::a_listing_is_not_shown_beside_what_a_later_commit_made_of_its_types",
            "two commits are shown at one time",
        ),
        Mutant::OldEndsForgotten => check(
            "base::an_appended_tail_is_redone_where_a_later_commit_has_patched_its_sector",
            "reported durable, and lost",
        ),
        Mutant::AbortingIsAborted => check(
            "away::an_abort_that_the_one_that_decides_has_lost_is_none_for_the_others",
            "half of it is there",
        ),
        Mutant::AnyEndIsOurs => check(
            "cut::what_is_left_of_a_file_that_had_grown_is_not_let_grow_again_by_a_redo",
            "cut by an outsider, and undone",
        ),
        Mutant::EndsNotCompared => check(
            "cut::what_is_written_to_a_file_that_was_cut_or_had_grown_stays_although_it_is_as_much_as_before",
            "written by an outsider, and cut off or let grow",
        ),
        Mutant::LinksLate => check(
            "repeatable::what_was_removed_is_no_link_when_its_commit_is_done",
            "the count is not that of the names",
        ),
        Mutant::LinksNotSynced => check(
            "by_path::a_redo_finds_what_later_commits_have_renamed_or_removed",
            "reported durable, and lost",
        ),
        // Before the commit has returned nothing was told yet, and what is told then is untrue.
        Mutant::OneWay | Mutant::TokensOfFiles => check(
            "by_path::a_redo_finds_what_later_commits_have_renamed_or_removed",
            "displaced without an outsider | reported durable, and lost",
        ),
        Mutant::ExchangeBackOnce => check(
            "outsider::kept::of_two_files_that_come_to_a_name_within_its_exchange_the_later_one_stays",
            "an older file of his is at the name",
        ),
        Mutant::DisplacedNotNoted => check(
            "outsider::kept::what_is_displaced_is_noted_wherever_the_publisher_is_killed",
            "something is aside, and nothing says why",
        ),
        Mutant::TakenNotCompared => check(
            "outsider::kept::bytes_that_come_between_the_final_look_and_a_removal_are_kept",
            "an acknowledged write is lost",
        ),
        Mutant::PromiseNotTakenBack => check(
            "covering::who_commits_behind_a_checkpoint_that_was_made_sooner_gets_another_one",
            "it relies on one that was made before it",
        ),
        Mutant::PromisesOfTheDead => check(
            "covering::nobody_relies_on_a_promise_of_one_who_was_killed",
            "it relies on one who was killed",
        ),
        Mutant::WatchersUnseen => check(
            "covering::beside_one_who_watches_nothing_is_done_again_in_another_life",
            "is done again while somebody watches",
        ),
        Mutant::TimesGivenBlindly => check(
            "times::a_directory_has_the_time_that_was_seen_unless_somebody_else_changes_it",
            "names of an outsider the time hides",
        ),
        Mutant::PowerByName => check(
            "outsider::power::power_is_given_to_the_bytes_that_were_validated",
            "his bytes have got power",
        ),
        Mutant::BaseNotSynced => {
            check("base::a_durable_commit_stands_on_what_nobody_has_synced", "reported durable, and lost")
        }
        Mutant::KnownForEver => check(
            "base::what_comes_between_two_commits_is_not_taken_for_the_first_ones",
            "reported durable, and lost",
        ),
        Mutant::NoChains => check(
            "base::a_redo_leaves_out_what_somebody_has_put_back_before_a_later_commit",
            "undone by the redo of an earlier one",
        ),
        Mutant::ShortChains => check(
            "base::a_redo_leaves_out_all_that_came_before_somebody_else",
            "undone by the redo of the first one",
        ),
        Mutant::NumberIsIdentity => check(
            "away::a_disk_that_was_rolled_back_decides_on_nothing_that_it_does_not_know",
            "half of it is there",
        ),
        Mutant::ForgetfulPromises => {
            check("away::what_never_comes_back_neither_decides_nor_is_waited_for", "in doubt, or lost")
        }
        Mutant::DecisionLate => check(
            "away::a_checkpoint_cut_anywhere_leaves_the_decision_for_who_returns",
            "half of it is there",
        ),
        Mutant::DecisionEarly => {
            check("away::a_decision_goes_when_the_answer_is_on_the_disk", "half of it is there")
        }
        Mutant::TwinsWelcome => check(
            "away::of_two_areas_of_one_identity_the_second_is_refused_and_neither_decides",
            "both are used",
        ),
        Mutant::MarkIgnored => check(
            "put_back::what_an_outsider_has_put_back_and_synced_is_never_set_again",
            "put back, synced, and undone by a redo",
        ),
        Mutant::MarkEarly => check(
            "put_back::what_nobody_has_put_back_is_set_again_after_a_power_loss_at_any_call",
            "lost, or half of it is there",
        ),
        Mutant::PowerUnleased => check(
            "outsider::power::power_is_given_to_the_bytes_that_were_validated",
            "his bytes have got power",
        ),
        Mutant::NothingOfAMode => check(
            "outsider::power::what_follows_power_that_a_redo_does_not_give_is_set",
            "committed later, and lost",
        ),
        Mutant::DyingIsDoubt => {
            check("away::a_coordinator_that_is_not_dead_yet_is_no_doubt", "it is no doubt")
        }
        Mutant::ClockTrusted => {
            check("base::a_clock_that_was_set_back_and_forth_hides_nothing", "reported durable, and lost")
        }
        Mutant::LiftedDeleted => {
            check("stuck::what_a_commit_without_durability_was_moving_is_not_deleted", "is nowhere")
        }
        Mutant::MovingNotNoted => {
            check("stuck::what_a_commit_without_durability_was_moving_is_not_deleted", "is nowhere")
        }
        Mutant::WrittenOutUnseen => check(
            "redone::a_small_new_file_that_was_synced_before_it_was_written_on_survives",
            "cut false, synced true",
        ),
        Mutant::CutUnknown => check(
            "redone::a_small_new_file_that_was_synced_before_it_was_written_on_survives",
            "cut true, synced false",
        ),
        Mutant::RightsNotGivenBack => {
            check("crate::publish::place::tests::what_writing_contents_again_takes_away_is_given_back", "killed at")
        }
        Mutant::LackingContentsDropped => {
            check("redone::contents_of_small_files_that_others_change_since_are_not_lost", ": lost")
        }
        Mutant::RefusedContentsDropped => {
            check("redone::contents_of_a_small_file_that_has_become_immutable_are_kept", "left: None")
        }
        Mutant::CutOverRecord => check(
            "resized::a_file_that_is_cut_within_a_sector_of_a_record_before_has_the_last_contents",
            "lost, ",
        ),
        Mutant::CutByOthersUnsaid => check(
            "resized::of_a_file_that_an_outsider_cuts_since_nothing_is_lost_unsaid",
            "lost unsaid",
        ),
        Mutant::SectorsJudgedInPart => check(
            "resized::what_a_commit_puts_back_in_a_sector_that_it_lets_grow_stays_after_a_redo",
            "mixed, ",
        ),
        Mutant::PowerOverRecord => check(
            "put_back::power_over_bytes_that_an_outsider_has_put_back_is_not_taken_by_the_redo_of_a_record_before",
            "PowerNotGiven",
        ),
        Mutant::GrowthOverCut => check(
            "resized::a_file_that_commits_made_longer_and_shorter_has_the_last_contents_after_a_power_loss",
            "mixed, ",
        ),
        Mutant::RestoringNotNoted => check(
            "crate::publish::place::tests::a_power_loss_at_any_call_of_filling_a_file_again_is_followed_by_another_try",
            "at call",
        ),
        Mutant::SyncsRepeated => check(
            "checkpointing::what_a_failed_sync_of_a_checkpoint_has_not_written_is_redone",
            "lost, and reported durable",
        ),
        Mutant::OneErrorLoses => check(
            "checkpointing::what_a_failed_sync_of_a_checkpoint_has_not_written_is_redone",
            "lost, and reported durable",
        ),
        Mutant::LostUnasked => check(
            "appends::an_append_whose_sync_fails_behind_an_outsiders_is_there_after_the_next_mount",
            "ours is lost",
        ),
        Mutant::EmptyIsTaken => check(
            "removed::what_is_removed_before_it_is_published_is_told",
            "without a word",
        ),
        Mutant::ReadsApart => check(
            "pages::what_is_replaced_is_what_was_read_however_often_it_changes",
            "replaces another value than it read",
        ),
        Mutant::GivenForGood => check(
            "outsider::power::who_waits_for_the_lease_of_a_dead_process_gets_no_file_with_power",
            "open for writing, with power",
        ),
        Mutant::RemovedUnseen => check(
            "removed::an_area_that_is_removed_under_a_transaction_takes_no_commit",
            "commits",
        ),
        Mutant::LeaseOutlived => check(
            "late::who_gets_a_file_open_while_the_publisher_stands_still_loses_nothing_without_a_word",
            "theirs is lost without a word",
        ),
        Mutant::WaitingUnseen => check(
            "outsider::power::who_waits_for_the_lease_gets_no_file_with_power",
            "open for writing, with power",
        ),
        Mutant::SameIsOurs => check(
            "late::an_append_of_the_same_bytes_in_the_same_moment_does_not_stand_for_ours",
            "ours is lost without a word",
        ),
        Mutant::CircleWaits => check(
            "late::a_directory_that_is_moved_into_what_moves_into_it_does_not_wait_for_ever",
            "it waits for ever",
        ),
        Mutant::PlacesOfTheDead => {
            check("late::a_name_that_comes_into_a_removed_tree_is_kept", "his name is lost")
        }
        Mutant::CheckpointsSilent => check(
            "late::what_a_checkpoint_finds_in_a_removed_tree_is_told_by_the_commit",
            "kept without a word",
        ),
        Mutant::RecoverySyncsAgain => check(
            "checkpointing::what_a_failed_sync_of_a_recovery_has_not_written_is_redone",
            "lost, and reported durable",
        ),
        Mutant::WordsOfOthers => check(
            "words::what_others_store_beside_an_exchange_and_what_it_exchanges_both_stay",
            "lost, and reported durable",
        ),
        Mutant::UnloggedForgotten => check(
            "stuck::what_publishes_without_a_record_is_finished_beside_a_closed_log",
            "half of it",
        ),
        Mutant::WordsNotNoted => check("words::a_kill_between_two_words_leaves_all_or_nothing", ": torn"),
        Mutant::TimesOfRedoUnknown => check(
            "appends::what_a_redo_writes_to_a_file_that_is_taken_away_behind_is_no_outsiders_change",
            "no other process was there",
        ),
        Mutant::LimitsAlike => {
            check("stuck::what_a_recovery_with_fewer_rights_is_refused_waits_for_one_with_all", "kept for ever")
        }
        Mutant::RightsOfAnyOwner => check(
            "crate::publish::place::tests::rights_that_were_another_owners_are_not_given_back",
            "set-id bits of another",
        ),
        Mutant::RightsUnasked => {
            check("stuck::what_a_recovery_with_fewer_rights_is_refused_waits_for_one_with_all", "lost, ")
        }
        Mutant::RecordsOverwritten => check(
            "redone::what_a_commit_without_a_record_has_put_back_stays_after_a_power_loss",
            "undone in part",
        ),
        Mutant::MovedOverRecord => check(
            "by_path::a_redo_loses_nothing_that_commits_without_a_record_have_renamed_since",
            "displaced without an outsider",
        ),
        Mutant::SharedNotLookedAt => check(
            "native::verbs_find_what_processes_make_move_and_take_by_themselves",
            "not found, although it is there",
        ),
        Mutant::CommittedShared => check(
            "native::no_object_of_the_committed_tree_comes_into_a_shared_directory",
            "one who sees it only by verbs",
        ),
        Mutant::UnreadNotSynced => check(
            "native::what_processes_make_by_themselves_is_there_with_the_commit_or_not_at_all",
            "contents lost",
        ),
        Mutant::WayForgotten => {
            check("review::who_may_not_go_there_any_more_is_told_at_the_next_look", "may not go there any more")
        }
        Mutant::LockedIsGone => {
            check("stuck::names_in_a_directory_without_its_key_wait_for_it", "not finished without the key")
        }
        Mutant::WritesAtOnce => {
            check("base::a_write_that_is_under_way_at_a_sync_is_synced_again", "reported durable, and lost")
        }
        Mutant::WritesOnUnseen => {
            check("base::a_write_that_is_under_way_at_a_commit_is_none_of_its", "reported durable, and lost")
        }
        Mutant::LogReadEarly => {
            check("away::a_coordinator_is_asked_again_when_it_has_been_taken_back", "half of it is there")
        }
        Mutant::CoveredNotWritten | Mutant::CoveredUnordered => check(
            "covering::a_checkpoint_of_few_commits_syncs_what_they_have_changed_and_not_the_whole_file_system",
            "covered, and lost",
        ),
        Mutant::ForkUnseen => check(
            "forked::a_child_commits_nothing_that_its_parent_began",
            "a child has committed what its parent began",
        ),
        Mutant::LostUnseen => check(
            "lost::a_commit_writes_to_no_file_that_its_program_has_opened_meanwhile",
            "written to the program's own file",
        ),
        Mutant::FlagsNotPassedOn => check(
            "flags::what_is_made_has_the_flags_that_the_kernel_would_have_given_it",
            "other flags than plainly",
        ),
        Mutant::TargetsEarly => check(
            "found::a_commit_that_changes_a_file_breaks_no_lease_of_one_that_takes_it_out",
            "counted as an outsider's",
        ),
        Mutant::CutsUnseen => {
            check("found::an_outsiders_write_to_what_one_of_many_cuts_takes_off_is_kept", ": lost: ")
        }
        Mutant::CutForgotten => {
            check("found::an_outsiders_write_to_what_one_of_many_cuts_takes_off_is_kept", "cut by a redo")
        }
        Mutant::LeasesNotAwaited => {
            check("found::a_commit_waits_for_a_lease_that_another_process_has_for_a_moment", "not waited for")
        }
        Mutant::LookTorn => check(
            "found::handle_and_attributes_of_a_name_are_of_one_object",
            "of two objects",
        ),
        Mutant::TmpfsByStamps => check(
            "found::a_store_that_moves_no_time_on_tmpfs_is_a_conflict",
            "not noticed",
        ),
        Mutant::GapsCovered => check(
            "covering::a_checkpoint_over_a_commit_without_durability_syncs_that_one_too",
            "covered by a checkpoint without a record, and lost",
        ),
    }
}

fn is_noticed(mutant: Mutant) {
    let Check { with, test, says } = check_of(mutant);
    is_told(&[Some(mutant), with].into_iter().flatten().collect::<Vec<_>>(), test, says);
}

fn is_told(mutants: &[Mutant], test: &str, says: &str) {
    let test = match test.strip_prefix("crate::") {
        Some(path) => path.to_owned(),
        None => format!("commit::tests::{test}"),
    };
    let names: Vec<_> = mutants.iter().map(|m| format!("{m:?}")).collect();
    let exe = std::env::current_exe().expect("this test has a file");
    let run = Command::new(exe)
        .args(["--exact", "--test-threads=1", &test])
        .env("SYSTX_MUTANT", names.join("+"))
        .env("RUST_BACKTRACE", "0")
        .env_remove("SYSTX_LONG")
        .env_remove("SYSTX_SEED")
        .env_remove("SYSTX_NIGHT")
        .output()
        .expect("starts");
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(told.contains("running 1 test"), "there is no test {test}");
    assert!(told.contains("0 passed; 1 failed"), "{names:?} survive {test}: {told}");
    let told = [told, String::from_utf8_lossy(&run.stderr)].concat();
    assert!(
        says.split(" | ").any(|says| told.contains(says)),
        "{test} does not say `{says}` of {names:?}: {told}"
    );
}

/// V2 adds to V3 an order among those that are numbered at one time. V3 alone aborts or waits; neither, and
/// both write.
#[test]
fn a_number_beside_an_overlapping_slot_without_a_look_at_the_ring_lets_two_writers_in() {
    let test = "interleaving::interleaved_transactions_are_so_with_and_without_durability";
    is_told(&[Mutant::NoV2, Mutant::NoV3], test, EITHER);
}

/// Other messages of the watch over the invariants where a rule is left out that another test notices.
#[test]
fn each_invariant_is_said_to_be_broken_where_its_rule_is_left_out() {
    let taken_back = "invariants::they_hold_before_every_call_of_a_commit_that_is_taken_back";
    let outsider = "invariants::what_an_outsider_did_is_kept_before_every_call_after_it";
    let unsynced = "invariants::they_hold_before_every_call_of_a_durable_commit_on_one_without_durability";
    let shown = "interleaving::what_a_program_is_shown_was_true_at_one_number_whenever_it_is_shown";
    for (mutants, test, says) in [
        (&[Mutant::PublishBeforeSync][..], INLINE, "I4: 1 is publishing, and its header isn't synced"),
        (&[Mutant::NoExchangeBack], outsider, "I6: "),
        (&[Mutant::DropWithoutSyncfs], INLINE, "I7: 1 on 0 would not be redone, and is not on the disk"),
        (&[Mutant::HeaderNotSynced], INLINE, "I8: Power(NothingUnsynced): 0 transactions are there"),
        (&[Mutant::AbortNotSynced], taken_back, "was told aborted, and is there"),
        (&[Mutant::NoSlotWait], shown, "I9: "),
        (&[Mutant::NoRefreshAfterLook], shown, "I9: "),
        // The sync of what it builds on (C10) would be the one that V4 leaves out.
        (&[Mutant::NoV4, Mutant::BaseNotSynced], unsynced, "I12: "),
    ] {
        is_told(mutants, test, says);
    }
}

macro_rules! noticed {
    ($($name:ident: $mutant:ident,)*) => {
        $(#[test]
        fn $name() {
            is_noticed(Mutant::$mutant);
        })*

        /// The rules with a test below.
        const NOTICED: &[Mutant] = &[$(Mutant::$mutant),*];
    };
}

#[test]
fn each_rule_that_can_be_left_out_has_a_test_that_notices() {
    let without: Vec<_> = Mutant::ALL.iter().filter(|mutant| !NOTICED.contains(mutant)).collect();
    assert!(without.is_empty(), "{without:?}");
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
    a_look_that_asks_no_active_commit_is_noticed: ActiveUnasked,
    staging_under_its_final_name_is_noticed: NoSeal,
    a_seal_that_is_not_noted_is_noticed: SealNotNoted,
    an_age_that_is_not_kept_is_noticed: AgeNotKept,
    nice_values_that_do_not_count_are_noticed: NiceUnseen,
    a_resignation_that_wakes_nobody_is_noticed: ResignUnheard,
    a_sleeper_that_holds_others_up_is_noticed: SleepersHold,
    one_that_waits_although_it_never_does_is_noticed: NeverWaits,
    a_commit_that_is_counted_too_early_is_noticed: CountedEarly,
    a_helper_that_publishes_too_early_is_noticed: HelperPublishesValidated,
    a_number_before_its_slot_is_noticed: NextBeforeSlot,
    a_header_after_its_slot_is_noticed: LateHeader,
    a_promise_that_is_not_synced_is_noticed: PreparedNotSynced,
    a_replace_that_is_taken_twice_is_noticed: ReplaceAgain,
    a_slot_that_its_helper_keeps_is_noticed: HelperKeepsSlot,
    a_record_behind_a_damaged_one_is_noticed: LogGoesOn,
    a_participant_taken_back_before_its_coordinator_is_noticed: ParticipantFirst,
    who_goes_on_although_a_record_says_wait_is_noticed: RealHitPassed,
    who_goes_by_the_record_of_another_use_of_a_slot_is_noticed: RecordOfAnother,
    a_number_for_a_record_that_the_log_has_left_is_noticed: BodyLeft,
    records_that_are_skipped_silently_are_noticed: SkippedNotTold,
    an_unknown_cell_that_ends_the_log_is_noticed: UnknownIsAnEnd,
    a_redo_of_what_is_not_understood_is_noticed: RedoBeforeUnderstood,
    a_table_that_outlives_its_mount_is_noticed: TableOutlivesMount,
    a_table_older_than_its_log_is_noticed: LogOverwritten,
    a_redo_on_a_full_disk_that_is_repeated_is_noticed: FullForgets,
    pages_that_are_announced_as_the_file_are_noticed: PagesTooCoarse,
    pages_that_are_announced_without_the_file_are_noticed: PagesTooFine,
    a_page_that_was_read_without_a_hash_is_noticed: PageHashNotKept,
    a_size_that_was_shown_and_is_not_compared_is_noticed: EndUnclaimed,
    an_overwrite_of_pages_that_sets_a_size_is_noticed: PagesSetSize,
    a_chain_of_one_page_that_breaks_off_another_one_is_noticed: ChainsOfFiles,
    an_append_that_is_not_announced_is_noticed: AppendsUnclaimed,
    an_end_that_is_not_looked_for_again_is_noticed: EndsFoundOnce,
    an_end_of_a_file_that_is_not_compared_is_noticed: EndsNotLookedAt,
    an_append_behind_an_outsiders_that_is_not_synced_is_noticed: MovedNotSynced,
    an_append_that_comes_twice_is_noticed: AppendedTwice,
    an_append_that_came_elsewhere_and_is_redone_is_noticed: MovedForgotten,
    a_stale_table_that_another_one_opens_is_noticed: StaleFirst,
    a_number_that_is_given_twice_is_noticed: NextNotRaised,
    signs_of_different_kinds_that_are_compared_are_noticed: KindsMixed,
    a_copy_that_goes_on_as_its_original_is_noticed: CopyGoesOn,
    read_attributes_that_are_not_compared_are_noticed: XattrsNotCompared,
    a_listing_that_is_older_than_its_stamp_is_noticed: ListingStampLate,
    types_that_are_not_compared_are_noticed: TypesNotCompared,
    a_name_that_is_taken_for_what_it_was_is_noticed: KnownByName,
    bytes_that_are_read_without_a_look_at_commits_are_noticed: PagesUnasked,
    a_look_beside_a_commit_that_counts_is_noticed: NumbersUnasked,
    types_that_are_not_announced_are_noticed: TypesNotAnnounced,
    old_ends_that_are_forgotten_are_noticed: OldEndsForgotten,
    an_abort_that_only_one_of_them_knows_is_noticed: AbortingIsAborted,
    a_file_that_an_outsider_cut_and_that_grows_again_is_noticed: AnyEndIsOurs,
    ends_that_are_not_compared_are_noticed: EndsNotCompared,
    links_of_what_is_removed_that_go_late_are_noticed: LinksLate,
    an_object_looked_for_at_one_path_is_noticed: OneWay,
    a_directory_that_gets_a_files_token_is_noticed: TokensOfFiles,
    a_last_name_that_goes_before_a_sync_is_noticed: LinksNotSynced,
    an_exchange_that_is_taken_back_once_only_is_noticed: ExchangeBackOnce,
    what_is_displaced_before_it_is_noted_is_noticed: DisplacedNotNoted,
    what_is_taken_out_without_a_comparison_is_noticed: TakenNotCompared,
    a_checkpoint_that_began_too_early_is_noticed: AnyCheckpointCovers,
    a_bound_taken_without_the_lock_is_noticed: BoundWithoutLock,
    a_log_without_signs_that_is_obeyed_is_noticed: SignsNotNeeded,
    a_lock_that_anybody_may_have_is_noticed: LocksOfAnybody,
    a_format_of_anybody_is_noticed: FormatOfAnybody,
    an_old_identity_that_counts_is_noticed: OldIdentityCounts,
    a_time_of_making_that_is_not_compared_is_noticed: MadeAtAnyTime,
    a_format_that_any_archiver_makes_is_noticed: AllocatedByAnybody,
    a_format_that_others_can_write_is_noticed: FormatOfOthers,
    a_handle_that_leads_out_is_noticed: HandlesLeadOut,
    an_area_known_by_its_name_is_noticed: AreaByItsName,
    an_own_area_that_is_left_out_is_noticed: OwnAreaSetAside,
    a_log_replayed_without_its_table_is_noticed: ReplayWithoutTable,
    a_cell_counted_by_a_sync_that_began_before_it_is_noticed: SyncCountsLate,
    a_removal_that_is_not_synced_is_noticed: RemovalNotSynced,
    slots_named_before_they_are_on_the_disk_are_noticed: RebuiltNotSynced,
    a_promise_that_is_not_taken_back_is_noticed: PromiseNotTakenBack,
    a_promise_of_the_dead_is_noticed: PromisesOfTheDead,
    watchers_that_nobody_sees_are_noticed: WatchersUnseen,
    a_time_that_hides_a_change_is_noticed: TimesGivenBlindly,
    power_for_whatever_bytes_is_noticed: PowerByName,
    a_commit_on_what_nobody_has_synced_is_noticed: BaseNotSynced,
    a_commit_on_what_was_synced_once_is_noticed: KnownForEver,
    a_redo_of_what_somebody_has_put_back_is_noticed: NoChains,
    a_redo_that_looks_one_record_ahead_is_noticed: ShortChains,
    a_number_that_is_taken_for_an_identity_is_noticed: NumberIsIdentity,
    a_promise_of_what_never_comes_back_is_noticed: ForgetfulPromises,
    a_decision_that_is_kept_too_late_is_noticed: DecisionLate,
    a_decision_that_goes_too_early_is_noticed: DecisionEarly,
    a_copy_beside_its_original_is_noticed: TwinsWelcome,
    a_mark_that_is_ignored_is_noticed: MarkIgnored,
    a_mark_before_its_time_is_noticed: MarkEarly,
    power_for_bytes_that_are_not_held_is_noticed: PowerUnleased,
    a_mode_of_which_nothing_is_given_is_noticed: NothingOfAMode,
    a_dying_coordinator_that_is_a_doubt_is_noticed: DyingIsDoubt,
    a_clock_that_is_trusted_after_it_was_set_is_noticed: ClockTrusted,
    objects_that_go_with_a_staging_directory_are_noticed: LiftedDeleted,
    objects_that_are_moved_without_a_note_are_noticed: MovingNotNoted,
    an_earlier_state_on_the_disk_that_is_not_seen_is_noticed: WrittenOutUnseen,
    a_cut_that_is_not_known_is_noticed: CutUnknown,
    rights_that_are_not_given_back_are_noticed: RightsNotGivenBack,
    contents_that_others_changed_and_are_dropped_are_noticed: LackingContentsDropped,
    contents_that_are_refused_and_dropped_are_noticed: RefusedContentsDropped,
    a_cut_over_a_record_is_noticed: CutOverRecord,
    a_growth_over_a_cut_is_noticed: GrowthOverCut,
    a_cut_by_others_that_is_not_reported_is_noticed: CutByOthersUnsaid,
    a_sector_that_is_judged_by_its_front_is_noticed: SectorsJudgedInPart,
    power_over_what_a_record_has_is_noticed: PowerOverRecord,
    contents_that_are_written_without_a_note_are_noticed: RestoringNotNoted,
    rights_that_are_not_asked_for_are_noticed: RightsUnasked,
    words_whose_old_bytes_are_not_noted_are_noticed: WordsNotNoted,
    words_of_others_that_make_a_sector_foreign_are_noticed: WordsOfOthers,
    a_sync_that_is_repeated_is_noticed: SyncsRepeated,
    an_error_of_a_sync_that_is_none_of_the_usual_ones_is_noticed: OneErrorLoses,
    a_sync_of_a_publication_that_fails_unasked_is_noticed: LostUnasked,
    an_empty_entry_that_counts_as_taken_is_noticed: EmptyIsTaken,
    bytes_that_are_compared_twice_are_noticed: ReadsApart,
    power_that_a_dead_process_gave_is_noticed: GivenForGood,
    a_commit_in_an_area_that_was_removed_is_noticed: RemovedUnseen,
    a_lease_that_counts_as_held_for_ever_is_noticed: LeaseOutlived,
    power_for_who_waits_is_noticed: WaitingUnseen,
    bytes_of_another_process_that_count_as_ours_are_noticed: SameIsOurs,
    a_directory_that_is_to_come_below_itself_and_waits_is_noticed: CircleWaits,
    a_further_name_in_a_removed_tree_that_goes_is_noticed: PlacesOfTheDead,
    a_checkpoint_that_finds_something_and_is_silent_is_noticed: CheckpointsSilent,
    a_publication_that_goes_with_its_table_is_noticed: UnloggedForgotten,
    a_recovery_that_is_repeated_is_noticed: RecoverySyncsAgain,
    times_of_a_redo_that_are_taken_for_others_are_noticed: TimesOfRedoUnknown,
    limits_that_are_taken_for_one_another_are_noticed: LimitsAlike,
    rights_that_another_owner_gets_are_noticed: RightsOfAnyOwner,
    a_record_that_is_overwritten_without_one_is_noticed: RecordsOverwritten,
    a_directory_that_is_moved_over_a_record_is_noticed: MovedOverRecord,
    a_shared_directory_that_is_not_looked_at_is_noticed: SharedNotLookedAt,
    committed_objects_in_shared_directories_are_noticed: CommittedShared,
    a_shared_directory_that_is_not_synced_is_noticed: UnreadNotSynced,
    a_way_that_is_not_looked_at_again_is_noticed: WayForgotten,
    a_name_that_is_locked_and_taken_for_removed_is_noticed: LockedIsGone,
    a_write_that_is_taken_for_over_is_noticed: WritesAtOnce,
    a_write_beside_the_sync_of_a_base_that_is_not_seen_is_noticed: WritesOnUnseen,
    a_log_that_was_read_before_its_abort_is_noticed: LogReadEarly,
    bytes_of_covered_records_that_are_not_written_are_noticed: CoveredNotWritten,
    names_of_covered_records_that_are_not_synced_are_noticed: CoveredUnordered,
    a_number_without_a_record_that_counts_as_covered_is_noticed: GapsCovered,
    a_fork_that_is_not_noticed_is_noticed: ForkUnseen,
    a_lost_descriptor_that_is_used_is_noticed: LostUnseen,
    flags_that_are_not_passed_on_are_noticed: FlagsNotPassedOn,
    files_that_are_opened_for_writing_too_early_are_noticed: TargetsEarly,
    writes_to_what_is_cut_off_that_are_not_looked_for_are_noticed: CutsUnseen,
    a_cut_that_was_refused_and_is_redone_is_noticed: CutForgotten,
    a_lease_that_is_not_waited_for_is_noticed: LeasesNotAwaited,
    a_name_that_is_looked_at_twice_is_noticed: LookTorn,
    stamps_of_tmpfs_that_count_are_noticed: TmpfsByStamps,
}
