//! The watcher: it finishes for a host that is killed in its commit, one for all hosts, and goes with the last.

use super::{place, process, ROLE};
use crate::machine::picture::{difference, Picture};
use crate::machine::processes::Held;
use crate::machine::user::USER;
use crate::machine::volume::Volume;
use crate::machine::{have, must, recover, systx as program, AREA};
use std::io::{Read, Write};
use std::os::unix::fs::{chown, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use systx::{Options, Systx, Watcher};
use systx_os::host;

/// The program where only root can change it, on a private file system.
fn installed() -> PathBuf {
    must(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=755", "run", "/run"]));
    let installed = PathBuf::from("/run/systx");
    std::fs::copy(program(), &installed).unwrap();
    installed
}

/// The command line of a process, empty if it has ended. Within execve(2) a process has the new program's file before
/// it has the new arguments: then this waits for them.
fn words_of(pid: u32) -> String {
    let is_program =
        || std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("systx"));
    loop {
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if !words.is_empty() || !is_program() {
            return words;
        }
        std::thread::yield_now();
    }
}

/// The watchers of a file system that are alive.
fn watchers(volume: &Volume) -> Vec<Held> {
    let point = volume.point.to_str().unwrap();
    let is_one = |pid: &u32| {
        let words = words_of(*pid);
        let words: Vec<&str> = words.split('\0').collect();
        words.contains(&"watch-areas") && words.iter().any(|word| word.starts_with(point))
    };
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_one);
    // One that is a zombie has no words.
    pids.filter_map(Held::new).collect()
}

/// Until there is none.
fn gone(volume: &Volume) {
    watchers(volume).iter().for_each(Held::gone);
}

fn with(mut command: Command, watcher: &Path) -> Command {
    command.env("SYSTX_WATCHER", watcher);
    command
}

const FILES: usize = 4;
/// The kind of a second file system.
const SECOND: &str = "xfs";

/// `CASE/xfs/NAME` of `CASE/KIND/tree/NAME`.
fn second_of(tree: &Path) -> PathBuf {
    tree.ancestors().nth(3).unwrap().join(SECOND).join(tree.file_name().unwrap())
}

/// The directories of a host: its own, and one on another file system if that is there.
fn places(tree: &Path) -> Vec<PathBuf> {
    let second = second_of(tree);
    [tree.to_owned(), second].into_iter().filter(|dir| dir.exists()).collect()
}

fn begin_with(tree: &Path) {
    for n in 0..FILES {
        std::fs::write(tree.join(format!("old{n}")), "old").unwrap();
        std::fs::write(tree.join(format!("gone{n}")), "gone").unwrap();
    }
}

/// Replaces, makes and removes files, in one commit.
pub fn play_change(tree: &Path) {
    let systx = super::systx();
    let tx = systx.begin(&Options::new()).unwrap();
    for (tree, n) in places(tree).iter().flat_map(|tree| (0..FILES).map(move |n| (tree, n))) {
        tx.write(tree.join(format!("old{n}.tmp")), "replaced").unwrap();
        tx.rename(tree.join(format!("old{n}.tmp")), tree.join(format!("old{n}"))).unwrap();
        tx.write(tree.join(format!("new{n}")), "new").unwrap();
        tx.hard_link(tree.join(format!("new{n}")), tree.join(format!("link{n}"))).unwrap();
        tx.remove_file(tree.join(format!("gone{n}"))).unwrap();
    }
    tx.commit().unwrap();
}

/// Names, contents and link counts; not the times, which are each round's own.
fn state(tree: &Path) -> Picture {
    let line = |(n, entry): (usize, std::fs::DirEntry)| {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let links = entry.metadata().unwrap().nlink();
        (format!("{n}/{}", entry.file_name().to_str().unwrap()), format!("{text}, {links} links"))
    };
    let entries = |dir: &Path| std::fs::read_dir(dir).unwrap().map(Result::unwrap).collect::<Vec<_>>();
    let all = places(tree).into_iter().enumerate();
    all.flat_map(|(n, dir)| entries(&dir).into_iter().map(move |entry| (n, entry))).map(line).collect()
}

