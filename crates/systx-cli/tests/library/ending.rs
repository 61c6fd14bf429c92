//! Actions, handles and descriptors at the end of a transaction.

use super::{loosely, place, systx};
use std::io::{Read, Seek, SeekFrom, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, Mutex};
use systx::{Error, OpenOptions, Options, Systx, Transaction};
use systx_os::host;

/// Lines that actions have printed.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl Said {
    fn say(&self, word: impl Into<String>) {
        self.0.lock().unwrap().push(word.into());
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Gives a transaction two actions for each end.
    fn give(&self, tx: &Transaction) {
        for n in ["1", "2"] {
            let (commit, abort) = (self.clone(), self.clone());
            tx.on_commit(move || commit.say(format!("commit {n}"))).unwrap();
            tx.on_abort(move || abort.say(format!("abort {n}"))).unwrap();
        }
    }
}

const ABORTED: [&str; 2] = ["abort 2", "abort 1"];

pub fn actions(dir: &Path) {
    let Some((volume, tree)) = place(dir, "ext4") else { return };
    let (systx, said, file) = (systx(), Said::default(), tree.join("f"));
    let begin = |systx: &Systx| {
        let tx = systx.begin(&Options::new()).unwrap();
        said.give(&tx);
        tx.write(&file, "new").unwrap();
        tx
    };
    begin(&systx).abort();
    assert_eq!(said.taken(), ABORTED);
    drop(begin(&systx));
    assert_eq!(said.taken(), ABORTED);
    let tx = begin(&systx);
    std::fs::write(&file, "an outsider's").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    assert_eq!(said.taken(), ABORTED);
    let tx = begin(&systx);
    std::fs::write(&file, "an outsider's again").unwrap();
    assert!(tx.check().is_err());
    assert!(tx.commit().unwrap_err().is_conflict());
    assert_eq!(said.taken(), ABORTED);

    // Everything is public when they run, nothing is staged, and another transaction may begin.
    let tx = begin(&systx);
    let (seen, again, at, staged) = (said.clone(), systx.clone(), file.clone(), volume.area().join("tx"));
    tx.on_commit(move || {
        seen.say(std::fs::read_to_string(&at).unwrap());
        let committed = again.atomically(&loosely(), |tx| tx.write(&at, "by an action"));
        committed.unwrap();
        assert_eq!(std::fs::read_dir(&staged).unwrap().count(), 0);
    })
    .unwrap();
    tx.commit().unwrap();
    assert_eq!(said.taken(), ["commit 1", "commit 2", "new"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "by an action");

    // Each try has its own.
    let mut tries = 0;
    let committed = systx.atomically(&loosely(), |tx| {
        tries += 1;
        let now = tx.read_to_string(&file)?;
        let (n, commit, abort) = (tries, said.clone(), said.clone());
        tx.on_commit(move || commit.say(format!("committed {n}")))?;
        tx.on_abort(move || abort.say(format!("aborted {n}")))?;
        if n < 3 {
            std::fs::write(&file, format!("outside {n}")).unwrap();
        }
        tx.write(&file, now + "!")
    });
    committed.unwrap();
    assert_eq!(said.taken(), ["aborted 1", "aborted 2", "committed 3"]);

    // One that panics keeps neither the others from running nor the commit from standing.
    let tx = systx.begin(&Options::new()).unwrap();
    tx.write(&file, "stands").unwrap();
    tx.on_commit(|| panic!("planted: an action of the test")).unwrap();
    said.give(&tx);
    assert!(catch_unwind(AssertUnwindSafe(|| tx.commit())).is_err());
    assert_eq!(said.taken(), ["commit 1", "commit 2"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "stands");
    // A panic of the program's own aborts, and its actions run.
    let thrown = catch_unwind(AssertUnwindSafe(|| {
        let _tx = begin(&systx);
        panic!("planted: the program of the test");
    }));
    assert!(thrown.is_err());
    assert_eq!(said.taken(), ABORTED);

    // A forked child has a copy of them, and runs none.
    let tx = begin(&systx);
    let counted = tree.join("counted");
    std::fs::write(&counted, "").unwrap();
    let at = counted.clone();
    tx.on_abort(move || {
        let mut counted = std::fs::OpenOptions::new().append(true).open(&at).unwrap();
        counted.write_all(b"x").unwrap();
    })
    .unwrap();
    let mut tx = Some(tx);
    let child = host::fork(|| {
        drop(tx.take());
        0
    });
    assert_eq!(host::wait(child), 0);
    assert_eq!(std::fs::read(&counted).unwrap(), b"", "a child has run an action of its parent's");
    drop(tx);
    assert_eq!(std::fs::read(&counted).unwrap(), b"x");
}

/// How many descriptors of this process lead to a path.
fn open_at(path: &Path) -> usize {
    host::descriptors().values().filter(|target| *target == path).count()
}

pub fn handles(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let systx = systx();
    let told = |error: std::io::Error| matches!(Error::of(&error), Some(Error::Ended));
    std::fs::write(tree.join("f"), vec![b'x'; 1 << 20]).unwrap();
    // On /proc nothing is served.
    let outside = Path::new("/proc/version");
    for commits in [true, false] {
        let before = open_at(&tree.join("f"));
        // Without a log, as a checkpoint would open the file for a moment, too.
        let tx = systx.begin(&loosely()).unwrap();
        let options = OpenOptions::new().read(true).write(true);
        let mut file = tx.open_with(tree.join("f"), &options).unwrap();
        file.seek(SeekFrom::Start(900_000)).unwrap();
        file.write_all(b"y").unwrap();
        let mut version = tx.open(outside).unwrap();
        version.read_exact(&mut [0; 4]).unwrap();
        assert_eq!(open_at(outside), 1);
        if commits {
            tx.commit().unwrap();
        } else {
            drop(tx);
        }
        assert_eq!((open_at(outside), open_at(&tree.join("f"))), (0, before), "closed with the transaction");
        assert!(
            told(version.read(&mut [0; 1]).unwrap_err()) && told(version.seek(SeekFrom::End(0)).unwrap_err())
        );
        assert!(told(file.read(&mut [0; 1]).unwrap_err()) && told(file.set_len(3).unwrap_err()));
    }
    // A handle that is dropped closes its file at once.
    let tx = systx.begin(&Options::new()).unwrap();
    drop(tx.open(outside).unwrap());
    assert_eq!(open_at(outside), 0);
}

pub fn descriptors(dir: &Path) {
    for kind in ["ext4", "btrfs"] {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        let systx = systx();
        let path = tree.join("f");
        std::fs::write(&path, "0123456789").unwrap();
        let mut opened = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        opened.read_exact(&mut [0; 2]).unwrap();
        let work = |tx: &Transaction| {
            let mut file = tx.file_of(&opened).unwrap();
            let mut two = [0; 2];
            file.read_exact(&mut two).unwrap();
            assert_eq!(two, *b"23", "{kind}");
            file.write_all(b"ab").unwrap();
            assert_eq!((&opened).stream_position().unwrap(), 2, "not before the commit");
        };
        // After an abort it is as it was.
        let tx = systx.begin(&Options::new()).unwrap();
        work(&tx);
        drop(tx);
        assert_eq!(
            ((&opened).stream_position().unwrap(), std::fs::read(&path).unwrap()),
            (2, b"0123456789".to_vec())
        );
        // After a commit it is where the handle was, which need not be open any more.
        let tx = systx.begin(&Options::new()).unwrap();
        work(&tx);
        tx.commit().unwrap();
        assert_eq!(
            ((&opened).stream_position().unwrap(), std::fs::read(&path).unwrap()),
            (6, b"0123ab6789".to_vec())
        );
        // It may do what the descriptor may.
        let tx = systx.begin(&Options::new()).unwrap();
        let read = std::fs::File::open(&path).unwrap();
        let mut file = tx.file_of(&read).unwrap();
        assert_eq!(file.write(b"x").unwrap_err().raw_os_error(), Some(9));
        let append = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        tx.file_of(&append).unwrap().write_all(b"!").unwrap();
        assert_eq!(tx.read(&path).unwrap(), b"0123ab6789!");
        let error = tx.file_of(std::fs::File::open(&tree).unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(22), "a directory is no file: {error}");
        // What is at its path is another file.
        std::fs::rename(&path, tree.join("moved")).unwrap();
        let tx = systx.begin(&Options::new()).unwrap();
        assert!(tx.file_of(&read).is_ok(), "the kernel knows where it is");
        std::fs::remove_file(tree.join("moved")).unwrap();
        let tx = systx.begin(&Options::new()).unwrap();
        assert_eq!(tx.file_of(&read).unwrap_err().raw_os_error(), Some(116));
        // A close that waits for the commit.
        let tx = systx.begin(&Options::new()).unwrap();
        let kept = std::fs::File::create(tree.join("kept")).unwrap();
        tx.on_commit(move || drop(kept)).unwrap();
        assert_eq!(open_at(&tree.join("kept")), 1);
        tx.commit().unwrap();
        assert_eq!(open_at(&tree.join("kept")), 0);
    }
}
