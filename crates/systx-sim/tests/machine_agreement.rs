//! The simulated machine answers as Linux does: random calls on both, results and errnos compared.
//!
//! Not compared: numbers, times, sizes of directories, allocated blocks, where holes begin (each file system has its
//! own granularity), and names or calls that a run as an ordinary user may not make. As root both are root.

use systx_os::{
    Dirent, Fallocate, FileType, FsKind, Lease, Linux, Open, Os, Rename, Result, Seek, SetXattr, Stat,
    Writing,
};
use systx_sim::machine::{dump, Machine, SimOs};

/// The part of an answer that can be compared.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Bytes(Vec<u8>),
    Number(u64),
    Names(Vec<(Vec<u8>, FileType)>),
    Values(Vec<Vec<u8>>),
    Stat(u32, u32, u32, u64, u64),
    Lease(Lease),
}

/// Descriptors of one side, in the same order on both.
struct Side<O: Os> {
    os: O,
    fds: Vec<O::Fd>,
}

fn stat_of(stat: &Stat) -> Answer {
    let size = if stat.kind() == FileType::Directory { 0 } else { stat.size };
    Answer::Stat(stat.mode, stat.nlink, stat.uid, size, stat.rdev)
}

const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"bad/name", b""];
const HOWS: [Open; 5] = [Open::Path, Open::Directory, Open::Read, Open::ReadWrite, Open::Write];
const XATTRS: [&[u8]; 5] = [b"user.a", b"user.b", b"user.", b"nonsense.a", b"trusted.t"];

impl<O: Os> Side<O> {
    fn keep(&mut self, fd: Result<O::Fd>) -> Result<Answer> {
        self.fds.push(fd?);
        Ok(Answer::Done)
    }

    /// One random call; draws the same numbers on both sides.
    fn step(&mut self, rng: &mut fastrand::Rng) -> (String, Result<Answer>) {
        let call = rng.u32(0..100);
        // The first descriptors are directories that stay: most calls shall find one.
        let some = |rng: &mut fastrand::Rng, n: usize| {
            if rng.bool() {
                rng.usize(0..n.min(3))
            } else {
                rng.usize(0..n)
            }
        };
        let (x, y) = (some(rng, self.fds.len()), some(rng, self.fds.len()));
        let name = NAMES[if rng.u8(0..20) == 0 { rng.usize(0..6) } else { rng.usize(0..4) }];
        let other = NAMES[rng.usize(0..4)];
        let how = HOWS[rng.usize(0..5)];
        let (offset, len) = (rng.u64(0..12_000), rng.usize(0..6000));
        let mode = rng.u32(0..0o10000);
        let (fd, fd2) = (&self.fds[x], &self.fds[y]);
        let os = self.os.clone();
        let done = |r: Result<()>| r.map(|()| Answer::Done);
        let label = format!(
            "call {call} on {x} and {y}, {:?} {:?} {how:?} {mode:o} {offset} {len}",
            String::from_utf8_lossy(name),
            String::from_utf8_lossy(other)
        );
        let answer = match call {
            0..12 => {
                let r = os.open(fd, name, how);
                self.keep(r)
            }
            12..16 => {
                let r = os.reopen(fd, how);
                self.keep(r)
            }
            16..22 => {
                let r = os.create(fd, name, mode);
                self.keep(r)
            }
            22..24 => {
                let r = os.tmpfile(fd, mode);
                self.keep(r)
            }
            24..25 => {
                let r = os.dup(fd);
                self.keep(r)
            }
            25..28 => os.stat(fd).map(|s| stat_of(&s)),
            28..31 => os.stat_at(fd, name).map(|s| stat_of(&s)),
            31..34 => os.read_dir(fd).map(|mut entries: Vec<Dirent>| {
                entries.sort();
                Answer::Names(entries.into_iter().map(|e| (e.name, e.kind)).collect())
            }),
            34..36 => os.read_link(fd).map(Answer::Bytes),
            36..41 => done(os.mkdir(fd, name, mode)),
            41..43 => {
                let kinds = [FileType::File, FileType::Fifo, FileType::Socket, FileType::Directory];
                done(os.mknod(fd, name, kinds[mode as usize % 4].mode_bits() | 0o600, 0))
            }
            43..45 => done(os.symlink(fd, name, other)),
            45..50 => done(os.link(fd, fd2, name)),
            50..54 => done(os.unlink(fd, name)),
            54..58 => done(os.rmdir(fd, name)),
            58..70 => {
                let flags = [Rename::Replace, Rename::NoReplace, Rename::Exchange][mode as usize % 3];
                done(os.rename((fd, name), (fd2, other), flags))
            }
            70..74 => {
                let mut buf = vec![7; len];
                os.pread(fd, &mut buf, offset).map(|n| Answer::Bytes(buf[..n].to_vec()))
            }
            74..79 => os.pwrite(fd, &vec![(mode as u8) | 1; len], offset).map(|n| Answer::Number(n as u64)),
            79..81 => done(os.truncate(fd, offset)),
            81..83 => {
                let modes = [
                    Fallocate::Allocate,
                    Fallocate::KeepSize,
                    Fallocate::PunchHole,
                    Fallocate::Zero,
                    Fallocate::ZeroKeepSize,
                ];
                done(os.fallocate(fd, modes[mode as usize % 5], offset, len as u64))
            }
            83..85 => os.copy_range(fd, offset, fd2, offset / 2, len as u64).map(Answer::Number),
            // Each file system gives its own meaning to the offsets of a directory.
            85..86 if os.stat(fd).is_ok_and(|s| s.kind() == FileType::Directory) => Ok(Answer::Done),
            85..86 => os.seek(fd, offset, Seek::Hole).map(|_| Answer::Done),
            86..88 => done(os.chmod(fd, mode)),
            88..89 => os.stat(fd).and_then(|s| done(os.chown(fd, s.uid, s.gid))),
            89..93 => {
                let modes = [SetXattr::Any, SetXattr::Create, SetXattr::Replace];
                done(os.setxattr(
                    fd,
                    XATTRS[mode as usize % 5],
                    &[1; 30][..len % 30],
                    modes[mode as usize % 3],
                ))
            }
            93..94 => done(os.removexattr(fd, XATTRS[mode as usize % 5])),
            94..95 => os.getxattr(fd, XATTRS[mode as usize % 5]).map(Answer::Bytes),
            95..96 => os.listxattr(fd).map(|mut names| {
                names.sort();
                Answer::Values(names)
            }),
            96..98 => done(os.lease(fd, [Lease::None, Lease::Read, Lease::Write][mode as usize % 3])),
            98..99 => os.lease_held(fd).map(Answer::Lease),
            _ => match mode % 3 {
                0 => done(os.fsync(fd)),
                1 => done(os.fdatasync(fd)),
                _ => done(os.write_out(fd, Writing::Wait)),
            },
        };
        (label, answer)
    }

