//! An area is the same under every kernel and in every order of disks, and a copy of it is another one.

use super::stuck::make;
use super::world::*;
use crate::domain::{AreaError, Domain, Make, OpenError};
use crate::log::format::{name, Header, HeaderRead};
use std::sync::Arc;
use systx_os::{Fallocate, FsInfo, FsKind, Open, Os, Rename};
use systx_sim::machine::{run_process, Crash, FsSpec, Look, Machine, Plant, SimFd, SimOs};

/// A kernel's answer about a file system.
type Answer = (Option<[u8; 16]>, Option<u64>);

const UUID: [u8; 16] = [0x5a; 16];
const BEFORE_6_9: Answer = (None, Some(0x77));
const SINCE_6_9: Answer = (Some(UUID), Some(0x77));
/// Of xfs f_fsid says nothing.
const XFS_BEFORE_6_9: Answer = (None, None);
const XFS_SINCE_6_9: Answer = (Some(UUID), None);

fn tells(machine: &Machine, (uuid, fsid): Answer) {
    machine.set_info(0, |info| (info.uuid, info.fsid) = (uuid, fsid));
}

fn begun(kind: FsKind, answer: Answer) -> Machine {
    let spec = FsSpec::new(kind);
    let machine =
        Machine::new(1, &[FsSpec { info: FsInfo { uuid: answer.0, fsid: answer.1, ..spec.info }, ..spec }]);
    tells(&machine, answer);
    machine.plant(0, &[("w", Plant::Dir)]).expect("plants");
    machine.settle();
    machine.set_word_points(false);
    machine
}

fn within<T>(machine: &Machine, work: impl FnOnce(&Arc<Domain<SimOs>>) -> T) -> Result<T, OpenError> {
    let os = machine.spawn("somebody");
    let done = run_process(&os, || open(&os).map(|domain| work(&domain))).expect("lives");
    os.exit();
    done
}

fn commits(machine: &Machine, file: &str) -> Result<[u8; 16], OpenError> {
    within(machine, |domain| {
        make(domain, file.as_bytes()).unwrap_or_else(|e| panic!("{file}: {e:?}"));
        domain.key
    })
}

fn is_whole(machine: &Machine, file: &str) -> bool {
    machine.look(0, &format!("w/{file}")).is_some_and(|look: Look| look.content == file.as_bytes())
}

fn power_fails(machine: &Machine) {
    machine.power_loss(Crash::NothingUnsynced, &mut fastrand::Rng::with_seed(1));
}

#[test]
fn an_area_stays_the_same_whatever_a_kernel_tells_of_its_file_system() {
    for (kind, old, new) in [
        (FsKind::Ext4, BEFORE_6_9, SINCE_6_9),
        (FsKind::Btrfs, BEFORE_6_9, SINCE_6_9),
        (FsKind::Xfs, XFS_BEFORE_6_9, XFS_SINCE_6_9),
    ] {
        for answers in [[old, new, old, new], [new, old, old, new]] {
            let machine = begun(kind, answers[0]);
            let mut keys = Vec::new();
            for (n, answer) in answers.into_iter().enumerate() {
                tells(&machine, answer);
                let file = format!("f{n}");
                let same = "the same area is taken for a copy";
                keys.push(commits(&machine, &file).unwrap_or_else(|e| panic!("{same}: {e}")));
                power_fails(&machine);
            }
            within(&machine, |_| {}).expect("opens");
            assert!((0..4).all(|n| is_whole(&machine, &format!("f{n}"))), "{kind:?}: lost");
            keys.dedup();
            assert_eq!(keys.len(), 1, "{kind:?}: one identity");
        }
    }
}

