//! Ways out of a transaction that a user may try: by pid 1, by other namespaces, by what is mounted below the
//! view; and names that a user exchanges under the hands of a run of root's.

use super::machine::user::{ORDINARY, UNPRIVILEGED, USER};
use super::machine::{code, err, must, out, picture, run, AREA};
use super::World;
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::{chown, symlink, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Each line is a try; whatever lands in `$TREE` natively is an escape. `$HERE` is a directory of the user's
/// own beside it.
const TRIES: &str = r#"
kill -9 1; kill -STOP 1
( : > /proc/1/mem ) ; ls /proc/1/fd; echo 1 > /proc/1/root/$TREE/by-root
for kind in mnt user pid; do nsenter --$kind=/proc/1/ns/$kind touch $TREE/by-nsenter-$kind; done
: > $TREE/plainly
unshare -Urm sh -c 'umount -l $TREE; : > $TREE/by-umount'
unshare -Urm sh -c 'umount -R -l /; : > $TREE/by-umount-of-all'
unshare -Urm sh -c 'mkdir -p $HERE/b && mount --bind $ABOVE $HERE/b && : > $HERE/b/tree/by-bind'
unshare -Urm sh -c 'mkdir -p $HERE/r && mount --rbind $ABOVE $HERE/r && umount -l $HERE/r/tree && : > $HERE/r/tree/by-rbind'
unshare -Urm sh -c 'mkdir -p $HERE/t && mount -t tmpfs none $HERE/t && mkdir $HERE/t/o && pivot_root $HERE/t $HERE/t/o && umount -l /o$TREE; : > /o$TREE/by-pivot'
unshare -Urm sh -c 'mount -o remount,bind,rw $TREE; : > $TREE/by-remount'
unshare -Urmp --fork sh -c 'mount -t proc proc /proc; : > /proc/1/root$TREE/by-another-proc'
true
"#;

/// What a script of tries has left in the tree, where nobody takes it back or where an abort does.
fn left_by(tree: &Path, here: &Path, command: &mut Command) -> (i32, Vec<String>) {
    let above = tree.parent().unwrap();
    command.env("TREE", tree).env("HERE", here).env("ABOVE", above).current_dir("/").stdin(Stdio::null());
    let output = command.output().unwrap();
    let mut left: Vec<_> = std::fs::read_dir(tree)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    (code(&output), left)
}

pub fn nobody_leaves(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    let (tree, here) = (w.own.join("tree"), w.own.join("here"));
    for path in [&tree, &here] {
        std::fs::create_dir(path).unwrap();
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let script = format!("{TRIES}\nexit 3");
    let words = |before: &[&str]| {
        let all = [before, &["sh", "-c", &script]].concat();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]);
        command
    };
    let (_, left) = left_by(&tree, &here, &mut words(ORDINARY));
    assert!(left.len() > 1, "plainly most of them land there: {left:?}");
    for name in left {
        std::fs::remove_file(tree.join(name)).unwrap();
    }
    let (program, only) = (w.systx.to_str().unwrap(), tree.to_str().unwrap());
    let inside = [program, "run", "--area-name", AREA, "--only", only, "--"];
    for (who, before) in
        [("root's run", [&inside, ORDINARY].concat()), ("one's own", [ORDINARY, &inside].concat())]
    {
        let (status, left) = left_by(&tree, &here, &mut words(&before));
        assert_eq!((status, left), (3, Vec::new()), "{who}: something has left the transaction");
    }
}

const PYTHON: &str = "/usr/bin/python3";

/// Gives a descriptor of a file that it has made to a process outside, or gets it there and writes when told to.
const PASSES_ON: &str = r#"
import os, socket, sys
who, at, file = sys.argv[1:]
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
if who == 'gives':
    f = os.open(file, os.O_RDWR | os.O_CREAT, 0o755); os.write(f, b'good' * 100000)
    s.connect('\0' + at); socket.send_fds(s, [b'x'], [f]); s.recv(1)
else:
    s.bind('\0' + at); s.listen(1); print('listens', flush=True)
    c, _ = s.accept(); _, [f], _, _ = socket.recv_fds(c, 1, 1); c.send(b'y')
    sys.stdin.readline()
    try: os.pwrite(f, b'evil', 0)
    except OSError: pass
    print('has tried')
"#;

