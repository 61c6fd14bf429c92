//! The border between a new directory that is bound and the view around it: calls across it answer as plainly, and it goes
//! with the program for which it was made.

use super::machine::{code, err, have, out, Case};
use super::World;
use std::path::Path;
use std::process::Command;

pub const ALL: &[(&str, Case)] = &[
    ("calls_across_the_border_answer_as_plainly", calls_across_the_border),
    ("a_directory_is_as_others_once_its_maker_has_ended", a_directory_is_as_others),
    ("a_directory_is_as_others_once_its_maker_is_killed", a_directory_is_as_others_after_a_kill),
    ("threads_that_make_and_fill_the_same_directories_all_succeed", threads_succeed),
    ("what_was_seen_before_is_not_kept_after_it", what_was_seen_before),
    ("what_another_process_holds_is_bound_for_none", what_another_process_holds),
    ("calls_across_the_border_answer_as_plainly_while_it_is_in_use", calls_across_what_is_in_use),
    ("calls_that_are_not_made_for_others_fail_as_on_a_mount", calls_that_are_not_made),
    ("who_goes_there_finds_no_mount", who_goes_there),
    ("no_request_reaches_the_file_system_below", requests),
    ("flags_are_set_in_none_and_a_sync_costs_nothing", flags_and_syncs),
];

/// Each line does something across the border, and prints what it did or the error. None leaves anything open.
const ACROSS: &str = r#"
import os, errno
def t(what, f):
    try: print(what, f())
    except OSError as e: print(what, errno.errorcode[e.errno])
def make(d, *names):
    os.mkdir(d)
    for n in names: open(d + '/' + n, 'w').write(n)
def text(p): return open(p).read()
NOREPLACE, EXCHANGE = 1, 2
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def rename2(a, b, flags):
    if libc.renameat2(-100, a.encode(), -100, b.encode(), flags): raise OSError(ctypes.get_errno(), '')
    return 'done'
open('file', 'w').write('old')
os.mkdir('dir')
make('m', 'x', 'y', 'z')
t('inside', lambda: (os.rename('m/x', 'm/w'), sorted(os.listdir('m'))))
t('rename it', lambda: (os.rename('m', 'm2'), sorted(os.listdir('m2')), os.path.exists('m')))
make('n', 'x', 'y', 'z')
t('out', lambda: (os.rename('n/x', 'x'), text('x'), sorted(os.listdir('n'))))
make('o', 'x')
t('in', lambda: (os.rename('x', 'o/y'), text('o/y'), os.path.exists('x')))
make('p', 'x')
t('link out', lambda: (os.link('p/x', 'ln'), os.stat('ln').st_nlink, os.path.samefile('p/x', 'ln')))
make('q', 'x')
t('link in', lambda: (os.link('ln', 'q/ln'), os.stat('q/ln').st_nlink, text('q/ln')))
make('r', 'x')
t('existing in', lambda: (os.rename('old', 'r/old'), text('r/old/file')))
make('s', 'x')
t('existing linked in', lambda: (os.link('kept', 's/kept'), os.stat('s/kept').st_nlink, os.path.samefile('kept', 's/kept')))
make('u', 'x'); make('v', 'y')
t('one into another', lambda: (os.rename('u', 'v/u'), text('v/u/x'), sorted(os.listdir('v'))))
t('and out again', lambda: (os.rename('v/u', 'u'), text('u/x'), sorted(os.listdir('v'))))
make('w', 'x')
t('not empty', lambda: os.rmdir('w'))
os.unlink('w/x')
t('empty', lambda: (os.rmdir('w'), os.path.exists('w')))
make('a', 'x'); make('b', 'y')
def refused(f):
    try: f()
    # xfs says one, a view the other.
    except OSError as e: return e.errno in (errno.EEXIST, errno.ENOTEMPTY)
