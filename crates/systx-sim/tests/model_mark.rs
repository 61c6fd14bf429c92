//! A mark behind the attributes of a record: what an outsider has put back since stays, and nothing that was
//! reported is lost.

use systx_sim::model::checker::{explore, Report};
use systx_sim::model::mark::{Mark, LOST, UNDONE};
use systx_sim::model::{long, Mutant};

const STATES_MAX: usize = 2_000_000;

fn explored(mutant: Option<Mutant>) -> Report {
    let (acts, losses) = if long() { (4, 3) } else { (3, 2) };
    explore(&Mark { acts, losses, mutant }, STATES_MAX)
}

#[test]
fn what_is_put_back_behind_a_mark_stays_and_nothing_is_lost() {
    let report = explored(None);
    assert!(report.is_clean() && report.finals > 0, "{report}");
}

#[test]
fn values_alone_set_what_was_put_back_once_more() {
    let report = explored(Some(Mutant::AttributesByValue));
    assert!(report.breaks(UNDONE), "{report}");
}

/// The outsider changes something else between the final look and the step, and the power goes before the
/// step is on the disk.
#[test]
fn a_change_time_that_is_another_one_loses_commits() {
    let report = explored(Some(Mutant::AttributesByChangeTime));
    assert!(report.breaks(LOST), "{report}");
}

#[test]
fn a_mark_before_its_attributes_loses_commits() {
    let report = explored(Some(Mutant::MarkBeforeAttributes));
    assert!(report.breaks(LOST), "{report}");
}

/// Metadata survive in any order, as on btrfs, which keeps the order within one directory only.
#[test]
fn a_mark_proves_nothing_where_metadata_survive_in_any_order() {
    let report = explored(Some(Mutant::MarkInAnyOrder));
    assert!(report.breaks(LOST), "{report}");
}
