//! Parts of a transaction that are undone alone.

use super::{begin_with, change, place, process, systx, AREA, KINDS};
use crate::machine::picture::{difference, picture, Picture};
use crate::machine::user::USER;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use systx::{Dir, Error, OpenOptions, Options, Transaction};

/// All that a transaction shows of a tree.
fn shown(dir: &Dir, at: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut entries: Vec<_> = dir.read_dir(at).unwrap().collect();
    entries.sort_by(|a, b| a.file_name().cmp(b.file_name()));
    for entry in entries {
        let path = at.join(entry.file_name());
        let found = dir.symlink_metadata(&path).unwrap();
        let what = match (found.is_dir(), found.is_symlink()) {
            (true, _) => String::new(),
            (_, true) => format!("{:?}", dir.read_link(&path).unwrap()),
            _ => format!("{:?} {:?}", dir.read(&path).unwrap(), found.modified()),
        };
        all.push(format!("{} {} {:o} {} {what}", path.display(), found.ino(), found.mode(), found.nlink()));
        if found.is_dir() {
            all.extend(shown(dir, &path));
        }
    }
    all
}

/// More than [`change`], on what that has left.
fn change_again(tx: &Dir) {
    tx.remove_dir_all("new").unwrap();
    tx.write("new", "a file now").unwrap();
    tx.rename("copy", "old").unwrap();
    let mut log = tx.open_with("log", &OpenOptions::new().read(true).write(true)).unwrap();
    log.seek(SeekFrom::Start(2)).unwrap();
    log.write_all(b"overwritten").unwrap();
    tx.open_with("large", &OpenOptions::new().write(true)).unwrap().set_len(10).unwrap();
    tx.set_mode("cut", 0o777).unwrap();
    tx.create_dir_all("a/b/c").unwrap();
    tx.rename("cut", "a/b/c/cut").unwrap();
}

fn without_times(tree: &Path) -> Picture {
    let mut all = picture(tree);
    for line in all.values_mut() {
        *line = line
            .split(' ')
            .enumerate()
            .filter(|(n, _)| *n != 2)
            .map(|(_, word)| word)
            .collect::<Vec<_>>()
            .join(" ");
    }
    all
}

pub fn undone_alone(dir: &Path) {
    for kind in KINDS {
        let Some((volume, tree)) = place(dir, kind) else { continue };
        undone_in(&tree, &|| volume.area());
    }
}

/// The same in a user's directory, by a process of theirs.
pub fn of_a_user(dir: &Path) {
    for kind in KINDS {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        let own = tree.join("own");
        std::fs::create_dir_all(own.join("tree")).unwrap();
        for dir in [&own, &own.join("tree")] {
            chown(dir, Some(USER), Some(USER)).unwrap();
        }
        let status = process("parts", &own).uid(USER).gid(USER).status().unwrap();
        assert!(status.success(), "{kind}");
    }
}

pub fn play(own: &Path) {
    // In the directory, or at the top where that is open to all.
    let at = |dir: &Path| dir.join(format!("{AREA}-{USER}"));
    undone_in(&own.join("tree"), &|| own.ancestors().map(at).find(|area| area.exists()).unwrap());
}

fn undone_in(tree: &Path, area: &dyn Fn() -> PathBuf) {
    let kind = tree.display();
    begin_with(tree);
    let systx = systx();
    let tx = systx.begin(&Options::new()).unwrap();
    let inside = tx.open_dir(tree).unwrap();
    // Nothing was changed before; then a part over what is changed already.
    let untouched = shown(&inside, Path::new("."));
    let part = tx.sub().unwrap();
    change(&inside).unwrap();
    drop(part);
    assert_eq!(shown(&inside, Path::new(".")), untouched, "{kind}");
    change(&inside).unwrap();
    let changed = shown(&inside, Path::new("."));
    let part = tx.sub().unwrap();
    change_again(&part.open_dir(tree).unwrap());
    let inner = part.sub().unwrap();
    tx.write(tree.join("a/b/c/inner"), "inner").unwrap();
    inner.commit().unwrap();
    assert!(tx.try_exists(tree.join("a/b/c/inner")).unwrap());
    part.abort().unwrap();
    assert_eq!(shown(&inside, Path::new(".")), changed, "{kind}");
    // The inner one alone is undone, and the outer one is kept.
    let part = tx.sub().unwrap();
    tx.write(tree.join("outer"), "outer").unwrap();
    drop({
        let inner = part.sub().unwrap();
        inner.write(tree.join("outer"), "inner").unwrap();
        inner.write(tree.join("inner"), "inner").unwrap();
        inner
    });
    part.commit().unwrap();
    tx.commit().unwrap();
    assert_eq!(std::fs::read_to_string(tree.join("outer")).unwrap(), "outer");
    std::fs::remove_file(tree.join("outer")).unwrap();
    // Until the checkpoint there is a directory that says that all is done, and nothing of a part's is in it.
    for entry in std::fs::read_dir(area().join("tx")).unwrap() {
        let path = entry.unwrap().path();
        let inside = path.is_dir().then(|| std::fs::read_dir(&path).unwrap());
        // Entries have numbers.
        let is_entry = |name: &std::ffi::OsStr| name.as_encoded_bytes()[0].is_ascii_digit();
        let left: Vec<_> = inside.into_iter().flatten().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!left.iter().any(|name| is_entry(name)), "{kind}: {}: {left:?}", path.display());
    }
    // As if there had been no parts.
    let committed = without_times(tree);
    std::fs::remove_dir_all(tree).unwrap();
    std::fs::create_dir(tree).unwrap();
    begin_with(tree);
    systx.atomically(&Options::new(), |tx| change(&tx.open_dir(tree)?)).unwrap();
    let now = without_times(tree);
    assert!(now == committed, "{kind}: {}", difference(&now, &committed));
}

