//! Slots in a shared staging directory: the seal proves what the name `tx/<id>` proves elsewhere.

use systx_sim::model::checker::{explore, Report};
use systx_sim::model::shared_staging::{SharedStaging, NOTHING, PROOF};
use systx_sim::model::Mutant;

const STATES_MAX: usize = 1_000_000;

fn explored(mutant: Option<Mutant>) -> Report {
    explore(&SharedStaging { losses: 1, mutant }, STATES_MAX)
}

#[test]
fn a_seal_proves_at_every_power_loss_whether_slots_were_there() {
    let report = explored(None);
    assert!(report.is_clean() && report.finals > 0, "{report}");
}

#[test]
fn a_seal_comes_after_the_slots() {
    let report = explored(Some(Mutant::SealBeforeSlots));
    assert!(report.breaks(PROOF), "{report}");
}

#[test]
fn seals_are_numbered_when_they_are_put() {
    let report = explored(Some(Mutant::SealNumberedEarly));
    assert!(report.breaks(PROOF) && report.breaks(NOTHING), "{report}");
}

#[test]
fn no_boot_goes_on_with_the_shared_staging_of_another() {
    let report = explored(Some(Mutant::ShelfOfAllBoots));
    assert!(report.breaks(PROOF), "{report}");
}
