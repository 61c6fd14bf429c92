//! Damaged words are errors; areas and tables on a real file system.

use super::model::{info_of, only, signature_of, Plain};
use crate::acl;
use crate::domain::layout::*;
use crate::domain::priority::PRIORITY_AGAIN_NS;
use crate::domain::*;
use crate::id::{Footprint, Lsn, ObjectId, Objects, OwnerIx, TxId, OWNERS};
use crate::lock::{Locked, RobustLock};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;
use systx_os::{Errno, Linux, Open, Os, Rename, SetXattr, Timestamp, Words};

const ME: OwnerIx = OwnerIx(7);
/// Of the superblock.
const LIFE: u64 = 5;

fn locked(mem: &Plain) -> Locked {
    RobustLock { word: LOCK_WORD }.try_lock(mem, ME).unwrap().unwrap()
}

// ---- words ----------------------------------------------------------------------------------------------------------

#[test]
fn a_damaged_lock_word_is_an_error_and_stays() {
    let mem = Plain::new(WORDS);
    let lock = RobustLock { word: LOCK_WORD };
    for value in [1 << 31, 1024, 0xffff, 1 << 20 | 7, u64::MAX] {
        mem.store(LOCK_WORD, value, SeqCst);
        assert_eq!(lock.lock(&mem, ME, &|_| false).unwrap_err().value, value);
        assert_eq!(mem.load(LOCK_WORD, SeqCst), value);
    }
    mem.store(LOCK_WORD, 0, SeqCst);
    let held = lock.try_lock(&mem, ME).unwrap().unwrap();
    mem.store(LOCK_WORD, 9, SeqCst);
    assert!(lock.unlock(&mem, held).is_err());
    assert_eq!(lock.holder(&mem), Ok(Some(OwnerIx(9))));
}

#[test]
fn a_lock_is_inherited_once_from_the_last_owner_of_the_index() {
    let mem = Plain::new(WORDS);
    let lock = RobustLock { word: LOCK_WORD };
    let dead = lock.try_lock(&mem, ME).unwrap().unwrap();
    assert!(lock.inherit(&mem, OwnerIx(8)).unwrap().is_none());
    let heir = lock.inherit(&mem, ME).unwrap().unwrap();
    assert_eq!(heir.taken_over, Some(ME));
    assert_eq!(mem.load(LOCK_WORD, SeqCst) >> 31 & 1, 0);
    assert!(lock.unlock(&mem, dead).is_err(), "an old holding is not mistaken for a new one");
    lock.unlock(&mem, heir).unwrap();
    assert!(lock.inherit(&mem, ME).unwrap().is_none());
}

#[test]
fn who_takes_over_wakes_those_who_waited_for_the_dead() {
    let mem = Plain::new(WORDS);
    let lock = RobustLock { word: LOCK_WORD };
    drop(lock.try_lock(&mem, OwnerIx(3)).unwrap().unwrap());
    mem.fetch_or(LOCK_WORD, 1 << 31);
    let heir = lock.lock(&mem, ME, &|_| false).unwrap();
    assert_eq!(heir.taken_over, Some(OwnerIx(3)));
    assert_eq!(mem.load(LOCK_WORD, SeqCst) >> 31 & 1, 1, "others still sleep: the unlock must wake them");
    lock.unlock(&mem, heir).unwrap();
    assert_eq!(lock.holder(&mem), Ok(None));
}

#[test]
fn overlapping_syncs_do_not_keep_each_other_from_clearing() {
    let mem = Plain::new(WORDS);
    let (unsynced, lock) = (Unsynced::new(&mem), locked(&mem));
    let (early, late) = (ObjectId(1 | 2 << 10), ObjectId(3 | 4 << 10));
    let hits = |o| unsynced.hits(&Objects { written: vec![o], ..Objects::default() });
    unsynced.add(&only(early));
    let mut first = unsynced.begin_sync(&lock);
    for _ in 0..5 {
        unsynced.add(&only(late));
        let second = unsynced.begin_sync(&lock);
        unsynced.end_sync(&lock, first);
        assert!(!hits(early), "a sync that began meanwhile is no reason to keep it");
        assert!(hits(late), "it came after the sync began");
        first = second;
    }
    unsynced.end_sync(&lock, first);
    let last = unsynced.begin_sync(&lock);
    unsynced.end_sync(&lock, last);
    assert!(!hits(late));
}

