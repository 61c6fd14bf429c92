//! Several users at once: group commit, takeovers, a poisoned log.

use super::super::format::Header;
use super::super::latch::Latch;
use super::*;
use std::sync::atomic::AtomicU64;
use systx_os::{Errno, Words};

#[test]
fn commits_of_many_threads_and_processes_are_all_synced_and_read() {
    let rig = Rig::started();
    let (threads, each) = (8, 60);
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for t in 0..threads {
            let (rig, next) = (&rig, &next);
            scope.spawn(move || {
                // Every second one as another process would.
                let own = (t % 2 == 0).then(|| rig.another());
                let log = own.as_ref().unwrap_or(&rig.log);
                for i in 0..each {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let text = body(n, if i % 10 == 0 { 40_000 } else { 100 });
                    let pos = loop {
                        let body = log.append_body(ME, &alive, &text).unwrap();
                        let lock = rig.lock();
                        let cell = Cell::Commit { lsn: Lsn(n), id: TxId(n), body };
                        let result = log.append_cell(&lock, ME, &alive, cell);
                        rig.unlock(lock);
                        match result {
                            Err(LogError::Moved) => {}
                            result => break result.unwrap(),
                        }
                    };
                    log.sync(ME, &alive, pos).unwrap();
                    assert!(rig.mem.load(BASE + shared::SYNCED, Ordering::SeqCst) > pos.pack());
                }
            });
        }
    });
    let replay = rig.replay().unwrap();
    let mut got = redone(&replay);
    got.sort_unstable();
    assert_eq!(got, (1..=threads * each).collect::<Vec<_>>());
    assert!(replay.segments.len() >= 2, "segments were changed meanwhile");
}

#[test]
fn a_dead_leader_and_a_dead_maker_are_replaced() {
    let rig = Rig::started();
    let dead = OwnerIx(9);
    let living = |ix| ix != dead;
    let pos = rig.commit(1, 10);
    std::mem::forget(rig.log.syncing().take(dead, &living));
    rig.log.sync(ME, &living, pos).unwrap();
    let making = RobustLock { word: BASE + shared::MAKING };
    let _ = making.lock(&*rig.mem, dead, &living).unwrap();
    rig.log.append_body(ME, &living, &body(2, 2 << 20)).unwrap();
}

#[test]
fn who_gets_the_index_of_a_dead_process_inherits_its_locks() {
    let rig = Rig::started();
    let pos = rig.commit(1, 10);
    std::mem::forget(rig.log.syncing().take(ME, &alive));
    let making = RobustLock { word: BASE + shared::MAKING };
    let _ = making.lock(&*rig.mem, ME, &alive).unwrap();
    rig.another().inherit(OwnerIx(8)).unwrap();
    assert_eq!(making.holder(&*rig.mem).unwrap(), Some(ME), "only one's own");
    rig.another().inherit(ME).unwrap();
    rig.sync(pos).unwrap();
    rig.body(&body(2, 2 << 20));
}

#[test]
fn a_holder_who_was_taken_over_lets_go_of_nothing() {
    let rig = Rig::started();
    let latch = Latch { mem: &*rig.mem, word: BASE + shared::SYNCING };
    let old = latch.take(OwnerIx(9), &alive);
    let new = latch.take(ME, &|_| false);
    drop(old);
    assert!(latch.take_or_wait(OwnerIx(8), &|ix| ix == ME).is_none());
    drop(new);
    assert!(latch.take_or_wait(OwnerIx(8), &alive).is_some());
}

#[test]
pub fn a_poisoned_log_refuses_everything_until_a_recovery() {
    let rig = Rig::started();
    let synced = rig.commit(1, 10);
    rig.sync(synced).unwrap();
    let pending = rig.commit(2, 10);
    rig.log.shared.set_state(shared::State::Poisoned(Errno::IO));
    let other = rig.another();
    assert_eq!(other.sync(ME, &alive, pending), Err(SyncError { error: Errno::IO }));
    assert_eq!(other.sync(ME, &alive, synced), Ok(()), "what was synced is synced");
    assert_eq!(other.append_body(ME, &alive, &body(3, 1)), Err(LogError::Poisoned { error: Errno::IO }));
    assert_eq!(rig.cell(Cell::Abort { lsn: Lsn(2) }), Err(LogError::Poisoned { error: Errno::IO }));
    rig.start(Lsn(2));
    assert!(other.sync(ME, &alive, pending).is_err(), "in doubt stays in doubt");
    let pos = rig.commit(3, 10);
    rig.sync(pos).unwrap();
    assert_eq!(redone(&rig.replay().unwrap()), [3]);
}

#[test]
fn a_table_can_be_prepared_before_anybody_uses_it() {
    let rig = Rig::new();
    rig.replay().unwrap().start(Lsn(4)).prepare(&rig.mem, BASE);
    let pos = rig.commit(5, 10);
    rig.sync(pos).unwrap();
    assert_eq!(rig.replay().unwrap().checkpoint, Lsn(4));
}

#[test]
fn one_sync_answers_for_everything_appended_before_it() {
    let rig = Rig::started();
    let cells = [1, 2, 3].map(|n| rig.commit(n, 10));
    rig.sync(cells[0]).unwrap();
    let later = rig.commit(4, 10);
    // From here on a sync that happened would be refused.
    rig.log.shared.set_state(shared::State::Poisoned(Errno::IO));
    assert_eq!(cells.map(|pos| rig.sync(pos)), [Ok(()); 3]);
    assert!(rig.sync(later).is_err());
}

/// Another process whose descriptor of segment 1 can't be synced: fdatasync of /dev/null is EINVAL.
fn on_a_broken_disk(rig: &Rig) -> Log<Linux> {
    let log = rig.another();
    // As long as its file, which has no length.
    let header = Header { size: 0, ..rig.log.segment(1).unwrap().header };
    let fd = rig.os.open_path(std::path::Path::new("/dev/null"), Open::Write).unwrap();
    log.open.lock().unwrap().push(Arc::new(super::super::segment::Segment { fd, header }));
    log
}

#[test]
pub fn a_failed_sync_closes_the_log_for_all_and_is_not_tried_again() {
    let rig = Rig::started();
    let pos = rig.commit(1, 10);
    let error = Errno::INVAL;
    assert_eq!(on_a_broken_disk(&rig).sync(ME, &alive, pos), Err(SyncError { error }));
    assert_eq!(rig.sync(pos), Err(SyncError { error }), "though its own descriptor could");
    assert_eq!(rig.cell(Cell::Abort { lsn: Lsn(1) }), Err(LogError::Poisoned { error }));
}

#[test]
pub fn a_segment_that_cannot_be_synced_is_not_left() {
    let rig = Rig::started();
    rig.commit(1, 10);
    let ahead = rig.body(&body(2, 2 << 20));
    let (log, lock) = (on_a_broken_disk(&rig), rig.lock());
    let cell = Cell::Commit { lsn: Lsn(2), id: TxId(2), body: ahead };
    assert_eq!(log.append_cell(&lock, ME, &alive, cell), Err(LogError::Poisoned { error: Errno::INVAL }));
    rig.unlock(lock);
    assert_eq!(rig.log.end(), LogPos { segment: 1, cell: 1 });
    assert_eq!(redone(&rig.replay().unwrap()), [1]);
}
