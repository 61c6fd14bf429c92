//! Large things: many open files, many directories, huge sparse files, wide directories, many new files.
//! Small sizes for everybody's tests, the full ones with `SYSTX_LONG=1`.
//!
//! `cargo test -p systx-cli --test limits [-- PART-OF-A-NAME]`

mod machine;

use machine::picture::{difference, picture};
use machine::volume::Volume;
use machine::{code, err, have, must, out, recover, rounds, run, shell, verb};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn main() {
    machine::main(&[
        ("many_more_open_files_than_systx_may_have_commit", many_more_open_files_than_systx_may_have_commit),
        (
            "too_many_open_files_without_a_name_are_told_and_the_transaction_goes_on",
            too_many_open_files_without_a_name_are_told_and_the_transaction_goes_on,
        ),
        (
            "many_more_directories_than_systx_may_have_open_are_walked_made_and_committed",
            many_more_directories_than_systx_may_have_open_are_walked_made_and_committed,
        ),
        ("what_the_log_keeps_never_fills_the_file_system", what_the_log_keeps_never_fills_the_file_system),
        ("one_byte_of_a_huge_sparse_file_costs_no_copy", one_byte_of_a_huge_sparse_file_costs_no_copy),
        (
            "a_set_id_bit_on_a_huge_sparse_file_reads_no_hole",
            a_set_id_bit_on_a_huge_sparse_file_reads_no_hole,
        ),
        ("one_name_in_a_wide_directory_commits", one_name_in_a_wide_directory_commits),
        ("many_new_files_commit_at_once", many_new_files_commit_at_once),
        ("what_is_looked_at_takes_little_memory", what_is_looked_at_takes_little_memory),
    ]);
}

/// A directory on an ext4 with room for `files` files.
fn world(dir: &Path, files: usize) -> Option<(Volume, PathBuf)> {
    let volume = Volume::new(dir, "ext4", 256 + files as u64 / 20)?;
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    Some((volume, served))
}

/// Nothing is left in flight or staged.
fn settled(volume: &Volume) {
    recover();
    let status: serde_json::Value = serde_json::from_slice(&verb("status", &["--json"]).stdout).unwrap();
    assert_eq!((&status[0]["running"], &status[0]["in_flight"]), (&0.into(), &0.into()), "{status}");
    let staged = std::fs::read_dir(volume.area().join("tx")).unwrap();
    let staged: Vec<_> = staged.map(|entry| entry.unwrap().file_name()).collect();
    assert!(staged.iter().all(|name| !name.to_string_lossy().ends_with('~')), "{staged:?}");
}

/// Holds so many files open at once, in as many processes as it takes; then reads and writes all of them once
/// more.
///
/// Of each four: one only read, one written to, one open for writing and only read, one new; some lose their
/// name meanwhile, some get another one.
const HOLDERS: &str = r#"
import os, resource, sys
files, limit = int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
each = limit - 20
told, tell = os.pipe()
wait, go = os.pipe()

def expect(fd, bytes):
    found = os.pread(fd, 20, 0)
    if found != bytes: raise OSError(0, 'found %r for %r' % (found, bytes))

def take(i):
    if i % 4 == 3:
        fd = os.open('new%d' % i, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o400)
        os.pwrite(fd, b'made', 0)
        if i % 64 == 63: os.unlink('new%d' % i)
        return fd
    fd = os.open('f%d' % i, os.O_RDWR if i % 4 else os.O_RDONLY)
    expect(fd, b'old\n')
    if i % 4 == 1: os.pwrite(fd, b'new', 0)
    if i % 64 == 1: os.unlink('f%d' % i)
    if i % 64 == 5: os.rename('f%d' % i, 'g%d' % i)
    return fd

def again(i, fd):
    if i % 4 == 3:
        expect(fd, b'made')
        os.pwrite(fd, b' again', 4)
        expect(fd, b'made again')
    elif i % 4 == 1:
        expect(fd, b'new\n')
        os.pwrite(fd, b'NEW', 0)
        expect(fd, b'NEW\n')
    else:
        expect(fd, b'old\n')

def hold(mine):
    held = [(i, take(i)) for i in mine]
    os.write(tell, b'.')
    os.read(wait, 1)
    for i, fd in reversed(held): again(i, fd)

