//! No transaction waits for ever and none starves, and each rule for that is needed.

use systx_sim::model::checker::{explore, Report, DEADLOCK};
use systx_sim::model::liveness::{Liveness, Rivals, STARVED};
use systx_sim::model::Mutant;

fn run(rivals: Rivals, mutant: Option<Mutant>) -> Report {
    explore(&Liveness { rivals, mutant }, 1_000_000)
}

fn killed(rivals: Rivals, mutant: Mutant, rule: &str) {
    let report = run(rivals, Some(mutant));
    assert!(report.breaks(rule), "{mutant:?} survives: {report}");
}

#[test]
fn no_deadlock_and_at_most_one_more_loss() {
    for rivals in [Rivals::Loop, Rivals::Ordered, Rivals::OrderedDead, Rivals::Prepared] {
        let report = run(rivals, None);
        assert!(report.is_clean(), "{rivals:?}: {report}");
    }
}

#[test]
fn without_priority_a_transaction_starves() {
    killed(Rivals::Loop, Mutant::NoSenior, STARVED);
}

#[test]
fn a_holder_that_waits_for_its_number_stops_who_holds_it() {
    killed(Rivals::Ordered, Mutant::SeniorBeforeNumber, DEADLOCK);
}

#[test]
fn who_waits_for_a_dead_number_waits_for_ever() {
    killed(Rivals::OrderedDead, Mutant::NoErrorForDeadNumber, DEADLOCK);
}

#[test]
fn who_waits_for_a_prepared_slot_may_be_what_it_waits_for() {
    killed(Rivals::Prepared, Mutant::WaitForPrepared, DEADLOCK);
}

#[test]
fn a_prepared_transaction_that_keeps_priority_stops_everybody() {
    killed(Rivals::Prepared, Mutant::SeniorUntilDone, DEADLOCK);
}
