//! Shared words and owned bytes, between processes.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use systx_os::{Errno, Linux, Open, Os, Words};

use crate::place::{alone, fork, kill, receive, wait, Place};

const SECOND_NS: u64 = 1_000_000_000;

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

fn send(pipe: &OwnedFd) -> bool {
    rustix::io::write(pipe, &[1]) == Ok(1)
}

#[test]
fn a_byte_is_owned_until_its_value_is_dropped() {
    let _alone = alone();
    let os = Linux::new();
    for place in Place::all() {
        let owners = os.create(&place.dir, b"owners", 0o600).unwrap();
        assert_eq!(os.byte_owned(&owners, 3), Ok(false));
        let owned = os.own_byte(&owners, 3).unwrap();
        assert_eq!(os.byte_owned(&owners, 3), Ok(true));
        assert_eq!(os.byte_owned(&owners, 2), Ok(false));
        assert_eq!(os.own_byte(&owners, 3).err(), Some(Errno::AGAIN));
        let another = os.own_byte(&owners, 1 << 40).unwrap();
        drop(owned);
        assert_eq!(os.byte_owned(&owners, 3), Ok(false));
        assert_eq!(os.byte_owned(&owners, 1 << 40), Ok(true));
        drop(another);
        assert_eq!(os.own_byte(&owners, u64::MAX).err(), Some(Errno::INVAL));
    }
}

#[test]
fn a_byte_outlives_all_descriptors_and_ends_with_kill_9() {
    let _alone = alone();
    let os = Linux::new();
    for place in Place::all() {
        let owners = os.create(&place.dir, b"owners", 0o600).unwrap();
        let (ready, tell) = pipe();
        let child = fork(|| {
            let Ok(_owned) = os.own_byte(&owners, 7) else { return 1 };
            let keep = tell.as_raw_fd() as u32;
            // SAFETY: what the parent's values own is never used again in this process, which ends by signal.
            unsafe { libc::syscall(libc::SYS_close_range, 0, keep - 1, 0) };
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_close_range, keep + 1, u32::MAX, 0) };
            send(&tell);
            loop {
                // SAFETY: takes nothing.
                unsafe { libc::pause() };
            }
        });
        drop(tell);
        assert!(receive(&ready), "the child owns the byte");
        assert_eq!(os.byte_owned(&owners, 7), Ok(true));
        assert_eq!(os.own_byte(&owners, 7).err(), Some(Errno::AGAIN));
        kill(child);
        assert_eq!(wait(child), -libc::SIGKILL);
        assert_eq!(os.byte_owned(&owners, 7), Ok(false));
        os.own_byte(&owners, 7).unwrap();
    }
}

#[test]
fn a_forked_child_that_outlives_the_owner_does_not_own() {
    let _alone = alone();
    let os = Linux::new();
    for place in Place::all() {
        let owners = os.create(&place.dir, b"owners", 0o600).unwrap();
        let (ready, tell) = pipe();
        let (hold, release) = pipe();
        let (ended, alive) = pipe();
        let owner = fork(|| {
            let Ok(mut owned) = os.own_byte(&owners, 0).map(Some) else { return 1 };
            fork(|| {
                // Dropping the copy must not give the parent's byte back, nor unmap what is not ours.
                owned = None;
                // SAFETY: this process's copy of the writing end, closed once and never used again.
                unsafe { libc::close(release.as_raw_fd()) };
                send(&tell);
                receive(&hold); // until the test lets go
                i32::from(owned.is_some())
            });
            loop {
                // SAFETY: takes nothing.
                unsafe { libc::pause() };
            }
        });
        drop(alive);
        assert!(receive(&ready), "the grandchild runs");
        assert_eq!(os.byte_owned(&owners, 0), Ok(true));
        kill(owner);
        assert_eq!(wait(owner), -libc::SIGKILL);
        assert_eq!(os.byte_owned(&owners, 0), Ok(false), "the grandchild is still there");
        drop(release);
        assert!(!receive(&ended), "end of file: the grandchild is gone");
    }
}