#[test]
fn damaged_slots_are_errors() {
    let mem = Plain::new(WORDS);
    let slots = Slots::new(&mem);
    let lock = locked(&mem);
    let ix = slots.find_free(&lock).unwrap().unwrap();
    let seen = slots.fill(&lock, ix, &info_of(6), SlotState::Validated).unwrap();
    assert_eq!(slots.read(ix).unwrap().unwrap().info, info_of(6));
    for (word, value) in
        [(SLOTS_BASE + 3, 0), (SLOTS_BASE + 3, 1 << 40), (SLOTS_BASE + 7, 8), (SLOTS_BASE, 99)]
    {
        let before = mem.load(word, SeqCst);
        mem.store(word, value, SeqCst);
        assert_eq!(slots.read(ix).unwrap_err().word, word);
        mem.store(word, before, SeqCst);
    }
    mem.store(SLOTS_BASE + SLOT_LEN, 99, SeqCst);
    mem.store(BITMAP_WORD, u64::MAX, SeqCst);
    assert_eq!(slots.in_flight().filter(|s| s.is_err()).count(), 1);
    assert!(slots.find_free(&lock).is_err());
    assert_eq!(slots.set_state(ix, seen, SlotState::Aborting).unwrap().state(), SlotState::Aborting);
    assert_eq!(slots.free(ix, seen), Err(Moved), "the state has moved on");
}

#[test]
fn a_use_of_a_slot_is_not_mistaken_for_the_next_one() {
    let mem = Plain::new(WORDS);
    let slots = Slots::new(&mem);
    let lock = locked(&mem);
    let ix = slots.find_free(&lock).unwrap().unwrap();
    let first = slots.fill(&lock, ix, &info_of(1), SlotState::Validated).unwrap();
    assert_eq!(slots.fill(&lock, ix, &info_of(2), SlotState::Validated), Err(Moved));
    slots.free(ix, first).unwrap();
    let second = slots.fill(&lock, ix, &info_of(2), SlotState::Prepared).unwrap();
    assert_ne!(first, second);
    assert_eq!(slots.free(ix, first), Err(Moved));
    assert_eq!(slots.set_state(ix, first, SlotState::Publishing), Err(Moved));
    assert_eq!(slots.in_flight().map(|s| s.unwrap().info).collect::<Vec<_>>(), [info_of(2)]);
}

#[test]
fn all_slots_can_be_in_flight_and_no_more() {
    let mem = Plain::new(WORDS);
    let slots = Slots::new(&mem);
    let lock = locked(&mem);
    for n in 0..SLOTS as u64 {
        let ix = slots.find_free(&lock).unwrap().unwrap();
        slots.fill(&lock, ix, &info_of(n), SlotState::Validated).unwrap();
    }
    assert_eq!(slots.find_free(&lock).unwrap(), None);
    let all: Vec<_> = slots.in_flight().map(Result::unwrap).collect();
    assert_eq!(all.len(), SLOTS);
    all.iter().for_each(|s| slots.free(s.ix, s.seen).unwrap());
    assert_eq!(slots.in_flight().count(), 0);
    assert!(slots.find_free(&lock).unwrap().is_some());
    assert_eq!(mem.load(BITMAP_WORD, SeqCst), 0, "an idle table is scanned with one load");
}

#[test]
fn a_ring_entry_that_is_gone_or_damaged_is_an_overrun() {
    let mem = Plain::new(WORDS);
    let ring = Ring::new(&mem);
    let lock = locked(&mem);
    let who = Who { tx: TxId(3), pid: 4, recorded: false };
    let last = RING as u64 + 5;
    (1..=last).for_each(|n| ring.put(&lock, Lsn(n), who, &signature_of(n)));
    let scan = |from, to| ring.scan(Lsn(from), Lsn(to), |lsn, _, s| assert_eq!(*s, signature_of(lsn.0)));
    assert_eq!(scan(6, last + 1), Scan::Done);
    assert_eq!(scan(9, 9), Scan::Done);
    assert_eq!(scan(5, last + 1), Scan::Overrun);
    assert_eq!(scan(5, 6), Scan::Overrun);
    assert_eq!(scan(9, 8), Scan::Overrun);
    assert_eq!(scan(0, u64::MAX), Scan::Overrun);
    mem.store(RING_BASE + 9 * RING_ENTRY_LEN, u64::MAX, SeqCst);
    assert_eq!(scan(8, 12), Scan::Overrun);
}

