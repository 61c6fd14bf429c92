//! Faults that are planted: each check says what is wrong. The mutants do so, too, where a rule can be left out.

use super::crashes::Aftermath;
use super::records::{in_order, out_of_order};
use super::watch::{Moment, Records, Verdict};
use super::*;
use crate::domain::{Place, SlotInfo, SlotState};
use crate::id::{Footprint, Lsn, TxId};
use crate::log::{BodyAt, Cell, LogPos};

/// Returns the messages about a commit with which an outsider interferes, once its active entry is in
/// `state`.
fn said(state: SlotState, interferes: impl Fn(&Machine, Lsn) + Send + 'static) -> Vec<String> {
    let (world, works) = (two_chains(1), [DURABLE]);
    let rules: Vec<Box<dyn Rule>> = vec![Box::new(Untouched), Box::<HeaderFirst>::default()];
    let book = book(&world, 1, &[("p0", &works)]);
    let watch = Watch::new(1, book, rules, Vec::new()).with(move |now, _| {
        let slot = now.fs[0].slots.iter().find(|slot| slot.seen.state() == state);
        slot.inspect(|slot| interferes(now.machine, slot.info.lsn)).is_some()
    });
    let machine = copy(&world);
    watch.begin(&machine);
    let os = machine.spawn("owner");
    // It may go wrong in any way.
    let _ = run_process(&os, || {
        watch.inner().book.begin(0, os.pid());
        let _ = grow(&os, 1, "p0", 0, Durability::Durable);
    });
    machine.clear_hook();
    watch.wrong()
}

fn one_says(said: &[String], what: &str) {
    assert!(said.iter().any(|why| why.contains(what)), "nobody says `{what}`: {said:#?}");
}

#[test]
fn i1_says_so_when_a_file_changes_before_the_commit_point() {
    let said = said(SlotState::Validated, |machine, _| {
        machine.plant(0, &[("p0/early", Plant::File(b"early"))]).expect("planting");
    });
    one_says(&said, "I1: changed, and not past the commit point: [\"0:p0/early\"]");
}

#[test]
fn i4_says_so_when_steps_are_taken_after_an_abort() {
    let said = said(SlotState::Publishing, |machine, lsn| {
        let os = machine.spawn("other");
        let domains = open_each(&os, 1).expect("opens");
        domains[0].append_cell(Cell::Abort { lsn }).expect("writes");
    });
    one_says(&said, "I4: steps are taken after an ABORT");
}

/// Cells at consecutive places.
fn cells(cells: &[Cell]) -> Vec<(LogPos, Cell)> {
    let places = (0..).map(|cell| LogPos { segment: 1, cell });
    places.zip(cells.iter().copied()).collect()
}

#[test]
fn i3_says_so_when_overlapping_records_are_out_of_order_or_a_header_follows_its_abort() {
    let body = BodyAt { segment: 1, offset: 4096, len: 1, crc: 0 };
    let commit = |n: u64| Cell::Commit { lsn: Lsn(n), id: TxId(n), body };
    let [first, second] = [commit(1), commit(2)];
    assert_eq!(in_order(&cells(&[first, second]), |_, _| true), Ok(()));
    assert_eq!(in_order(&cells(&[second, first]), |_, _| false), Ok(()));
    assert!(in_order(&cells(&[second, first]), |_, _| true).is_err());
    let abort = Cell::Abort { lsn: Lsn(1) };
    assert_eq!(in_order(&cells(&[first, abort]), |_, _| true), Ok(()));
    assert!(in_order(&cells(&[abort, first]), |_, _| true).is_err());
}

#[test]
fn i7_says_so_when_a_segment_goes_before_an_older_one() {
    let left =
        |segments: &[u64]| Records { segments: segments.iter().copied().collect(), ..Records::default() };
    let before = [1, 2, 3].into_iter().collect();
    assert_eq!(out_of_order(&before, &left(&[2, 3])), None);
    assert_eq!(out_of_order(&before, &left(&[1, 3])), Some(2));
}

/// Returns the messages about a process that waits while it holds something.
fn waits(body: impl FnOnce(&SimOs, &crate::domain::Domain<SimOs>)) -> Vec<String> {
    let machine = copy(&two_chains(1));
    let os = machine.spawn("waiter");
    let domains = run_process(&os, || open_each(&os, 1).expect("opens")).expect("lives");
    let watch =
        Watch::new(1, Book::default(), vec![Box::<WaitsForNobody>::default()], Vec::new()).words_too();
    machine.set_word_points(true);
    watch.begin(&machine);
    run_process(&os, || body(&os, &domains[0])).expect("lives");
    machine.clear_hook();
    watch.wrong()
}