/// Root takes what a user has made in a transaction for good, and makes it set-id; the user can still write to it.
pub fn descriptors_give_nothing(dir: &Path) {
    // Not the one of PATH, which may lie where a user can't read.
    if !super::machine::have(PYTHON) {
        return;
    }
    let Some(w) = World::new(dir, "ext4") else { return };
    let tree = w.own.join("tree");
    std::fs::create_dir(&tree).unwrap();
    chown(&tree, Some(USER), Some(USER)).unwrap();
    let at = format!("systx-test-{}", std::process::id());
    let only = tree.to_str().unwrap();
    let inside = [w.systx.to_str().unwrap(), "run", "--area-name", AREA, "--only", only, "--"];
    for (who, before) in [
        ("plainly", ORDINARY.to_vec()),
        ("one's own run", [ORDINARY, &inside].concat()),
        ("root's run", [&inside, ORDINARY].concat()),
    ] {
        let file = tree.join("program");
        let words = |words: &[&str], role: &str| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).args([PYTHON, "-c", PASSES_ON, role, &at]).arg(&file).current_dir("/");
            command
        };
        let mut gets = words(ORDINARY, "gets");
        let mut gets = Ended(gets.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let mut said = std::io::BufReader::new(gets.0.stdout.take().unwrap()).lines();
        assert_eq!(said.next().unwrap().unwrap(), "listens");
        let gives = words(&before, "gives").output().unwrap();
        assert_eq!(code(&gives), 0, "{who}: {}", err(&gives));
        assert!(std::fs::read(&file).unwrap().starts_with(b"good"), "{who}");
        chown(&file, Some(0), Some(0)).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o4755)).unwrap();
        gets.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "has tried", "{who}");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        let bytes = std::fs::read(&file).unwrap();
        assert!(
            mode & 0o4000 == 0 || bytes.starts_with(b"good"),
            "{who}: a user's bytes have root's rights: {mode:o}"
        );
        std::fs::remove_file(&file).unwrap();
    }
}

/// Root closes a directory, or moves it into one that is closed, and only then writes what nobody else may read.
pub fn closed_is_closed(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    let (tree, here) = (w.own.join("tree"), w.own.join("here"));
    std::fs::create_dir(&here).unwrap();
    chown(&here, Some(USER), Some(USER)).unwrap();
    let looks = "ls d/sub >ls; echo ready >$HERE/ready; read go <$HERE/go; eval \"$LAST\"";
    let cat = "cat d/sub/f d/sub/new";
    for (closes, below, last) in [
        ("chmod 700 d", "d/sub", cat),
        ("mv d/sub private", "private/sub", cat),
        ("chmod 700 d", "d/sub", "mv d/sub .; cat sub/f sub/new"),
        ("chmod 700 d", "d/sub", "ln d/sub/f .; cat f"),
    ] {
        let begin = "rm -rf tree here/*; mkdir -p tree/d/sub tree/private; echo public >tree/d/sub/f; \
                     chmod 700 tree/private; chmod 777 tree tree/d; mkfifo -m 666 here/ready here/go";
        must(Command::new("sh").args(["-ec", begin]).current_dir(&w.own));
        let only = tree.to_str().unwrap();
        let inside = [w.systx.to_str().unwrap(), "run", "--area-name", AREA, "--only", only, "--"];
        let all = [&inside, ORDINARY, &["sh", "-c", looks]].concat();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).env("HERE", &here).env("LAST", last).current_dir(&tree).stdin(Stdio::null());
        let inside = Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        assert_eq!(std::fs::read_to_string(here.join("ready")).unwrap(), "ready\n");
        let secret =
            format!("{closes}; echo secret >{below}/f; echo secret >{below}/new; echo go >../here/go");
        must(Command::new("sh").args(["-ec", &secret]).current_dir(&tree));
        let said = inside.output();
        assert!(!out(&said).contains("secret"), "{closes}: {}", out(&said));
        assert_ne!(code(&said), 0, "{closes}: {}", err(&said));
    }
}

/// Changes that root makes as carefully as a program can, in a directory where others make names: it follows no link.
const CAREFUL: &str = r#"
import os, sys
n = sys.argv[1]
def tried(call, *args, **more):
    try: return call(*args, **more)
    except OSError: return None