fn holder(age: u64, deadline_ns: u64) -> Holder {
    let footprint = Footprint { read: signature_of(age), ..Footprint::EMPTY };
    Holder { age: TxId(age), owner: ME, deadline_ns, length_ns: 1000, footprint }
}

#[test]
fn there_is_one_holder_until_its_time_is_over_or_it_dies() {
    let mem = Plain::new(WORDS);
    let place = PriorityPlace::new(&mem);
    let lock = locked(&mem);
    let alive = |_: OwnerIx| true;
    assert!(place.try_become(&lock, &holder(1, 100), 10, &alive).unwrap());
    assert_eq!(place.current(&lock, 99, &alive), Ok(Some(holder(1, 100))));
    assert!(!place.try_become(&lock, &holder(2, 200), 99, &alive).unwrap());
    assert!(place.try_become(&lock, &holder(1, 900), 99, &alive).unwrap());
    assert_eq!(place.current(&lock, 100, &alive), Ok(None), "its deadline does not move");
    assert!(place.try_become(&lock, &holder(2, 200), 100, &alive).unwrap());
    place.resign(TxId(1));
    assert_eq!(place.current(&lock, 100, &alive), Ok(Some(holder(2, 200))));
    mem.store(PRIORITY_BASE + 2, 1101, SeqCst);
    assert_eq!(place.current(&lock, 100, &alive), Ok(None), "a deadline of a clock that is ahead");
    let longest = PRIORITY_AGAIN_NS[1];
    mem.store(PRIORITY_BASE + 3, u64::MAX, SeqCst);
    mem.store(PRIORITY_BASE + 2, 101 + longest, SeqCst);
    assert_eq!(place.current(&lock, 100, &alive), Ok(None), "nobody has priority for so long");
    mem.store(PRIORITY_BASE + 2, 200, SeqCst);
    assert_eq!(place.current(&lock, 100, &|_| false), Ok(None));
    mem.store(PRIORITY_BASE + 1, 0, SeqCst);
    assert!(place.current(&lock, 100, &alive).is_err());
    place.resign(TxId(2));
    assert_eq!(place.current(&lock, 100, &alive), Ok(None));
}

#[test]
fn who_is_older_takes_the_place_of_a_younger_holder() {
    let mem = Plain::new(WORDS);
    let place = PriorityPlace::new(&mem);
    let lock = locked(&mem);
    let alive = |_: OwnerIx| true;
    let open_to = |age| place.is_open_to(&lock, TxId(age), 10, &alive).unwrap();
    assert!(open_to(9));
    assert!(place.try_become(&lock, &holder(5, 100), 10, &alive).unwrap());
    assert_eq!([4, 5, 6].map(open_to), [true, true, false]);
    assert!(!place.try_become(&lock, &holder(6, 100), 10, &alive).unwrap());
    assert!(place.try_become(&lock, &holder(4, 900), 10, &alive).unwrap());
    assert_eq!(place.current(&lock, 10, &alive), Ok(Some(holder(4, 900))), "with a time of its own");
    place.resign(TxId(5));
    assert!(!open_to(5), "only the holder itself resigns");
}

#[test]
fn a_record_reads_back_or_not_at_all() {
    let mem = Plain::new(WORDS);
    let records = Records::new(&mem);
    let command =
        b"make -j4 install DESTDIR=/somewhere/that/needs/quite/a/few/more/bytes/than/a/record/has/room"
            .to_vec();
    let since = Timestamp { sec: -1, nsec: 999_999_999 };
    let mut record = Record { tx: TxId(8), pid: 9, open: true, since, command };
    records.put(ME, &record);
    record.command.truncate(records::COMMAND_BYTES_MAX);
    assert_eq!(records.get(ME), Some(record.clone()));
    let at = RECORDS_BASE + ME.0 as usize * RECORD_LEN;
    mem.store(at, mem.load(at, SeqCst) + 1, SeqCst);
    assert_eq!(records.get(ME), None, "its writer died");
    mem.store(at + 4, u64::MAX, SeqCst);
    records.put(ME, &record);
    assert_eq!(records.get(ME), Some(record));
    mem.store(at + 4, u64::MAX, SeqCst);
    assert!(records.get(ME).is_some_and(|r| r.command.len() <= records::COMMAND_BYTES_MAX));
    records.clear(ME);
    assert_eq!(records.get(ME), None);
    assert_eq!(records.get(OwnerIx(0)).or(records.get(OwnerIx(u32::MAX))), None);
}

