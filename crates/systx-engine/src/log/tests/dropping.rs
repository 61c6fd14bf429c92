//! Checkpoints: what goes, in which order, and what stays.

use super::*;

/// Commits `from` and the next, so that the second one stands in a new segment.
fn fill_segment(rig: &Rig, from: u64) -> LogPos {
    rig.commit(from, 10);
    rig.commit(from + 1, 17 << 20)
}

fn drop_up_to(rig: &Rig, lsn: u64) -> Vec<u64> {
    rig.log.drop_segments(ME, &alive, Lsn(lsn), u64::MAX).unwrap().into_iter().map(|id| id.0).collect()
}

#[test]
pub fn nothing_goes_without_a_checkpoint() {
    let rig = Rig::started();
    fill_segment(&rig, 1);
    assert_eq!(drop_up_to(&rig, 100), [0; 0]);
    assert_eq!(rig.segments(), [1, 2]);
}

#[test]
pub fn segments_go_in_order_up_to_the_bound_and_name_their_transactions() {
    let rig = Rig::started();
    for n in [1, 3, 5] {
        fill_segment(&rig, n);
    }
    assert_eq!(rig.segments(), [1, 2, 3, 4]);
    rig.cell(Cell::Checkpoint { lsn: Lsn(3) }).unwrap();
    assert_eq!(drop_up_to(&rig, 100), [1, 2, 3], "the checkpoint bounds it");
    assert_eq!(rig.segments(), [3, 4]);
    assert_eq!(redone(&rig.replay().unwrap()), [4, 5, 6]);
    rig.cell(Cell::Checkpoint { lsn: Lsn(6) }).unwrap();
    assert_eq!(drop_up_to(&rig, 6), [4, 5], "the segment in use stays");
    assert_eq!(rig.segments(), [4]);
    let replay = rig.replay().unwrap();
    assert_eq!((replay.highest_lsn, redone(&replay)), (Lsn(6), vec![]));
}

#[test]
fn a_needed_record_keeps_everything_above_it_too() {
    let rig = Rig::started();
    rig.commit(9, 10);
    fill_segment(&rig, 1);
    fill_segment(&rig, 3);
    rig.cell(Cell::Checkpoint { lsn: Lsn(8) }).unwrap();
    assert_eq!(drop_up_to(&rig, 8), [0; 0]);
    assert_eq!(rig.segments(), [1, 2, 3]);
}

#[test]
fn a_prepared_transaction_keeps_its_segment_until_it_is_decided_or_written_again() {
    for again in [false, true] {
        let rig = Rig::started();
        let prepared = |lsn| Cell::Prepared { lsn: Lsn(lsn), id: TxId(50), body: rig.body(&body(50, 10)) };
        rig.cell(prepared(1)).unwrap();
        fill_segment(&rig, 2);
        rig.cell(Cell::Checkpoint { lsn: Lsn(3) }).unwrap();
        assert_eq!(drop_up_to(&rig, 3), [0; 0]);
        let replay = rig.replay().unwrap();
        assert_eq!(replay.records[0].body, Some(body(50, 10)), "needed though below the checkpoint");
        rig.cell(if again { prepared(1) } else { Cell::Committed { id: TxId(50) } }).unwrap();
        assert_eq!(drop_up_to(&rig, 3), if again { vec![2] } else { vec![2, 50] });
        assert_eq!(rig.segments(), [2]);
    }
}

#[test]
fn only_the_last_promise_of_a_prepared_transaction_counts() {
    let rig = Rig::started();
    let prepared = |lsn| Cell::Prepared { lsn: Lsn(lsn), id: TxId(50), body: rig.body(&body(50, 10)) };
    let bodies =
        |r: Replay| r.records.iter().filter(|e| e.body.is_some()).map(|e| e.pos.cell).collect::<Vec<_>>();
    rig.cell(prepared(1)).unwrap();
    rig.cell(prepared(1)).unwrap();
    assert_eq!(bodies(rig.replay().unwrap()), [1]);
    rig.cell(Cell::Committed { id: TxId(50) }).unwrap();
    assert_eq!(bodies(rig.replay().unwrap()), [1], "committed: goes forward at its place");
    rig.cell(Cell::Checkpoint { lsn: Lsn(1) }).unwrap();
    assert_eq!(bodies(rig.replay().unwrap()), [0; 0]);
}

#[test]
fn what_a_recovery_has_finished_goes_with_the_next_checkpoint() {
    let rig = Rig::started();
    fill_segment(&rig, 1);
    rig.start(Lsn(2));
    rig.cell(Cell::Checkpoint { lsn: Lsn(2) }).unwrap();
    assert_eq!(drop_up_to(&rig, 2), [1, 2]);
    assert_eq!(rig.segments(), [3]);
    rig.commit(3, 10);
    assert_eq!(redone(&rig.replay().unwrap()), [3]);
}

#[test]
fn bytes_are_counted_from_the_last_checkpoint() {
    let rig = Rig::started();
    rig.commit(1, 5000);
    let before = rig.log.bytes_since_checkpoint();
    assert!((5000..6000).contains(&before), "{before}");
    rig.cell(Cell::Checkpoint { lsn: Lsn(1) }).unwrap();
    assert_eq!(rig.log.bytes_since_checkpoint(), 0);
    rig.commit(2, 100);
    assert!((100..400).contains(&rig.log.bytes_since_checkpoint()));
}

#[test]
fn segments_are_dropped_while_others_append() {
    let rig = Rig::started();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 1..=40 {
                rig.commit(n, 3 << 20);
                rig.cell(Cell::Checkpoint { lsn: Lsn(n - 1) }).unwrap();
            }
        });
        let mut gone = Vec::new();
        while !writer.is_finished() {
            gone.extend(drop_up_to(&rig, u64::MAX));
        }
        gone.extend(drop_up_to(&rig, u64::MAX));
        let left = redone(&rig.replay().unwrap());
        assert_eq!(left, [40]);
        assert!(gone.windows(2).all(|w| w[0] < w[1]), "each once, in order: {gone:?}");
    });
}

/// Their bodies have no cells. And no process holds what is removed.
#[test]
fn what_commits_without_a_record_have_written_goes_with_a_checkpoint() {
    let rig = Rig::started();
    let held = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        links
            .filter(|link| link.starts_with(&rig.path) && link.to_string_lossy().ends_with("(deleted)"))
            .count()
    };
    rig.commit(1, 10);
    for round in 0..3 {
        for n in 0..3 {
            rig.body(&body(10 * round + n + 2, 17 << 20));
        }
        let before = rig.segments();
        rig.cell(Cell::Checkpoint { lsn: Lsn(1) }).unwrap();
        assert_eq!(drop_up_to(&rig, 1), if round == 0 { vec![1] } else { vec![] });
        assert_eq!(rig.segments(), [*before.last().unwrap()], "{before:?}");
        assert_eq!((held(), rig.replay().unwrap().damaged.is_none()), (0, true));
    }
    // One that makes segments alone lets go of them, too.
    for n in 40..46 {
        fill_segment(&rig, 10 * n);
        rig.cell(Cell::Checkpoint { lsn: Lsn(10 * n + 1) }).unwrap();
        drop_up_to(&rig, 10 * n + 1);
    }
    assert_eq!(held(), 0);
}
