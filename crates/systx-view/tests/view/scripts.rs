//! Programs: what shells and tools do all day.

use std::path::Path;
use std::process::{Command, Output};

/// Each runs in the tree that the ones before left.
pub const ALL: &[&str] = &[
    "cat small small-too tree/link; wc -l lines; cksum large",
    "echo more >> small; cat small-too; echo new > fresh; echo and >> fresh; cat fresh",
    "ls tree | wc -l; ls -a . | sort; find . | sort | cksum; ls -l tree/file-007 | cut -c1-10",
    "mkdir -p d/e/f; echo x > d/e/f/x; mv d/e d/g; cat d/g/f/x; rmdir d; rm -r d; test -e d || echo gone",
    "for i in 1 2 3 4 5 6 7 8 9; do echo $i > n$i; done; cat n*; rm n[1-5]; ls n*; mv n6 n7; cat n7; cat n6",
    "ln small hard; ln -s small soft; stat -c '%h %s' hard small; rm small; cat hard soft; readlink soft",
    "chmod 600 hard; chmod u+x,g+r hard; stat -c %a hard; touch -d 2001-02-03 hard; stat -c %Y hard",
    "truncate -s 5 lines; cat lines; truncate -s 100000 lines; stat -c %s lines; cksum lines; : > lines; wc -c lines",
    "dd if=large of=copy bs=64k 2>/dev/null; cmp large copy && echo same; cp large copy2; cmp copy copy2 && echo same",
    "dd if=/dev/zero of=large bs=1 count=1 seek=1000000 conv=notrunc 2>/dev/null; cksum large; stat -c %s large",
    "tar cf t.tar tree && mkdir x && tar xf t.tar -C x && diff -r tree x/tree && echo equal; rm -rf x t.tar; ls",
    "mkfifo p; (echo through > p &) ; cat p; test -p p && echo fifo; rm p",
    "mknod null c 1 3 && echo swallowed > null; stat -c '%t %T' null",
    "exec 5> open; rm open; echo unlinked >&5; exec 5>&-; test -e open || echo gone",
    "exec 5<> rw; echo one >&5; echo two >> rw; exec 5>&-; cat rw",
    "printf '#!/bin/sh\\necho ran $1\\n' > run; chmod +x run; ./run once; cp /bin/true t; ./t && echo true; echo >> t; rm t",
    "umask 027; echo a > masked; mkdir maskdir; stat -c '%a %F' masked maskdir; umask 0; echo b > all; stat -c %a all",
    "mkdir sg; chmod 2775 sg; chgrp 7 sg; mkdir sg/in; echo q > sg/q; stat -c '%a %g' sg sg/in sg/q",
    "cp -a tree tree2; rm -rf tree2/a; mv tree2 tree3; ls tree3 | wc -l; rm -r tree3; ls -d tree*",
    "cat missing; cat tree; cat small/x; mkdir tree; rmdir tree; ln fresh fresh; mv tree tree/a; ls missing/",
    "sort -r fresh -o fresh; cat fresh; sed -i s/new/old/ fresh; cat fresh; tee -a fresh < empty; wc fresh",
    "echo 1 > s; sync; sync s; echo $?; flock s -c 'echo locked'; mktemp -p . tmp.XXXXXX > /dev/null; ls tmp.* | wc -l; rm tmp.*",
    "mkdir u; chown 1000:1000 u; cd u; setpriv --reuid 1000 --regid 1000 --clear-groups bash -c '
        echo mine > f; stat -c \"%u %g %a\" f; cat ../fresh; echo no >> ../fresh; rm ../fresh; mkdir ../no; chown 0 f
        chmod 4755 f; stat -c %a f; echo more >> f; stat -c %a f; chmod 6755 f; : > f; stat -c %a f; ls -l /proc/self/exe > /dev/null'",
    "mkdir -m 1777 sticky; echo root > sticky/root; chmod 666 sticky/root
     setpriv --reuid 1000 --regid 1000 --clear-groups bash -c 'rm -f sticky/root; mv sticky/root sticky/r; echo ok >> sticky/root'
     cat sticky/root",
    "chown 1000:1000 rw; chmod 6777 rw; stat -c %a rw; exec 5<rw
     setpriv --reuid 1001 --regid 1001 --clear-groups bash -c 'echo written >> rw'; stat -c %a rw; cat <&5; exec 5<&-",
    "echo own > su; chmod 6755 su; chown : su; stat -c %a su; chmod 666 su; exec 5<>su; chmod 6777 su; stat -c %a su
     setpriv --reuid 1001 --regid 1001 --clear-groups bash -c 'echo other >&5'; stat -c %a su; exec 5>&-; stat -c %a su",
    "echo own > so; chmod 6755 so rw; mkfifo -m 6666 sf; exec 5<>so
     setpriv --reuid 1001 --regid 1001 --clear-groups bash -c 'chown : so; chown : rw; chown : sf; chown : fresh; chown : .'
     stat -c %a so rw sf; exec 5>&-; setpriv --reuid 1001 --regid 1001 --clear-groups chown : so; stat -c %a so
     chown 1001 so rw; chmod 4755 so rw; setpriv --reuid 1001 --regid 1001 --clear-groups chown : so rw; stat -c %a so rw",
];

/// Runs a script in `dir`; what it says and how it ends.
pub fn run(script: &str, dir: &Path) -> String {
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(script).current_dir(dir).env("LC_ALL", "C");
    text(script, bash.output().expect("bash runs"))
}

