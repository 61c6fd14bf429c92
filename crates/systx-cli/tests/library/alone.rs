//! A transaction's first look at a path, which the kernel may answer alone: it shows what is there now, and what else
//! the transaction does and its end hold it to that.

use super::{loosely, place, process, systx, KINDS};
use crate::machine::must;
use std::env::set_current_dir;
use std::fs;
use std::path::Path;
use std::process::Command;
use systx::{Error, Systx, Transaction};

/// Begins, and looks.
fn looked(systx: &Systx, path: &Path) -> (Transaction, u64) {
    let tx = systx.begin(&loosely()).unwrap();
    let len = tx.metadata(path).unwrap().len();
    (tx, len)
}

#[track_caller]
fn conflicts<T>(done: std::io::Result<T>) {
    let error = done.err().expect("a conflict");
    assert!(Error::of(&error).is_some_and(Error::is_conflict), "{error}");
}

pub fn first_looks(dir: &Path) {
    for kind in KINDS {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        let (file, beside) = (tree.join("a/b/file"), tree.join("beside"));
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        std::fs::write(&beside, "").unwrap();
        let write = |len: usize| std::fs::write(&file, vec![b'x'; len]).unwrap();
        write(1);
        let (systx, other) = (systx(), systx());
        // From here on the path is known, as it is after each further look that ends well.
        let know = |len: u64| {
            for _ in 0..2 {
                let (tx, found) = looked(&systx, &file);
                assert_eq!(found, len, "{kind}");
                tx.commit().unwrap();
            }
        };
        know(1);
        // What an outsider did before it began is shown, and no conflict.
        write(2);
        know(2);
        // What an outsider does before it ends is one.
        let (tx, _) = looked(&systx, &file);
        write(3);
        assert!(tx.commit().unwrap_err().is_conflict(), "{kind}: it was read, and changed");
        know(3);
        let (tx, _) = looked(&systx, &file);
        assert_eq!(tx.metadata(&file).unwrap().len(), 3);
        std::fs::rename(tree.join("a"), tree.join("away")).unwrap();
        assert!(tx.commit().unwrap_err().is_conflict(), "{kind}: its directory has moved");
        std::fs::rename(tree.join("away"), tree.join("a")).unwrap();
        know(3);
        // Two looks are one answer.
        let (tx, _) = looked(&systx, &file);
        write(4);
        conflicts(tx.metadata(&file));
        drop(tx);
        know(4);
        // A transaction that goes on has walked there: it is shown no half of another's commit.
        let (tx, _) = looked(&systx, &file);
        let both = other.atomically(&loosely(), |tx| {
            tx.write(&file, "12345")?;
            tx.write(&beside, "12345")
        });
        both.unwrap();
        conflicts(tx.read(&beside));
        drop(tx);
        know(5);
        // What it does then stands on what it has seen.
        let (tx, _) = looked(&systx, &file);
        tx.write(&beside, "on what was read").unwrap();
        write(6);
        assert!(tx.commit().unwrap_err().is_conflict(), "{kind}: a change is committed on what is not so");
        know(6);
        let (tx, _) = looked(&systx, &file);
        tx.write(&beside, "on what was read").unwrap();
        tx.commit().unwrap();
        // Of one that is tried again each try sees what is there.
        let mut tries = 0;
        let len = systx.atomically(&loosely(), |tx| {
            tries += 1;
            let len = tx.metadata(&file)?.len();
            if tries == 1 {
                write(7);
            }
            Ok::<_, std::io::Error>(len)
        });
        assert_eq!((len.unwrap(), tries), (7, 2), "{kind}");
        // Something else is mounted on the way.
        know(7);
        std::fs::create_dir_all(tree.join("over/b")).unwrap();
        std::fs::write(tree.join("over/b/file"), "another").unwrap();
        let (over, a) = (tree.join("over"), tree.join("a"));
        must(Command::new("mount").arg("--bind").args([&over, &a]));
        let (tx, _) = looked(&systx, &file);
        assert_eq!(tx.read(&file).unwrap(), b"another", "{kind}: what the mount hides is shown");
        drop(tx);
        must(Command::new("umount").arg("-l").arg(&a));
        know(7);
        // It is gone.
        let (tx, _) = looked(&systx, &file);
        std::fs::remove_file(&file).unwrap();
        assert!(tx.commit().unwrap_err().is_conflict(), "{kind}");
        let tx = systx.begin(&loosely()).unwrap();
        assert!(!tx.try_exists(&file).unwrap(), "{kind}");
        tx.commit().unwrap();
    }
}

