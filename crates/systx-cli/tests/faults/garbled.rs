//! Staging, log and table that are deleted, cut off, garbled, foreign, or of a version to come.

use super::machine::picture::{difference, picture};
use super::machine::{code, err, must, out, recover, rounds, shell, verb};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::world::*;
use super::Case;

pub const ALL: &[(&str, Case)] = &[
    ("staging_deleted_by_hand_aborts", staging_deleted_by_hand_aborts),
    ("an_area_of_a_future_version_is_refused", an_area_of_a_future_version_is_refused),
    ("a_log_of_a_future_version_is_refused", a_log_of_a_future_version_is_refused),
    ("a_log_of_another_file_system_is_refused", a_log_of_another_file_system_is_refused),
    (
        "a_garbled_or_cut_log_loses_nothing_that_is_published",
        a_garbled_or_cut_log_loses_nothing_that_is_published,
    ),
    ("damage_before_the_end_of_the_log_is_told", damage_before_the_end_of_the_log_is_told),
    ("damage_within_the_newest_segment_is_told", damage_within_the_newest_segment_is_told),
    ("a_cell_of_a_future_version_is_refused", a_cell_of_a_future_version_is_refused),
    ("garbage_in_the_table_is_found_or_harmless", garbage_in_the_table_is_found_or_harmless),
];

fn staging_deleted_by_hand_aborts(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    let before = picture(&w.served);
    let tx = w.volume.area().join("tx");
    let script = format!(
        "echo new > d/new; echo three > a; head -c 200000 /dev/urandom > d/big; rm -rf {0}/*~ {0}/../slots.*/*",
        tx.display()
    );
    // Only the served directory is; the rest of the file system the command reaches natively.
    let output = shell(&w.served, &script);
    // A file in it that was to be put in place is gone, and with it the transaction.
    w.refused(&output, &before, &["staging", "staged", "No such file"]);
    // Also where everything was in memory: its place is gone.
    let output = shell(&w.served, &format!("echo new > d/new; rm -rf {0}/*~ {0}/../slots.*/*", tx.display()));
    w.refused(&output, &before, &["staging", "staged", "No such file"]);
    // One of several only: the youngest. Few and small, with one too large for the record, and many.
    let youngest = format!(
        "cd {}/..; rm $(ls -d slots.*/[0-9]* tx/*~/[0-9]* | sort -t/ -k2,2n | tail -n 1)",
        tx.display()
    );
    for files in [
        "echo new > d/new; echo new > new",
        "head -c 200000 /dev/zero > d/big; echo new > new",
        "for i in $(seq 30); do echo $i > d/f$i; done",
    ] {
        let output = shell(&w.served, &format!("{files}; {youngest}"));
        w.refused(&output, &before, &["staging", "staged", "No such file"]);
    }
    w.works();
}

fn an_area_of_a_future_version_is_refused(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    let (format, ours) = (w.volume.area().join("format"), w.volume.area().join("ours"));
    // What is allocated behind its end goes with a truncation.
    std::fs::rename(&format, &ours).unwrap();
    for text in [&b"systx area 2\n"[..], b"", b"\xff\xfe garbage", b"systx area 1\nand more\n"] {
        std::fs::write(&format, text).unwrap();
        let before = picture(&w.served);
        w.refused(&shell(&w.served, "echo three > a"), &before, &["format"]);
        let recovered = verb("recover", &[]);
        assert_ne!(code(&recovered), 0);
        assert!(err(&recovered).contains("format"), "{}", err(&recovered));
    }
    std::fs::rename(&ours, &format).unwrap();
    w.works();
}

/// Changes bytes of a log segment, reboots, and wants to be refused with one of the words; then puts them back.
fn segment_is_refused(w: &World, offset: u64, bytes: &[u8], words: &[&str]) {
    let segment = w.newest_segment();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&segment).unwrap();
    let mut ours = vec![0; bytes.len()];
    file.read_exact_at(&mut ours, offset).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    drop(file);
    w.reboot();
    let before = picture(&w.served);
    w.refused(&shell(&w.served, "echo three > a"), &before, words);
    let recovered = verb("recover", &[]);
    assert_ne!(code(&recovered), 0);
    assert!(words.iter().any(|word| err(&recovered).contains(word)), "{}", err(&recovered));
    std::fs::OpenOptions::new().write(true).open(&segment).unwrap().write_all_at(&ours, offset).unwrap();
    w.works();
}