parts = []
for first in range(0, files, each):
    parts.append(os.fork())
    if parts[-1] == 0:
        os.close(go)
        try: hold(range(first, min(files, first + each)))
        except OSError as e:
            os.write(tell, b'!')
            sys.exit(str(e))
        os._exit(0)
if b'!' in [os.read(told, 1) for part in parts]: sys.exit(9)
os.close(go)
sys.exit(any(os.waitpid(part, 0)[1] for part in parts))
"#;

/// `systx run` with a limit on open files that it can't raise.
fn limited(served: &Path, limit: usize, words: &[&str]) -> Command {
    let inner = run(served, &[], words);
    let mut sh = Command::new("sh");
    sh.args(["-c", "ulimit -n $0 && exec setpriv --bounding-set -sys_resource -- \"$@\""]);
    sh.arg(limit.to_string()).arg(inner.get_program()).args(inner.get_args());
    sh.current_dir(served).stdin(Stdio::null());
    sh
}

fn many_more_open_files_than_systx_may_have_commit(dir: &Path) {
    // A tenth of what is held, or fewer.
    let (files, limit) = (rounds(2500, 100_000), rounds(250, 10_000));
    let Some((volume, served)) = world(dir, files) else { return };
    if !have("python3") || !have("setpriv") {
        return;
    }
    for n in (0..files).filter(|n| n % 4 != 3) {
        std::fs::write(served.join(format!("f{n}")), "old\n").unwrap();
    }
    let output = limited(&served, limit, &["python3", "-c", HOLDERS, &files.to_string()]).output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    for n in 0..files {
        let (name, expected) = match (n % 64, n % 4) {
            (63, _) => (format!("new{n}"), None),
            (1, _) => (format!("f{n}"), None),
            (5, _) => (format!("g{n}"), Some("NEW\n")),
            (_, 3) => (format!("new{n}"), Some("made again")),
            (_, 1) => (format!("f{n}"), Some("NEW\n")),
            _ => (format!("f{n}"), Some("old\n")),
        };
        assert_eq!(std::fs::read_to_string(served.join(&name)).ok().as_deref(), expected, "{name}");
    }
    settled(&volume);
}

/// Takes nameless files until there is an error; then shows that the transaction goes on.
const NAMELESS: &str = r#"
import errno, os, sys
held = []
if os.fork() == 0:
    for i in range(60): held.append(os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600))
    try:
        for i in range(60): held.append(os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600))
    except OSError as e:
        for fd in held: os.close(fd)
        os._exit(e.errno)
    os._exit(0)
told = os.waitstatus_to_exitcode(os.wait()[1])
if told not in (0, errno.EMFILE, errno.ENFILE): sys.exit('errno %d' % told)
open('after', 'w').write(str(told))
"#;

fn too_many_open_files_without_a_name_are_told_and_the_transaction_goes_on(dir: &Path) {
    let Some((volume, served)) = world(dir, 0) else { return };
    if !have("python3") || !have("setpriv") {
        return;
    }
    let mut told = [false; 2];
    for limit in [500, 130, 100] {
        let output = limited(&served, limit, &["python3", "-c", NAMELESS]).output().unwrap();
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "limit {limit}");
        told[usize::from(std::fs::read_to_string(served.join("after")).unwrap() != "0")] = true;
    }
    assert_eq!(told, [true, true], "enough once, too few once");
    settled(&volume);
}

/// Comes by all directories that are there, twice, and by each once more to make a name in it; then makes as
/// many, and comes by them again. Some move, some are removed; all get the same times.
const SWEEP: &str = r#"
import os, sys
dirs = int(sys.argv[1])
os.umask(0o022)