#[test]
fn further_records_are_found_ended_and_left_by_the_dead() {
    let mem = Plain::new(WORDS);
    let records = Records::new(&mem);
    let since = Timestamp { sec: 1, nsec: 2 };
    let record =
        |tx| Record { tx: TxId(tx), pid: 9, open: true, since, command: tx.to_string().into_bytes() };
    let other = OwnerIx(ME.0 + 1);
    let open = |ix| {
        records.all().filter(|(owner, r)| r.open && *owner == ix).map(|(_, r)| r.tx.0).collect::<Vec<_>>()
    };
    let mine: Vec<_> =
        (0..1000).map(|tx| records.put_further(ME, &record(tx), 0).expect("there is room")).collect();
    let its: Vec<_> = (1000..).map_while(|tx| records.put_further(other, &record(tx), 7)).collect();
    assert_eq!((mine.len(), mine.len() + its.len()), (1000, FURTHER));
    assert_eq!(open(ME), (0..1000).collect::<Vec<_>>());
    // What has ended is not open, and can be read until it is used again.
    records.end_further(ME, mine[3]);
    records.end_further(ME, its[0]);
    assert_eq!((open(ME).len(), open(other).len()), (999, FURTHER - 1000));
    assert!(records.all().any(|(_, r)| r == Record { open: false, ..record(3) }));
    assert_eq!(records.put_further(other, &record(5000), 900), Some(mine[3]));
    assert!(records.all().all(|(_, r)| r.tx != TxId(3)));
    // One died while it wrote.
    let half = FURTHER_BASE + mine[4] * RECORD_LEN;
    mem.store(half, mem.load(half, SeqCst) & !2 | 1, SeqCst);
    records.end_further_of(|ix| ix == ME);
    assert!(open(ME).is_empty() && records.all().all(|(_, r)| r.tx != TxId(4)));
    records.clear(other);
    assert!(open(other).is_empty());
    assert!((0..FURTHER).all(|n| records.put_further(ME, &record(n as u64), 5).is_some()));
    assert_eq!(records.put_further(ME, &record(1), 5), None);
}

// ---- a real file system ---------------------------------------------------------------------------------------------

/// A fresh directory below the one for temporary files; removed on drop.
struct Scratch {
    os: Linux,
    path: PathBuf,
    dir: Arc<OwnedFd>,
}

impl Scratch {
    fn new() -> Scratch {
        let os = Linux::new();
        let path = std::env::temp_dir().join(format!("systx-domain-{}-{:x}", os.pid(), os.random()));
        std::fs::create_dir(&path).unwrap();
        let dir = Arc::new(os.open_path(&path, Open::Directory).unwrap());
        Scratch { os, path, dir }
    }
    fn area(&self, make: Make) -> Result<Option<Area<Linux>>, AreaError> {
        let site =
            Location { root: self.dir.clone(), bounds: Bounds::Directory, parent: &*self.dir, name: b"area" };
        Area::open(&self.os, &site, make)
    }
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path.join("area").join(name), text).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[test]
fn an_area_is_made_once_and_a_half_made_one_is_finished() {
    let s = Scratch::new();
    assert!(s.area(Make::Never).unwrap().is_none());
    s.os.mkdir(&s.dir, b"area", 0o700).unwrap();
    s.write("format.00", "syst");
    assert!(s.area(Make::Never).unwrap().is_none(), "half-made");
    let area = s.area(Make::IfMissing).unwrap().unwrap();
    let mut names: Vec<_> = s.os.read_dir(&area.dir).unwrap().into_iter().map(|e| e.name).collect();
    names.sort();
    assert_eq!(names, [&b"aside"[..], b"format", b"tx"]);
    assert!(s.area(Make::Never).unwrap().is_some());
    assert!(s.area(Make::IfMissing).unwrap().is_some());
}

#[test]
fn what_is_made_in_an_area_inherits_nothing_from_the_directory_that_it_is_in() {
    let s = Scratch::new();
    // user::rwx, user:1234:rwx, group::r-x, mask::rwx, other::r-x, each with its number.
    let entries = [(1, 7, u32::MAX), (2, 7, 1234), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)];
    let mut list = 2u32.to_ne_bytes().to_vec();
    for (tag, bits, id) in entries {
        list.extend([u16::to_ne_bytes(tag), u16::to_ne_bytes(bits)].concat());
        list.extend(id.to_ne_bytes());
    }
    match s.os.setxattr(&s.dir, acl::DEFAULT, &list, SetXattr::Any) {
        Err(Errno::OPNOTSUPP) => return println!("skipped: no lists here"),
        set => set.unwrap(),
    }
    // Once from the beginning, and once as it is found when its maker was killed.
    for half_made in [false, true] {
        if half_made {
            s.os.mkdir(&s.dir, b"area", 0o700).unwrap();
            let area = s.os.open(&s.dir, b"area", Open::Directory).unwrap();
            s.os.mkdir(&area, b"tx", 0o700).unwrap();
        }
        let area = s.area(Make::IfMissing).unwrap().unwrap();
        for dir in [&area.dir, &area.tx, &area.aside] {
            let file = s.os.create(dir, b"file", 0o640).unwrap();
            assert_eq!(s.os.getxattr(&file, acl::ACCESS), Err(Errno::NODATA));
        }
        std::fs::remove_dir_all(s.path.join("area")).unwrap();
    }
}

