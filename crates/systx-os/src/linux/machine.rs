//! The machine and this process: clocks, randomness, identity of the boot, limits.

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use rustix::rand::GetRandomFlags;
use rustix::thread::Timespec;
use std::sync::OnceLock;

use crate::types::{Errno, Limit, Result, Timestamp};

pub(super) fn boot_id() -> Result<[u8; 16]> {
    // A process does not live longer than its boot.
    static KNOWN: OnceLock<[u8; 16]> = OnceLock::new();
    if let Some(id) = KNOWN.get() {
        return Ok(*id);
    }
    let text = std::fs::read("/proc/sys/kernel/random/boot_id")
        .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let id = parse_uuid(&text).ok_or(Errno::INVAL)?;
    Ok(*KNOWN.get_or_init(|| id))
}

/// 32 hexadecimal digits with dashes anywhere.
fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    let mut digits = text.trim_ascii().iter().filter(|&&b| b != b'-').map(|&b| char::from(b).to_digit(16));
    for byte in &mut uuid {
        *byte = (digits.next()?? << 4 | digits.next()??) as u8;
    }
    digits.next().is_none().then_some(uuid)
}

/// Returns true if this user namespace gives each user and group the number that it has outside, also where
/// that can't be asked.
pub(super) fn maps_all_owners() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    let all = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let words: Vec<_> = text.split_whitespace().collect();
        words.is_empty() || words == ["0", "0", "4294967295"]
    };
    *KNOWN.get_or_init(|| all("/proc/self/uid_map") && all("/proc/self/gid_map"))
}

/// Source: capabilities(7), setrlimit(2).
pub(super) fn is_limited(by: Limit) -> bool {
    use rustix::thread::CapabilitySet as Set;
    let lacks = |needed: Set| {
        rustix::process::geteuid().is_root()
            && !rustix::thread::capabilities(None).is_ok_and(|now| now.effective.contains(needed))
    };
    match by {
        Limit::Rights => lacks(Set::CHOWN | Set::DAC_OVERRIDE | Set::FOWNER | Set::FSETID | Set::SETFCAP),
        Limit::Trusted => lacks(Set::SYS_ADMIN),
        Limit::Size => rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some(),
    }
}

pub(super) fn now() -> Timestamp {
    let t = time(libc::CLOCK_REALTIME);
    Timestamp { sec: t.tv_sec, nsec: t.tv_nsec as u32 }
}

/// The time of the last tick.
pub(super) fn coarse_now() -> Timestamp {
    let t = time(libc::CLOCK_REALTIME_COARSE);
    Timestamp { sec: t.tv_sec, nsec: t.tv_nsec as u32 }
}

pub(super) fn monotonic_ns() -> u64 {
    let t = time(libc::CLOCK_MONOTONIC);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// A clock, by the C library: in a program that brings it along, rustix does not find the vDSO and asks the kernel.
fn time(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call, which writes nothing else.
    let answer = unsafe { libc::clock_gettime(clock, &mut time) };
    debug_assert_eq!(answer, 0, "every kernel has these clocks");
    time
}

/// A time as people here read it: `2026-11-22 09:40:12 +0100`. `seconds` since the epoch.
///
/// Source: localtime_r(3).
pub fn local_time(seconds: i64) -> String {
    // SAFETY: a struct tm of zeros is a valid one.
    let mut tm: libc::tm = unsafe { core::mem::zeroed() };
    // SAFETY: both pointers are valid for the call, which writes the second one only.
    if unsafe { libc::localtime_r(&seconds, &mut tm) }.is_null() {
        return format!("@{seconds}");
    }
    let (year, month, east) = (i64::from(tm.tm_year) + 1900, tm.tm_mon + 1, tm.tm_gmtoff / 60);
    let (sign, east) = (if east < 0 { '-' } else { '+' }, east.abs());
    format!(
        "{year}-{month:02}-{:02} {:02}:{:02}:{:02} {sign}{:02}{:02}",
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec,
        east / 60,
        east % 60
    )
}

pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    match rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty())) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Only where a sandbox forbids the call: the standard library's keys are seeded from what else there is.
        _ => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), monotonic_ns()),
    }
}

pub(super) fn pause(ns: u64) {
    let time = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ };
    // A signal that cuts it short is as good as the end: "at most".
    let _ = rustix::thread::nanosleep(&time);
}

/// Raises the limit on open descriptors as far as it goes; returns the limit that holds now.
///
/// Source: getrlimit(2), RLIMIT_NOFILE.
pub fn raise_nofile_limit() -> Result<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    // Past the hard limit with CAP_SYS_RESOURCE only; without, what there is has to do.
    let most =
        std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse::<u64>().ok());
    let wanted = Rlimit { current: most, maximum: most };
    if limit.maximum.is_some() && most > limit.maximum && setrlimit(Resource::Nofile, wanted).is_ok() {
        limit = wanted;
    }
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(limit.current.unwrap_or(u64::MAX))
}

/// A limit on open descriptors, to come back to after [`raise_nofile_limit`].
pub struct NofileLimit(Rlimit);

impl NofileLimit {
    /// The one that holds now.
    pub fn now() -> NofileLimit {
        NofileLimit(getrlimit(Resource::Nofile))
    }

    /// Makes it hold again. What is open beyond it stays open.
    pub fn restore(&self) -> Result<()> {
        setrlimit(Resource::Nofile, self.0)
    }
}

/// Release of the running kernel as (major, minor): 6.18.44-x is (6, 18). What cannot be read counts as 0.
///
/// Source: uname(2).
pub fn kernel_release() -> (u32, u32) {
    parse_release(rustix::system::uname().release().to_bytes())
}

fn parse_release(release: &[u8]) -> (u32, u32) {
    let mut numbers = release.split(|b| !b.is_ascii_digit()).map(|digits| {
        digits.iter().try_fold(0_u32, |n, b| n.checked_mul(10)?.checked_add(u32::from(b - b'0'))).unwrap_or(0)
    });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_with_its_distance_from_greenwich() {
        let told = local_time(1_000_000_000);
        assert!(told.starts_with("2001-09-09 ") && told.len() == 25, "{told}");
        assert!(told[20..].starts_with(['+', '-']), "{told}");
    }

    #[test]
    fn a_uuid_is_32_digits() {
        let uuid = parse_uuid(b"00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        assert_eq!(uuid[..3], [0x00, 0x11, 0x22]);
        assert_eq!(uuid[15], 0xff);
        for bad in [
            &b""[..],
            b"0011",
            b"00112233-4455-6677-8899-aabbccddeeff0",
            b"g0112233-4455-6677-8899-aabbccddeeff",
        ] {
            assert_eq!(parse_uuid(bad), None);
        }
    }

    #[test]
    fn a_release_starts_with_two_numbers() {
        assert_eq!(parse_release(b"6.18.44-fc-v657"), (6, 18));
        assert_eq!(parse_release(b"7.0-rc1"), (7, 0));
        assert_eq!(parse_release(b""), (0, 0));
        assert!(kernel_release() > (3, 0));
    }
}