#[test]
fn words_are_the_same_in_every_mapping_and_process() {
    let _alone = alone();
    let os = Linux::new();
    for place in Place::all() {
        let file = os.create(&place.dir, b"table", 0o600).unwrap();
        let one = os.map(&file, 1000).unwrap();
        let two = os.map(&os.open(&place.dir, b"table", Open::ReadWrite).unwrap(), 1000).unwrap();
        drop(file);
        assert_eq!((one.len(), one.is_empty()), (1000, false));
        assert_eq!(os.stat_at(&place.dir, b"table").unwrap().size, 8000);
        one.store(999, 5, Ordering::Release);
        assert_eq!(two.load(999, Ordering::Acquire), 5);
        assert_eq!(two.compare_exchange(999, 4, 6), Err(5));
        assert_eq!(two.compare_exchange(999, 5, 6), Ok(5));
        assert_eq!(one.fetch_or(999, 9), 6);
        assert_eq!(two.load(999, Ordering::Acquire), 15);
        let child = fork(|| {
            for _ in 0..10_000 {
                two.fetch_add(0, 1);
            }
            0
        });
        for _ in 0..10_000 {
            one.fetch_add(0, 1);
        }
        assert_eq!(wait(child), 0);
        assert_eq!(one.load(0, Ordering::Acquire), 20_000);
    }
}

#[test]
fn a_waiter_in_another_process_is_woken() {
    let _alone = alone();
    let os = Linux::new();
    for place in Place::all() {
        let file = os.create(&place.dir, b"table", 0o600).unwrap();
        let words = os.map(&file, 2).unwrap();
        // The upper half changes nothing for the waiter.
        words.store(1, 1 << 32, Ordering::Release);
        let child = fork(|| {
            while words.load(1, Ordering::Acquire) as u32 == 0 {
                words.fetch_add(0, 1);
                words.wait(1, 0, 600 * SECOND_NS);
            }
            0
        });
        // Once the child is about to wait, every order of its wait and this store ends it: a wait that comes later
        // finds another value, one that came earlier is woken.
        while words.load(0, Ordering::Acquire) == 0 {
            os.pause(1);
        }
        words.fetch_or(1, 1);
        words.wake(1);
        assert_eq!(wait(child), 0);
    }
}

#[test]
fn waiting_ends_by_itself() {
    let os = Linux::new();
    let place = Place::below(&std::env::temp_dir());
    let words = os.map(&os.create(&place.dir, b"table", 0o600).unwrap(), 1).unwrap();
    words.wait(0, 1, 600 * SECOND_NS); // differs already
    words.wait(0, 0, 1); // time is over
    words.wait(0, 1 << 32, 1); // the low half counts
}

#[test]
#[should_panic(expected = "word 4 of 4")]
fn a_word_past_the_end_is_a_panic() {
    let os = Linux::new();
    let place = Place::below(&std::env::temp_dir());
    let words = os.map(&os.create(&place.dir, b"table", 0o600).unwrap(), 4).unwrap();
    words.load(4, Ordering::Relaxed);
}

#[test]
fn mapping_never_shortens_and_refuses_nothing_and_nonsense() {
    let os = Linux::new();
    let place = Place::below(&std::env::temp_dir());
    let file = os.create(&place.dir, b"table", 0o600).unwrap();
    os.pwrite(&file, &[0xff; 64], 0).unwrap();
    let words = os.map(&file, 2).unwrap();
    assert_eq!(os.stat(&file).unwrap().size, 64);
    assert_eq!(words.load(1, Ordering::Acquire), u64::MAX);
    assert_eq!(os.map(&file, 0).err(), Some(Errno::INVAL));
    assert_eq!(os.map(&file, usize::MAX).err(), Some(Errno::INVAL));
}

#[test]
fn the_machine_has_one_boot_and_clocks_that_run() {
    let os = Linux::new();
    assert_eq!(os.boot_id(), os.boot_id());
    assert_ne!(os.boot_id(), Ok([0; 16]));
    let before = os.monotonic_ns();
    os.pause(1);
    assert!(os.monotonic_ns() >= before);
    assert!(os.now().sec > 1_600_000_000 && os.now().nsec < 1_000_000_000);
    assert_ne!((os.random(), os.random()), (os.random(), os.random()));
    assert_eq!(os.pid(), std::process::id());
    assert!(systx_os::linux::raise_nofile_limit().unwrap() > 0);
}