def place(top, n): return '%s/%d/%d/%d' % (top, n % 10, n // 10 % 10, n)

def made(at, n):
    with open(at + '/made', 'w') as file: file.write(str(n))

for again in range(2):
    met = sum(len(names) for _, names, _ in os.walk('old'))
    if met != 110 + dirs: sys.exit('met %d' % met)
for n in reversed(range(dirs)):
    made(place('old', n), n)
    if n % 13 == 0: os.rename(place('old', n), 'old/%d/moved%d' % ((n + 5) % 10, n))
for n in range(dirs): os.makedirs(place('new', n))
os.mkdir('new/gone', 0o751)
gone = os.open('new/gone', os.O_RDONLY | os.O_DIRECTORY)
os.rmdir('new/gone')
for n in reversed(range(dirs)):
    at = place('new', n)
    made(at, n)
    if n % 7 == 0: os.rename(at, 'new/%d/moved%d' % ((n + 5) % 10, n))
    elif n % 11 == 0:
        os.unlink(at + '/made')
        os.rmdir(at)
    elif n % 17 == 0: os.chmod(at, 0o500)
found = os.stat(gone)
if (found.st_nlink, found.st_mode & 0o7777) != (0, 0o751): sys.exit('a removed one is %r' % (found,))
for at, _, files in os.walk('.', topdown=False):
    for path in [at + '/' + name for name in files] + [at]: os.utime(path, (1, 1))
"#;

fn many_more_directories_than_systx_may_have_open_are_walked_made_and_committed(dir: &Path) {
    let (dirs, limit) = (rounds(3000, 20_000), 256);
    let Some((volume, served)) = world(dir, 5 * dirs) else { return };
    if !have("python3") || !have("setpriv") {
        return;
    }
    let plain = volume.point.join("plain");
    for n in 0..dirs {
        for top in [&served, &plain] {
            let place = format!("old/{}/{}/{n}", n % 10, n / 10 % 10);
            std::fs::create_dir_all(top.join(place)).unwrap();
        }
    }
    let words = ["python3", "-c", SWEEP, &dirs.to_string()];
    must(Command::new(words[0]).args(&words[1..]).current_dir(&plain));
    let output = limited(&served, limit, &words).output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let (found, expected) = (picture(&served), picture(&plain));
    assert!(expected.len() > 3 * dirs, "{} paths", expected.len());
    assert_eq!(difference(&found, &expected), "");
    settled(&volume);
}

fn what_the_log_keeps_never_fills_the_file_system(dir: &Path) {
    let Some((volume, served)) = world(dir, 0) else { return };
    for n in 0..60 {
        std::fs::write(served.join(format!("f{n}")), vec![b'.'; 200_000]).unwrap();
    }
    // Inodes for eight commits, as long as the log keeps what each had in its slots.
    let free = || rustix::fs::statvfs(&volume.point).unwrap().f_ffree;
    std::fs::create_dir(volume.point.join("ballast")).unwrap();
    for n in 0..free().saturating_sub(500) {
        std::fs::File::create(volume.point.join(format!("ballast/{n}"))).unwrap();
    }
    for round in 0..30 {
        // More than rides in the record.
        let script =
            "for f in f*; do head -c 20000 /dev/urandom | dd of=$f bs=20000 conv=notrunc status=none; done";
        let output = shell(&served, script);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "round {round}, {} inodes free", free());
    }
    settled(&volume);
}

fn one_byte_of_a_huge_sparse_file_costs_no_copy(dir: &Path) {
    // It does not fit on its file system in any other way than sparse.
    let Some((volume, served)) = world(dir, 0) else { return };
    let bytes: u64 = 10 << 30;
    let path = served.join("huge");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(bytes).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    file.write_all_at(b"last", bytes - 4).unwrap();
    file.sync_all().unwrap();
    let (ino, blocks) = (file.metadata().unwrap().ino(), file.metadata().unwrap().blocks());
    drop(file);
    let script = "printf X | dd of=huge bs=1 seek=5000000000 conv=notrunc status=none && dd if=huge bs=1 skip=5000000000 count=1 status=none";
    let output = shell(&served, script);
    assert_eq!((code(&output), out(&output).as_str()), (0, "X"), "{}", err(&output));
    let mut file = std::fs::File::open(&path).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.len(), meta.ino()), (bytes, ino));
    assert!(meta.blocks() <= blocks + 64, "{} blocks of 512 bytes, {blocks} before", meta.blocks());
    for (offset, expected) in
        [(0, &b"first"[..]), (5_000_000_000 - 1, b"\0X\0"), (bytes - 4, b"last"), (7_000_000_000, b"\0\0")]
    {
        let mut found = vec![0; expected.len()];
        file.seek(SeekFrom::Start(offset)).unwrap();
        file.read_exact(&mut found).unwrap();
        assert_eq!(found, expected, "at {offset}");
    }
    settled(&volume);
}