fn a_log_of_a_future_version_is_refused(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    let mut header = vec![0; 4096];
    std::fs::File::open(w.newest_segment()).unwrap().read_exact(&mut header).unwrap();
    header[8..12].copy_from_slice(&7u32.to_le_bytes());
    let crc = crc32c(&header[..4092]);
    header[4092..].copy_from_slice(&crc.to_le_bytes());
    segment_is_refused(&w, 0, &header, &["format 7"]);
}

/// The cell looks like one of a later systx: commits behind it must not be dropped, nor those before it
/// redone at each try.
fn a_cell_of_a_future_version_is_refused(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    w.reboot();
    recover();
    for n in 0..4 {
        assert_eq!(code(&shell(&w.served, &format!("echo {n} > d/n{n}"))), 0);
    }
    w.reboot();
    let at = 4096 + 2 * 64;
    let mut cell = [0; 64];
    std::fs::File::open(w.newest_segment()).unwrap().read_exact_at(&mut cell, at).unwrap();
    cell[8] = 9;
    let crc = crc32c(&cell[..60]);
    cell[60..].copy_from_slice(&crc.to_le_bytes());
    segment_is_refused(&w, at, &cell, &["is of kind 9"]);
}

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

fn a_log_of_another_file_system_is_refused(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    let other_dir = dir.join("other");
    std::fs::create_dir(&other_dir).unwrap();
    let Some(other) = world(&other_dir, 64) else { return };
    let kept = other.volume.point.join("kept");
    std::fs::rename(other.volume.area().join("log"), &kept).unwrap();
    must(Command::new("cp").arg("-a").arg(w.volume.area().join("log")).arg(other.volume.area()));
    other.reboot();
    let before = picture(&other.served);
    other.refused(&shell(&other.served, "echo three > a"), &before, &["belongs to area"]);
    std::fs::remove_dir_all(other.volume.area().join("log")).unwrap();
    std::fs::rename(&kept, other.volume.area().join("log")).unwrap();
    assert_eq!(code(&shell(&other.served, "echo three > a")), 0);
}

fn a_garbled_or_cut_log_loses_nothing_that_is_published(dir: &Path) {
    let Some(w) = world(dir, 128) else { return };
    for round in 0..rounds(12, 200) {
        assert_eq!(
            code(&shell(&w.served, &format!("echo {round} > a; echo {round} > d/n{round}; rm -f again"))),
            0
        );
        must(Command::new("sync").arg("-f").arg(&w.served));
        let before = picture(&w.served);
        let segment = std::fs::OpenOptions::new().write(true).open(w.newest_segment()).unwrap();
        let bytes = segment.metadata().unwrap().len();
        match round % 4 {
            // Somewhere in the header, in the cells, or anywhere.
            0 => segment.write_all_at(&[fastrand::u8(..); 16], fastrand::u64(..4096)).unwrap(),
            1 => segment.write_all_at(&[fastrand::u8(..); 40], 4096 + fastrand::u64(..256)).unwrap(),
            2 => segment.set_len(fastrand::u64(..8192.min(bytes))).unwrap(),
            _ => segment.set_len(0).unwrap(),
        }
        drop(segment);
        w.reboot();
        let recovered = verb("recover", &[]);
        let text = format!("{}{}", out(&recovered), err(&recovered));
        assert!(code(&recovered) == 0 || !text.trim().is_empty(), "no reason given");
        let after = picture(&w.served);
        assert!(after == before, "round {round}: {text}{}", difference(&after, &before));
        let output = shell(&w.served, "true");
        assert_eq!(code(&output), 0, "round {round}: {text}{}", err(&output));
    }
    w.works();
}