pub fn relative(dir: &Path) {
    for kind in KINDS {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        // For the root that it gets.
        let proc = tree.join("proc");
        fs::create_dir(&proc).unwrap();
        must(Command::new("mount").arg("--bind").arg("/proc").arg(&proc));
        must(&mut process("relative", &tree));
        must(Command::new("umount").arg("-l").arg(&proc));
    }
}

/// In a process of its own, as it goes about.
pub fn play_relative(tree: &Path) {
    let file = |dir: &str| tree.join(dir).join("file");
    for (n, dir) in ["a/b", "other"].iter().enumerate() {
        fs::create_dir_all(tree.join(dir)).unwrap();
        fs::write(file(dir), vec![b'x'; n + 1]).unwrap();
    }
    let (systx, path, beside) = (systx(), Path::new("file"), tree.join("beside"));
    let know = |len: u64| {
        for _ in 0..3 {
            let (tx, found) = looked(&systx, path);
            assert_eq!(found, len);
            tx.commit().unwrap();
        }
    };
    let write = |text: &str| systx.atomically(&loosely(), |tx| tx.write(path, text)).unwrap();
    let has = |dir: &str, text: &str| assert_eq!(fs::read_to_string(file(dir)).unwrap(), text, "{dir}");
    set_current_dir(tree.join("a/b")).unwrap();
    know(1);
    // An outsider's change is shown, and is a conflict until the end.
    fs::write(path, "outside").unwrap();
    know(7);
    let (tx, _) = looked(&systx, path);
    fs::write(path, "changed").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    know(7);
    // The same path of another directory is another one, and what was seen stays seen where the thread goes.
    set_current_dir(tree.join("other")).unwrap();
    know(2);
    let (tx, _) = looked(&systx, path);
    set_current_dir(tree.join("a/b")).unwrap();
    tx.write(&beside, "on what was read").unwrap();
    assert_eq!(tx.metadata(path).unwrap().len(), 7);
    tx.commit().unwrap();
    let (tx, _) = looked(&systx, path);
    set_current_dir("/").unwrap();
    fs::write(file("a/b"), "written").unwrap();
    conflicts(tx.write(&beside, "on what is not so"));
    set_current_dir(tree.join("a/b")).unwrap();
    know(7);
    // The directory in which it stands moves, and another one has its path.
    fs::rename(tree.join("a"), tree.join("away")).unwrap();
    know(7);
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(file("a/b"), "a decoy").unwrap();
    know(7);
    write("mine");
    has("away/b", "mine");
    has("a/b", "a decoy");
    know(4);
    let (tx, _) = looked(&systx, path);
    fs::rename(tree.join("away"), tree.join("away2")).unwrap();
    tx.commit().expect_err("its path is a fact");
    write("mine again");
    has("away2/b", "mine again");
    // What is above it is elsewhere, too.
    fs::create_dir_all(tree.join("here/in")).unwrap();
    fs::create_dir_all(tree.join("there")).unwrap();
    fs::write(tree.join("here/above"), "1").unwrap();
    fs::write(tree.join("there/above"), "22").unwrap();
    set_current_dir(tree.join("here/in")).unwrap();
    let len = |tx: &Transaction| tx.metadata("../above").unwrap().len();
    for _ in 0..3 {
        let tx = systx.begin(&loosely()).unwrap();
        assert_eq!(len(&tx), 1);
        tx.commit().unwrap();
    }
    let between = systx.begin(&loosely()).unwrap();
    assert_eq!(len(&between), 1);
    fs::rename(tree.join("here/in"), tree.join("there/in")).unwrap();
    fs::create_dir(tree.join("here/in")).unwrap();
    for _ in 0..3 {
        let tx = systx.begin(&loosely()).unwrap();
        assert_eq!((len(&tx), tx.read("../above").unwrap().len()), (2, 2), "it has moved");
        tx.commit().unwrap();
    }
    conflicts(between.read("../above"));
    drop(between);
    set_current_dir(tree.join("away2/b")).unwrap();
    // It is gone, and so is what was in it.
    fs::remove_dir_all(tree.join("away2")).unwrap();
    let tx = systx.begin(&loosely()).unwrap();
    assert!(tx.metadata(path).is_err());
    drop(tx);
    has("a/b", "a decoy");
    // In a root of its own.
    std::os::unix::fs::chroot(tree).unwrap();
    set_current_dir("/a/b").unwrap();
    know(7);
    fs::write(path, "inside").unwrap();
    know(6);
}
