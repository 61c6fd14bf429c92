//! Contents.

use std::path::Path;

use systx_os::{Errno, Fallocate, Linux, Open, Os, Seek, Writing};

use crate::place::Place;

#[test]
fn a_read_is_short_only_at_the_end() {
    let os = Linux::new();
    for place in Place::all() {
        let file = os.create(&place.dir, b"f", 0o600).unwrap();
        assert_eq!(os.pwrite(&file, &[9; 5000], 3), Ok(5000));
        let mut buf = vec![1; 10_000];
        assert_eq!(os.pread(&file, &mut buf, 0), Ok(5003));
        assert!(buf[..3] == [0; 3] && buf[3..5003].iter().all(|&b| b == 9));
        assert_eq!(os.pread(&file, &mut buf, 5003), Ok(0));
        assert_eq!(os.pread(&file, &mut [], 0), Ok(0));
        assert_eq!(os.pwrite(&file, &[], 0), Ok(0));
        os.truncate(&file, 1).unwrap();
        assert_eq!(os.pread(&file, &mut buf, 0), Ok(1));
    }
}

#[test]
fn a_full_disk_is_an_error_and_not_a_write_of_nothing() {
    let os = Linux::new();
    match os.open_path(Path::new("/dev/full"), Open::Write) {
        Ok(full) => assert_eq!(os.pwrite(&full, b"x", 0), Err(Errno::NOSPC)),
        Err(e) => println!("skipped: /dev/full: {e}"),
    }
}

#[test]
fn holes_are_made_and_found() {
    let os = Linux::new();
    for place in Place::all() {
        let file = os.create(&place.dir, b"f", 0o600).unwrap();
        os.pwrite(&file, &vec![7; 1 << 20], 0).unwrap();
        os.fallocate(&file, Fallocate::PunchHole, 0, 1 << 19).unwrap();
        assert_eq!(os.seek(&file, 0, Seek::Data), Ok(1 << 19));
        assert_eq!(os.seek(&file, 1 << 19, Seek::Hole), Ok(1 << 20));
        assert_eq!(os.seek(&file, 1 << 20, Seek::Data), Err(Errno::NXIO));
        os.fallocate(&file, Fallocate::KeepSize, 1 << 20, 4096).unwrap();
        assert_eq!(os.stat(&file).unwrap().size, 1 << 20);
        os.fallocate(&file, Fallocate::Allocate, 1 << 20, 4096).unwrap();
        assert_eq!(os.stat(&file).unwrap().size, (1 << 20) + 4096);
        match os.fallocate(&file, Fallocate::ZeroKeepSize, 1 << 19, 1) {
            Err(e) => assert_eq!(e, Errno::OPNOTSUPP), // tmpfs
            Ok(()) => {
                let mut buf = [1; 2];
                os.pread(&file, &mut buf, 1 << 19).unwrap();
                assert_eq!(buf, [0, 7]);
                os.fallocate(&file, Fallocate::Zero, 2 << 20, 1).unwrap();
                assert_eq!(os.stat(&file).unwrap().size, (2 << 20) + 1);
            }
        }
    }
}

#[test]
fn copies_go_within_and_between_file_systems() {
    let os = Linux::new();
    let places = Place::all();
    let wanted: Vec<u8> = (0..300_000_u32).map(|n| n as u8).collect();
    for from in &places {
        let source = os.tmpfile(&from.dir, 0o600).unwrap();
        os.pwrite(&source, &wanted, 10).unwrap();
        for to in &places {
            let copy = os.tmpfile(&to.dir, 0o600).unwrap();
            let mut done = 0;
            while done < wanted.len() as u64 {
                let left = wanted.len() as u64 - done;
                let n = os.copy_range(&source, 10 + done, &copy, done, left).unwrap();
                assert!(n > 0 && n <= left);
                done += n;
            }
            assert_eq!(os.copy_range(&source, 10 + done, &copy, done, 1), Ok(0));
            let mut buf = vec![0; wanted.len()];
            os.pread(&copy, &mut buf, 0).unwrap();
            assert!(buf == wanted);
        }
    }
}

#[test]
fn every_way_to_the_disk_works_on_files_and_directories() {
    let os = Linux::new();
    for place in Place::all() {
        let file = os.create(&place.dir, b"f", 0o600).unwrap();
        os.pwrite(&file, b"x", 0).unwrap();
        os.write_out(&file, Writing::Start).unwrap();
        os.write_out(&file, Writing::Wait).unwrap();
        os.fdatasync(&file).unwrap();
        os.fsync(&file).unwrap();
        os.fsync(&place.dir).unwrap();
    }
    // On tmpfs only: on a disk it would wait for everybody's writes.
    match os.open_path(Path::new("/dev/shm"), Open::Directory) {
        Ok(shm) => os.syncfs(&shm).unwrap(),
        Err(e) => println!("skipped: /dev/shm: {e}"),
    }
}
