//! Kinds of access beyond read and write by name: past the cache, asynchronous, by handle, watched, locked;
//! programs that lie in the served directory, with privileges of their own; another root.
//!
//! What changes anything is run twice: aborted it leaves no trace, committed it is there.

use super::place::{code, err, out, Place};
use super::Case;
use std::path::PathBuf;
use std::process::{Command, Output};

pub const ALL: &[(&str, Case)] = &[
    ("what_is_written_past_the_page_cache_is_committed", what_is_written_past_the_page_cache_is_committed),
    ("what_is_written_by_native_aio_is_committed", what_is_written_by_native_aio_is_committed),
    ("what_is_done_by_io_uring_is_committed", what_is_done_by_io_uring_is_committed),
    ("a_file_is_opened_by_its_handle", a_file_is_opened_by_its_handle),
    ("a_watch_tells_what_another_process_inside_does", a_watch_tells_what_another_process_inside_does),
    ("locks_of_every_kind_hold_among_processes_inside", locks_of_every_kind_hold),
    ("a_program_knows_where_it_lies", a_program_knows_where_it_lies),
    ("a_setuid_program_gets_what_it_is_to_have", a_setuid_program_gets_what_it_is_to_have),
    ("a_program_gets_the_capabilities_of_its_file", a_program_gets_the_capabilities_of_its_file),
    ("a_command_may_change_its_root", a_command_may_change_its_root),
];

/// Runs a script in a transaction that aborts, which must leave no trace, and in one that commits; what it
/// said in that.
fn tried(p: &Place, script: &str) -> String {
    let before = p.picture();
    let aborted = p.shell(&format!("set -e; {script}\nexit 9"));
    assert_eq!(code(&aborted), 9, "{}{}", out(&aborted), err(&aborted));
    assert_eq!(p.picture(), before, "aborted, and left a trace");
    let committed = p.shell(&format!("set -e; {script}"));
    assert_eq!((code(&committed), err(&committed).as_str()), (0, ""), "{}", out(&committed));
    out(&committed)
}

/// Runs a script outside of any transaction.
fn plain(p: &Place, script: &str) -> Output {
    Command::new("sh").args(["-c", script]).current_dir(&p.served).output().unwrap()
}

fn have(tool: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: no {tool}");
    }
    found
}

/// `kinds.c`, compiled; `None`, with a reason printed, where that can't be done.
fn calls(p: &Place) -> Option<PathBuf> {
    if !have("cc") {
        return None;
    }
    let (source, program) = (p.beside.join("kinds.c"), p.beside.join("kinds"));
    std::fs::write(&source, include_str!("kinds.c")).unwrap();
    let compiled = Command::new("cc").args(["-Wall", "-o"]).arg(&program).arg(&source).output().unwrap();
    assert!(compiled.status.success(), "{}", err(&compiled));
    Some(program)
}

/// Bytes as one of the calls leaves them: a page that it left out, and its own.
fn filled(with: u8) -> Vec<u8> {
    [vec![0; 4096], vec![with; 65536]].concat()
}

fn bytes(p: &Place, name: &str) -> Vec<u8> {
    std::fs::read(p.served.join(name)).unwrap()
}

fn what_is_written_past_the_page_cache_is_committed(p: &Place) {
    std::fs::write(p.beside.join("x"), [b'x'; 65536]).unwrap();
    p.write("small", "small\n");
    let large: Vec<u8> = (0..3 << 20).map(|n: u32| (n % 251) as u8).collect();
    std::fs::write(p.served.join("large"), &large).unwrap();
    if !plain(p, "dd if=large of=/dev/null bs=4096 iflag=direct").status.success() {
        println!("skipped: O_DIRECT is not to be had on {}", p.mount.display());
        return;
    }
    // Each file is read back past the cache, and through it.
    let script = "put() { dd if=$BESIDE/x bs=4096 conv=notrunc oflag=direct status=none \"$@\"; }
        put of=new; put of=small count=1; put of=large seek=100 count=3
        for f in new small large; do dd if=$f bs=4096 iflag=direct status=none | cmp - $f; done
        cmp new $BESIDE/x; echo through >> small; dd if=small iflag=direct bs=64k status=none | tail -n 1 | tail -c 8";
    assert_eq!(tried(p, script), "through\n");
    assert_eq!(bytes(p, "new"), [b'x'; 65536]);
    assert_eq!(bytes(p, "small"), [&[b'x'; 4096][..], b"through\n"].concat());
    let (from, to) = (100 * 4096, 103 * 4096);
    assert!(bytes(p, "large") == [&large[..from], &[b'x'; 3 * 4096], &large[to..]].concat());
}