#[test]
fn i10_says_so_when_somebody_waits_with_the_lock_or_a_slot() {
    let with_lock = waits(|os, domain| {
        let held = domain.lock().expect("locks");
        os.pause(1000);
        drop(held);
        os.pause(1000);
    });
    assert_eq!(with_lock.len(), 1, "{with_lock:#?}");
    one_says(&with_lock, "I10: it holds the commit lock; before Pause");
    let with_slot = waits(|os, domain| {
        let held = domain.lock().expect("locks");
        let table = &domain.table;
        let slot = table.slots().find_free(held.proof()).expect("sound").expect("is free");
        let info = SlotInfo {
            lsn: table.next(),
            tx: domain.new_tx(),
            owner: domain.me(),
            pid: os.pid(),
            durable: false,
            multi_domain: false,
            redo: false,
            body: Place::default(),
            footprint: Footprint::EMPTY,
        };
        let seen = table.slots().fill(held.proof(), slot, &info, SlotState::Validated).expect("is free");
        drop(held);
        table.slots().wait_change(slot, seen, 1000);
        domain.free_slot(slot).expect("mine");
        os.pause(1000);
    });
    assert_eq!(with_slot.len(), 1, "{with_slot:#?}");
    one_says(&with_slot, "I10: it holds the slot of");
}

/// A file outside of every record, that is said to have been otherwise.
#[test]
fn i11_says_so_when_something_else_was_touched() {
    let (world, works) = (two_chains(1), [DURABLE]);
    let mut book = book(&world, 1, &[("p0", &works)]);
    book.others.remove("0:fact");
    let watch = Watch::new(1, book, vec![Box::new(Cleared)], ENDS.to_vec());
    run_watched(&world, 1, &watch, "p0", &works);
    one_says(&watch.wrong(), "touched, and in no record: [\"0:fact\"]");
}

/// Left in the area, and in no record and in no report.
#[test]
fn i11_says_so_when_something_is_left_in_the_area() {
    for (left, what) in [
        (".systx/tx/junk", "left in `tx` after a recovery"),
        (".systx/aside/junk", "aside, and not reported"),
    ] {
        let (world, works) = (two_chains(1), [DURABLE]);
        world.plant(0, &[(left, Plant::Dir)]).expect("planting");
        let watch =
            Watch::new(1, book(&world, 1, &[("p0", &works)]), vec![Box::new(Cleared)], vec![How::Kill]);
        run_watched(&world, 1, &watch, "p0", &works);
        // The last answer comes without another call.
        one_says(&watch.wrong(), what);
    }
}

/// Asked of a world in which the first chain's transactions are lost.
struct FirstLost(Prefix);

impl Rule for FirstLost {
    fn name(&self) -> &'static str {
        "I12"
    }

    fn after(&mut self, now: &Moment<'_>, end: &Aftermath, book: &Book) -> Verdict {
        let (first, mut tree) = (&book.chains[0], end.trees[0].clone());
        let own = first.part_of(&end.trees);
        tree.retain(|path, _| !own.contains_key(&format!("0:{path}")));
        tree.extend(first.states[0].iter().map(|(path, look)| (path[2..].to_owned(), look.clone())));
        self.0.after(now, &end.with_trees(vec![tree]), book)
    }
}

#[test]
fn i12_says_so_when_a_record_survives_and_one_before_it_does_not() {
    let world = two_chains(1);
    let works: [(&'static str, &[Work]); 2] = [("p0", &[DURABLE]), ("p1", &[DURABLE])];
    let ends = vec![How::Power(Crash::Everything)];
    let watch = Watch::new(1, book(&world, 1, &works), vec![Box::new(FirstLost(Prefix))], ends);
    let machine = copy(&world);
    watch.begin(&machine);
    for (chain, (top, works)) in works.into_iter().enumerate() {
        let os = machine.spawn(top);
        run_process(&os, || play(&os, 1, &watch, chain, top, works)).expect("lives");
    }
    machine.clear_hook();
    one_says(&watch.wrong(), "is before it in the log, is not");
}
