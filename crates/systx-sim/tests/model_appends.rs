//! Appends that nobody reads: neither of two transactions loses, nor is anything lost, also beside an outsider.

use systx_sim::model::appends::{Appends, HALF, LOST, NEEDLESS, TWICE};
use systx_sim::model::checker::{explore, Report};
use systx_sim::model::{long, Mutant};

const STATES_MAX: usize = 4_000_000;

fn explored(acts: u8, shared: bool, mutant: Option<Mutant>) -> Report {
    let (kills, losses) = if long() { (2, 2) } else { (1, 1) };
    explore(&Appends { acts, shared, kills, losses, mutant }, STATES_MAX)
}

#[test]
fn appends_lose_nothing_and_conflict_with_outsiders_only() {
    for shared in [false, true] {
        for acts in 0..if long() { 4 } else { 3 } {
            let report = explored(acts, shared, None);
            assert!(report.is_clean() && report.finals > 0, "{acts} {shared}: {report}");
        }
    }
}

#[test]
fn an_end_that_is_not_looked_for_again_is_a_conflict() {
    let report = explored(0, false, Some(Mutant::EndFoundOnce));
    assert!(report.breaks(NEEDLESS), "{report}");
}

#[test]
fn an_end_that_is_not_compared_leaves_half_of_a_commit() {
    let report = explored(1, true, Some(Mutant::EndNotCompared));
    assert!(report.breaks(HALF), "{report}");
}

#[test]
fn what_has_come_elsewhere_and_is_not_synced_is_lost() {
    let report = explored(1, true, Some(Mutant::MovedNotSynced));
    assert!(report.breaks(LOST), "{report}");
}

#[test]
fn what_is_appended_whatever_is_there_comes_twice() {
    let report = explored(0, false, Some(Mutant::AppendedTwice));
    assert!(report.breaks(TWICE), "{report}");
}
