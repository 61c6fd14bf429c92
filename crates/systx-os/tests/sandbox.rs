//! Promises of the sandbox, tried as root with real namespaces and no view.
//!
//! Without the test harness: its threads would forbid to fork. Each case is a function; its name is the promise. Mounts
//! happen only in the namespaces of the commands that are started here.

use rustix::process::{Pid, Signal};
use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use systx_os::fuse::EventFd;
use systx_os::process::{Ended, Signals};
use systx_os::sandbox::apart;
use systx_os::sandbox::helper;
use systx_os::sandbox::join::{join, Entry, Guest};
use systx_os::sandbox::own;
use systx_os::sandbox::root::{Base, Root, Step};
use systx_os::sandbox::spawn::{spawn, Child, Command, Last, News};
use systx_runner::{self as runner, Tried};

const ALL: &[(&str, Case)] = &[
    ("status_of_the_command_arrives", status_of_the_command_arrives),
    ("words_and_environment_arrive_verbatim", words_and_environment_arrive_verbatim),
    ("the_command_is_process_2_and_sees_only_its_own", the_command_is_process_2_and_sees_only_its_own),
    ("a_program_that_is_not_there_is_told_apart", a_program_that_is_not_there_is_told_apart),
    ("a_directory_that_is_not_there_is_told_apart", a_directory_that_is_not_there_is_told_apart),
    ("a_step_that_fails_names_its_place", a_step_that_fails_names_its_place),
    ("daemons_die_with_the_command", daemons_die_with_the_command),
    ("what_is_last_happens_when_nobody_else_is_left", what_is_last_happens_when_nobody_else_is_left),
    ("work_as_another_user_is_over_when_that_user_stops_it", work_as_another_user_is_over_when_stopped),
    ("a_signal_reaches_the_command", a_signal_reaches_the_command),
    ("a_stop_is_told_and_can_be_undone", a_stop_is_told_and_can_be_undone),
    ("a_dropped_child_is_killed", a_dropped_child_is_killed),
    ("a_killed_parent_takes_the_command_along", a_killed_parent_takes_the_command_along),
    ("mounts_stay_inside", mounts_stay_inside),
    ("who_joins_is_inside_and_goes_with_pid_1", who_joins_is_inside_and_goes_with_pid_1),
    ("a_helper_works_only_after_an_undismissed_death", a_helper_works_only_after_an_undismissed_death),
];

fn main() {
    runner::as_root();
    let scratch = Arc::new(Scratch::new());
    let case = |&(name, case): &(&str, Case)| {
        let dir = scratch.0.join(name);
        runner::Case::new(name, move || {
            std::fs::create_dir(&dir).unwrap();
            case(&dir);
            Tried::Passed
        })
    };
    runner::run(ALL.iter().map(case).collect(), move || drop(scratch));
}

type Case = fn(&Path);

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        let path = std::env::temp_dir().join(format!("systx-sandbox-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn c(text: impl AsRef<std::ffi::OsStr>) -> CString {
    CString::new(text.as_ref().as_bytes()).unwrap()
}

fn below_root(path: &Path) -> CString {
    c(path.strip_prefix("/").unwrap())
}

fn command(argv: &[&str], dir: &Path) -> Command {
    let proc = Step::Fresh { fs_type: c("proc"), option: None, at: c("proc") };
    Command {
        argv: argv.iter().map(c).collect(),
        env: vec![c("PATH=/usr/bin:/bin"), c("ODD=a b\nc")],
        directory: c(dir),
        umask: 0o027,
        root: Root { base: Base::Same, mounts: Vec::new(), steps: vec![proc] },
        answering: Vec::new(),
        watch: None,
        last: None,
    }
}

fn start(command: Command) -> Child {
    spawn(command, &Signals::hold().unwrap()).unwrap()
}

fn run(argv: &[&str], dir: &Path) -> News {
    let mut child = start(command(argv, dir));
    let news = child.news().expect("pid 1 tells before it dies");
    child.reap();
    news
}

fn shell(script: &str, dir: &Path) -> News {
    run(&["sh", "-c", script], dir)
}

const SUCCESS: News = News::Ended(Ended::Exited(0));

fn status_of_the_command_arrives(dir: &Path) {
    assert_eq!(shell("exit 0", dir), SUCCESS);
    assert_eq!(shell("exit 73", dir), News::Ended(Ended::Exited(73)));
    assert_eq!(shell("kill -9 $$", dir), News::Ended(Ended::Signaled(9)));
}

fn words_and_environment_arrive_verbatim(dir: &Path) {
    let script = "printf '%s|' \"$@\" \"$ODD\" > words; umask >> words; pwd >> words";
    assert_eq!(run(&["sh", "-c", script, "sh", "a b", "", "\"q\"", "--", "*"], dir), SUCCESS);
    let expected = format!("a b||\"q\"|--|*|a b\nc|0027\n{}\n", dir.display());
    assert_eq!(std::fs::read_to_string(dir.join("words")).unwrap(), expected);
}

fn the_command_is_process_2_and_sees_only_its_own(dir: &Path) {
    assert_eq!(shell("[ $$ = 2 ] && [ $(ls -d /proc/[0-9]* | wc -l) -le 5 ]", dir), SUCCESS);
}

fn a_program_that_is_not_there_is_told_apart(dir: &Path) {
    assert_eq!(run(&["no-such-program"], dir), News::NotExecuted(rustix::io::Errno::NOENT));
    assert_eq!(run(&["/"], dir), News::NotExecuted(rustix::io::Errno::ACCESS));
}

fn a_directory_that_is_not_there_is_told_apart(dir: &Path) {
    assert_eq!(run(&["true"], &dir.join("none")), News::NoDirectory(rustix::io::Errno::NOENT));
}

fn a_step_that_fails_names_its_place(dir: &Path) {
    let mut command = command(&["true"], dir);
    let at = below_root(&dir.join("none"));
    command.root.steps.push(Step::Fresh { fs_type: c("tmpfs"), option: None, at: at.clone() });
    let child = start(command);
    assert_eq!(child.news(), Some(News::NotBuilt { at: Some(at), error: rustix::io::Errno::NOENT }));
}

fn daemons_die_with_the_command(dir: &Path) {
    let fifo = dir.join("alive");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    // Open for reading first, without blocking, so that the daemon's open does not wait.
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let reader = rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).unwrap();
    let script = "exec 3> alive; (setsid sh -c 'trap \"\" TERM HUP; echo >&3; sleep 1000' &); exit 0";
    assert_eq!(shell(script, dir), SUCCESS);
    let mut buf = [0; 16];
    // The daemon may have written its line or not; what counts is that nobody holds the FIFO open any more.
    let mut read = || rustix::io::read(&reader, &mut buf).unwrap();
    assert!(read() == 0 || read() == 0, "no writer is left");
}