/// The objects of the area in another directory, which takes its name.
fn put_back(machine: &Machine) {
    let os = machine.outsider("backup");
    let root = os.root(0);
    os.mkdir(&root, b"copy", 0o700).expect("makes");
    let (from, to) = (
        os.open(&root, AREA, Open::Directory).expect("is there"),
        os.open(&root, b"copy", Open::Directory).expect("is there"),
    );
    for entry in os.read_dir(&from).expect("lists") {
        os.rename((&from, &entry.name), (&to, &entry.name), Rename::NoReplace).expect("moves");
    }
    os.rmdir(&root, AREA).expect("is empty");
    os.rename((&root, b"copy"), (&root, AREA), Rename::NoReplace).expect("moves");
}

type Copies = (&'static str, fn(&Machine));

const COPIES: [Copies; 3] = [
    ("its UUID", |machine| tells(machine, (Some([1; 16]), Some(0x77)))),
    ("its f_fsid", |machine| tells(machine, (None, Some(0x78)))),
    ("the inode of its directory", put_back),
];

#[test]
fn what_a_copied_area_has_to_redo_is_not_redone_in_the_copy() {
    for (sign, copy) in COPIES {
        let machine = begun(FsKind::Ext4, SINCE_6_9);
        let first = commits(&machine, "one").expect("opens");
        power_fails(&machine);
        machine.remove(0, "w/one").unwrap_or_default();
        machine.settle();
        copy(&machine);
        let refused = within(&machine, |_| {});
        assert!(!is_whole(&machine, "one"), "{sign}: redone in a copy");
        assert!(
            matches!(refused, Err(OpenError::Area(AreaError::Copied(_)))),
            "{sign}: {:?}",
            refused.err().map(|e| e.to_string())
        );
        // Done as the message says.
        let os = machine.outsider("somebody");
        let area = os.open_path(0, ".systx", Open::Directory).expect("is there");
        os.rename((&area, b"log"), (&os.root(0), b"log.old"), Rename::NoReplace).expect("moves");
        let second = commits(&machine, "two").unwrap_or_else(|e| panic!("{sign}: {e}"));
        assert_ne!(first, second, "{sign}");
        power_fails(&machine);
        within(&machine, |_| {}).expect("opens");
        assert!(is_whole(&machine, "two") && !is_whole(&machine, "one"), "{sign}");
    }
}

#[test]
fn a_copied_area_with_nothing_to_redo_gets_an_identity_of_its_own() {
    for power in [false, true] {
        for (sign, copy) in COPIES {
            let machine = begun(FsKind::Ext4, SINCE_6_9);
            let first = commits(&machine, "one").expect("opens");
            within(&machine, |domain| domain.checkpoint().expect("checkpoints")).expect("opens");
            if power {
                power_fails(&machine);
            }
            copy(&machine);
            let second = commits(&machine, "two").unwrap_or_else(|e| panic!("{sign}: {e}"));
            assert_ne!(first, second, "{sign}");
            power_fails(&machine);
            let third = within(&machine, |domain| domain.key).expect("opens");
            assert_eq!(second, third, "{sign}");
            assert!(is_whole(&machine, "one") && is_whole(&machine, "two"), "{sign}");
        }
    }
}

/// An archive that is unpacked at the top of a file system has a directory of root's, with mode 0700 and
/// whatever is in it. Only what the kernel gives the directory when it is made nobody can have written into
/// it before.
#[test]
fn a_log_that_an_archive_has_brought_is_not_redone() {
    // A device number, and what any user may ask the kernel for: f_fsid, and the UUID.
    let written =
        |half: u64| core::array::from_fn(|n| half.to_le_bytes().get(n).copied().unwrap_or_default());
    let older = [[0, 0, 0, 0, 0, 0, 0, 0, 3, 8, 0, 0, 0, 0, 0, 0], written(0x77), UUID].map(Some);
    let guessed = [("guessed", None), ("guessed on xfs", None), ("without a time", None)];
    let formats = [("none", None), ("no signs", None)].into_iter().chain(guessed);
    for (format, says) in formats.chain(older.map(|says| ("older", says))) {
        for done in [false, true] {
            // There a handle can be foretold.
            let kind = match format {
                "guessed" | "without a time" => FsKind::Btrfs,
                "guessed on xfs" => FsKind::Xfs,
                _ => FsKind::Ext4,
            };
            let machine = begun(kind, SINCE_6_9);
            commits(&machine, "one").expect("opens");
            if done {
                within(&machine, |domain| domain.checkpoint().expect("checkpoints")).expect("opens");
            }
            power_fails(&machine);
            machine.remove(0, "w/one").unwrap_or_default();
            put_back(&machine);
            let os = machine.outsider("archive");
            let area = os.open_path(0, ".systx", Open::Directory).expect("is there");
            let file = os.open(&area, b"format", Open::ReadWrite).expect("is there");
            let mut bytes = [0; 1024];
            let read = os.pread(&file, &mut bytes, 0).expect("reads");
            let text = String::from_utf8(bytes[..read].to_vec()).unwrap();
            os.truncate(&file, 0).expect("truncates");
            match (format, says) {
                ("none", _) => os.unlink(&area, b"format").expect("removes"),
                (_, Some(says)) => make_older(&machine, says),
                ("guessed" | "guessed on xfs" | "without a time", _) => {
                    let handle = os.handle(&area).expect("has one");
                    let hex: String = handle.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                    let (signs, rest) = text.split_once("handle ").expect("has it");
                    let (of_dir, of_file) = rest.split_once('\n').expect("ends");
                    let time = of_dir.rsplit_once(' ').expect("has a time").1;
                    let time = if format == "without a time" { String::new() } else { format!(" {time}") };
                    let text = format!("{signs}handle {} {hex}{time}\n{of_file}", handle.kind);
                    os.pwrite(&file, text.as_bytes(), 0).expect("writes");
                }
                _ => {
                    let signs = |line: &&str| line.starts_with("systx") || line.starts_with("identity");
                    let kept: String = text.lines().filter(signs).map(|line| format!("{line}\n")).collect();
                    os.pwrite(&file, kept.as_bytes(), 0).expect("writes");
                }
            }
            // As a stream of btrfs-receive(8) can.
            allocate_behind(&os, &file);
            machine.settle();
            let opened = commits(&machine, "two");
            let format = format!("{format} {says:x?}");
            assert!(!is_whole(&machine, "one"), "{format}: redone from an archive");
            if done {
                assert!(opened.is_ok(), "{format}: {:?}", opened.err().map(|e| e.to_string()))
            } else {
                assert!(
                    matches!(opened, Err(OpenError::Area(AreaError::Copied(_)))),
                    "{format}: {:?}",
                    opened.err().map(|e| e.to_string())
                )
            }
        }
    }
}

/// What no archiver does.
fn allocate_behind(os: &SimOs, file: &SimFd) {
    os.fallocate(file, Fallocate::KeepSize, 2 << 40, 1).expect("allocates");
}

/// What `format` says is all true. Its maker has known the handles, and guessed the ticks.
#[test]
fn an_archive_that_guesses_the_instant_of_its_unpacking_is_not_redone() {
    for (kind, allocates) in
        [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs].into_iter().flat_map(|kind| [(kind, false), (kind, true)])
    {
        let machine = begun(kind, SINCE_6_9);
        commits(&machine, "one").expect("opens");
        power_fails(&machine);
        machine.remove(0, "w/one").unwrap_or_default();
        let os = machine.outsider("archive");
        let file = os.open_path(0, ".systx/format", Open::ReadWrite).expect("is there");
        let size = os.stat(&file).expect("is there").size;
        // The blocks go that are not of a file's bytes.
        os.truncate(&file, size).expect("truncates");
        if allocates {
            allocate_behind(&os, &file);
        }
        machine.settle();
        let opened = commits(&machine, "two");
        assert_eq!(is_whole(&machine, "one"), allocates, "{kind:?}: redone from an archive");
        assert_eq!(matches!(opened, Err(OpenError::Area(AreaError::Copied(_)))), !allocates, "{kind:?}");
    }
}

/// An area as a systx has left it that allocated nothing is taken over, and its file gets the block.
#[test]
fn areas_with_nothing_behind_the_end_of_their_format_are_taken_over_where_nothing_is_to_be_redone() {
    let machine = begun(FsKind::Xfs, SINCE_6_9);
    let format = |os: &SimOs| os.open_path(0, ".systx/format", Open::ReadWrite).expect("is there");
    commits(&machine, "one").expect("opens");
    within(&machine, |domain| domain.checkpoint().expect("checkpoints")).expect("opens");
    power_fails(&machine);
    let os = machine.outsider("older");
    os.truncate(&format(&os), os.stat(&format(&os)).expect("is there").size).expect("truncates");
    machine.settle();
    commits(&machine, "two").unwrap_or_else(|e| panic!("{e}"));
    power_fails(&machine);
    assert_eq!(os.reserved_at(&format(&os), 2 << 40), Ok(true));
    within(&machine, |_| {}).expect("opens");
    assert!(is_whole(&machine, "one") && is_whole(&machine, "two"));
}

/// A hard link in an archive can give the name to a file that is there already.
#[test]
fn a_format_that_another_user_can_write_is_not_believed() {
    for (uid, mode) in [(7, 0o600), (0, 0o666), (0, 0o620)] {
        let machine = begun(FsKind::Ext4, SINCE_6_9);
        commits(&machine, "one").expect("opens");
        power_fails(&machine);
        machine.remove(0, "w/one").unwrap_or_default();
        let os = machine.outsider("user");
        let file = os.open_path(0, ".systx/format", Open::ReadWrite).expect("is there");
        os.chown(&file, uid, uid).expect("gives");
        os.chmod(&file, mode).expect("sets");
        machine.settle();
        let opened = commits(&machine, "two");
        assert!(!is_whole(&machine, "one"), "{uid} {mode:o}: redone from an archive");
        assert!(matches!(opened, Err(OpenError::Area(AreaError::Copied(_)))), "{uid} {mode:o}");
    }
}

/// The handle of an area's directory is no secret once that is there, so an archive that is unpacked over it can
/// say it. It replaces files.
#[test]
fn a_format_that_an_archive_has_brought_into_an_area_is_not_believed() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs] {
        let machine = begun(kind, SINCE_6_9);
        commits(&machine, "one").expect("opens");
        power_fails(&machine);
        machine.remove(0, "w/one").unwrap_or_default();
        let os = machine.outsider("archive");
        let area = os.open_path(0, ".systx", Open::Directory).expect("is there");
        let mut bytes = [0; 1024];
        let read = os.pread(&os.open(&area, b"format", Open::Read).expect("is there"), &mut bytes, 0);
        let text = String::from_utf8(bytes[..read.expect("reads")].to_vec()).unwrap();
        let known = text.lines().map(|line| match line.split_once(' ') {
            Some(("identity", _)) => format!("identity {}\n", "07".repeat(16)),
            _ => format!("{line}\n"),
        });
        os.unlink(&area, b"format").expect("removes");
        let file = os.create(&area, b"format", 0o600).expect("makes");
        os.pwrite(&file, known.collect::<String>().as_bytes(), 0).expect("writes");
        allocate_behind(&os, &file);
        stamp(&machine, [7; 16]);
        let opened = commits(&machine, "two");
        assert!(!is_whole(&machine, "one"), "{kind:?}: redone from an archive");
        assert!(
            matches!(opened, Err(OpenError::Area(AreaError::Copied(_)))),
            "{kind:?}: {:?}",
            opened.err().map(|e| e.to_string())
        );
    }
}

