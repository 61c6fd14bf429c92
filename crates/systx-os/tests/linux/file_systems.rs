//! Which file system is which, and what holds there.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::{mount_change, MountPropagationFlags};
use rustix::thread::{unshare_unsafe, UnshareFlags};
use systx_os::linux::kernel_release;
use systx_os::{FsInfo, FsKind, Linux, Open, Os, Timestamp};

use crate::place::{alone, Place};

/// Multigrain timestamps. Minimum kernel version: 6.13.
fn multigrain() -> bool {
    kernel_release() >= (6, 13)
}

/// Probes both ways; they agree, and nothing is left behind.
fn probe(place: &Place) -> FsInfo {
    let os = Linux::new();
    let quick = os.fs_info(&place.dir).unwrap();
    let thorough = os.probe_thoroughly(&place.dir).unwrap();
    // By experiment a directory may pass by luck only where stamps are coarse.
    assert_eq!(FsInfo { dir_stamps: quick.dir_stamps, ..thorough }, quick);
    assert_eq!(os.fs_info(&place.dir).unwrap(), quick);
    assert_eq!(os.read_dir(&place.dir).unwrap(), []);
    assert_ne!(quick.uuid, Some([0; 16]));
    let of_uuid = matches!(quick.kind, FsKind::Ext4 | FsKind::Ext4NoJournal | FsKind::Btrfs);
    assert_eq!(quick.fsid.is_some(), of_uuid);
    when_it_was_made(place, &quick);
    quick
}

/// Small inodes have no room for that; all others have.
fn when_it_was_made(place: &Place, info: &FsInfo) {
    let os = Linux::new();
    let made = os.made(&place.dir).unwrap();
    assert!(made.is_some() || !info.file_stamps);
    let then = Some(Timestamp { sec: 1, nsec: 1 });
    os.utimens(&place.dir, then, then).unwrap();
    os.mkdir(&place.dir, b"later", 0o700).unwrap();
    let later = os.open(&place.dir, b"later", Open::Path).unwrap();
    assert!(made.is_none() || os.made(&later).unwrap() >= made);
    os.rmdir(&place.dir, b"later").unwrap();
    assert_eq!(os.made(&place.dir).unwrap(), made, "it has changed");
}

#[test]
fn tmpfs_is_recognised_and_its_directory_stamps_are_not_trusted() {
    let _alone = alone();
    let Some(place) = Place::all().into_iter().find(|p| p.path.starts_with("/dev/shm")) else { return };
    let info = probe(&place);
    assert_eq!(info.kind, FsKind::Tmpfs);
    assert!(!info.dir_stamps && !info.reflinks);
    assert!(info.leases && info.rename_flags && info.handles);
    assert_eq!(info.file_stamps, multigrain());
}

#[test]
fn the_temp_dir_is_probed_without_traces() {
    let _alone = alone();
    let info = probe(&Place::below(&std::env::temp_dir()));
    println!("{info:?}");
}

/// Mounts a fresh image made by `mkfs` in a mount namespace of its own and probes it.
fn probe_image(mkfs: &[&str], megabytes: u64) -> Option<FsInfo> {
    let _alone = alone();
    if Linux::new().uid() != 0 {
        println!("skipped: mounting an image needs root");
        return None;
    }
    let place = Place::below(&std::env::temp_dir());
    let (image, at) = (place.path.join("image"), place.path.join("at"));
    std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
    std::fs::create_dir(&at).unwrap();
    let mut make = Command::new(mkfs[0]);
    make.args(&mkfs[1..]).arg(&image).stdout(Stdio::null()).stderr(Stdio::null());
    if !make.status().is_ok_and(|s| s.success()) {
        println!("skipped: {} does not work here", mkfs[0]);
        return None;
    }
    let in_namespace = || {
        // SAFETY: the thread's mounts and working directory become its own; no descriptor table is split.
        if let Err(e) = unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
            println!("skipped: no mount namespace: {e}");
            return None;
        }
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
        if !Command::new("mount").args(["-o", "loop"]).args([&image, &at]).status().is_ok_and(|s| s.success())
        {
            println!("skipped: {} cannot be mounted here", mkfs[0]);
            return None;
        }
        let info = probe(&Place::below(&at));
        assert!(Command::new("umount").arg(&at).status().unwrap().success());
        Some(info)
    };
    std::thread::scope(|scope| match scope.spawn(in_namespace).join() {
        Ok(info) => info,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn assert_all_but_reflinks(info: &FsInfo) {
    assert_eq!((info.file_stamps, info.dir_stamps), (multigrain(), multigrain()));
    assert!(info.rename_flags && info.leases && info.handles && info.open_by_handle);
}

#[test]
fn ext4_is_told_apart_by_its_journal() {
    for (features, kind) in [("has_journal", FsKind::Ext4), ("^has_journal", FsKind::Ext4NoJournal)] {
        if let Some(info) = probe_image(&["mkfs.ext4", "-q", "-I", "256", "-O", features], 32) {
            assert_eq!(info.kind, kind);
            assert!(!info.reflinks);
            assert_all_but_reflinks(&info);
        }
    }
}

#[test]
fn ext4_with_small_inodes_has_no_stamps_to_trust() {
    if let Some(info) = probe_image(&["mkfs.ext4", "-q", "-I", "128"], 32) {
        assert_eq!(info.kind, FsKind::Ext4);
        assert!(!info.file_stamps && !info.dir_stamps);
    }
}

#[test]
fn xfs_shares_blocks_if_it_was_made_to() {
    for (reflink, shares) in [("reflink=1", true), ("reflink=0", false)] {
        // rmapbt and friends need the newer format; both images have it.
        if let Some(info) = probe_image(&["mkfs.xfs", "-q", "-m", reflink], 320) {
            assert_eq!((info.kind, info.reflinks), (FsKind::Xfs, shares));
            assert_all_but_reflinks(&info);
        }
    }
}

#[test]
fn btrfs_shares_blocks() {
    if let Some(info) = probe_image(&["mkfs.btrfs", "-q"], 128) {
        assert_eq!((info.kind, info.reflinks), (FsKind::Btrfs, true));
        assert_all_but_reflinks(&info);
    }
}

#[test]
fn what_is_not_on_the_list_is_named_and_its_stamps_are_not_trusted() {
    let os = Linux::new();
    // A directory that nobody can create files in: the probe says so instead of guessing.
    let proc = os.open_path(Path::new("/proc"), systx_os::Open::Directory).unwrap();
    assert!(os.fs_info(&proc).is_err());
    assert_eq!(os.statfs(&proc).unwrap().magic, 0x9fa0);
}
