//! Transactions that are paused, and what wakes those that wait.

use super::{place, systx};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use systx::{Error, Options, Token};
use systx_os::host;

pub fn paused(dir: &Path) {
    let Some((volume, tree)) = place(dir, "ext4") else { return };
    let systx = systx();
    let (file, other) = (tree.join("f"), tree.join("other"));
    let staged = || std::fs::read_dir(volume.area().join("tx")).unwrap().count();
    let tx = systx.begin(&Options::new()).unwrap();
    tx.write(&file, "inside").unwrap();
    let handle = tx.open(&file).unwrap();
    let token = tx.pause().unwrap();
    // Outside, the thread is as any other: it may begin another transaction, and change files plainly.
    assert!(!file.exists());
    let second = systx.begin(&Options::new()).unwrap();
    second.write(&other, "another one").unwrap();
    second.commit().unwrap();
    std::fs::write(tree.join("plain"), "").unwrap();
    let error = handle.metadata().map(drop).expect_err("a call on what is paused has been answered");
    assert!(matches!(Error::of(&error), Some(Error::Paused)), "{error}");
    // Who has not taken part can't resume it, and does not use up the token.
    std::thread::scope(|scope| {
        let stranger = scope.spawn(|| systx.resume(&token).map(drop));
        assert!(matches!(stranger.join().unwrap(), Err(Error::NoParticipant)), "a stranger has resumed it");
    });
    for forged in [0, 1, token.to_bits() ^ 1, u128::MAX] {
        assert!(matches!(systx.resume(&Token::from_bits(forged)), Err(Error::NotPaused)));
    }
    assert!(matches!(super::systx().resume(&token), Err(Error::NotPaused)), "another value has others");
    let child = host::fork(|| i32::from(!matches!(systx.resume(&token), Err(Error::Forked))));
    assert_eq!(host::wait(child), 0);
    // By number, as an interface in C has it.
    let tx = systx.resume(&Token::from_bits(token.to_bits())).unwrap();
    assert!(matches!(systx.resume(&token), Err(Error::NotPaused)), "a token is used once");
    assert_eq!(handle.metadata().unwrap().len(), 6);
    assert_eq!(tx.read_to_string(&file).unwrap(), "inside");
    tx.commit().unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "inside");

    // Its own changes outside conflict with it as others' do; it holds nothing against them.
    let tx = systx.begin(&Options::new()).unwrap();
    tx.write(&file, tx.read_to_string(&file).unwrap() + "!").unwrap();
    let token = tx.pause().unwrap();
    systx.atomically(&Options::new(), |tx| tx.write(&file, "meanwhile")).unwrap();
    let tx = systx.resume(&token).unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());

    // The last thread that could resume it ends: it is aborted, in that thread.
    let (send, receive) = mpsc::channel();
    let tx = std::thread::scope(|scope| {
        let begins = scope.spawn(|| {
            let tx = systx.begin(&Options::new()).unwrap();
            tx.create_dir(tree.join("never")).unwrap();
            tx.on_abort(move || send.send("aborted").unwrap()).unwrap();
            tx
        });
        begins.join().unwrap()
    });
    // The first one has ended; a second one takes part, and pauses it.
    let parts = std::thread::scope(|scope| {
        let pauses = scope.spawn(|| {
            tx.metadata(&tree).unwrap();
            tx.pause().unwrap()
        });
        pauses.join().unwrap()
    });
    // A thread that was joined has ended as a whole.
    assert_eq!(receive.try_recv(), Ok("aborted"), "it is still there behind its last thread");
    assert!(matches!(systx.resume(&parts), Err(Error::NotPaused)));
    assert_eq!(staged(), 0, "nothing of it is left");

    // The last value that could resume it goes.
    let tx = systx.begin(&Options::new()).unwrap();
    tx.create_dir(volume.point.join("never")).unwrap();
    let token = tx.pause().unwrap();
    drop(systx);
    assert_eq!(staged(), 0);
    assert!(matches!(super::systx().resume(&token), Err(Error::NotPaused)));
}