/// The bytes that get privileges are hashed. To read all of these would take longer than a silent test may.
fn a_set_id_bit_on_a_huge_sparse_file_reads_no_hole(dir: &Path) {
    let Some((volume, served)) = world(dir, 0) else { return };
    for (n, change) in
        ["", "printf X | dd of=huge bs=1 seek=5000000000 conv=notrunc status=none;"].iter().enumerate()
    {
        let path = served.join("huge");
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(3 << 40).unwrap();
        file.write_all_at(b"first", 0).unwrap();
        file.write_all_at(b"middle", 1 << 40).unwrap();
        drop(file);
        let output = shell(&served, &format!("{change} chmod 4755 huge"));
        assert_eq!((code(&output), err(&output).as_str()), (0, ""));
        let file = std::fs::File::open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o4755);
        let mut byte = [0];
        file.read_exact_at(&mut byte, 5_000_000_000).unwrap();
        assert_eq!(byte, [[0], [b'X']][n]);
        std::fs::remove_file(&path).unwrap();
    }
    settled(&volume);
}

fn one_name_in_a_wide_directory_commits(dir: &Path) {
    let names = rounds(20_000, 200_000);
    let Some((volume, served)) = world(dir, names) else { return };
    for n in 0..names {
        std::fs::File::create(served.join(format!("n{n}"))).unwrap();
    }
    let script = "ls -f | wc -l && rm n7 && mv n8 m8 && echo new > new && ls -f | wc -l";
    let output = shell(&served, script);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let counts: Vec<usize> = out(&output).split_whitespace().map(|word| word.parse().unwrap()).collect();
    // With `.` and `..`.
    assert_eq!(counts, [names + 2, names + 2]);
    let found = std::fs::read_dir(&served).unwrap().count();
    assert_eq!(found, names);
    assert!(!served.join("n7").exists() && !served.join("n8").exists());
    assert!(served.join("m8").exists() && served.join("new").exists() && served.join("n9").exists());
    settled(&volume);
}

fn what_is_looked_at_takes_little_memory(dir: &Path) {
    // Just below a size at which tables of names grow, where an object takes least; long: the size that
    // docs/benchmarks.md speaks of.
    let files = rounds(14_000, 50_000);
    let Some((volume, served)) = world(dir, files) else { return };
    for n in 0..files {
        let dir = served.join((n / 1000).to_string());
        if n % 1000 == 0 {
            std::fs::create_dir(&dir).unwrap();
        }
        std::fs::File::create(dir.join(n.to_string())).unwrap();
    }
    let script = "ls -d 0 && read -r x && find . -type f -size 0 | wc -l && read -r x && exit 1";
    let mut command = run(&served, &[], &["sh", "-c", script]);
    let mut systx = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, stdout) = (systx.stdin.take().unwrap(), BufReader::new(systx.stdout.take().unwrap()));
    let mut bytes = [0, 0];
    let mut said = Vec::new();
    for (line, bytes) in stdout.lines().zip(&mut bytes) {
        said.push(line.unwrap());
        *bytes = resident_bytes(systx.id());
        stdin.write_all(b"go on\n").unwrap();
    }
    assert_eq!(code(&systx.wait_with_output().unwrap()), 1);
    assert_eq!(said, ["0".to_string(), files.to_string()]);
    let each = (bytes[1] - bytes[0]) / files;

    assert!(each <= LOOKED_AT_BYTES_MAX, "{each} bytes an object");
    settled(&volume);
}

/// The target for an object that was touched.
const LOOKED_AT_BYTES_MAX: usize = 700;

/// Memory of a process that is in use, in bytes. Source: proc_pid_status(5).
fn resident_bytes(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

fn many_new_files_commit_at_once(dir: &Path) {
    let files = rounds(3000, 50_000);
    let Some((volume, served)) = world(dir, files) else { return };
    std::fs::create_dir(served.join("old")).unwrap();
    // Half in a new tree, which is published as a whole, half in a directory that is there, name by name.
    let script =
        "mkdir new; i=0; while [ $i -lt $N ]; do echo $i > new/f$i; echo $i > old/f$i; i=$((i + 1)); done";
    let mut command = run(&served, &[], &["sh", "-c", script]);
    let output = command.env("N", (files / 2).to_string()).output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    for at in ["new", "old"] {
        assert_eq!(std::fs::read_dir(served.join(at)).unwrap().count(), files / 2);
        for n in 0..files / 2 {
            assert_eq!(
                std::fs::read_to_string(served.join(at).join(format!("f{n}"))).unwrap(),
                format!("{n}\n")
            );
        }
    }
    let output = shell(&served, "rm -r new old/f1*");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    must(Command::new("test").arg("!").arg("-e").arg(served.join("new")));
    settled(&volume);
}