/// Commits that fill one segment and go on in another, unmounted with both; the first of them. A checkpoint
/// lets go of it as soon as a helper process makes one: then there are more commits. No contents come twice:
/// a redo that lacks later records takes a file that is as it once was for one that was not written yet (gap
/// (c)).
fn two_segments(w: &World, what: &str) -> PathBuf {
    let segments = || {
        let log = std::fs::read_dir(w.volume.area().join("log")).unwrap();
        let mut paths: Vec<_> = log.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    // Small new files are in the record.
    let files = "rm -f d/f*; i=0; while [ $i -lt 100 ]; do head -c 3000 b > d/f$i; i=$((i + 1)); done";
    for n in 0..100 {
        // One segment alone, as a recovery leaves it.
        w.reboot();
        recover();
        assert_eq!(code(&shell(&w.served, &format!("echo {what} {n} first > a"))), 0);
        let first = segments().pop().unwrap();
        for m in 0.. {
            assert!(m < 200, "the log never goes on in another segment");
            assert_eq!(code(&shell(&w.served, &format!("{files}; echo {what} {n} {m} > a"))), 0);
            if segments().pop().unwrap() != first {
                break;
            }
        }
        assert_eq!(code(&shell(&w.served, &format!("echo {what} {n} last > a"))), 0);
        w.reboot();
        if segments().contains(&first) {
            return first;
        }
    }
    panic!("each time a checkpoint was faster")
}

fn damage_before_the_end_of_the_log_is_told(dir: &Path) {
    let Some(w) = world(dir, 256) else { return };
    // Cells begin after a header of 4096 bytes. What is behind a segment that is full was written after that
    // was synced.
    for (what, offset, len) in
        [("first cell", 4096, 40), ("later cells", 4096 + 3 * 64, 64), ("header", 0, 16)]
    {
        let first = two_segments(&w, what);
        damage_is_told(&w, what, &first, offset, &vec![0xa5; len]);
    }
}

/// Behind a cell of the newest segment others stand that were synced after it.
fn damage_within_the_newest_segment_is_told(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    // A bit, a cell, and what a disk has lost.
    for (what, bytes) in [("bytes", &[0xa5; 3][..]), ("cell", &[0xa5; 64]), ("zeros", &[0; 64])] {
        w.reboot();
        recover();
        for n in 0..5 {
            assert_eq!(code(&shell(&w.served, &format!("echo {n} > d/n{n}"))), 0);
        }
        w.reboot();
        damage_is_told(&w, what, &w.newest_segment(), 4096 + 2 * 64, bytes);
    }
}

/// Damages a segment, after an orderly shutdown: `recover` reports it, and changes nothing of the tree.
fn damage_is_told(w: &World, what: &str, segment: &Path, offset: u64, bytes: &[u8]) {
    let before = picture(&w.served);
    let segment = std::fs::OpenOptions::new().write(true).open(segment).unwrap();
    segment.write_all_at(bytes, offset).unwrap();
    drop(segment);
    w.reboot();
    let recovered = verb("recover", &[]);
    let text = format!("{}{}", out(&recovered), err(&recovered));
    assert!(code(&recovered) == 1 && text.contains("damaged"), "{what}: {} {text}", code(&recovered));
    let after = picture(&w.served);
    assert!(after == before, "{what}: {text}{}", difference(&after, &before));
    assert_eq!(code(&verb("recover", &[])), 0, "{what}: told once");
    w.works();
}

fn garbage_in_the_table_is_found_or_harmless(dir: &Path) {
    let Some(w) = world(dir, 64) else { return };
    for round in 0..rounds(12, 300) {
        let before = picture(&w.served);
        let table = std::fs::OpenOptions::new().write(true).open(w.volume.area().join("table")).unwrap();
        let words = table.metadata().unwrap().len() / 8;
        for _ in 0..20 {
            // The first 200 words are what everything hangs on.
            let word =
                if fastrand::bool() { fastrand::u64(..200.min(words)) } else { fastrand::u64(..words) };
            table.write_all_at(&fastrand::u64(..).to_ne_bytes(), word * 8).unwrap();
        }
        drop(table);
        let output = shell(&w.served, &format!("echo {round} > d/round"));
        match code(&output) {
            0 => assert_eq!(std::fs::read_to_string(w.served.join("d/round")).unwrap(), format!("{round}\n")),
            125 => {
                let text = err(&output);
                let pending = text.contains("pending") || text.contains("in doubt");
                assert!(pending || text.contains("nothing was changed"), "{text}");
                assert!(pending || picture(&w.served) == before, "{text}");
            }
            other => panic!("round {round}: status {other}: {}", err(&output)),
        }
        // Done as the message says: end all users, remove it, recover.
        std::fs::remove_file(w.volume.area().join("table")).unwrap();
        recover();
    }
    w.works();
}