t('onto one that is not empty', lambda: refused(lambda: os.rename('a', 'b')))
t('onto an empty one', lambda: (os.mkdir('c'), os.rename('a', 'c'), os.listdir('c')))
make('d', 'x'); make('e', 'y')
t('exchange', lambda: (rename2('d', 'e', EXCHANGE), os.listdir('d'), os.listdir('e')))
make('f', 'x')
t('no replace', lambda: rename2('f', 'd', NOREPLACE))
t('no replace of nothing', lambda: (rename2('f', 'g', NOREPLACE), os.listdir('g')))
make('h', 'x')
t('a file onto it', lambda: os.rename('file', 'h'))
t('it onto a file', lambda: os.rename('h', 'file'))
t('it into itself', lambda: os.rename('h', 'h/x/y'))
t('below itself', lambda: os.rename('h', 'h/y'))
t('with slashes', lambda: (os.rename('h//', './h2/'), os.listdir('h2/')))
t('by dots', lambda: os.rename('h2/.', 'h3'))
make('i', 'x')
os.mkdir('dots')
t('by a way through another', lambda: (os.mkdir('v2'), os.listdir('v2'), os.rmdir('dots/../v2')))
t('absolute', lambda: (os.rename(os.getcwd() + '/i/x', os.getcwd() + '/i-x'), text('i-x')))
os.symlink('j', 'to-j'); make('j', 'x')
t('by a link', lambda: (os.rename('to-j/x', 'j-x'), text('j-x'), os.listdir('j')))
make('k', 'x'); top = os.open('.', os.O_RDONLY)
t('by descriptors', lambda: (os.rename('k/x', 'k-x', src_dir_fd=top, dst_dir_fd=top), text('k-x')))
make('k2', 'x'); os.symlink('k2', 'to-k2')
t('by descriptors and a link', lambda: (os.rename('to-k2/x', 'k2-x', src_dir_fd=top, dst_dir_fd=top), text('k2-x')))
t('missing', lambda: os.rename('k/none', 'none'))
t('a missing one', lambda: os.rename('none/x', 'x'))
t('a file as one', lambda: os.rename('file/x', 'x'))
make('l', 'x'); os.mkdir('dir/deep'); make('dir/deep/l', 'x')
t('one above', lambda: (os.rename('dir', 'dir2'), text('dir2/deep/l/x')))
open('dir2/deep/l/y', 'w').write('y')
t('all below', lambda: sorted(os.listdir('dir2/deep/l')))
print(sorted(os.path.join(d, n) for d, ds, ns in os.walk('.') for n in ds + ns))
"#;

fn calls_across_the_border(dir: &Path) {
    if !have("python3") {
        return;
    }
    World::each(dir, |w| agrees(w, ACROSS, 20));
}

fn a_directory_is_as_others(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("tar") {
        return;
    }
    w.plain("mkdir -p t/a/b; echo 1 >t/a/1; echo 2 >t/a/b/2; tar -cf t.tar t; rm -r t");
    let rounds = super::machine::rounds(60, 1000);
    let script = format!(
        "top=$(stat -c %d .); for i in $(seq {rounds}); do tar -xf t.tar; \
         [ $(find . -xdev | wc -l) = 7 ] || echo crossed $i; [ $(stat -c %d t) = $top ] || echo other $i; rm -r t; done"
    );
    assert_eq!(w.shell(&script), "");
    assert!(w.bound() >= rounds, "{}", w.bound());
}

/// Its parent is told of its end, and a moment later nothing is bound for it.
fn a_directory_is_as_others_after_a_kill(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    let maker = super::maker(
        "print(os.stat('n').st_dev != os.stat('.').st_dev, flush=True); os.kill(os.getpid(), 9)",
    );
    let script =
        "python3 -c \"$1\"; n=0; until [ $(stat -c %d n) = $(stat -c %d .) ]; do n=$((n + 1)); [ $n -lt 5000 ] || exit 1; done; ls n | wc -l";
    let output = w.run(&[], &["sh", "-c", script, "sh", &maker]);
    assert_eq!((code(&output), out(&output)), (0, "True\n201\n".into()), "{}", err(&output));
}

