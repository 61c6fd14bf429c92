//! The rules for cooperating transactions hold, and each of them is needed.

use systx_sim::model::checker::{explore, Report, DEADLOCK};
use systx_sim::model::cooperation::{Cooperation, NEEDLESS, NOT_OPAQUE, NOT_SERIALIZABLE, PAGES, WORKLOADS};
use systx_sim::model::{long, Mutant};

/// Everything at once: kills, aborts by outsiders, the final look.
fn full(workload: usize, collide: bool, ring_len: u8) -> Cooperation {
    Cooperation {
        workload: &WORKLOADS[workload],
        collide,
        ring_len,
        kills: true,
        outsider_aborts: true,
        final_look: true,
        check_overlap: true,
        check_precision: false,
        mutant: None,
    }
}

/// Cooperating parties alone: no outsider, so F compares nothing and V3 and the slots have to do.
fn alone(workload: usize, mutant: Option<Mutant>) -> Cooperation {
    Cooperation {
        kills: false,
        outsider_aborts: false,
        final_look: false,
        check_overlap: false,
        mutant,
        ..full(workload, false, 9)
    }
}

fn clean(model: &Cooperation) -> usize {
    let report = explore(model, 20_000_000);
    assert!(report.is_clean(), "{}: {report}", model.workload.name);
    assert!(report.finals > 0);
    report.states
}

/// The reports of `mutant` over all workloads; the protocol itself is clean in exactly the same configurations.
fn mutated(mutant: Mutant, adjust: fn(&mut Cooperation)) -> Vec<Report> {
    (0..WORKLOADS.len())
        .map(|w| {
            let (mut right, mut wrong) = (alone(w, None), alone(w, Some(mutant)));
            adjust(&mut right);
            adjust(&mut wrong);
            clean(&right);
            explore(&wrong, 20_000_000)
        })
        .collect()
}

fn breaks(reports: &[Report], rule: &str) -> bool {
    reports.iter().any(|r| r.breaks(rule))
}

#[test]
fn all_workloads_are_strictly_serializable_opaque_and_free_of_deadlock() {
    let states: usize = (0..WORKLOADS.len()).map(|w| clean(&full(w, false, 9))).sum();
    println!("{states} states");
}

#[test]
fn hash_collisions_cost_comparisons_but_no_promise() {
    for w in 0..WORKLOADS.len() {
        clean(&full(w, true, 9));
    }
}

#[test]
fn an_overrun_ring_costs_comparisons_but_no_promise() {
    for ring_len in if long() { vec![0, 1, 2] } else { vec![0] } {
        for w in 0..WORKLOADS.len() {
            clean(&full(w, false, ring_len));
        }
    }
}

#[test]
fn without_v2_writers_interleave() {
    let reports = mutated(Mutant::NoV2, |_| {});
    assert!(breaks(&reports, NOT_SERIALIZABLE));
}

#[test]
fn without_v3_stale_reads_commit() {
    let reports = mutated(Mutant::NoV3, |_| {});
    assert!(breaks(&reports, NOT_SERIALIZABLE));
}

#[test]
fn without_the_look_at_slots_half_a_commit_is_shown() {
    let reports = mutated(Mutant::NoSlotWait, |_| {});
    assert!(breaks(&reports, NOT_OPAQUE));
}

#[test]
fn without_the_ring_a_running_transaction_sees_two_instants() {
    let reports = mutated(Mutant::NoRing, |_| {});
    assert!(breaks(&reports, NOT_OPAQUE));
}

#[test]
fn a_refresh_before_the_look_is_too_early() {
    let reports = mutated(Mutant::RingBeforeLook, |_| {});
    assert!(breaks(&reports, NOT_OPAQUE));
}

#[test]
fn an_overrun_that_is_ignored_hides_commits() {
    let reports = mutated(Mutant::OverrunIgnored, |c| c.ring_len = 0);
    assert!(breaks(&reports, NOT_OPAQUE) && breaks(&reports, NOT_SERIALIZABLE));
}

#[test]
fn a_slot_released_before_publication_breaks_serializability() {
    let reports = mutated(Mutant::EarlyRelease, |_| {});
    assert!(breaks(&reports, NOT_SERIALIZABLE));
}

#[test]
fn a_slot_that_appears_after_next_is_missed() {
    let reports = mutated(Mutant::NextBeforeSlot, |_| {});
    assert!(breaks(&reports, NOT_OPAQUE));
}

#[test]
fn without_a_helper_a_dead_owner_stops_everybody() {
    let reports = mutated(Mutant::NoHelper, |c| c.kills = true);
    assert!(breaks(&reports, DEADLOCK));
}

/// Pages of one file, in each workload.
fn of_pages(mutant: Option<Mutant>) -> impl Iterator<Item = Cooperation> {
    PAGES.iter().map(move |workload| Cooperation { workload, ..alone(0, mutant) })
}

#[test]
fn pages_of_a_file_are_objects_of_their_own() {
    for model in of_pages(None) {
        clean(&model);
        clean(&Cooperation { ring_len: 0, ..model });
    }
    // Those that only ever touch different ones don't wait for each other.
    let apart = Cooperation { check_precision: true, ..of_pages(None).next().expect("there are some") };
    clean(&apart);
}

#[test]
fn pages_that_are_announced_as_the_whole_file_cost_concurrency_but_no_promise() {
    let mut wrong = of_pages(Some(Mutant::PagesTooCoarse));
    let apart = Cooperation { check_precision: true, ..wrong.next().expect("there are some") };
    assert!(explore(&apart, 20_000_000).breaks(NEEDLESS));
    for model in wrong {
        clean(&model);
    }
}

#[test]
fn a_cut_that_pages_know_nothing_of_loses_updates() {
    let reports: Vec<_> =
        of_pages(Some(Mutant::PagesTooFine)).map(|model| explore(&model, 20_000_000)).collect();
    assert!(breaks(&reports, NOT_SERIALIZABLE) && breaks(&reports, NOT_OPAQUE));
}
