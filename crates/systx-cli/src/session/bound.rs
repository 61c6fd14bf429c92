//! The bound on lost transactions: how many stay, and how much room they take.
//!
//! Guarantees: a transaction that begins leaves at most this many lost ones beside it, and this part of each
//! file system to them; the oldest are discarded first, each with a line that says so; one with a command
//! inside stays. Does not: discard anything at another time.

use super::socket::{self, Found};
use super::{discard, room};
use crate::args::Area;
use crate::words::{shown, Voice};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use systx_os::{Linux, Open, Os};

/// The environment variable for another bound: `<count>` or `<count>,<percent>`.
const VARIABLE: &str = "SYSTX_LOST_MAX";

/// The room that lost transactions may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Number of lost transactions of a user.
    pub count: usize,
    /// Percent of a file system, of those whose first one it is.
    pub percent: u64,
}

impl Bound {
    const DEFAULT: Bound = Bound { count: 16, percent: 10 };

    /// The one that holds here.
    pub fn here() -> Bound {
        std::env::var(VARIABLE).ok().and_then(|text| Bound::parse(&text)).unwrap_or(Bound::DEFAULT)
    }

    fn parse(text: &str) -> Option<Bound> {
        let (count, percent) = match text.split_once(',') {
            Some((count, percent)) => (count, percent.trim().parse().ok().filter(|percent| *percent <= 100)?),
            None => (text, Bound::DEFAULT.percent),
        };
        Some(Bound { count: count.trim().parse().ok()?, percent })
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, and {} % of a file system", self.count, self.percent)
    }
}

/// One that is lost.
struct Lost {
    since: i64,
    point: Vec<u8>,
    bytes: u64,
    /// True if no command runs in it.
    alone: bool,
}

/// Which of them go, the oldest first; `sizes`: how large file systems are.
fn too_many(lost: &[Lost], sizes: &HashMap<Vec<u8>, u64>, bound: Bound) -> Vec<usize> {
    let mut oldest: Vec<usize> = (0..lost.len()).filter(|n| lost[*n].alone).collect();
    oldest.sort_by_key(|n| lost[*n].since);
    let mut left = lost.len();
    let mut taken: HashMap<&[u8], u64> = HashMap::new();
    lost.iter().for_each(|one| *taken.entry(&one.point).or_default() += one.bytes);
    let mut go = Vec::new();
    for n in oldest {
        let most = sizes.get(&lost[n].point).map_or(u64::MAX, |size| size / 100 * bound.percent);
        let here = taken.entry(&lost[n].point).or_default();
        if left > bound.count || (*here > most && lost[n].bytes > 0) {
            left -= 1;
            *here -= lost[n].bytes;
            go.push(n);
        }
    }
    go
}

/// Discards the oldest lost transactions of this user that are too many, and says so.
pub fn keep(area: &Area, voice: Voice) {
    // A session daemon that can't be asked now is asked by the next `begin`.
    let Ok(all) = socket::all(area) else { return };
    let mut all: Vec<Found> = all.into_iter().filter(|found| found.look.lost.is_some()).collect();
    if all.is_empty() {
        return;
    }
    let lost: Vec<Lost> = all
        .iter()
        .map(|found| Lost {
            since: found.look.since,
            point: found.point.clone(),
            bytes: found.look.lost.unwrap_or_default(),
            alone: found.look.inside.is_empty(),
        })
        .collect();
    let (os, bound) = (Linux::new(), Bound::here());
    let size = |point: &[u8]| {
        let top = os.open_path(Path::new(OsStr::from_bytes(point)), Open::Directory).ok()?;
        let total = os.statfs(&top).ok()?;
        Some(total.blocks.saturating_mul(u64::from(total.frsize)))
    };
    let sizes = lost.iter().filter_map(|one| Some((one.point.clone(), size(&one.point)?))).collect();
    for n in too_many(&lost, &sizes, bound) {
        let found = &mut all[n];
        let (id, takes) = (found.look.id, room(lost[n].bytes));
        if discard(found).is_ok() && !voice.json {
            eprintln!(
                "systx: discarded transaction {id} on {}, the oldest lost one, which took {takes}: lost ones may be {bound} ({VARIABLE})",
                shown(&lost[n].point)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(since: i64, bytes: u64, alone: bool) -> Lost {
        Lost { since, point: b"/a".to_vec(), bytes, alone }
    }

    #[test]
    fn the_oldest_go_until_the_rest_is_within_the_bound() {
        let sizes = HashMap::from([(b"/a".to_vec(), 1000)]);
        let go = |all: &[Lost], count, percent| too_many(all, &sizes, Bound { count, percent });
        let all = [lost(3, 40, true), lost(1, 40, true), lost(2, 40, true)];
        assert_eq!(go(&all, 3, 100), Vec::<usize>::new());
        assert_eq!(go(&all, 2, 100), [1]);
        assert_eq!(go(&all, 3, 8), [1]);
        assert_eq!(go(&all, 3, 0), [1, 2, 0]);
        assert_eq!(go(&all, 0, 100), [1, 2, 0]);
        assert_eq!(go(&[lost(1, 40, false), lost(2, 40, true)], 1, 100), [1], "somebody works in the oldest");
        let elsewhere = Lost { point: b"/b".to_vec(), ..lost(1, 5000, true) };
        assert_eq!(go(&[elsewhere, lost(2, 40, true)], 2, 10), Vec::<usize>::new(), "its size is not known");
    }

    #[test]
    fn a_bound_is_a_count_and_perhaps_a_percentage() {
        assert_eq!(Bound::parse("3"), Some(Bound { count: 3, percent: 10 }));
        assert_eq!(Bound::parse("3, 50"), Some(Bound { count: 3, percent: 50 }));
        for wrong in ["", "x", "-1", "3,", "3,101", "3,x"] {
            assert_eq!(Bound::parse(wrong), None, "{wrong}");
        }
    }
}