/// Kills a host before this rename of its main thread; returns false if it has come to its end.
fn killed_before(n: usize, tree: &Path, watcher: &Path, uid: u32) -> bool {
    let inject = format!("inject=renameat2:signal=KILL:when={n}");
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-o", "/dev/null", "-e", "trace=renameat2", "-e", &inject, "--"]);
    let host = process("change", tree);
    if uid != 0 {
        // Where the user's areas are noted.
        strace.uid(uid).gid(uid).env("HOME", tree.parent().unwrap());
    }
    strace.arg(host.get_program()).args(host.get_args()).env(ROLE, "change").stderr(Stdio::null());
    !with(strace, watcher).status().unwrap().success()
}

pub fn finishes(dir: &Path) {
    finishes_on(dir, 0, &[&["ext4"], &["tmpfs"]]);
}

pub fn finishes_for_a_user(dir: &Path) {
    finishes_on(dir, USER, &[&["ext4"]]);
}

pub fn finishes_over_two(dir: &Path) {
    finishes_on(dir, 0, &[&["ext4", SECOND]]);
}

/// For hosts each of which changes files on file systems of some kinds.
fn finishes_on(dir: &Path, uid: u32, hosts: &[&[&'static str]]) {
    if !have("strace") {
        return;
    }
    let program = installed();
    for kinds in hosts {
        let Some((volume, tree)) = place(dir, kinds[0]) else { continue };
        let others = kinds[1..].iter().map(|kind| Volume::new(dir, kind, 300));
        let Some(mut volumes) = others.collect::<Option<Vec<_>>>() else { continue };
        volumes.push(volume);
        finishes_for(uid, &tree, &program, &volumes);
        volumes.iter().for_each(Volume::unmount);
    }
}

/// A host of a user is killed before each of its renames, without a watcher and with one.
fn finishes_for(uid: u32, tree: &Path, program: &Path, volumes: &[Volume]) {
    let own = |path: &Path| chown(path, Some(uid), Some(uid)).unwrap();
    own(tree);
    let fresh = |name: String| {
        let tree = tree.join(name);
        std::fs::create_dir(&tree).unwrap();
        if volumes.len() > 1 {
            std::fs::create_dir(second_of(&tree)).unwrap();
        }
        for dir in places(&tree) {
            begin_with(&dir);
            std::fs::read_dir(&dir).unwrap().for_each(|entry| own(&entry.unwrap().path()));
            own(&dir);
        }
        tree
    };
    let done = fresh("done".into());
    let old = state(&done);
    play_change(&done);
    let new = state(&done);
    let whole = |tree: &Path, at: &str| {
        let now = state(tree);
        assert!(now == old || now == new, "{at}:\n{}", difference(&now, &new));
        now == new
    };
    let (mut halves, mut finished) = (0, 0);
    for n in 1.. {
        let without = fresh(format!("without{n}"));
        if !killed_before(n, &without, Path::new("off"), uid) {
            break;
        }
        let half = state(&without);
        halves += usize::from(half != old && half != new);
        let mut next = Command::new(program);
        next.args(["recover", "--area-name", AREA]).env("HOME", tree).uid(uid).gid(uid);
        must(&mut next);
        whole(&without, &format!("killed before rename {n}, and finished by the next use"));
        // The same without any further use.
        let watched = fresh(format!("watched{n}"));
        let killed = killed_before(n, &watched, program, uid);
        volumes.iter().for_each(gone);
        let is_new = whole(&watched, &format!("killed before rename {n}, and finished by the watcher"));
        assert!(killed || is_new);
        finished += usize::from(killed && is_new);
    }
    assert!(halves >= 3 && finished >= 3, "{halves} cut off in the middle, {finished} finished");
}

/// Commits, says so, and stays until its standard input ends.
pub fn play_stay(tree: &Path) {
    let name = std::process::id().to_string();
    // One that a program must not inherit, without CLOEXEC.
    let inherited = std::fs::File::create(tree.join("inherited")).unwrap();
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
    host::count_signals();
    let before = host::State::now();
    let systx = super::systx();
    // Without that of the listing itself.
    let listing = PathBuf::from(format!("/proc/{name}/fd"));
    let mut open = host::descriptors();
    open.retain(|_, file| *file != listing);
    systx.atomically(&Options::new(), |tx| tx.write(tree.join(&name), "here")).unwrap();
    // Beside this thread one makes the checkpoint: it is a task and no child, but opens files of its own for moments.
    assert_eq!((host::State::now(), host::signals()), (before, 0));
    let mut now = host::descriptors();
    now.retain(|number, _| open.contains_key(number));
    assert_eq!(now, open);
    print!(".");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0; 1]);
    // Without its end: the watcher makes the checkpoint.
    std::process::exit(0);
}