/// An area that was taken over had another identity before, which whoever made it knows. What was in its log
/// was done by then; a second archive may put more there.
#[test]
fn nothing_is_redone_under_an_identity_that_an_area_had_before() {
    let machine = begun(FsKind::Ext4, SINCE_6_9);
    let before = commits(&machine, "one").expect("opens");
    within(&machine, |domain| domain.checkpoint().expect("checkpoints")).expect("opens");
    power_fails(&machine);
    put_back(&machine);
    let now = commits(&machine, "two").expect("opens");
    assert_ne!(before, now);
    power_fails(&machine);
    machine.remove(0, "w/two").unwrap_or_default();
    stamp(&machine, before);
    commits(&machine, "three").expect("opens");
    assert!(!is_whole(&machine, "two"), "redone from an archive");
    assert!(is_whole(&machine, "one") && is_whole(&machine, "three"));
}

/// An archive can also bring a hard link to a file that is there: another user's, which that user has locked, or
/// one of root's that a daemon has.
#[test]
fn a_lock_on_a_file_that_an_archive_has_linked_proves_nothing() {
    for uid in [7, 0] {
        let machine = begun(FsKind::Ext4, SINCE_6_9);
        commits(&machine, "one").expect("opens");
        power_fails(&machine);
        machine.remove(0, "w/one").unwrap_or_default();
        put_back(&machine);
        let other = machine.spawn_as("other", uid);
        let (_lock, locked) = run_process(&other, || {
            let file = other.create(&other.root(0), b"own", 0o600).expect("makes");
            (other.own_byte(&file, 1).expect("locks"), file)
        })
        .expect("lives");
        let os = machine.outsider("archive");
        let area = os.open_path(0, ".systx", Open::Directory).expect("is there");
        for name in [&b"format"[..], b"owners", b"table"] {
            os.unlink(&area, name).expect("removes");
        }
        os.link(&locked, &area, b"owners").expect("links");
        machine.settle();
        let opened = commits(&machine, "two");
        // The lock is gone with the one who had it, if it ever counted.
        other.exit();
        let again = within(&machine, |_| {});
        assert!(!is_whole(&machine, "one"), "{uid}: redone from an archive");
        for opened in [opened.map(drop), again] {
            assert!(
                matches!(opened, Err(OpenError::Area(AreaError::Copied(_)))),
                "{uid}: {:?}",
                opened.err().map(|e| e.to_string())
            );
        }
    }
}

