//! The area, or a part of it, is removed or moved while transactions run: by hand, or by what tidies /tmp.

use super::stuck::{change, make};
use super::world::{copy, machine, open, public, AREA};
use crate::objects::remove::remove_all;
use systx_os::{FileType, FsKind, Open, Os, Rename, Result};
use systx_sim::machine::{SimFd, SimOs};

/// The area stays what it is, elsewhere.
const MOVED: &str = "its name";

fn remove(os: &SimOs, parent: &SimFd, name: &[u8]) -> Result<()> {
    if os.stat_at(parent, name)?.kind() != FileType::Directory {
        return os.unlink(parent, name);
    }
    remove_all(os, &os.open(parent, name, Open::Directory)?)?;
    os.rmdir(parent, name)
}

/// The whole area, its own name, each name in it, and each segment of the log, one at a time.
#[test]
fn an_area_that_is_removed_under_a_transaction_takes_no_commit() {
    for kind in [FsKind::Ext4, FsKind::Btrfs] {
        let world = machine(kind);
        let os = world.spawn("first");
        make(&open(&os).unwrap(), b"earlier").unwrap();
        os.exit();
        let os = world.outsider("names");
        let area = os.open(&os.root(0), AREA, Open::Directory).unwrap();
        let log = os.open(&area, b"log", Open::Directory).unwrap();
        let below = |dir: &SimFd, path: &str| -> Vec<String> {
            let names = os.read_dir(dir).unwrap().into_iter();
            names.map(|entry| format!("{path}{}", String::from_utf8(entry.name).unwrap())).collect()
        };
        let mut parts = vec![".systx".to_owned(), MOVED.to_owned()];
        parts.extend(["table", "owners", "log", "tx", "aside"].map(|name| format!(".systx/{name}")));
        parts.extend(below(&log, ".systx/log/"));
        assert!(parts.len() > 7, "no segment");
        for part in parts {
            let machine = copy(&world);
            let (os, outsider) = (machine.spawn("commits"), machine.outsider("tidies"));
            let domain = open(&os).unwrap();
            // What was committed is on the disk.
            make(&domain, b"before").unwrap();
            let committed = || {
                let tree = public(&machine).into_iter();
                tree.filter(|(path, _)| path.starts_with("w/")).collect::<Vec<_>>()
            };
            let before = committed();
            let ended = change(&domain, |t, w| {
                t.mkdir(w, b"new", 0o755, crate::transaction::Caller { uid: 0, gid: 0, umask: 0 })?;
                if part == MOVED {
                    let root = outsider.root(0);
                    outsider.rename((&root, AREA), (&root, b"moved"), Rename::NoReplace).unwrap();
                    return Ok(());
                }
                let (dir, name) = part.rsplit_once('/').unwrap_or(("", &part));
                let mut parent = outsider.root(0);
                for step in dir.split('/').filter(|step| !step.is_empty()) {
                    parent = outsider.open(&parent, step.as_bytes(), Open::Directory).unwrap();
                }
                remove(&outsider, &parent, name.as_bytes()).unwrap();
                Ok(())
            });
            assert!(ended.is_err(), "{kind:?}: commits without {part}: {ended:?}");
            assert_eq!(committed(), before, "{kind:?}: {part}");
            // Opened anew, all goes on.
            drop(domain);
            let again = open(&os).unwrap_or_else(|e| panic!("{kind:?}: opened without {part}: {e}"));
            make(&again, b"after").unwrap_or_else(|e| panic!("{kind:?}: behind {part}: {e}"));
        }
    }
}