struct Hosts(Vec<Child>);

impl Hosts {
    /// All have committed.
    fn start(count: usize, tree: &Path, watcher: &Path) -> Hosts {
        let start = |_| {
            let mut host = with(process("stay", tree), watcher);
            host.env_remove("SYSTX_CHECKPOINT").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        };
        let mut hosts: Vec<Child> = (0..count).map(start).collect();
        for host in &mut hosts {
            host.stdout.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
        }
        Hosts(hosts)
    }

    fn end(self) {
        for mut host in self.0 {
            drop(host.stdin.take());
            assert!(host.wait().unwrap().success());
        }
    }
}

pub fn one_for_all(dir: &Path) {
    let program = installed();
    let Some((volume, tree)) = place(dir, "ext4") else { return };
    let mut hosts = Hosts::start(20, &tree, &program);
    // Those that came second see that there is one, and go.
    let watcher = loop {
        let mut found = watchers(&volume);
        match found.len() {
            1 => break found.remove(0),
            0 => panic!("no watcher is there"),
            _ => std::thread::yield_now(),
        }
    };
    // It has nothing of its hosts'.
    let proc = PathBuf::from(format!("/proc/{}", watcher.pid));
    let stat = std::fs::read_to_string(proc.join("stat")).unwrap();
    let fields: Vec<u32> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .skip(1)
        .take(5)
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let [parent, group, session, terminal] = fields[..4] else { panic!("{stat}") };
    assert!(hosts.0.iter().all(|host| host.id() != parent), "{stat}");
    assert_eq!((group, session, terminal), (watcher.pid, watcher.pid, 0), "{stat}");
    assert_eq!(std::fs::read_link(proc.join("cwd")).unwrap(), Path::new("/"));
    let fds = std::fs::read_dir(proc.join("fd")).unwrap().flatten();
    let held: Vec<_> = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
    assert!(held.iter().all(|target| !target.starts_with(&tree)), "{held:?}");
    // All but one go, and it stays; a further one needs no other.
    let last = Hosts(hosts.0.split_off(19));
    hosts.end();
    let more = Hosts::start(1, &tree, &program);
    assert!(!watcher.gone_within(0));
    let found: Vec<u32> = watchers(&volume).iter().map(|held| held.pid).collect();
    assert!(found.contains(&watcher.pid), "{found:?}");
    last.end();
    more.end();
    watcher.gone();
    gone(&volume);
    // The checkpoint is made: nothing is done again.
    let any = std::fs::read_dir(&tree).unwrap().flatten().map(|entry| entry.path());
    let files: Vec<_> = any.filter(|path| !path.ends_with("inherited")).collect();
    assert_eq!(files.len(), 21);
    files.iter().for_each(|file| std::fs::write(file, "put back").unwrap());
    volume.unmount();
    volume.mount();
    let told = recover();
    for file in &files {
        assert_eq!(std::fs::read_to_string(file).unwrap(), "put back", "{told}");
    }
}

pub fn switched_off(dir: &Path) {
    let program = installed();
    let Some((volume, tree)) = place(dir, "ext4") else { return };
    Hosts::start(1, &tree, Path::new("off")).end();
    // A relative path, a missing one, and one that others can change.
    let open = Path::new("/run/open");
    std::fs::create_dir(open).unwrap();
    std::fs::set_permissions(open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::copy(&program, open.join("systx")).unwrap();
    for watcher in [Path::new("systx"), Path::new("/run/missing"), &open.join("systx")] {
        let hosts = Hosts::start(1, &tree, watcher);
        assert!(watchers(&volume).is_empty(), "{}", watcher.display());
        hosts.end();
    }
    // By the program, whatever the environment says.
    for (watcher, is_there) in [(Watcher::Off, false), (Watcher::Program(program), true)] {
        let systx = Systx::builder().area_name(AREA).watcher(watcher.clone()).build().unwrap();
        systx.atomically(&Options::new(), |tx| tx.write(tree.join("f"), "x")).unwrap();
        assert_eq!(watchers(&volume).len(), usize::from(is_there), "{watcher:?}");
        drop(systx);
        gone(&volume);
    }
}