pub fn retry(dir: &Path) {
    for kind in ["ext4", "tmpfs"] {
        let Some((_volume, tree)) = place(dir, kind) else { continue };
        let systx = systx();
        let (flag, done, aside) = (tree.join("flag"), tree.join("done"), tree.join("aside"));
        let change: [(&str, &dyn Fn()); 4] = [
            ("a missing name", &|| std::fs::write(&flag, "1").unwrap()),
            ("an outsider's write", &|| std::fs::write(&flag, "2").unwrap()),
            ("a transaction's", &|| systx.atomically(&Options::new(), |tx| tx.write(&flag, "3")).unwrap()),
            ("a rename over it", &|| {
                std::fs::write(&aside, "4").unwrap();
                std::fs::rename(&aside, &flag).unwrap();
            }),
        ];
        for (n, (what, change)) in change.into_iter().enumerate() {
            let wanted = (n + 1).to_string();
            let tries = AtomicU32::new(0);
            let (looked, has_looked) = mpsc::channel();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let looked = looked;
                    let waited = systx.atomically(&Options::new(), |tx| {
                        tries.fetch_add(1, Ordering::Relaxed);
                        let now =
                            if tx.try_exists(&flag)? { tx.read_to_string(&flag)? } else { String::new() };
                        let _ = looked.send(());
                        if now != wanted {
                            tx.write(&done, "never")?;
                            return tx.retry();
                        }
                        tx.write(&done, now)
                    });
                    waited.unwrap();
                });
                has_looked.recv().unwrap();
                // Another name beside it is nothing that was read.
                std::fs::write(tree.join("unread"), what).unwrap();
                change();
            });
            assert_eq!(std::fs::read_to_string(&done).unwrap(), wanted, "{kind}: {what}");
            // Writing a file in place is two changes, and each may be met.
            let tries = tries.into_inner();
            assert!((2..=3).contains(&tries), "{kind}: {what}: {tries} tries");
        }
        // Without `atomically` it is an error like others.
        let tx = systx.begin(&Options::new()).unwrap();
        let error = tx.retry::<()>().unwrap_err();
        assert!(matches!(Error::of(&error), Some(Error::Retry)));
    }
}

/// The number of the call in which a thread of this process sleeps.
fn sleeps_in(thread: &str) -> Option<u64> {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?;
    call.split(' ').next()?.parse().ok()
}

/// A change between the last read and the sleep: its notice has come before there was a watch for it.
pub fn changed_before(dir: &Path) {
    // poll and ppoll; nothing else in a commit to memory waits in them.
    let polls: &[u64] = if cfg!(target_arch = "x86_64") { &[7, 271] } else { &[73] };
    let Some((_volume, tree)) = place(dir, "tmpfs") else { return };
    let (systx, flag) = (systx(), tree.join("flag"));
    let (told, hears) = mpsc::channel();
    let slept = std::thread::scope(|scope| {
        let (systx, flag) = (&systx, &flag);
        let waits = scope.spawn(move || {
            let me = std::fs::read_link("/proc/thread-self").unwrap();
            told.send(me.file_name().unwrap().to_str().unwrap().to_owned()).unwrap();
            let waited = systx.atomically(&Options::new(), |tx| {
                if tx.try_exists(flag)? {
                    return Ok(());
                }
                std::fs::write(flag, "").unwrap();
                tx.retry()
            });
            waited.unwrap();
        });
        let thread = hears.recv().unwrap();
        let mut slept = false;
        while !waits.is_finished() && !slept {
            slept = sleeps_in(&thread).is_some_and(|call| polls.contains(&call));
        }
        if slept {
            // A change that wakes it.
            std::fs::write(flag, "again").unwrap();
            std::fs::remove_file(flag).unwrap();
            std::fs::write(flag, "again").unwrap();
        }
        waits.join().unwrap();
        slept
    });
    assert!(!slept, "it sleeps although what it has read has changed");
}