fn threads_succeed(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    let race = r#"
import os, threading
errors = []
def work(k):
    for i in range(100):
        try:
            try: os.mkdir('d%d' % i)
            except FileExistsError: pass
            open('d%d/%d' % (i, k), 'w').write('x')
            if i % 7 == k: os.rename('d%d/%d' % (i, k), 'd%d/r%d' % (i, k))
            if i % 5 == k: os.mkdir('d%d/s%d' % (i, k))
        except OSError as e: errors.append((k, i, e))
threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
print(errors, sum(len(os.listdir('d%d' % i)) for i in range(100)))
"#;
    let output = w.run(&[], &["python3", "-c", race]);
    assert_eq!((code(&output), out(&output)), (0, "[] 700\n".into()), "{}", err(&output));
    assert!(w.bound() > 50, "{}", w.bound());
    let count = w.plain("find . -mindepth 2 | wc -l");
    assert_eq!(count, "700\n");
}

/// A second process looks before it is bound, while it is, and afterwards.
fn what_was_seen_before(dir: &Path) {
    if !have("python3") {
        return;
    }
    World::each(dir, |w| {
        let script = r#"
import os, subprocess
os.mkdir('n')
other = subprocess.Popen(['sh', '-c', 'while read line; do eval "$line"; echo; done'], stdin=-1, stdout=-1, text=True)
def ask(line):
    other.stdin.write(line + '\n'); other.stdin.flush()
    answer = ''
    while True:
        got = other.stdout.readline()
        if got == '\n': return answer.strip()
        answer += got
print(ask('test -d n && echo seen'))
open('n/new', 'w').write('one')
print(ask('cat n/new; ls n'))
open('n/new', 'a').write(' two')
print(ask('cat n/new; stat -c %s n/new'))
print(ask('echo " three" >>n/new; echo x >n/x; rm -f n/none'))
print(open('n/new').read(), sorted(os.listdir('n')), os.stat('n/new').st_size)
os.unlink('n/x')
print(ask('ls n; cat n/x 2>/dev/null || echo none'))
os.mkdir('n/d'); os.rename('n', 'm')
print(ask('ls n 2>/dev/null || ls m; cat m/new; echo y >m/y; stat -c %h m; cat m/x 2>/dev/null || echo none'))
print(sorted(os.listdir('m')), os.stat('m').st_nlink, open('m/y').read())
other.stdin.close(); other.wait()
"#;
        let plain = w.volume.point.join("plain");
        std::fs::create_dir(&plain).unwrap();
        let natively = Command::new("python3").args(["-c", script]).current_dir(&plain).output().unwrap();
        let output = w.run(&[], &["python3", "-c", script]);
        assert_eq!((code(&output), out(&output)), (0, out(&natively)), "{} {}", w.volume.kind, err(&output));
        assert_eq!(std::fs::read(w.served.join("m/new")).unwrap(), b"one two three\n");
    });
}

/// Else one process would reach by the view what another one has from the kernel.
fn what_another_process_holds(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    let script = r#"
import os, subprocess
for n, how in enumerate([os.O_PATH, os.O_RDONLY, None]):
    d = 'n%d' % n
    os.mkdir(d)
    ready, go = os.pipe(), os.pipe()
    if os.fork() == 0:
        if how is None: os.chdir(d)
        else: held = os.open(d, how); os.fchdir(held) if how == os.O_RDONLY else None
        os.write(ready[1], b'x'); os.read(go[0], 1)
        at = None if how != os.O_PATH else held
        names = sorted(os.listdir('/proc/self/fd/%d' % held if at else '.'))
        print(names, os.stat('f', dir_fd=at).st_size, flush=True)
        os._exit(0)
    os.read(ready[0], 1)
    open(d + '/f', 'w').write('four')
    print(os.stat(d).st_dev == os.stat('.').st_dev, flush=True)
    os.write(go[1], b'x'); os.wait()
# Only looked at by another one.
os.mkdir('m'); subprocess.call(['stat', '-c', '%A', 'm']); open('m/f', 'w')
print(os.stat('m').st_dev == os.stat('.').st_dev)
"#;
    let output = w.run(&[], &["python3", "-c", script]);
    let each = "True
['f'] 4
"
    .repeat(3);
    assert_eq!(
        (code(&output), out(&output)),
        (
            0,
            format!(
                "{each}drwxr-xr-x
False
"
            )
        ),
        "{}",
        err(&output)
    );
}