d = tried(os.open, 'd', os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
if d is None: sys.exit(9)
def write(name, flags, text):
    f = tried(os.open, name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o644, dir_fd=d)
    if f is not None: os.write(f, text); os.close(f)
write('new' + n, os.O_CREAT, b'roots')
write('w0', os.O_TRUNC, b'anew'); write('w1', os.O_APPEND, b'more')
tried(os.chown, 'w1', 0, 0, dir_fd=d, follow_symlinks=False)
f = tried(os.open, 'w2', os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=d)
if f is not None: tried(os.fchmod, f, 0o4755)
tried(os.mkdir, 'sub' + n, dir_fd=d)
tried(os.rename, 'new' + n, 'sub' + n + '/moved', src_dir_fd=d, dst_dir_fd=d)
"#;

/// Directories and files become links to what is root's, and hard links of the user's, and themselves again.
const SWAPS: &str = r#"
import os, sys
out = sys.argv[1]
def tried(call, *args):
    try: call(*args)
    except OSError: pass
while True:
    tried(os.rename, 'd', 'd.real'); tried(os.symlink, out, 'd'); tried(os.unlink, 'd'); tried(os.rename, 'd.real', 'd')
    for name in ('d/w0', 'd/w1', 'd/w2'):
        tried(os.rename, name, name + '.real'); tried(os.symlink, out + '/target', name); tried(os.unlink, name)
        tried(os.link, 'd/mine', name); tried(os.rename, name + '.real', name)
"#;

struct Ended(Child);

impl Ended {
    fn output(mut self) -> std::process::Output {
        let read = |from: Option<&mut dyn Read>| {
            let mut bytes = Vec::new();
            from.unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        };
        let stdout = read(self.0.stdout.as_mut().map(|from| from as _));
        let stderr = read(self.0.stderr.as_mut().map(|from| from as _));
        std::process::Output { status: self.0.wait().unwrap(), stdout, stderr }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn swaps_lead_nowhere(dir: &Path) {
    if !super::machine::have("python3") {
        return;
    }
    let Some(w) = World::new(dir, "ext4") else { return };
    let (tree, out) = (w.own.join("tree"), w.own.parent().unwrap().join("roots"));
    for path in [&tree, &tree.join("d"), &out] {
        std::fs::create_dir(path).unwrap();
    }
    for name in ["target", "w0", "w1", "w2"] {
        std::fs::write(out.join(name), "roots").unwrap();
        std::fs::set_permissions(out.join(name), PermissionsExt::from_mode(0o644)).unwrap();
    }
    for name in ["w0", "w1", "w2", "mine"] {
        let path = tree.join("d").join(name);
        std::fs::write(&path, "users").unwrap();
        chown(&path, Some(USER), Some(USER)).unwrap();
    }
    symlink(&out, out.join("self")).unwrap();
    for path in [&tree, &tree.join("d")] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let before = picture::picture(&out);
    let user: Vec<&str> = UNPRIVILEGED[1..].iter().copied().chain(["python3", "-S", "-c", SWAPS]).collect();
    let mut swapping = Command::new(UNPRIVILEGED[0]);
    swapping.args(user).arg(&out).current_dir(&tree).stdin(Stdio::null()).env("PATH", SYSTEM);
    let swapping = swapping.spawn().unwrap();
    let mut swapping = Ended(swapping);
    let (mut committed, mut met) = (0, 0);
    let swapper = swapping.0.id();
    for n in 0.. {
        // A quiet machine swaps faster than any run commits: then the swaps stop for a run, wherever they are.
        let stops = n >= RUNS && committed == 0;
        if stops {
            signal(swapper, "-STOP");
        }
        let mut careful = run(&tree, &[], &["python3", "-S", "-c", CAREFUL, &n.to_string()]);
        let output = careful.env("PATH", SYSTEM).output().unwrap();
        if stops {
            signal(swapper, "-CONT");
        }
        match code(&output) {
            0 | 76 => committed += 1,
            9 | 75 | 125 => met += 1,
            other => panic!("{other}: {}", err(&output)),
        }
        if n >= RUNS && committed > 0 && met > 0 {
            break;
        }
        assert!(n < 50 * RUNS, "{committed} have committed, {met} have met a swap");
        assert!(swapping.0.try_wait().unwrap().is_none(), "nobody swaps any more");
    }
    let after = picture::picture(&out);
    assert!(after == before, "changed outside of what is served:\n{}", picture::difference(&after, &before));
    // Plainly, and without that care, it is led there.
    let careless = CAREFUL.replace("os.O_NOFOLLOW | ", "");
    let astray = (0..2000).any(|n| {
        let mut plainly = Command::new("/usr/bin/python3");
        plainly.args(["-S", "-c", &careless, &format!("plain{n}")]).current_dir(&tree);
        plainly.status().unwrap();
        picture::picture(&out) != before
    });
    drop(swapping);
    assert!(astray, "the swaps lead nobody astray");
}

fn signal(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// Where ordinary users find programs, too.
const SYSTEM: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs beside the swaps.
const RUNS: usize = 30;