fn what_is_written_by_native_aio_is_committed(p: &Place) {
    let Some(calls) = calls(p) else { return };
    p.write("old", "old\n");
    let calls = calls.display();
    if plain(p, &format!("{calls} aio tried && rm tried")).status.code() != Some(0) {
        println!("skipped: no native AIO here");
        return;
    }
    let direct = plain(p, &format!("{calls} aio-direct tried; status=$?; rm tried; exit $status"));
    let direct = if direct.status.success() { "aio-direct" } else { "aio" };
    tried(p, &format!("{calls} aio new; {calls} aio old; {calls} {direct} direct"));
    assert!(bytes(p, "new") == filled(b'a') && bytes(p, "direct") == filled(b'a'));
    let mut old = filled(b'a');
    old[..4].copy_from_slice(b"old\n");
    assert!(bytes(p, "old") == old);
}

fn what_is_done_by_io_uring_is_committed(p: &Place) {
    let Some(calls) = calls(p) else { return };
    p.write("old", "old\n");
    let calls = calls.display();
    if plain(p, &format!("{calls} uring tried && rm renamed")).status.code() == Some(2) {
        println!("skipped: no io_uring here");
        return;
    }
    tried(p, &format!("{calls} uring new; mv renamed was-new; {calls} uring old"));
    assert!(bytes(p, "was-new") == filled(b'u') && !p.served.join("old").exists());
    let renamed = bytes(p, "renamed");
    assert!(renamed.starts_with(b"old\n\0\0") && renamed[4096..] == [b'u'; 65536]);
}

fn a_file_is_opened_by_its_handle(p: &Place) {
    let Some(calls) = calls(p) else { return };
    p.write("old", "one\n");
    let calls = calls.display();
    let native = plain(p, &format!("{calls} handle old && mv renamed old && echo one > old"));
    if !native.status.success() {
        println!("skipped: plainly it isn't opened, either: {}", out(&native));
        return;
    }
    let script = format!("{calls} handle old; mv renamed was-old; echo two > new; {calls} handle new");
    assert_eq!(tried(p, &script), "one\ntwo\n");
    assert_eq!((p.read("was-old").as_str(), p.read("renamed").as_str()), ("one\nmore\n", "two\nmore\n"));
    assert!(!p.served.join("old").exists() && !p.served.join("new").exists());
}

fn a_watch_tells_what_another_process_inside_does(p: &Place) {
    if !have("python3") {
        return;
    }
    let watch = "import ctypes, os, select, struct, subprocess
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(os.O_CLOEXEC)
kinds = {2: 'modify', 4: 'attributes', 0x40: 'from', 0x80: 'to', 0x100: 'create', 0x200: 'delete'}
assert libc.inotify_add_watch(fd, b'.', sum(kinds)) > 0
subprocess.run(['sh', '-c', 'echo > new; echo >> old; mv old other; chmod 600 other; rm gone'], check=True)
seen = []
while 'delete gone' not in seen and select.select([fd], [], [], 60)[0]:
    data = os.read(fd, 4096)
    while data:
        _, mask, _, length = struct.unpack_from('iIII', data)
        seen.append(kinds[mask] + ' ' + data[16:16 + length].rstrip(b'\\0').decode())
        data = data[16 + length:]
print(*seen, sep=', ')
";
    std::fs::write(p.beside.join("watch.py"), watch).unwrap();
    p.write("old", "1\n");
    p.write("gone", "1\n");
    let seen = tried(p, "python3 $BESIDE/watch.py");
    let wanted = "create new, modify new, modify old, from old, to other, attributes other, delete gone\n";
    assert_eq!(seen, wanted);
}

fn locks_of_every_kind_hold(p: &Place) {
    if !have("python3") {
        return;
    }
    // Without the lock counts are lost: `none` in place of a kind shows it.
    let count = "import fcntl, os, struct, sys
kind, SETLKW_OFD = sys.argv[1], 38
def lock(fd, what):
    if kind == 'fcntl':
        fcntl.lockf(fd, what)
    elif kind == 'flock':
        fcntl.flock(fd, what)
    elif kind == 'ofd':
        type = fcntl.F_UNLCK if what == fcntl.LOCK_UN else fcntl.F_WRLCK
        fcntl.fcntl(fd, SETLKW_OFD, struct.pack('hhqqi', type, os.SEEK_SET, 0, 0, 0))
children = []
for _ in range(8):
    pid = os.fork()
    if pid:
        children.append(pid)
        continue
    fd = os.open('lock', os.O_RDWR | os.O_CREAT, 0o644)
    for _ in range(25):
        lock(fd, fcntl.LOCK_EX)
        with open(kind, 'r+') as file:
            n = int(file.read())
            os.sched_yield()
            file.seek(0)
            file.write(str(n + 1))
        lock(fd, fcntl.LOCK_UN)
    os._exit(0)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
";
    std::fs::write(p.beside.join("count.py"), count).unwrap();
    for kind in ["fcntl", "flock", "ofd"] {
        p.write(kind, "0");
        let output = p.shell(&format!("python3 $BESIDE/count.py {kind}"));
        assert_eq!((code(&output), p.read(kind).as_str()), (0, "200"), "{kind}: {}", err(&output));
    }
}

