//! Outsiders who write are serializable with transactions, and the final look is what makes them so.

use systx_sim::model::checker::explore;
use systx_sim::model::outsiders::{Outsiders, NO_ORDER};
use systx_sim::model::Mutant;

const WRITES: Outsiders = Outsiders { calls: 3, durable: true, reads: false, guarded: false, mutant: None };

#[test]
fn three_writing_calls_of_an_outsider_are_serializable() {
    for durable in [true, false] {
        let report = explore(&Outsiders { durable, ..WRITES }, 10_000_000);
        assert!(report.is_clean() && report.finals > 0, "{report}");
    }
}

#[test]
fn without_the_final_look_a_cooperating_reader_sees_no_serial_order() {
    let model = Outsiders { durable: false, mutant: Some(Mutant::NoFinalLook), ..WRITES };
    let report = explore(&model, 10_000_000);
    assert!(report.breaks(NO_ORDER), "{report}");
}

/// While the machine stays up, V6 is as good a look as F: both come after V5. F is there for what happens during S.
#[test]
fn v6_alone_keeps_writing_outsiders_serializable() {
    let report = explore(&Outsiders { mutant: Some(Mutant::NoFinalLook), ..WRITES }, 10_000_000);
    assert!(report.is_clean(), "{report}");
}

#[test]
fn an_outsider_who_reads_during_publication_is_beyond_validated() {
    let report = explore(&Outsiders { reads: true, ..WRITES }, 10_000_000);
    assert!(report.breaks(NO_ORDER), "the guarantee is better than promised: {report}");
}

#[test]
fn the_guard_makes_reading_outsiders_serializable_too() {
    let report = explore(&Outsiders { reads: true, guarded: true, ..WRITES }, 10_000_000);
    assert!(report.is_clean(), "{report}");
}
