//! Transactions in a process that isn't ours: what it is stays as it was, and what its program does to descriptors, limits
//! and by forks is an error, never a wrong commit.
//!
//! Without the test harness, whose threads would be the host's. Each case is a function; its name is the promise.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use systx_engine::domain::{Bounds, Domain, Location};
use systx_engine::outcome::{CommitError, Durability, Options, VerbError};
use systx_engine::transaction::{Access, Caller, Transaction};
use systx_os::host::{self, State};
use systx_os::{Errno, Guest, Linux, Open, Os};
use systx_runner::{self as runner, Tried};

type Host = Guest<Linux>;

/// A case by its name.
type Case = (&'static str, fn(&Scratch) -> Tried);

const ALL: &[Case] = &[
    ("a_host_is_the_same_after_many_transactions", a_host_is_the_same_after_many_transactions),
    ("a_host_of_many_threads_is_the_same", a_host_of_many_threads_is_the_same),
    ("a_thousand_threads_begin_and_abort", a_thousand_threads_begin_and_abort),
    ("one_transaction_goes_from_thread_to_thread", one_transaction_goes_from_thread_to_thread),
    ("modes_are_as_asked_for_under_any_umask", modes_are_as_asked_for_under_any_umask),
    ("a_limit_on_the_size_of_files_is_an_error", a_limit_on_the_size_of_files_is_an_error),
    ("a_limit_on_descriptors_is_an_error", a_limit_on_descriptors_is_an_error),
    ("a_forked_child_commits_nothing_of_its_parent", a_forked_child_commits_nothing_of_its_parent),
    (
        "a_child_whose_parent_is_dead_commits_its_own_alone",
        a_child_whose_parent_is_dead_commits_its_own_alone,
    ),
    ("descriptors_stand_high", descriptors_stand_high),
    ("what_a_program_opens_after_closefrom_is_its_own", what_a_program_opens_after_closefrom_is_its_own),
    ("a_closefrom_at_any_moment_spoils_no_file", a_closefrom_at_any_moment_spoils_no_file),
    ("valgrind_finds_nothing", valgrind_finds_nothing),
];

fn main() {
    let case = |&(name, case): &(&str, fn(&Scratch) -> Tried)| {
        runner::Case::new(name, move || case(&Scratch::new()))
    };
    runner::run(ALL.iter().map(case).collect(), || {});
}

/// Caller of the verbs.
fn me() -> Caller {
    Caller { uid: Linux::new().uid(), gid: systx_os::process::group(), umask: 0 }
}

fn long() -> bool {
    std::env::var_os("SYSTX_LONG").is_some()
}

/// A fresh directory.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("systx-host-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn domain(&self) -> Arc<Domain<Host>> {
        let os = Guest::over(Linux::new());
        let root = Arc::new(os.open_path(&self.0, Open::Directory).unwrap());
        Domain::open(
            &os,
            Location { root: root.clone(), bounds: Bounds::FileSystem, parent: &root, name: b".area" },
        )
        .unwrap()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.join(name)).unwrap()
    }

    fn has(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn begin(domain: &Arc<Domain<Host>>, durability: Durability) -> Result<Transaction<Host>, VerbError> {
    let options = Options { durability, command: "a host".into(), ..Options::default() };
    Transaction::begin(domain.os.clone(), vec![domain.clone()], options)
}

/// A file is made, or written anew.
fn write(t: &mut Transaction<Host>, name: &str, bytes: &[u8]) -> Result<(), VerbError> {
    let root = t.root(0);
    let node = match t.lookup(root, name.as_bytes())? {
        Some((node, _)) => node,
        None => t.create(root, name.as_bytes(), 0o640, me())?.0,
    };
    t.open(node, Access::ReadWrite, false)?;
    let mut done = 0;
    // A write may be short, where a limit or the disk ends.
    while done < bytes.len() {
        done += t.write_at(node, &bytes[done..], done as u64)?;
    }
    t.close(node);
    Ok(())
}

fn failed(error: VerbError) -> CommitError {
    match error {
        VerbError::Os(error) => CommitError::Failed { doing: "working", path: Vec::new(), error },
        VerbError::Doomed(conflict) => CommitError::Conflict(conflict),
    }
}

fn commit(domain: &Arc<Domain<Host>>, name: &str, bytes: &[u8], how: Durability) -> Result<(), CommitError> {
    let mut t = begin(domain, how).map_err(failed)?;
    match write(&mut t, name, bytes) {
        Ok(()) => t.commit().map(drop),
        Err(error) => {
            t.abort();
            Err(failed(error))
        }
    }
}

/// Small transactions of many kinds: a new file, an overwritten one that is open elsewhere, one that only reads, aborts.
fn work(scratch: &Scratch, domain: &Arc<Domain<Host>>, thread: usize, times: usize) {
    let (shared, own) = (format!("shared-{thread}"), format!("own-{thread}"));
    // Open elsewhere: no lease is to be had, and each overwrite is an exchange.
    std::fs::write(scratch.0.join(&shared), [0; 512]).unwrap();
    let _open = std::fs::File::open(scratch.0.join(&shared)).unwrap();
    for n in 0..times {
        let how = if n % 50 == 0 { Durability::Durable } else { Durability::None };
        commit(domain, &shared, &[n as u8; 512], how).unwrap();
        commit(domain, &own, format!("{n}").as_bytes(), how).unwrap();
        let mut t = begin(domain, how).unwrap();
        assert!(t.lookup(t.root(0), own.as_bytes()).unwrap().is_some());
        t.commit().unwrap();
        let mut t = begin(domain, how).unwrap();
        write(&mut t, &own, b"never").unwrap();
        t.abort();
    }
    assert_eq!(scratch.read(&shared), [(times - 1) as u8; 512]);
}

fn a_host_is_the_same_after_many_transactions(scratch: &Scratch) -> Tried {
    host::count_signals();
    let (state, signals, open) = (State::now(), host::signals(), host::descriptors().len());
    let domain = scratch.domain();
    work(scratch, &domain, 0, if long() { 2_500 } else { 100 });
    assert_eq!(State::now(), state);
    drop(domain);
    assert_eq!(host::descriptors().len(), open, "{:?}", host::descriptors());
    assert_eq!(host::signals(), signals, "no signal");
    Tried::Passed
}

fn a_host_of_many_threads_is_the_same(scratch: &Scratch) -> Tried {
    host::count_signals();
    let (state, signals) = (State::now(), host::signals());
    let domain = scratch.domain();
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let domain = &domain;
            threads.spawn(move || {
                let state = State::now();
                work(scratch, domain, thread, if long() { 600 } else { 25 });
                // But for the children of the others' exchanges, which only __WALL sees.
                assert_eq!(state.apart_from_children(), State::now().apart_from_children());
            });
        }
    });
    assert_eq!(State::now(), state);
    assert_eq!(host::signals(), signals, "no signal");
    Tried::Passed
}

