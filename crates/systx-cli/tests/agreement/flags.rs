//! The flags of an open file that are changed while it is open (F_SETFL), and those of single calls: where
//! bytes land, and whether they may be unaligned.
//!
//! Owns: every pair of flags at open and after F_SETFL, times each kind of file, times each way to write. Not
//! compared: unaligned calls with O_DIRECT, which a view takes and file systems refuse.

use super::alone::place::{code, err, Place};
use super::alone::role;
use super::{same_answers, tree};
use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags, SeekFrom};
use rustix::io::{self, ReadWriteFlags, Result};
use rustix::pipe::{self, SpliceFlags};
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::process::Command;

/// linux/fs.h, since Linux 6.9.
const NOAPPEND: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x20);
const BLOCK: usize = 4096;
/// Name and size: those kept in memory, staged whole, and changed in ranges.
const OLD: [(&str, usize); 3] = [("small", 10_000), ("middle", 100_000), ("large", 300_000)];

pub fn agree(p: &Place) {
    let plain = p.mount.join("plain.flags");
    std::fs::create_dir(&plain).unwrap();
    for (dir, uid) in [("of-root", "0"), ("of-a-user", "1000")] {
        let (plain, viewed) = (plain.join(dir), p.served.join(dir));
        for dir in [&plain, &viewed] {
            std::fs::create_dir(dir).unwrap();
            begin(dir);
            if uid != "0" {
                super::alone::place::must(Command::new("chown").args(["-R", uid]).arg(dir));
            }
        }
        let words = role("flags", &[uid]);
        let natively = Command::new(&words[0]).args(&words[1..]).current_dir(&plain).output().unwrap();
        let inside = p.systx(&[], &words).current_dir(&viewed).output().unwrap();
        assert_eq!(code(&natively), 0, "{}", err(&natively));
        same_answers(0, &natively, &inside);
        assert_eq!((code(&inside), err(&inside).as_str()), (0, ""));
        // Mode, owner, links, and the sum of the contents.
        let told = |dir| {
            let tree = tree::look(dir).into_iter().filter(|(path, _)| path != ".");
            tree.map(|(path, f)| (path, [0, 1, 2, 5].map(|n: usize| f[n].clone()))).collect::<Vec<_>>()
        };
        assert_eq!(told(&plain), told(&viewed));
    }
}

fn sets() -> [OFlags; 4] {
    [OFlags::empty(), OFlags::APPEND, OFlags::DIRECT, OFlags::APPEND | OFlags::DIRECT]
}

fn begin(dir: &Path) {
    for (first, _) in sets().iter().enumerate() {
        for (then, _) in sets().iter().enumerate() {
            for act in 0..ACTS.len() {
                for (name, size) in OLD {
                    let bytes: Vec<u8> = (0..size).map(|n| (n / 100) as u8).collect();
                    std::fs::write(dir.join(format!("{name}.{first}.{then}.{act}")), bytes).unwrap();
                }
            }
        }
    }
}

/// A way to write, and to read: `at` in a file, so many bytes.
type Act = fn(&OwnedFd, &[u8], u64) -> Result<usize>;
const ACTS: [Act; 7] = [
    |fd, bytes, at| {
        fs::seek(fd, SeekFrom::Start(at))?;
        io::write(fd, bytes)
    },
    |fd, bytes, at| io::pwrite(fd, bytes, at),
    |fd, bytes, at| io::pwritev2(fd, &[IoSlice::new(bytes)], at, NOAPPEND),
    |fd, bytes, at| io::pwritev2(fd, &[IoSlice::new(bytes)], at, ReadWriteFlags::APPEND),
    |fd, bytes, at| {
        let (from, to) = pipe::pipe()?;
        io::write(&to, bytes)?;
        let mut at = at;
        pipe::splice(&from, None, fd, Some(&mut at), bytes.len(), SpliceFlags::empty())
    },
    |fd, bytes, at| {
        let from = rustix::fs::memfd_create("bytes", fs::MemfdFlags::CLOEXEC)?;
        io::write(&from, bytes)?;
        fs::seek(fd, SeekFrom::Start(at))?;
        fs::sendfile(fd, &from, Some(&mut 0), bytes.len())
    },
    |fd, bytes, at| {
        let mut aligned = Aligned::new(bytes.len());
        io::preadv(fd, &mut [IoSliceMut::new(aligned.bytes())], at)
    },
];

/// Memory that begins with a page.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(len: usize) -> Aligned {
        Aligned(vec![b'#'; len + BLOCK], len)
    }

    fn bytes(&mut self) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(BLOCK);
        &mut self.0[skip..skip + self.1]
    }
}

/// Role: UID.
pub fn play(args: &[String]) {
    let uid: u32 = args[0].parse().unwrap();
    if uid != 0 {
        let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(uid));
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
    }
    for (first, opened) in sets().into_iter().enumerate() {
        for (then, set) in sets().into_iter().enumerate() {
            for (act, write) in ACTS.into_iter().enumerate() {
                for (name, size) in OLD {
                    let name = format!("{name}.{first}.{then}.{act}");
                    println!("{name} old {}", one(&name, size, opened, set, write));
                    println!(
                        "{name} new {}",
                        one(&format!("{name}.new"), size, opened | OFlags::CREATE, set, write)
                    );
                    // Beside one that is open without any flags already, and one that stays open.
                    let beside = fs::open(name.as_str(), OFlags::RDWR, Mode::empty()).unwrap();
                    println!("{name} again {}", one(&name, size, opened, set, write));
                    println!("{name} beside {:?}", ACTS[1](&beside, b"beside", 70));
                    println!("{name} cut {}", one(&name, size, opened | OFlags::TRUNC, set, write));
                }
            }
        }
    }
}

fn one(name: &str, size: usize, opened: OFlags, set: OFlags, write: Act) -> String {
    let file = match fs::open(name, OFlags::RDWR | OFlags::CLOEXEC | opened, Mode::from_raw_mode(0o644)) {
        Ok(file) => file,
        Err(e) => return format!("{e:?}"),
    };
    let changed = fs::fcntl_setfl(&file, set);
    let direct = set.contains(OFlags::DIRECT);
    // Where it appends, the end of the file is no multiple of a block.
    let (at, len) = if direct { (BLOCK as u64, BLOCK) } else { (1234, 555) };
    if direct && size % BLOCK != 0 {
        fs::ftruncate(&file, (size / BLOCK * BLOCK) as u64).unwrap();
    }
    let mut bytes = Aligned::new(len);
    let answer = write(&file, bytes.bytes(), at);
    let place = fs::seek(&file, SeekFrom::Current(0));
    // The flags as they are reported now.
    let flags = fs::fcntl_getfl(&file).map(|flags| flags & (OFlags::APPEND | OFlags::DIRECT));
    fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
    let mut all = vec![0; 400_000];
    let got = io::pread(&file, &mut all[..], 0).unwrap();
    let sum = all[..got].iter().fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let odd = io::pwrite(&file, b"odd", 3);
    format!("{changed:?} {answer:?} at {place:?} {flags:?} {got} bytes {sum:x} {odd:?}")
}
