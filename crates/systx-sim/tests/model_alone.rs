//! A first look at a path may be the kernel's alone, and each condition of that is needed.

use systx_sim::model::alone::{LooksAlone, CHANGED, HALF, NO_ORDER, STALE, TORN};
use systx_sim::model::checker::{explore, Report};
use systx_sim::model::Mutant;

fn explored(mutant: Option<Mutant>) -> Vec<Report> {
    let cases = (0..8).map(|n| (n & 1 > 0, n & 2 > 0, n >> 2 & 1));
    let models = cases.map(|(g_first, half_is_known, calls)| LooksAlone {
        g_first,
        half_is_known,
        calls: 2 * calls,
        mutant,
    });
    models.map(|model| explore(&model, 10_000_000)).collect()
}

#[track_caller]
fn breaks(mutant: Mutant, rule: &str) {
    let reports = explored(Some(mutant));
    assert!(reports.iter().any(|report| report.breaks(rule)), "{mutant:?}: {}", reports[0]);
}

#[test]
fn a_look_alone_is_as_good_as_a_walk() {
    for report in explored(None) {
        assert!(report.is_clean() && report.finals > 0, "{report}");
    }
}

#[test]
fn what_a_process_knows_is_no_answer_by_itself() {
    breaks(Mutant::AloneUnlooked, STALE);
}

#[test]
fn while_a_commit_is_under_way_a_look_is_not_enough() {
    breaks(Mutant::AloneNotQuiet, STALE);
}

#[test]
fn half_of_a_commit_may_lead_to_an_object_that_is_known_and_unmoved() {
    breaks(Mutant::AloneNumberUnasked, TORN);
}

#[test]
fn who_goes_on_without_a_walk_sees_half_of_a_commit() {
    breaks(Mutant::AloneUnwalked, HALF);
}

#[test]
fn without_a_look_at_the_end_what_was_read_has_changed() {
    breaks(Mutant::AloneUnchecked, CHANGED);
}

/// The order alone would not show it: one look at one object is always explained by the instant of the look.
#[test]
fn one_look_is_serializable_by_itself() {
    for report in explored(Some(Mutant::AloneUnchecked)) {
        assert!(!report.breaks(NO_ORDER), "{report}");
    }
}