/// Where all may make names, as in /tmp, a user can be quicker than any call of root's, and take away again
/// what is in the way.
#[test]
fn no_user_is_quick_enough_to_keep_root_from_its_area() {
    for comes_back in [1, 2] {
        let machine = begun(FsKind::Ext4, SINCE_6_9);
        let (other, mut calls) = (machine.outsider("another user"), 0);
        machine.set_hook(move |_, _| {
            let top = other.root(0);
            calls += 1;
            match other.stat_at(&top, AREA) {
                Err(_) if calls % comes_back == 0 => {
                    other.mkdir(&top, AREA, 0o755).expect("makes");
                    let dir = other.open(&top, AREA, Open::Path).expect("is there");
                    other.chown(&dir, 7, 7).expect("gives");
                }
                Ok(stat) if stat.uid != 0 && comes_back > 1 && calls % 3 == 0 => {
                    other.rmdir(&top, AREA).expect("removes");
                }
                _ => {}
            }
        });
        commits(&machine, "one").unwrap_or_else(|e| panic!("{comes_back}: {e}"));
        machine.clear_hook();
        assert!(is_whole(&machine, "one"), "{comes_back}");
    }
}

/// A program that tidies a directory takes what was not changed for long, while others work there.
#[test]
fn an_area_that_loses_its_format_while_it_is_used_goes_on() {
    let machine = begun(FsKind::Ext4, SINCE_6_9);
    let used = machine.spawn("uses");
    let (domain, again) = run_process(&used, || {
        let domain = open(&used).expect("opens");
        make(&domain, b"one").expect("commits");
        used.unlink(&domain.area.dir, b"format").expect("removes");
        let again = open(&used).expect("opens");
        make(&again, b"two").expect("commits");
        (domain, again)
    })
    .expect("lives");
    assert!(is_whole(&machine, "one") && is_whole(&machine, "two"));
    drop((domain, again));
}