fn a_thousand_threads_begin_and_abort(scratch: &Scratch) -> Tried {
    // Each has two descriptors open: what the host has to grant.
    let most = systx_os::linux::raise_nofile_limit().unwrap();
    assert!(most > 4000, "{most} descriptors");
    let (domain, state) = (scratch.domain(), State::now());
    let ready = std::sync::Barrier::new(1000);
    std::thread::scope(|threads| {
        for n in 0..1000 {
            let (domain, ready) = (&domain, &ready);
            let body = move || {
                ready.wait();
                let mut t = begin(domain, Durability::None).unwrap();
                write(&mut t, &format!("by-{n}"), b"something").unwrap();
                ready.wait();
                t.abort();
            };
            std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(threads, body).unwrap();
        }
    });
    assert_eq!(State::now(), state);
    let left: Vec<_> = std::fs::read_dir(&scratch.0).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, [".area"]);
    commit(&domain, "then", b"it works", Durability::Durable).unwrap();
    Tried::Passed
}

fn one_transaction_goes_from_thread_to_thread(scratch: &Scratch) -> Tried {
    let domain = scratch.domain();
    let mut t = begin(&domain, Durability::Durable).unwrap();
    for n in 0..8 {
        t = std::thread::spawn(move || {
            write(&mut t, &format!("{n}"), b"of a thread that is gone").unwrap();
            t
        })
        .join()
        .unwrap();
    }
    std::thread::spawn(move || t.commit().unwrap()).join().unwrap();
    assert!((0..8).all(|n| scratch.has(&n.to_string())));
    Tried::Passed
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn modes_are_as_asked_for_under_any_umask(scratch: &Scratch) -> Tried {
    for (n, mask) in [0, 0o022, 0o077, 0o277, 0o777].into_iter().enumerate() {
        let scratch = Scratch(scratch.0.join(format!("{n}")));
        std::fs::create_dir(&scratch.0).unwrap();
        let before = host::umask(mask);
        let domain = scratch.domain();
        let mut t = begin(&domain, Durability::Durable).unwrap();
        let root = t.root(0);
        let made = (|| {
            t.create(root, b"file", 0o664, me())?;
            let (dir, _) = t.mkdir(root, b"dir", 0o775, me())?;
            t.mknod(dir, b"fifo", libc_fifo() | 0o622, 0, me())?;
            write(&mut t, "large", &vec![1; 300_000])
        })();
        let committed = made.map_err(failed).and_then(|()| t.commit());
        assert_eq!(host::umask(before), mask, "it stays the host's");
        committed.unwrap();
        let of = |name: &str| mode(&scratch.0.join(name));
        assert_eq!([of("file"), of("dir"), of("dir/fifo"), of("large")], [0o664, 0o775, 0o622, 0o640]);
        assert_eq!([of(".area"), of(".area/tx"), of(".area/aside"), of(".area/log")], [0o700; 4]);
        assert_eq!([of(".area/table"), of(".area/owners")], [0o600; 2]);
    }
    Tried::Passed
}

/// S_IFIFO.
fn libc_fifo() -> u32 {
    0o010_000
}

fn a_limit_on_the_size_of_files_is_an_error(scratch: &Scratch) -> Tried {
    // Its signal ends a process, as it has no handler in a child of ours.
    let child = host::fork(|| {
        let domain = scratch.domain();
        let limited = |most, name: &str, len| {
            host::limited(host::Resource::Fsize, most, || {
                commit(&domain, name, &vec![7; len], Durability::Durable)
            })
        };
        // No log can be made, and no private file.
        assert!(matches!(limited(100, "first", 10), Err(CommitError::Failed { error: Errno::FBIG, .. })));
        commit(&domain, "second", b"fits", Durability::Durable).unwrap();
        assert!(limited(100_000, "third", 3_000_000).is_err());
        commit(&domain, "fourth", &vec![7; 3_000_000], Durability::Durable).unwrap();
        assert!(!scratch.has("first") && !scratch.has("third"));
        0
    });
    assert_eq!(host::wait(child), 0);
    assert_eq!(scratch.read("fourth").len(), 3_000_000);
    Tried::Passed
}

fn a_limit_on_descriptors_is_an_error(scratch: &Scratch) -> Tried {
    let child = host::fork(|| {
        let domain = scratch.domain();
        commit(&domain, "first", b"x", Durability::Durable).unwrap();
        let mut failures = 0;
        for most in 3..40 {
            let name = format!("at-{most}");
            let ended = host::limited(host::Resource::Nofile, most, || {
                commit(&domain, &name, b"x", Durability::Durable)
            });
            // A descriptor that could be had counts among the few.
            match ended {
                Ok(()) => assert!(scratch.has(&name)),
                Err(CommitError::Failed { error: Errno::MFILE, .. }) => {
                    failures += 1;
                    assert!(!scratch.has(&name));
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(failures > 0);
        commit(&domain, "last", b"x", Durability::Durable).unwrap();
        0
    });
    assert_eq!(host::wait(child), 0);
    assert!(scratch.has("last"));
    Tried::Passed
}

fn a_forked_child_commits_nothing_of_its_parent(scratch: &Scratch) -> Tried {
    let domain = scratch.domain();
    let mut t = begin(&domain, Durability::Durable).unwrap();
    write(&mut t, "parents", &vec![1; 100_000]).unwrap();
    let mut t = Some(t);
    let child = host::fork(|| {
        let mut t = t.take().unwrap();
        assert_eq!(write(&mut t, "childs", b"x"), Err(VerbError::Os(Errno::CHILD)));
        assert_eq!(t.commit(), Err(CommitError::Forked));
        assert!(begin(&domain, Durability::None).is_err() && domain.checkpoint().is_err());
        let own = scratch.domain();
        assert_ne!(own.me(), domain.me());
        commit(&own, "childs", b"its own", Durability::Durable).unwrap();
        0
    });
    assert_eq!(host::wait(child), 0);
    assert!(scratch.has("childs") && !scratch.has("parents"));
    t.take().unwrap().commit().unwrap();
    assert_eq!(scratch.read("parents").len(), 100_000);
    Tried::Passed
}

fn a_child_whose_parent_is_dead_commits_its_own_alone(scratch: &Scratch) -> Tried {
    let done = scratch.0.join("done");
    let (told, tell) = std::os::unix::net::UnixStream::pair().unwrap();
    let parent = host::fork(|| {
        let domain = scratch.domain();
        let mut t = begin(&domain, Durability::Durable).unwrap();
        write(&mut t, "parents", &vec![1; 100_000]).unwrap();
        let mut t = Some(t);
        host::fork(|| {
            // Its parent has ended.
            let parent = std::os::unix::process::parent_id();
            std::io::Write::write_all(&mut &tell, b"x").unwrap();
            while std::os::unix::process::parent_id() == parent {
                std::thread::yield_now();
            }
            assert_eq!(t.take().unwrap().commit(), Err(CommitError::Forked));
            let own = scratch.domain();
            own.finish_dead().unwrap();
            commit(&own, "childs", b"its own", Durability::Durable).unwrap();
            std::fs::write(&done, b"").unwrap();
            0
        });
        loop {
            std::thread::park();
        }
    });
    std::io::Read::read_exact(&mut &told, &mut [0]).unwrap();
    host::kill(parent);
    host::wait(parent);
    drop(tell);
    // The end of the last one that has it open.
    assert_eq!(std::io::Read::read(&mut &told, &mut [0]).unwrap(), 0);
    assert!(done.exists() && scratch.has("childs") && !scratch.has("parents"));
    let staged = std::fs::read_dir(scratch.0.join(".area/tx")).unwrap().flatten();
    assert_eq!(
        staged.filter(|e| e.file_name().to_string_lossy().ends_with('~')).count(),
        0,
        "nothing is left"
    );
    Tried::Passed
}

fn descriptors_stand_high(scratch: &Scratch) -> Tried {
    let before = host::descriptors();
    let domain = scratch.domain();
    commit(&domain, "first", b"x", Durability::Durable).unwrap();
    let mut t = begin(&domain, Durability::Durable).unwrap();
    write(&mut t, "large", &vec![1; 300_000]).unwrap();
    let ours: Vec<_> = host::descriptors().into_iter().filter(|(n, _)| !before.contains_key(n)).collect();
    assert!(!ours.is_empty() && ours.iter().all(|(n, _)| *n >= 500), "{ours:?}");
    t.abort();
    Tried::Passed
}

fn what_a_program_opens_after_closefrom_is_its_own(scratch: &Scratch) -> Tried {
    for how in [Durability::Durable, Durability::None] {
        let child = host::fork(|| {
            let domain = scratch.domain();
            commit(&domain, "first", b"x", how).unwrap();
            let mut t = begin(&domain, how).unwrap();
            write(&mut t, "second", &vec![1; 300_000]).unwrap();
            host::close_from(3);
            std::fs::write(scratch.0.join("own"), b"its own").unwrap();
            let own = std::fs::OpenOptions::new().read(true).write(true).open(scratch.0.join("own")).unwrap();
            // Every number that the engine may have had, as long as the limit allows it.
            host::open_as(&own, 3..4000);
            let told = t.commit();
            assert!(matches!(told, Err(CommitError::Failed { error: Errno::BADF, .. })), "{told:?}");
            assert!(commit(&domain, "third", b"x", how).is_err());
            assert_eq!(scratch.read("own"), b"its own");
            assert!(!scratch.has("second") && !scratch.has("third"));
            // Dropping what is lost closes nothing of the program's.
            drop(domain);
            assert_eq!(own.metadata().unwrap().len(), 7);
            let domain = scratch.domain();
            commit(&domain, "fourth", b"x", how).unwrap();
            assert_eq!(scratch.read("own"), b"its own");
            0
        });
        assert_eq!(host::wait(child), 0);
        assert!(scratch.has("fourth"));
    }
    Tried::Passed
}

fn a_closefrom_at_any_moment_spoils_no_file(scratch: &Scratch) -> Tried {
    for round in 0..if long() { 300 } else { 10 } {
        let scratch = Scratch(scratch.0.join(format!("{round}")));
        std::fs::create_dir(&scratch.0).unwrap();
        let child = host::fork(|| {
            let domain = scratch.domain();
            let (began, n) = (AtomicBool::new(false), AtomicU32::new(0));
            std::thread::scope(|threads| {
                threads.spawn(|| {
                    while !began.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                    (0..round * 2000).for_each(|_| std::hint::spin_loop());
                    host::close_from(3);
                });
                for k in 0..50 {
                    began.store(true, Ordering::Relaxed);
                    let name = format!("{k}");
                    match commit(&domain, &name, name.as_bytes(), Durability::Durable) {
                        Ok(()) => n.fetch_add(1, Ordering::Relaxed),
                        Err(_) => break,
                    };
                }
            });
            n.into_inner() as i32
        });
        let committed = host::wait(child);
        assert!((0..=50).contains(&committed), "{committed}");
        // Opened again, everything is whole: what was committed is there, and at most one more.
        let domain = scratch.domain();
        domain.finish_dead().unwrap();
        let there = (0..50).filter(|k| scratch.has(&format!("{k}"))).count() as i32;
        assert!(there == committed || there == committed + 1, "{committed} committed, {there} there");
        assert!((0..there).all(|k| scratch.read(&format!("{k}")) == format!("{k}").as_bytes()));
        commit(&domain, "then", b"it works", Durability::Durable).unwrap();
    }
    Tried::Passed
}

fn valgrind_finds_nothing(_: &Scratch) -> Tried {
    const INSIDE: &str = "a_host_is_the_same_after_many_transactions";
    if std::process::Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return Tried::Skipped;
    }
    let ended = std::process::Command::new("valgrind")
        .args(["--error-exitcode=99", "--quiet", "--trace-children=no"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", INSIDE])
        .output()
        .unwrap();
    let said = [&ended.stdout[..], &ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // openat2(2), which valgrind knows from 3.20 on.
    if said.contains("unhandled amd64-linux syscall: 437") {
        println!("skipped: this valgrind doesn't know openat2");
        return Tried::Skipped;
    }
    assert!(ended.status.success(), "{said}");
    Tried::Passed
}

/// What a transaction is made of may go to other threads, and be shared among them behind a lock.
#[allow(dead_code)]
fn what_threads_share() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Transaction<Linux>>();
    is_send::<Transaction<Host>>();
    is_sync::<Domain<Linux>>();
    is_sync::<Domain<Host>>();
    is_send::<Arc<Domain<Host>>>();
    is_sync::<std::sync::Mutex<Transaction<Host>>>();
}