/// As above, with something open in each directory; `h` holds it.
const IN_USE: &str = r#"
held = []
def use(d, *names):
    make(d, *names)
    held.append(open(d + '/' + names[0], 'r+'))
use('m', 'x', 'y', 'z')
t('rename it', lambda: (os.rename('m', 'm2'), sorted(os.listdir('m2')), os.path.exists('m'), text('m2/x')))
t('and again', lambda: (os.rename('m2', 'dir/m3'), sorted(os.listdir('dir/m3'))))
t('out of it then', lambda: (os.rename('dir/m3/y', 'my'), sorted(os.listdir('dir/m3')), text('my')))
use('n', 'x', 'y', 'z')
t('out', lambda: (os.rename('n/y', 'y'), text('y'), sorted(os.listdir('n'))))
use('o', 'x')
t('not empty', lambda: os.rmdir('o'))
t('one into another', lambda: (os.rename('n/z', 'o/z'), sorted(os.listdir('o')), sorted(os.listdir('n'))))
os.mkdir('d')
t('no replace', lambda: rename2('o/z', 'd', NOREPLACE))
t('no replace of nothing', lambda: rename2('o/z', 'oz', NOREPLACE))
t('missing', lambda: os.rename('o/none', 'none'))
top = os.open('.', os.O_RDONLY); within = os.open('o', os.O_RDONLY)
open('o/o2', 'w').write('o2')
t('by descriptors', lambda: (os.rename('o2', 'o3', src_dir_fd=within, dst_dir_fd=top), text('o3'), sorted(os.listdir('o'))))
open('o/q', 'w').close()
t('a file onto a directory', lambda: os.rename('o/q', 'dir'))
t('slashes', lambda: os.rename('o/q/', 'ox'))
os.symlink('old/file', 'o/to')
t('a link', lambda: (os.rename('o/to', 'to'), os.readlink('to'), text('to')))
open('n/l', 'w').write('l')
t('absolute', lambda: (os.rename(os.getcwd() + '/n/l', os.getcwd() + '/nl'), text('nl')))
use('e', 'x')
os.unlink('e/x')
t('empty', lambda: (os.rmdir('e'), os.path.exists('e'), held[3].write('gone'), held[3].flush()))
t('and made anew', lambda: (make('e', 'y'), text('e/y')))
os.mkdir('w'); open('w/x', 'w').write('x'); os.chdir('w')
t('from within', lambda: (os.rename('x', '../wx'), os.listdir('.'), text('../wx')))
open('k', 'w').close()
t('by its link in /proc', lambda: (os.rename('/proc/self/cwd/k', '/proc/self/cwd/../k'), os.path.exists('../k'), os.listdir('.')))
t('its own', lambda: (os.rename('../w', '../v'), os.listdir('.'), os.getcwd()[-2:]))
os.chdir('..')
[h.close() for h in held]
t('afterwards', lambda: (os.rename('dir/m3', 'm4'), os.rename('n', 'm4/n'), sorted(os.listdir('m4'))))
print(sorted(os.path.join(d, n) for d, ds, ns in os.walk('.') for n in ds + ns))
"#;

/// The calls of a script answer as plainly, and leave what they leave plainly.
fn agrees(w: &World, script: &str, bound: usize) {
    let plain = w.volume.point.join("plain");
    std::fs::create_dir(&plain).unwrap();
    let before = "mkdir old; echo -n f >old/file; echo -n k >kept";
    for top in [&plain, &w.served] {
        super::must(Command::new("sh").args(["-ec", before]).current_dir(top));
    }
    let expected = Command::new("python3").args(["-c", script]).current_dir(&plain).output().unwrap();
    let found = w.run(&[], &["python3", "-c", script]);
    assert_eq!((code(&found), err(&found)), (0, String::new()), "{}", out(&found));
    assert!(w.bound() >= bound, "{}", w.bound());
    for (found, expected) in out(&found).lines().zip(out(&expected).lines()) {
        assert_eq!(found, expected, "{}", w.volume.kind);
    }
    assert!(out(&found) == out(&expected) && out(&found).lines().count() > 20);
    let facts = |top: &Path| {
        let picture = super::picture(top);
        picture.into_keys().map(|name| (std::fs::read(top.join(&name)).ok(), name)).collect::<Vec<_>>()
    };
    assert_eq!(facts(&w.served), facts(&plain), "{}", w.volume.kind);
}

