//! The calling thread's rights, for what is committed and for what only the transaction knows.

use super::{loosely, place, process, systx, AREA};
use crate::agreement::as_user;
use crate::machine::user::USER;
use std::io::Write;
use std::os::unix::fs::{chown, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use systx::{Error, OpenOptions, Systx};

const EPERM: i32 = 1;
const EACCES: i32 = 13;

pub fn matrix(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let own = tree.join("own");
    std::fs::create_dir_all(own.join("roots")).unwrap();
    std::fs::write(own.join("roots/secret"), "root's").unwrap();
    std::fs::set_permissions(own.join("roots"), PermissionsExt::from_mode(0o711)).unwrap();
    std::fs::set_permissions(own.join("roots/secret"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::write(own.join("readable"), "root's").unwrap();
    std::fs::set_permissions(own.join("readable"), PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::create_dir(own.join("sticky")).unwrap();
    std::fs::write(own.join("sticky/roots"), "root's").unwrap();
    std::fs::set_permissions(own.join("sticky"), PermissionsExt::from_mode(0o1777)).unwrap();
    chown(&own, Some(USER), Some(USER)).unwrap();
    let status = process("rights", &own).uid(USER).gid(USER).status().unwrap();
    assert!(status.success());
    // Nothing of it has been committed.
    assert_eq!(std::fs::read(own.join("readable")).unwrap(), b"root's");
    // A thread of root's that acts for a user is refused: the area is root's.
    let systx = systx();
    let tx = systx.begin(&loosely()).unwrap();
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            as_user(USER, || {
                let other = |error: &std::io::Error| matches!(Error::of(error), Some(Error::OtherUser));
                let told = tx.write(own.join("x"), "");
                assert!(told.is_err_and(|error| other(&error)), "a thread of another user's acts in root's");
                // One that has touched nothing is nobody's.
                let theirs = systx.begin(&loosely()).unwrap();
                assert!(theirs.metadata(own.join("readable")).is_err_and(|error| other(&error)));
                theirs.commit().unwrap();
                let again = systx.atomically(&loosely(), |tx| tx.read(own.join("readable")));
                assert!(again.is_err_and(|error| other(&error)));
            });
        });
        refused.join().unwrap();
    });
    tx.write(own.join("x"), "by root").unwrap();
    tx.commit().unwrap();
}

#[track_caller]
fn errno(answer: std::io::Result<()>) -> i32 {
    answer.expect_err("a user was given root's right").raw_os_error().unwrap()
}

/// As an ordinary user, whose directory `own` is.
pub fn play(own: &Path) {
    let at = |name: &str| own.join(name);
    let systx = Systx::with_area_name(AREA).unwrap();
    let tx = systx.begin(&loosely()).unwrap();
    // A path that is known is still no way for those who may not pass.
    std::fs::create_dir(at("inner")).unwrap();
    std::fs::write(at("inner/file"), "").unwrap();
    let inner = |mode| std::fs::set_permissions(at("inner"), PermissionsExt::from_mode(mode)).unwrap();
    for mode in [0o700, 0o700, 0] {
        inner(mode);
        let tx = systx.begin(&loosely()).unwrap();
        let found = tx.metadata(at("inner/file")).map(drop);
        assert_eq!(found.err().and_then(|e| e.raw_os_error()), (mode == 0).then_some(EACCES), "{mode:o}");
    }
    inner(0o700);
    // The committed tree.
    assert_eq!(errno(tx.read(at("roots/secret")).map(drop)), EACCES);
    assert_eq!(errno(tx.read_dir(at("roots")).map(drop)), EACCES);
    assert_eq!(errno(tx.write(at("readable"), "mine")), EACCES);
    assert_eq!(errno(tx.set_mode(at("readable"), 0o666)), EPERM);
    assert_eq!(errno(tx.chown(at("readable"), Some(USER), None)), EPERM);
    assert_eq!(errno(tx.write(at("roots/new"), "")), EACCES);
    assert_eq!(errno(tx.remove_file(at("sticky/roots"))), EPERM);
    assert_eq!(errno(tx.rename(at("sticky/roots"), at("mine"))), EPERM);
    assert_eq!(tx.read(at("readable")).unwrap(), b"root's");
    // The transaction's own changes of modes, of which the kernel knows nothing yet.
    for (mode, may) in [
        (0o000, [false; 3]),
        (0o400, [true, false, false]),
        (0o200, [false, true, false]),
        (0o600, [true, true, true]),
    ] {
        for name in ["staged", "old"] {
            if name == "staged" {
                let _ = tx.remove_file(at(name));
                tx.write(at(name), "text").unwrap();
            } else {
                // Replaces what is committed with its name; its mode is only remembered.
                tx.set_mode(own, 0o755).unwrap();
                if !tx.try_exists(at(name)).unwrap() {
                    tx.write(at(name), "text").unwrap();
                }
            }
            tx.set_mode(at(name), mode).unwrap();
            let with = |options: OpenOptions| tx.open_with(at(name), &options).map(drop);
            let found = [
                with(OpenOptions::new().read(true)),
                with(OpenOptions::new().append(true)),
                with(OpenOptions::new().read(true).write(true)),
            ];
            let found = found
                .map(|answer| answer.map_or_else(|error| error.raw_os_error() == Some(EACCES), |()| false));
            assert_eq!(found, may.map(|may| !may), "{name} {mode:o}");
            tx.set_mode(at(name), 0o600).unwrap();
        }
    }
    // Directories, committed and new.
    tx.create_dir_all(at("dir/sub")).unwrap();
    tx.write(at("dir/sub/f"), "f").unwrap();
    for dir in [at("dir"), own.to_path_buf()] {
        let below = if dir.ends_with("dir") { dir.join("sub/f") } else { dir.join("dir/sub/f") };
        tx.set_mode(&dir, 0o600).unwrap();
        assert_eq!(errno(tx.read(&below).map(drop)), EACCES, "{}: no search", dir.display());
        tx.set_mode(&dir, 0o500).unwrap();
        assert_eq!(errno(tx.write(dir.join("new"), "")), EACCES, "{}: no write", dir.display());
        assert!(tx.read(&below).is_ok());
        tx.set_mode(&dir, 0o300).unwrap();
        assert_eq!(errno(tx.read_dir(&dir).map(drop)), EACCES, "{}: no read", dir.display());
        tx.set_mode(&dir, 0o755).unwrap();
    }
    // A directory that moves into another one is written to: its `..` changes.
    tx.create_dir(at("other")).unwrap();
    tx.set_mode(at("dir/sub"), 0o555).unwrap();
    assert_eq!(errno(tx.rename(at("dir/sub"), at("other/sub"))), EACCES);
    tx.rename(at("dir/sub"), at("dir/again")).unwrap();
    // Set-id bits go with the first write of one without the privilege, and set-group-id needs the group.
    tx.write(at("program"), "#!").unwrap();
    tx.set_mode(at("program"), 0o4755).unwrap();
    tx.open_with(at("program"), &OpenOptions::new().append(true)).unwrap().write_all(b"x").unwrap();
    assert_eq!(tx.metadata(at("program")).unwrap().mode() & 0o7777, 0o755);
    tx.abort();
    let tx = systx.begin(&loosely()).unwrap();
    assert!(!tx.try_exists(at("program")).unwrap());
}
