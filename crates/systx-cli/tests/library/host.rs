//! The process that the library is a guest in: it forks, closes descriptors that it does not know, and stays as it was.

use super::{add_one, loosely, place, systx};
use crate::machine::rounds;
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use systx::{Error, Options};
use systx_os::host;

pub fn stays_as_it_was(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    std::fs::write(tree.join("number"), "0\n").unwrap();
    let before = host::State::now();
    let systx = systx();
    for n in 0..rounds(200, 10_000) {
        add_one(&systx, &loosely(), &tree.join("number"));
        if n % 10 == 0 {
            let tx = systx.begin(&loosely()).unwrap();
            tx.create_dir_all(tree.join("a/b/c")).unwrap();
            tx.write(tree.join("a/b/c/f"), "x").unwrap();
        }
    }
    assert_eq!(host::State::now(), before);
    // The mode of a new object is less the thread's umask.
    let umask = systx_os::caller::umask().unwrap();
    let tx = systx.begin(&Options::new()).unwrap();
    tx.write(tree.join("made"), "").unwrap();
    tx.create_dir(tree.join("dir")).unwrap();
    assert_eq!(tx.metadata(tree.join("made")).unwrap().mode() & 0o7777, 0o666 & !umask);
    tx.commit().unwrap();
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(tree.join(name)).unwrap().permissions().mode() & 0o7777
    };
    assert_eq!((mode("made"), mode("dir")), (0o666 & !umask, 0o777 & !umask));
}

pub fn may_fork(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    let systx = systx();
    let tx = systx.begin(&Options::new()).unwrap();
    let mut file = tx.create(tree.join("parents")).unwrap();
    file.write_all(b"the parent's").unwrap();
    let other = systx.begin(&Options::new()).unwrap();
    other.write(tree.join("other"), "of both").unwrap();
    let untouched = systx.begin(&Options::new()).unwrap();
    let child = host::fork(|| {
        let forked = |error: &std::io::Error| matches!(Error::of(error), Some(Error::Forked));
        let refused = |told: std::io::Result<()>| told.is_err_and(|error| forked(&error));
        assert!(
            refused(file.write(b"the child's").map(drop)) && refused(tx.read("f").map(drop)),
            "a child goes on with its parent's"
        );
        assert!(systx.begin(&Options::new()).is_err_and(|error| forked(&error)));
        assert!(matches!(other.commit(), Err(Error::Forked)));
        assert!(refused(untouched.read("f").map(drop)) && matches!(untouched.commit(), Err(Error::Forked)));
        // It begins anew with a value of its own.
        let own = super::systx();
        let own_tx = own.begin(&Options::new()).unwrap();
        own_tx.write(tree.join("childs"), "the child's").unwrap();
        own_tx.commit().unwrap();
        drop(own);
        0
    });
    assert_eq!(host::wait(child), 0);
    // What the child did to its copies has taken nothing from the parent.
    assert_eq!(std::fs::read(tree.join("childs")).unwrap(), b"the child's");
    assert!(!tree.join("parents").exists() && !tree.join("other").exists());
    tx.commit().unwrap();
    assert_eq!(std::fs::read(tree.join("parents")).unwrap(), b"the parent's");
}

/// A read does not look at its descriptor each time. The commit knows.
fn reads_on(tree: &Path, closes: bool) -> i32 {
    let systx = systx();
    let tx = systx.begin(&Options::new()).unwrap();
    let file = tx.open(tree.join("read")).unwrap();
    let mut page = [0; 4096];
    file.read_exact_at(&mut page, 0).unwrap();
    host::close_from(3);
    let own = tree.join("own bytes");
    std::fs::write(&own, vec![b'o'; 300_000]).unwrap();
    host::open_as(&std::fs::File::open(own).unwrap(), 3..4000);
    // Whatever it is.
    let _ = file.read_exact_at(&mut page, 4096);
    if closes {
        drop(file);
    }
    assert!(tx.commit().is_err(), "it has read the program's own file");
    0
}

pub fn may_close_everything(dir: &Path) {
    let Some((_volume, tree)) = place(dir, "ext4") else { return };
    std::fs::write(tree.join("number"), "0\n").unwrap();
    std::fs::write(tree.join("read"), vec![b'x'; 300_000]).unwrap();
    for closes in [false, true] {
        let child = host::fork(|| reads_on(&tree, closes));
        assert_eq!(host::wait(child), 0);
    }
    let child = host::fork(|| {
        let systx = systx();
        add_one(&systx, &Options::new(), &tree.join("number"));
        let tx = systx.begin(&Options::new()).unwrap();
        tx.write(tree.join("large"), vec![b'x'; 300_000]).unwrap();
        host::close_from(3);
        let mut own = std::fs::File::create(tree.join("own")).unwrap();
        own.write_all(b"its own").unwrap();
        host::open_as(&own, 3..4000);
        assert!(tx.commit().is_err(), "its staged files are out of reach");
        // The next transaction opens everything anew.
        add_one(&systx, &Options::new(), &tree.join("number"));
        drop(systx);
        own.rewind().unwrap();
        assert_eq!(own.metadata().unwrap().len(), 7);
        // A new value does, too.
        add_one(&super::systx(), &Options::new(), &tree.join("number"));
        0
    });
    assert_eq!(host::wait(child), 0);
    assert_eq!(super::number(&tree.join("number")), 3);
    assert_eq!(std::fs::read(tree.join("own")).unwrap(), b"its own");
    assert!(!tree.join("large").exists());
}