fn calls_across_what_is_in_use(dir: &Path) {
    if !have("python3") {
        return;
    }
    let begin = ACROSS.split("make('m'").next().unwrap();
    World::each(dir, |w| agrees(w, &[begin, IN_USE].concat(), 5));
}

/// Those of who has not all rights of systx, or has restricted itself, and those after which a mount would be out of reach,
/// or something on both sides.
fn calls_that_are_not_made(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    w.plain("mkdir old; chmod 777 .");
    let script = super::maker(
        r#"
import ctypes, errno, mmap
libc = ctypes.CDLL(None, use_errno=True)
def t(f):
    try: f(); print('done', flush=True)
    except OSError as e: print(errno.errorcode[e.errno], flush=True)
def child(f):
    if os.fork() == 0: f(); os._exit(0)
    os.wait()
os.chmod('n', 0o777)
held = open('n/f1')
os.mkdir('p'); open('p/x', 'w'); more = open('p/x'); os.mkdir('q')
t(lambda: os.rename('p', 'n/p')); t(lambda: os.rename('q', 'n/q')); t(lambda: os.rename('old', 'n/old'))
t(lambda: os.rename('q', 'p')); t(lambda: os.rmdir('p'))
t(lambda: os.rename('n/f1', 'f1')); t(lambda: os.link('n/f5', 'f5')); t(lambda: os.rename('n/d', 'd'))
os.link('n/f6', 'n/f7x'); t(lambda: os.rename('n/f6', 'f6'))
f8 = open('n/f8', 'r+'); m = mmap.mmap(f8.fileno(), 8); f8.close(); t(lambda: os.rename('n/f8', 'f8'))
open('u', 'w').close(); t(lambda: os.rename('u', 'n/u'))
os.mkdir('v'); open('v/x', 'w').close(); v = os.open('v/x', os.O_PATH); os.rename('v/x', 'vx'); t(lambda: os.rmdir('v'))
os.close(v); t(lambda: os.rmdir('v'))
os.mkfifo('n/p'); t(lambda: os.rename('n/p', 'p'))
os.mkdir('c'); os.mkdir('c/in'); open('c/a', 'w').write('c'); open('a', 'w').write('top')
def rooted():
    os.chroot('c'); os.chdir('/'); os.rename('../a', 'in/a'); print(open('in/a').read(), flush=True)
child(rooted)
def rooted_across():
    os.mkdir('c/b'); open('c/b/x', 'w'); h = open('c/b/x'); os.chroot('c'); os.chdir('/')
    t(lambda: os.rename('../b/../a', 'b/a')); open('b/y', 'w'); t(lambda: os.rename('b/y', '../y'))
child(rooted_across)
print(open('a').read(), sorted(os.listdir('c')), flush=True)
child(lambda: (os.setuid(1), t(lambda: os.rename('n/f2', 'f2')), t(lambda: os.rename('n/none', 'f2'))))
child(lambda: (libc.capset(ctypes.byref(ctypes.c_uint64(0x20080522)), bytes(24)), t(lambda: os.rename('n/f2', 'f2'))))
def landlock():
    rules = os.memfd_create('')
    attr = ctypes.c_uint64(1)
    ruleset = libc.syscall(444, ctypes.byref(attr), 8, 0)
    if ruleset >= 0: libc.prctl(38, 1, 0, 0, 0); libc.syscall(446, ruleset, 0)
    else: libc.syscall(446, rules, 0)
t(lambda: os.rename('n/f2', 'f2'))
child(landlock); m.close()
t(lambda: os.rename('n/f3', 'f3'))
held.close(); t(lambda: os.rename('n/f3', 'f3'))
"#,
    );
    let output = w.run(&[], &["python3", "-c", &script]);
    let expected =
        "EXDEV\nEXDEV\nEXDEV\nEBUSY\nENOTEMPTY\nEXDEV\nEXDEV\nEXDEV\nEXDEV\nEXDEV\nEXDEV\nEBUSY\ndone\nEXDEV\n\
         c\nEXDEV\nEXDEV\ntop ['b', 'in']\nEXDEV\nEXDEV\nEXDEV\ndone\nEXDEV\ndone\n";
    assert_eq!((code(&output), out(&output)), (0, expected.into()), "{}", err(&output));
}