pub fn handles(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let systx = systx();
    std::fs::write(tree.join("f"), "0123456789").unwrap();
    let told = |error: std::io::Error| matches!(Error::of(&error), Some(Error::Ended));
    let tx = systx.begin(&Options::new()).unwrap();
    let mut outer = tx.open_with(tree.join("f"), &OpenOptions::new().read(true).write(true)).unwrap();
    outer.read_exact(&mut [0; 4]).unwrap();
    let descriptor = std::fs::File::open(tree.join("f")).unwrap();
    let part = tx.sub().unwrap();
    // Offsets go back, files and directories that were opened inside are closed.
    outer.write_all(b"abc").unwrap();
    let mut inner = part.open(tree.join("f")).unwrap();
    let mut text = String::new();
    inner.read_to_string(&mut text).unwrap();
    assert_eq!(text, "0123abc789");
    let mut version = part.open("/proc/version").unwrap();
    let below = part.open_dir(&tree).unwrap();
    part.file_of(&descriptor).unwrap().seek(SeekFrom::End(0)).unwrap();
    drop(part);
    assert_eq!(outer.stream_position().unwrap(), 4);
    assert!(told(inner.metadata().unwrap_err()) && told(version.read(&mut [0; 1]).unwrap_err()));
    assert!(told(below.try_exists("f").unwrap_err()));
    let mut rest = String::new();
    outer.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "456789");
    // Of a part that is kept they go on.
    let part = tx.sub().unwrap();
    let mut inner = part.open_with(tree.join("f"), &OpenOptions::new().append(true)).unwrap();
    part.commit().unwrap();
    inner.write_all(b"!").unwrap();
    // Parts end inside out: one that is around another ends both.
    let around = tx.sub().unwrap();
    let within = tx.sub().unwrap();
    tx.write(tree.join("g"), "").unwrap();
    drop(around);
    assert!(told(within.commit().unwrap_err()));
    assert!(!tx.try_exists(tree.join("g")).unwrap());
    // What can't be undone spoils the part alone.
    crate::machine::must(std::process::Command::new("mkfifo").arg(tree.join("fifo")));
    let tx2 = systx.begin(&Options::new()).unwrap();
    let part = tx2.sub().unwrap();
    assert!(part.open(tree.join("fifo")).is_err());
    drop(part);
    tx2.write(tree.join("h"), "").unwrap();
    tx2.commit().unwrap();
    tx.commit().unwrap();
    assert_eq!(std::fs::read_to_string(tree.join("f")).unwrap(), "0123456789!");
    assert_eq!((&descriptor).stream_position().unwrap(), 0, "the part that moved it was undone");
}

/// What a part has read that was undone, the transaction has read; and a conflict is all of it's.
pub fn reads_stay(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let systx = systx();
    std::fs::write(tree.join("f"), "1").unwrap();
    let tx = systx.begin(&Options::new()).unwrap();
    let part = tx.sub().unwrap();
    assert_eq!(part.read(tree.join("f")).unwrap(), b"1");
    drop(part);
    tx.write(tree.join("g"), "decided by it").unwrap();
    std::fs::write(tree.join("f"), "2").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    assert!(!tree.join("g").exists());

    // Actions of a part go with it.
    let said = Arc::new(Mutex::new(Vec::new()));
    let give = |tx: &Transaction, name: &'static str| {
        let (commit, abort) = (said.clone(), said.clone());
        tx.on_commit(move || commit.lock().unwrap().push(format!("commit {name}"))).unwrap();
        tx.on_abort(move || abort.lock().unwrap().push(format!("abort {name}"))).unwrap();
    };
    let tx = systx.begin(&Options::new()).unwrap();
    give(&tx, "outer");
    let part = tx.sub().unwrap();
    give(&part, "undone");
    drop(part);
    assert_eq!(std::mem::take(&mut *said.lock().unwrap()), ["abort undone"]);
    let part = tx.sub().unwrap();
    give(&part, "kept");
    part.commit().unwrap();
    tx.commit().unwrap();
    assert_eq!(*said.lock().unwrap(), ["commit outer", "commit kept"]);
}