/// Whether Python is there, for what no shell can do.
pub fn has_python() -> bool {
    let found = Command::new("python3").arg("-c").arg("import mmap").status().is_ok_and(|s| s.success());
    if !found {
        println!("skipped: no python3");
    }
    found
}

/// As [`ALL`], in Python.
pub const PYTHON: &[&str] = &[
    EXERCISE,
    "
import socket, stat, os
s = socket.socket(socket.AF_UNIX); s.bind('socket'); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect('socket')
a, _ = s.accept(); c.send(b'hello'); print(a.recv(9), stat.S_ISSOCK(os.stat('socket').st_mode))
",
    "
import fcntl, os
a, b = open('small', 'r+b'), open('small', 'r+b')
fcntl.flock(a, fcntl.LOCK_EX)
try: fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB); print('both')
except OSError as e: print(e.errno)
fcntl.flock(a, fcntl.LOCK_UN); fcntl.lockf(b, fcntl.LOCK_EX); print('locked', flush=True)
if os.fork() == 0:
    try: fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB); print('both', flush=True)
    except OSError as e: print(e.errno, flush=True)
    os._exit(0)
os.wait()
",
    "
import mmap
with open('large', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:
    m[10:20] = b'0123456789'
    f.seek(5); print(f.read(20))
    f.seek(1000000); f.write(b'written'); f.flush()
    print(m[999995:1000010])
    m.flush()
print(open('large', 'rb').read()[8:22])
",
    "
import mmap, os
fd = os.open('mapped', os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, 70000)
m = mmap.mmap(fd, 70000)
m[69990:] = b'the last 9'
os.close(fd)
print(open('mapped', 'rb').read()[-12:])
del m
print(os.stat('mapped').st_size)
",
    "
import mmap, os
r = open('lines', 'rb'); m = mmap.mmap(r.fileno(), 0, prot=mmap.PROT_READ)
before = m[:6]
w = open('lines', 'r+b'); w.write(b'LINE'); w.flush()
print(before, m[:6], r.read(6))
w.close(); r.close(); del m
print(open('lines', 'rb').read(6))
a = open('lines', 'ab'); a.write(b'end'); a.close()
print(open('lines', 'rb').read()[-5:])
",
    "
import mmap, os
p = open('small', 'r+b'); m = mmap.mmap(p.fileno(), 0, flags=mmap.MAP_PRIVATE)
m[0:2] = b'XX'
print(m[:4], open('small', 'rb').read(4))
",
    "
import os
f = open('lines', 'r+b')
os.truncate('lines', 7); print(f.read(), os.fstat(f.fileno()).st_size)
os.truncate('lines', 9); f.seek(0); print(f.read())
f.write(b'after'); f.flush(); os.truncate('lines', 11); f.seek(0); print(f.read())
",
];

/// Random operations on one file through several descriptors and mappings, against a model in memory: on a
/// new file, on a small old one (copied whole when first changed) and on a large old one (changed ranges
/// apart).
const EXERCISE: &str = "
import mmap, os, random
for name, seed in ('exercised', 1), ('lines', 2), ('large', 3), ('large', 4):
    r = random.Random(seed)
    model = bytearray(open(name, 'rb').read()) if os.path.exists(name) else bytearray()
    new = lambda flags=0: os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o644)
    fds, most = [new()], max(300000, len(model))
    for n in range(400):
        fd, at, length = r.choice(fds), r.randrange(most), r.choice((1, 100, 4096, 5000, 70000))
        op, data = r.randrange(12), bytes([n % 256]) * length
        if op < 3:
            assert os.pwrite(fd, data, at) == length
            model.extend(bytes(max(0, at + length - len(model)))); model[at:at + length] = data
        elif op < 6: assert os.pread(fd, length, at) == model[at:at + length], (name, n, 'read')
        elif op == 6:
            size = r.choice((0, at, at, len(model)))
            (os.ftruncate if r.random() < .5 else lambda f, s: os.truncate(name, s))(fd, size)
            model = model[:size] + bytearray(max(0, size - len(model)))
        elif op == 7 and model:
            with mmap.mmap(fd, len(model)) as m:
                at %= len(model); data = data[:len(model) - at]
                m[at:at + len(data)] = data; model[at:at + len(data)] = data
                assert m[:] == model, (name, n, 'mapping')
                assert os.pread(fd, length, at) == model[at:at + length], (name, n, 'beside a mapping')
        elif op == 8:
            a = new(os.O_APPEND); os.write(a, data); os.close(a); model += data
        elif op == 9: fds.append(new())
        elif op == 10 and len(fds) > 1: os.close(fds.pop(r.randrange(len(fds))))
        elif op == 11 and r.random() < .3:
            for f in fds: os.close(f)
            fds = [os.open(name, os.O_RDONLY)]
            assert os.pread(fds[0], most * 2, 0) == model, (name, n, 'reopened')
            fds.append(new()); os.close(fds.pop(0))
        assert os.fstat(fd if fd in fds else fds[0]).st_size == len(model), (name, n, op, 'size')
    for f in fds: os.close(f)
    assert open(name, 'rb').read() == model, (name, 'end')
    print(name, len(model))
";

/// Runs Python code in `dir`; it must succeed.
pub fn python(code: &str, dir: &Path) -> String {
    let output = Command::new("python3").arg("-c").arg(code).current_dir(dir).output().expect("python3 runs");
    assert!(output.status.success(), "in {}: {}", dir.display(), String::from_utf8_lossy(&output.stderr));
    text(code, output)
}

fn text(script: &str, output: Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{script}\n{out}{err}{:?}", output.status.code())
}