fn what_is_last_happens_when_nobody_else_is_left(dir: &Path) {
    let others = || {
        let all = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        all.filter(|name| name.parse::<u32>().is_ok_and(|pid| pid != 1)).count()
    };
    let begin = |argv: &[&str], rung: bool, says: bool| {
        let due = EventFd::new().unwrap();
        if rung {
            due.ring();
        }
        let told = dir.join("told");
        let work = Box::new(move || {
            std::fs::write(&told, others().to_string()).unwrap();
            says
        });
        start(Command { last: Some(Last { due, keep: Vec::new(), work }), ..command(argv, dir) })
    };
    let told = || {
        let told = std::fs::read_to_string(dir.join("told")).ok();
        let _ = std::fs::remove_file(dir.join("told"));
        told
    };
    // What has left its group and its session, and heeds no signal.
    let script = "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & done; exit 6";
    let leaves_others = ["sh", "-c", script];
    for (rung, says, news, happened) in [
        (true, true, News::Ended(Ended::Exited(6)), Some("0".to_string())),
        (true, false, News::NotFinished, Some("0".to_string())),
        (false, true, News::Ended(Ended::Exited(6)), None),
    ] {
        let mut child = begin(&leaves_others, rung, says);
        assert_eq!(child.news(), Some(news));
        // Before it was told.
        assert_eq!(told(), happened);
        child.reap();
    }
    // A pid 1 that is alone does it when it is asked to, and not when everything is killed.
    let mut child = begin(&[], true, true);
    assert_eq!(child.news(), Some(News::Ready));
    child.finish();
    assert_eq!((child.news(), told()), (Some(News::Finished), Some("0".to_string())));
    child.reap();
    let mut child = begin(&[], true, true);
    assert_eq!(child.news(), Some(News::Ready));
    child.silence();
    child.reap();
    assert_eq!(told(), None);
}

fn work_as_another_user_is_over_when_stopped(_: &Path) {
    let send = |signal| rustix::process::kill_process(rustix::process::getpid(), signal).is_ok();
    let work = |signal| own::as_user(61234, 61234, move || send(signal));
    assert_eq!(work(Signal::STOP), Ok(false));
    // Root may type Ctrl-Z and Ctrl-C, too, which are nobody's refusal.
    for signal in [Signal::TSTP, Signal::INT, Signal::HUP, Signal::TERM] {
        assert_eq!(work(signal), Ok(true), "{signal:?}");
    }
}

fn a_signal_reaches_the_command(dir: &Path) {
    let script = "trap 'exit 9' TERM; : > ready; while :; do sleep 0.01; done";
    let mut child = start(command(&["sh", "-c", script], dir));
    wait_for(&dir.join("ready"));
    child.signal(15);
    assert_eq!(child.news(), Some(News::Ended(Ended::Exited(9))));
    child.reap();
}

fn a_stop_is_told_and_can_be_undone(dir: &Path) {
    let mut child = start(command(&["sh", "-c", "kill -STOP $$; exit 4"], dir));
    assert_eq!(child.news(), Some(News::Stopped));
    child.resume();
    // One that ends at once may not be seen to go on.
    let next = child.news();
    let end = if next == Some(News::Continued) { child.news() } else { next };
    assert_eq!(end, Some(News::Ended(Ended::Exited(4))));
    child.reap();
}