/// The area as a systx has left it that gave none an identity; its segments say `written`.
fn make_older(machine: &Machine, written: [u8; 16]) {
    let os = machine.outsider("older");
    let area = os.open_path(0, ".systx", Open::Directory).expect("is there");
    let format = os.open(&area, b"format", Open::ReadWrite).expect("is there");
    os.truncate(&format, 0).expect("truncates");
    os.pwrite(&format, b"systx area 1\n", 0).expect("writes");
    stamp(machine, written);
}

/// Gives the segments of the log this identity.
fn stamp(machine: &Machine, written: [u8; 16]) {
    let os = machine.outsider("stamps");
    let area = os.open_path(0, ".systx", Open::Directory).expect("is there");
    let log = os.open(&area, b"log", Open::Directory).expect("is there");
    for entry in os.read_dir(&log).expect("lists") {
        let number = crate::log::format::number(&entry.name).expect("a segment");
        let file = os.open(&log, &name(number), Open::ReadWrite).expect("opens");
        let mut block = vec![0; 4096];
        os.pread(&file, &mut block, 0).expect("reads");
        let HeaderRead::Good(header) = Header::decode(&block, number) else { panic!("no header") };
        os.pwrite(&file, &Header { area: written, ..header }.encode(), 0).expect("writes");
    }
    machine.settle();
}

