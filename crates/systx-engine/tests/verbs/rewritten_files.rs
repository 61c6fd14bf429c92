//! A large file that a transaction writes anew, and others who have it open, run it, or gave it another name:
//! what natively happens to them happens here.

use crate::world::*;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use systx_engine::outcome::CommitError;
use systx_engine::transaction::{Access, Transaction};
use systx_os::{Errno, Linux};

const BYTES: usize = 3_000_000;

/// A domain with a large file in it, and a transaction that has written that anew.
fn rewritten(scratch: &Scratch, old: &[u8], meanwhile: impl FnOnce(&Path)) -> Transaction<Linux> {
    let domain = domain(scratch, "lower");
    let path = scratch.0.join("lower/big");
    std::fs::write(&path, old).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut t = begin(&domain);
    let (node, _) = walk(&mut t, "big").unwrap();
    t.open(node, Access::Write, true).unwrap();
    let new = vec![7; BYTES];
    let mut at = 0;
    while at < BYTES {
        at += t.write_at(node, &new[at..], at as u64).unwrap();
    }
    t.close(node);
    meanwhile(&path);
    t
}

fn everywhere(test: impl Fn(&Scratch)) {
    for base in bases() {
        match Scratch::new(base.clone()) {
            Some(scratch) => test(&scratch),
            None => println!("skipped on {}: not writable", base.display()),
        }
    }
}

#[test]
fn who_has_a_file_open_that_is_written_anew_writes_into_what_is_there() {
    everywhere(|scratch| {
        let mut open = None;
        let t = rewritten(scratch, &[1; BYTES], |path| {
            open = Some(std::fs::File::options().read(true).write(true).open(path).unwrap());
        });
        let done = t.commit().unwrap();
        assert!(done.conflict_copies.is_empty(), "{done:?}");
        let path = scratch.0.join("lower/big");
        let mut open = open.unwrap();
        assert_eq!(open.metadata().unwrap().ino(), std::fs::metadata(&path).unwrap().ino());
        open.write_all(b"ACK").unwrap();
        let mut start = [0; 4];
        std::fs::File::open(&path).unwrap().read_exact(&mut start).unwrap();
        assert_eq!(&start, b"ACK\x07");
        open.seek(SeekFrom::End(0)).unwrap();
        assert_eq!(open.stream_position().unwrap(), BYTES as u64);
    });
}

#[test]
fn another_name_given_to_a_file_that_is_written_anew_is_a_conflict_and_keeps_the_old_bytes() {
    everywhere(|scratch| {
        let t = rewritten(scratch, &[1; BYTES], |path| {
            std::fs::hard_link(path, path.with_file_name("other")).unwrap();
        });
        // The number of its names is part of what was looked at.
        match t.commit() {
            Err(CommitError::Conflict(conflict)) => assert_eq!(conflict.path, b"big"),
            other => panic!("{other:?}"),
        }
        let meta = |name: &str| std::fs::metadata(scratch.0.join("lower").join(name)).unwrap();
        assert_eq!(meta("big").ino(), meta("other").ino());
        assert!(std::fs::read(scratch.0.join("lower/other")).unwrap() == vec![1; BYTES]);
    });
}

#[test]
fn a_program_that_runs_is_not_written_anew() {
    everywhere(|scratch| {
        let Some(program) = ["/usr/bin/cat", "/bin/cat"].into_iter().find(|p| Path::new(p).exists()) else {
            println!("skipped: there is no cat");
            return;
        };
        let mut old = std::fs::read(program).unwrap();
        old.resize(BYTES, 0);
        let mut child = None;
        let t = rewritten(scratch, &old, |path| {
            // It lives until its input ends.
            match Command::new(path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn() {
                Ok(running) => child = Some(running),
                Err(why) => println!("skipped on {}: {why}", path.display()),
            }
        });
        let ended = t.commit();
        let Some(mut child) = child else { return };
        drop(child.stdin.take());
        child.wait().unwrap();
        match ended {
            Err(CommitError::Failed { error: Errno::TXTBSY, path, .. }) => assert!(path.ends_with(b"big")),
            other => panic!("{other:?}"),
        }
        assert!(std::fs::read(scratch.0.join("lower/big")).unwrap() == old);
    });
}

#[test]
fn who_only_reads_a_file_that_is_written_anew_sees_the_new_bytes_too() {
    everywhere(|scratch| {
        let mut open = None;
        let t = rewritten(scratch, &[1; BYTES], |path| open = Some(std::fs::File::open(path).unwrap()));
        t.commit().unwrap();
        let mut bytes = Vec::new();
        open.unwrap().read_to_end(&mut bytes).unwrap();
        assert!(bytes == vec![7; BYTES]);
    });
}