/// Only the process for which a directory is bound has a place in it while it is.
fn who_goes_there(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") || !have("git") {
        return;
    }
    w.plain("git init -q .");
    let script = super::maker(
        "bound = lambda: os.stat('n').st_dev != os.stat('.').st_dev\nprint(bound(), flush=True)\n\
         os.chdir('n/d'); print(os.getcwd()[-4:], sorted(os.listdir('..'))[:2]); os.chdir('../..')\n\
         print(bound(), flush=True)\n\
         subprocess.call(['git', 'rev-parse', '--show-prefix'], cwd='n/d')\nprint(bound(), flush=True)\n\
         os.mkdir('r'); os.mkdir('r/bin'); open('r/bin/f', 'w')\n\
         if os.fork() == 0: os.chroot('r'); os._exit(0 if os.listdir('/') == ['bin'] else 1)\n\
         print(os.wait()[1], os.stat('r').st_dev == os.stat('.').st_dev)",
    );
    let output = w.run(&[], &["python3", "-c", &script]);
    let expected = "True\n/n/d ['d', 'f0']\nTrue\nn/d/\nFalse\n0 True\n";
    assert_eq!((code(&output), out(&output)), (0, expected.into()), "{}", err(&output));
}

/// Requests to the file system itself would change what is outside of the transaction, or what can't be published.
fn requests(dir: &Path) {
    if !have("python3") {
        return;
    }
    let script = super::maker(
        r#"
import ctypes, fcntl, errno
libc = ctypes.CDLL(None, use_errno=True)
def t(f):
    try: print(f())
    except OSError as e: print(errno.errorcode[e.errno])
n = os.open('n', os.O_RDONLY); f = os.open('n/f1', os.O_RDWR)
t(lambda: fcntl.ioctl(f, 0x40086602, b'\0' * 8))
t(lambda: fcntl.ioctl(n, 0x5000940e, bytearray(4096)))
t(lambda: len(fcntl.ioctl(f, 0xc020660b, b'\0' * 8 + b'\xff' * 8 + b'\0' * 16)))
handle, mount = ctypes.create_string_buffer((128).to_bytes(4, 'little'), 136), ctypes.c_int()
assert libc.name_to_handle_at(n, b'f1', handle, ctypes.byref(mount), 0) == 0
print(libc.open_by_handle_at(n, handle, os.O_RDWR), errno.errorcode[ctypes.get_errno()])
os.chdir('n')
print(libc.open_by_handle_at(-100, handle, os.O_RDWR), errno.errorcode[ctypes.get_errno()])
"#,
    );
    World::each(dir, |w| {
        let output = w.run(&[], &["python3", "-c", &script]);
        // tmpfs has no map of extents.
        let extents = if w.volume.kind == "tmpfs" { "ENOTSUP" } else { "32" };
        let expected = format!("ENOTSUP\nENOTSUP\n{extents}\n-1 ESTALE\n-1 ESTALE\n");
        assert_eq!((code(&output), out(&output)), (0, expected), "{} {}", w.volume.kind, err(&output));
    });
}

fn flags_and_syncs(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") || !have("chattr") {
        return;
    }
    let script = super::maker(
        "f = os.open('n/f1', os.O_RDWR)\nos.fsync(f); os.fdatasync(f)\nos.close(f)\nsys.stdout.flush()\n\
         print(subprocess.run(['chattr', '+i', 'n/f1', 'n'], stderr=-3).returncode, flush=True)",
    );
    let output = w.run(&[], &["python3", "-c", &script]);
    assert_eq!((code(&output), out(&output)), (0, "1\n".into()), "{}", err(&output));
    w.plain("rm -r n");
}