/// Whatever their segments say: what proves that they are of the file system, any user may know.
#[test]
fn areas_without_identity_are_taken_over_where_nothing_is_to_be_redone() {
    let fsid = |fsid: u64, dev: u64| {
        let mut written = [0; 16];
        written[..8].copy_from_slice(&fsid.to_le_bytes());
        written[8..].copy_from_slice(&dev.to_le_bytes());
        written
    };
    let cases = [
        (FsKind::Ext4, fsid(0x77, 0), SINCE_6_9),
        (FsKind::Ext4, UUID, BEFORE_6_9),
        (FsKind::Btrfs, UUID, SINCE_6_9),
        (FsKind::Btrfs, [1; 16], BEFORE_6_9),
        (FsKind::Xfs, fsid(0, 0x803), XFS_BEFORE_6_9),
        (FsKind::Xfs, UUID, XFS_SINCE_6_9),
    ];
    for (kind, written, answer) in cases {
        let what = format!("{kind:?}, {written:x?}, {answer:x?}");
        let machine = begun(kind, answer);
        commits(&machine, "one").expect("opens");
        within(&machine, |domain| domain.checkpoint().expect("checkpoints")).expect("opens");
        power_fails(&machine);
        make_older(&machine, written);
        commits(&machine, "two").unwrap_or_else(|e| panic!("{what}: {e}"));
        power_fails(&machine);
        within(&machine, |_| {}).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(is_whole(&machine, "one") && is_whole(&machine, "two"), "{what}");
    }
}

/// Two take an older area over at one time, stopped at every call of the first: they are of one area.
#[test]
fn who_comes_while_an_area_gets_its_identity_is_given_the_same() {
    let start = begun(FsKind::Ext4, SINCE_6_9);
    commits(&start, "one").expect("opens");
    within(&start, |domain| domain.checkpoint().expect("checkpoints")).expect("opens");
    power_fails(&start);
    make_older(&start, UUID);
    let mut cut = 0;
    loop {
        let machine = start.fork();
        machine.set_word_points(false);
        let os = machine.spawn("first");
        machine.kill_at(&os, cut);
        let takes_over = |os: &SimOs| {
            let area = area(os, Make::IfMissing).expect("opens");
            area.expect("is there").id
        };
        let first = run_process(&os, || takes_over(&os));
        let (second, third) = (machine.spawn("second"), machine.spawn("third"));
        let second = takes_over(&second);
        assert_eq!(second, takes_over(&third), "cut {cut}");
        assert_eq!(second.was, Some(UUID), "cut {cut}");
        match first {
            Ok(first) => {
                assert_eq!(first, second);
                commits(&machine, "two").expect("opens");
                break assert!(is_whole(&machine, "one") && is_whole(&machine, "two"), "cut {cut}");
            }
            Err(_) => cut += 1,
        }
    }
    assert!(cut > 10, "{cut}");
}