fn a_program_knows_where_it_lies(p: &Place) {
    let old = plain(p, "cp \"$(command -v readlink)\" old && ./old /proc/self/exe");
    if out(&old) != format!("{}/old\n", p.served.display()) {
        println!("skipped: a copy of readlink is no readlink: {}{}", out(&old), err(&old));
        return;
    }
    let script =
        "./old /proc/self/exe; cp old new; ./new /proc/self/exe; mv new moved; ./moved /proc/self/exe
        cp \"$(command -v sleep)\" running; ./running 1000 & at=/proc/$!/exe
        until [ \"$(readlink $at)\" = \"$PWD/running\" ]; do :; done
        mv running away; readlink $at; cmp $at away; rm away; readlink $at; kill $!";
    let told = tried(p, script).replace(p.served.to_str().unwrap(), "HERE");
    assert_eq!(told, "HERE/old\nHERE/new\nHERE/moved\nHERE/away\nHERE/away (deleted)\n");
    let moved = plain(p, "./moved /proc/self/exe");
    assert_eq!(out(&moved), format!("{}/moved\n", p.served.display()));
}

/// Prefix of a command that is to run as another user.
const NOBODY: &str = "setpriv --reuid 1000 --clear-groups";

fn a_setuid_program_gets_what_it_is_to_have(p: &Place) {
    if !have("setpriv") {
        return;
    }
    let old = plain(p, &format!("cp \"$(command -v id)\" old && chmod 4755 old && {NOBODY} ./old -u"));
    if out(&old) != "0\n" {
        println!("skipped: setuid programs get nothing below {}: {}", p.mount.display(), err(&old));
        return;
    }
    let script = format!(
        "{NOBODY} ./old -u; {NOBODY} ./old -ru; cp old new; {NOBODY} ./new -u; chmod 4755 new; {NOBODY} ./new -u"
    );
    assert_eq!(tried(p, &script), "0\n1000\n1000\n0\n");
    assert_eq!(out(&plain(p, &format!("{NOBODY} ./new -u"))), "0\n");
}

fn a_program_gets_the_capabilities_of_its_file(p: &Place) {
    if !have("setpriv") || !have("setcap") {
        return;
    }
    let ask = |name: &str| format!("{NOBODY} ./{name} CapEff /proc/self/status");
    let old = "cp \"$(command -v grep)\" old && setcap cap_net_raw+ep old";
    let old = plain(p, &format!("{old} && {}", ask("old")));
    let raw = "CapEff:\t0000000000002000\n";
    if out(&old) != raw {
        println!("skipped: files give no capabilities below {}: {}", p.mount.display(), err(&old));
        return;
    }
    let script =
        format!("{}; cp old new; {}; setcap cap_net_raw+ep new; {}", ask("old"), ask("new"), ask("new"));
    assert_eq!(tried(p, &script), format!("{raw}CapEff:\t0000000000000000\n{raw}"));
    assert_eq!(out(&plain(p, &ask("new"))), raw);
}

fn a_command_may_change_its_root(p: &Place) {
    let jail = "mkdir jail && cp --parents -L $(ldd /bin/sh | grep -o '/[^ )]*') /bin/sh jail && chroot jail /bin/sh -c :";
    let there = plain(p, jail);
    if !there.status.success() {
        println!("skipped: no root to change to: {}", err(&there));
        return;
    }
    let script =
        "chroot jail /bin/sh -c 'cd /../..; echo *; echo in > /made; test ! -e $BESIDE'; cat jail/made
        mv jail yard; chroot yard /bin/sh -c 'read word < /made; echo $word again >> made'";
    let told = tried(p, script);
    assert!(told.starts_with("bin lib") && told.ends_with("\nin\n"), "{told}");
    assert_eq!(p.read("yard/made"), "in\nin again\n");
}