    /// Closes one of the later descriptors.
    fn close(&mut self, rng: &mut fastrand::Rng) {
        let n = rng.usize(0..self.fds.len());
        if n >= 3 {
            drop(self.fds.remove(n));
        }
    }
}

/// A fresh directory that is removed with everything in it.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("systx-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A random chmod may have closed a directory to its owner.
        open_up(&self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open_up(dir: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            open_up(&entry.path());
        }
    }
}

fn grow<O: Os>(os: &O, root: O::Fd) -> Vec<O::Fd> {
    os.mkdir(&root, b"a", 0o755).unwrap();
    os.mkdir(&root, b"b", 0o755).unwrap();
    let (a, b) =
        (os.open(&root, b"a", Open::Directory).unwrap(), os.open(&root, b"b", Open::Directory).unwrap());
    vec![root, a, b]
}

#[test]
fn random_calls_have_the_results_and_errnos_of_linux() {
    let linux = Linux::new();
    let scratch = Scratch::new("agreement");
    let above = linux.open_path(&scratch.0, Open::Directory).unwrap();
    if linux.uid() != 0 {
        eprintln!("skipped: the simulated process is root, this one is not");
        return;
    }
    let kind = match linux.statfs(&above).unwrap().magic {
        0x0102_1994 => FsKind::Tmpfs,
        0x5846_5342 => FsKind::Xfs,
        0x9123_683e => FsKind::Btrfs,
        _ => FsKind::Ext4,
    };
    for seed in 0..300 {
        linux.mkdir(&above, format!("{seed}").as_bytes(), 0o755).unwrap();
        let real_root = linux.open(&above, format!("{seed}").as_bytes(), Open::Directory).unwrap();
        let real_again = linux.dup(&real_root).unwrap();
        let machine = Machine::with(kind);
        let sim = machine.spawn("sim");
        let mut real: Side<Linux> =
            Side::<Linux> { fds: grow::<Linux>(&linux, real_root), os: linux.clone() };
        let mut mock: Side<SimOs> = Side::<SimOs> { fds: grow(&sim, sim.root(0)), os: sim.clone() };
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut story: Vec<String> = Vec::new();
        for _ in 0..120 {
            let mut same = rng.clone();
            let (label, wanted) = real.step(&mut rng);
            let (_, got) = mock.step(&mut same);
            story.push(format!("{label} -> {}", short(&wanted)));
            assert_eq!(short(&got), short(&wanted), "seed {seed}:\n{}", story.join("\n"));
            if rng.u8(0..8) == 0 {
                let mut same = rng.clone();
                real.close(&mut rng);
                mock.close(&mut same);
            }
            machine.check().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", story.join("\n")));
        }
        real.fds.clear();
        mock.fds.clear();
        let (real_tree, mock_tree) = (dump::<Linux>(&linux, &real_again), dump(&sim, &sim.root(0)));
        assert_eq!(mock_tree, real_tree, "seed {seed}:\n{}", story.join("\n"));
        assert_eq!(mock_tree, Ok(machine.tree(0)), "seed {seed}: two ways to look");
        machine.check().unwrap();
    }
}

fn short(answer: &Result<Answer>) -> String {
    match answer {
        Ok(Answer::Bytes(bytes)) if bytes.len() > 40 => {
            let sum = bytes.iter().fold(0u64, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(*b)));
            format!("{} bytes, sum {sum}", bytes.len())
        }
        answer => format!("{answer:?}"),
    }
}