fn a_dropped_child_is_killed(dir: &Path) {
    let fifo = dir.join("alive");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let child = start(command(&["sh", "-c", "exec 3<> alive; : > ready; sleep 1000"], dir));
    wait_for(&dir.join("ready"));
    drop(child);
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let nobody = rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty());
    assert_eq!(nobody.unwrap_err(), rustix::io::Errno::NXIO, "no reader is left");
}

fn a_killed_parent_takes_the_command_along(dir: &Path) {
    let fifo = dir.join("alive");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    let reader = rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).unwrap();
    let systx = fork(|| {
        let child = start(command(&["sh", "-c", "exec 3> alive; : > ready; sleep 1000"], dir));
        let _ = child.news();
    });
    wait_for(&dir.join("ready"));
    systx_os::process::kill(&systx).unwrap();
    systx_os::process::wait(&systx).unwrap();
    // Returns when the last writer is gone.
    systx_os::process::wait_readable([reader.as_fd()]);
    assert_eq!(rustix::io::read(&reader, &mut [0; 16]), Ok(0));
}

fn mounts_stay_inside(dir: &Path) {
    let before = std::fs::read("/proc/self/mountinfo").unwrap();
    let mut command = command(&["sh", "-c", "[ $(stat -f -c %T .) = tmpfs ] && : > inside"], dir);
    command.root.steps.push(Step::Fresh { fs_type: c("tmpfs"), option: None, at: below_root(dir) });
    let mut child = start(command);
    assert_eq!(child.news(), Some(SUCCESS));
    child.reap();
    assert!(!dir.join("inside").exists());
    assert_eq!(std::fs::read("/proc/self/mountinfo").unwrap(), before);
}

fn a_helper_works_only_after_an_undismissed_death(dir: &Path) {
    for (name, dismiss) in [("dismissed", true), ("killed", false)] {
        let file = dir.join(name);
        let systx = fork(|| {
            let helper = helper::start(&[], |_| std::fs::write(&file, "done").unwrap()).unwrap();
            if dismiss {
                helper.reap();
            }
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
        });
        systx_os::process::wait(&systx).unwrap();
        if dismiss {
            assert!(!file.exists(), "a dismissed helper was waited for and has done nothing");
        } else {
            wait_for(&file);
        }
    }
}

/// A forked copy of this process that runs `body` and then ends.
fn fork(body: impl FnOnce()) -> rustix::fd::OwnedFd {
    // SAFETY: this program has one thread; the child ends below without returning.
    match unsafe { libc::fork() } {
        0 => {
            body();
            // SAFETY: _exit does not return.
            unsafe { libc::_exit(0) }
        }
        pid => {
            let pid = Pid::from_raw(pid).expect("fork works");
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap()
        }
    }
}

/// Waits until a path exists, told by the directory itself and not by a clock.
fn wait_for(path: &Path) {
    let notify = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).unwrap();
    let events = rustix::fs::inotify::WatchFlags::CREATE | rustix::fs::inotify::WatchFlags::MOVED_TO;
    rustix::fs::inotify::add_watch(notify.as_fd(), path.parent().unwrap(), events).unwrap();
    while !path.exists() {
        let mut buf = [0u8; 4096];
        let _ = rustix::io::read(&notify, &mut buf);
    }
}

fn who_joins_is_inside_and_goes_with_pid_1(dir: &Path) {
    // In a process of its own: who has joined starts everything in there.
    let mut line = apart::start(|line| {
        let told = joins(dir);
        std::io::Write::write_all(&mut &line, told.as_bytes()).map_or(1, |()| 0)
    })
    .unwrap();
    let mut told = String::new();
    std::io::Read::read_to_string(&mut line, &mut told).unwrap();
    assert_eq!(told, "as it should be");
}

fn joins(dir: &Path) -> &'static str {
    let signals = Signals::hold().unwrap();
    let mut init = spawn(command(&[], dir), &signals).unwrap();
    if init.news() != Some(News::Ready) {
        return "pid 1 alone is not ready";
    }
    let entry = Entry::of(&init, None).unwrap();
    let guest = |script: &str| Guest {
        argv: ["sh", "-c", script].iter().map(c).collect(),
        env: vec![c("PATH=/usr/bin:/bin")],
        directory: c(dir),
        umask: 0o027,
    };
    let join = |script: &str| join(&guest(script), &entry, &signals);
    let mut one =
        join("pwd > joined; readlink /proc/1/ns/pid > its; readlink /proc/self/ns/pid > own; exit 3")
            .unwrap();
    if one.news() != Some(News::Ended(Ended::Exited(3))) {
        return "the status does not arrive";
    }
    one.reap();
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
    if read("joined").trim() != dir.to_str().unwrap() || read("its") != read("own") || read("own").is_empty()
    {
        return "it was somewhere else";
    }
    let mut other = join("kill -STOP $$; exit 4").unwrap();
    if other.news() != Some(News::Stopped) {
        return "a stop is not told";
    }
    init.silence();
    init.reap();
    if other.news().is_some() {
        return "it outlives pid 1";
    }
    other.reap();
    match join("true").map(drop) {
        Err(rustix::io::Errno::NOMEM) => "as it should be",
        _ => "one can join a dead pid 1",
    }
}