#[test]
fn many_may_make_an_area_at_once() {
    let s = Scratch::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(s.area(Make::IfMissing).unwrap().is_some()));
        }
    });
    let format = std::fs::read_to_string(s.path.join("area/format")).unwrap();
    assert!(format.starts_with("systx area 2\nidentity "), "{format}");
}

#[test]
fn what_is_not_an_area_of_ours_is_refused() {
    let s = Scratch::new();
    // Where all may make names, as an umask of 0 would let them, root moves files of its own away, too.
    std::fs::set_permissions(&s.path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("/", s.path.join("area")).unwrap();
    assert_eq!(s.area(Make::IfMissing).err(), Some(AreaError::NotADirectory));
    s.os.unlink(&s.dir, b"area").unwrap();
    std::fs::write(s.path.join("area"), "").unwrap();
    assert_eq!(s.area(Make::IfMissing).err(), Some(AreaError::NotADirectory));
    s.os.unlink(&s.dir, b"area").unwrap();
    s.os.mkdir(&s.dir, b"area", 0o750).unwrap();
    assert_eq!(s.area(Make::IfMissing).err(), Some(AreaError::Mode(0o750)));
    s.os.rmdir(&s.dir, b"area").unwrap();
    assert!(s.area(Make::IfMissing).unwrap().is_some());
    for text in ["", "systx area 2\n", "systx area 3\n", "systx area 1\n\n"] {
        s.write("format", text);
        assert_eq!(s.area(Make::IfMissing).err(), Some(AreaError::Version));
    }
}

fn open(s: &Scratch) -> Result<Opened<Linux>, TableError> {
    let area = s.area(Make::IfMissing).unwrap().unwrap();
    Table::open(&s.os, &area, &Owners::open(&s.os, &area.dir).unwrap(), LIFE)
}

fn ready(s: &Scratch) -> Table<Linux> {
    match open(s).unwrap() {
        Opened::Ready(table) => table,
        Opened::Stale(_) => panic!("stale"),
    }
}

fn stale(s: &Scratch) -> Initializer<Linux> {
    match open(s).unwrap() {
        Opened::Stale(initializer) => initializer,
        Opened::Ready(_) => panic!("ready"),
    }
}

#[test]
fn a_table_is_built_by_one_and_then_shared() {
    let s = Scratch::new();
    drop(stale(&s));
    let initializer = stale(&s);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| ready(&s).next());
        let table = initializer.finish(Lsn(17), TxId(4), |_| Ok::<(), ()>(())).expect("nothing to prepare");
        assert_eq!(waiter.join().unwrap(), Lsn(17));
        assert_eq!((table.new_tx(), ready(&s).new_tx()), (TxId(4), TxId(5)));
        let lock = table.lock(ME, &|_| true).unwrap();
        assert!(ready(&s).try_lock(OwnerIx(8)).unwrap().is_none());
        assert_eq!(table.advance_next(&lock), Lsn(17));
        assert_eq!(ready(&s).next(), Lsn(18));
        table.unlock(lock).unwrap();
    });
}

#[test]
fn a_table_of_another_boot_or_a_condemned_one_is_built_anew() {
    let s = Scratch::new();
    let table = stale(&s).finish(Lsn(9), TxId(9), |_| Ok::<(), ()>(())).expect("nothing to prepare");
    table.mem().store(BOOT_WORD + 1, 0, SeqCst);
    table.mem().store(LOG_BASE, 5, SeqCst);
    let table = stale(&s).finish(Lsn(2), TxId(3), |_| Ok::<(), ()>(())).expect("nothing to prepare");
    assert_eq!(table.mem().load(LOG_BASE, SeqCst), 0);
    assert_eq!(ready(&s).next(), Lsn(2));
    table.condemn();
    assert!(table.condemned());
    stale(&s).finish(Lsn(5), TxId(5), |_| Ok::<(), ()>(())).expect("nothing to prepare");
    assert_eq!(ready(&s).next(), Lsn(5));
    let file = std::fs::OpenOptions::new().write(true).open(s.path.join("area/table")).unwrap();
    file.set_len(10).unwrap();
    stale(&s).finish(Lsn(6), TxId(5), |_| Ok::<(), ()>(())).expect("nothing to prepare");
    assert_eq!(ready(&s).next(), Lsn(6));
}

#[test]
fn a_table_of_another_life_counts_while_somebody_lives_who_has_it() {
    let s = Scratch::new();
    let table = stale(&s).finish(Lsn(9), TxId(9), |_| Ok::<(), ()>(())).expect("nothing to prepare");
    let id = table.id();
    let area = s.area(Make::IfMissing).unwrap().unwrap();
    let owners = Owners::open(&s.os, &area.dir).unwrap();
    for (word, other) in [(BOOT_WORD, 1), (LIFE_WORD, LIFE + 1), (LIFE_WORD, 0)] {
        let claim = owners.claim().unwrap();
        let before = table.mem().load(word, SeqCst);
        table.mem().store(word, other, SeqCst);
        assert_eq!(ready(&s).id(), id);
        drop(claim);
        drop(stale(&s));
        assert!(table.condemned(), "whoever comes before it is built finds that, too");
        table.mem().store(word, before, SeqCst);
        table.mem().store(STATE_WORD, INITIALISED, SeqCst);
        assert_eq!(ready(&s).id(), id);
    }
}

#[test]
fn a_table_of_another_version_or_lost_is_refused_while_somebody_lives() {
    let s = Scratch::new();
    let table = stale(&s).finish(Lsn(1), TxId(1), |_| Ok::<(), ()>(())).expect("nothing to prepare");
    let area = s.area(Make::IfMissing).unwrap().unwrap();
    let owners = Owners::open(&s.os, &area.dir).unwrap();
    let claim = owners.claim().unwrap();
    table.mem().store(VERSION_WORD, VERSION + 1, SeqCst);
    assert_eq!(open(&s).err(), Some(TableError::Version(VERSION + 1)));
    drop(claim);
    // It may be larger, too.
    let file = std::fs::OpenOptions::new().write(true).open(s.path.join("area/table")).unwrap();
    file.set_len(2 * WORDS as u64 * 8).unwrap();
    stale(&s).finish(Lsn(7), TxId(7), |_| Ok::<(), ()>(())).expect("nothing to prepare");
    assert_eq!(ready(&s).next(), Lsn(7), "made anew from the log");
    assert_eq!(table.mem().load(VERSION_WORD, SeqCst), VERSION);

    let claim = owners.claim().unwrap();
    s.os.rename((&area.dir, b"table"), (&s.dir, b"table"), Rename::NoReplace).unwrap();
    assert_eq!(open(&s).err(), Some(TableError::InUse));
    drop(claim);
    drop(stale(&s));
    s.os.mkdir(&area.dir, b"tab", 0o700).unwrap();
    s.os.rename((&area.dir, b"tab"), (&area.dir, b"table"), Rename::Exchange).unwrap();
    assert!(open(&s).is_err());
}

#[test]
fn an_owner_has_its_index_alone_until_it_leaves() {
    let s = Scratch::new();
    let area = s.area(Make::IfMissing).unwrap().unwrap();
    let owners = Owners::open(&s.os, &area.dir).unwrap();
    let (a, b) = (owners.claim().unwrap(), owners.claim().unwrap());
    assert_ne!(a.ix, b.ix);
    assert!(a.ix.0 > 0 && a.ix.0 < OWNERS);
    assert!(owners.alive(a.ix) && owners.claim_of(a.ix).unwrap().is_none());
    let ix = a.ix;
    drop(a);
    assert!(!owners.alive(ix));
    assert_eq!(owners.claim_of(ix).unwrap().map(|c| c.ix), Some(ix));
    assert!(
        owners.claim_of(OwnerIx(0)).unwrap().is_none() && owners.claim_of(OwnerIx(OWNERS)).unwrap().is_none()
    );
    let all: Vec<_> = (2..OWNERS).map(|_| owners.claim().unwrap()).collect();
    assert_eq!(owners.claim().err(), Some(OwnersError::Full));
    drop((b, all));
}
