//! Verdicts on the bytes and the size of a file as a publication finds it: pure functions, tested over all of
//! their inputs.
//!
//! Owns: which sector is ours, lost or foreign; what a PATCH does with a file that has grown, been cut or
//! stands halfway; whether a redo restores the contents of a small file. Guarantees: a sector that no pass of
//! ours and no power loss can have left is never written. Does not: look at a file or change one (`patch`,
//! `place`, `refused`).

use super::site::{OldEnds, Pass};
use crate::bytes::sector_crc;
use crate::mutant::{self, Mutant};
use crate::record::{Before, Patch, SECTOR_BYTES};

/// Growth of a file that another process has open, in bytes, up to which it is appended; beyond, the size is
/// set first.
const APPEND_BYTES_MAX: u64 = 16 << 20;

/// An append within one page is complete or absent, also when its process is killed or the disk is full: a size in
/// between is an outsider's cut.
const PAGE_BYTES: u64 = 4096;

// ---- one sector -----------------------------------------------------------------------------------------------------

/// The state of one sector that a record gives new bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sector {
    /// It has them: nothing is left to do.
    After,
    /// It is as it was before the record.
    Before,
    /// It has them up to an earlier end of the file, and zeros follow: a power loss took the size that covered
    /// the rest.
    Cut,
    /// It is zeros, or the file ends before it, though the record knows neither: a power loss may have taken
    /// its bytes.
    Lost,
    /// An outsider has written it.
    Foreign,
}

/// A sector as a record knows it.
pub(super) struct Known<'a> {
    /// The old bytes of its range, and which sector of that it is.
    pub before: (&'a Before, usize),
    /// The new bytes.
    pub after: &'a [u8],
    /// Where it begins in the file, and earlier ends of that.
    pub at: u64,
    pub ends: &'a OldEnds,
}

impl Known<'_> {
    /// The state of a sector that a patch changes.
    pub fn judge(&self, present: &[u8]) -> Sector {
        let (before, n) = self.before;
        // Asked first: a sector that is new already is not written again, so a second pass changes nothing (I5).
        if present == self.after {
            Sector::After
        } else if is_pre_image(before, n, present) {
            Sector::Before
        } else if self.is_cut(present) {
            // Before zeros: a cut sector is known to be ours and is written, a lost one is only reported.
            Sector::Cut
        } else if is_zeros(present) {
            Sector::Lost
        } else {
            Sector::Foreign
        }
    }

    /// True if a sector is ours up to an old end of the file, and zeros follow, which were past that end.
    fn is_cut(&self, present: &[u8]) -> bool {
        let (at, after) = (self.at, self.after);
        let len = present.len().min(after.len()).max(1);
        let mut kept = self.ends.range(at + 1..at + len as u64).map(|end| (end - at) as usize);
        kept.any(|kept| present[..kept] == after[..kept] && is_zeros(&present[kept..]))
    }
}

/// The state of a sector of a small file, all of whose bytes the record has: `present` is short where the
/// file ends.
pub(super) fn of_small(ours: &[u8], present: &[u8]) -> Sector {
    if present == ours {
        Sector::After
    } else if ours.starts_with(present) || is_zeros(present) {
        // Bytes that were never synced are zeros after a power loss, or the file ends before them.
        Sector::Lost
    } else {
        Sector::Foreign
    }
}

/// Returns true if a sector still is what it was before.
pub(super) fn is_pre_image(before: &Before, sector: usize, bytes: &[u8]) -> bool {
    match before {
        Before::Zeros => is_zeros(bytes),
        Before::Sectors(crcs) => crcs.get(sector).is_some_and(|crc| *crc == sector_crc(bytes)),
    }
}

pub(super) fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

// ---- the size of a file to be patched ---------------------------------------------------------------------------------

/// How a patch changes the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resize {
    /// Not at all.
    No,
    Cut,
    /// Within one page.
    GrowPage,
    /// By no more than what is appended.
    GrowSome,
    GrowFar,
}

/// The size that is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// That before the patch.
    Before,
    /// Of a file that grows: in between, at the end of a sector.
    HalfwayAtSector,
    /// Of a file that grows: in between, within a sector.
    HalfwayWithin,
    /// That after the patch, and another one than before.
    After,
    /// Of a file that grows: more than after.
    Beyond,
    /// An outsider has set it.
    Other,
}

/// The processes that may have the file open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// No other one: there is a write lease.
    Exclusive,
    Shared,
}

/// The ends of a file of the old size, which may have to be as the record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Compared,
    Unknown,
}

/// The modification time of a file that others may have open. What is cut off is in no record, so an outsider's write
/// to it shows by the time alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// As at the final look; or none was noted then.
    AsNoted,
    Moved,
}

/// A file to be patched, before its bytes are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub stamp: Stamp,
    pub resize: Resize,
    pub size: Size,
    pub sharing: Sharing,
    pub pass: Pass,
    pub ends: Ends,
}

/// The part of a file's bytes that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Nothing,
    /// Are the old file's ends as they were?
    Ends,
    /// Is no sector up to the new size foreign?
    UpToNewSize,
    /// Is no sector up to the present size foreign?
    UpToPresentSize,
}

/// The answer to a [`Question`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    NotAsked,
    /// There is nothing but what this record, or a power loss, explains.
    Ours,
    /// An outsider has written there.
    Foreign,
}

/// The act about the size, and with it about the bytes behind the old end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It stays; sectors are written up to the new one.
    Keep,
    /// It is set; then sectors are written up to it.
    Set,
    /// Sectors are written up to the old one, the rest is appended.
    Append,
    /// An outsider's, left and reported; sectors are written up to the new one.
    Theirs,
    /// An outsider has written as many other bytes, which are left and reported: sectors are written before the
    /// ends only.
    Rewritten,
    /// An outsider has written what may be what is cut off: the new bytes are set aside, and the file stays. Later
    /// passes can't tell any more.
    SetAside,
}

impl Resize {
    pub fn of(patch: &Patch) -> Resize {
        match patch.size_after.checked_sub(patch.size_before) {
            None => Resize::Cut,
            Some(0) => Resize::No,
            Some(_) if patch.size_before / PAGE_BYTES == (patch.size_after - 1) / PAGE_BYTES => {
                Resize::GrowPage
            }
            Some(growth) if growth <= APPEND_BYTES_MAX => Resize::GrowSome,
            Some(_) => Resize::GrowFar,
        }
    }

    fn grows(self) -> bool {
        matches!(self, Resize::GrowPage | Resize::GrowSome | Resize::GrowFar)
    }
}

impl Size {
    /// Of a file of `now` bytes that a patch finds.
    pub fn of(patch: &Patch, now: u64) -> Size {
        let (before, after) = (patch.size_before, patch.size_after);
        match now {
            // The old size comes first: where a patch leaves the size as it is, both are the same.
            _ if now == before => Size::Before,
            _ if now == after => Size::After,
            _ if before < now && now < after && now % SECTOR_BYTES as u64 == 0 => Size::HalfwayAtSector,
            _ if before < now && now < after => Size::HalfwayWithin,
            _ if before < after && after < now => Size::Beyond,
            _ => Size::Other,
        }
    }
}

impl Verdict {
    /// True if an outsider came between and is to hear of it.
    pub fn is_reported(self) -> bool {
        match self {
            Verdict::Theirs | Verdict::Rewritten => true,
            Verdict::Keep | Verdict::Set | Verdict::Append | Verdict::SetAside => false,
        }
    }
}

impl Target {
    /// Growth is appended where another process has the file open: its own append at the same moment stands
    /// before or after ours. So is what is left of an append that was cut off, which goes over a page's end.
    fn appends(&self) -> bool {
        let halfway = matches!(self.size, Size::HalfwayAtSector | Size::HalfwayWithin);
        match self.resize {
            Resize::No | Resize::Cut | Resize::GrowFar => false,
            Resize::GrowPage => self.sharing == Sharing::Shared,
            Resize::GrowSome => self.sharing == Sharing::Shared || halfway && self.pass == Pass::First,
        }
    }

    /// Returns true if an outsider may have written to what is to be cut off.
    fn cuts_foreign(&self) -> bool {
        (self.resize, self.size, self.stamp) == (Resize::Cut, Size::Before, Stamp::Moved)
    }

    /// Returns the one question about the bytes that decides, if there is one.
    pub fn question(&self) -> Question {
        match self.size {
            _ if self.cuts_foreign() => Question::Nothing,
            // An outsider may have written as many other bytes.
            Size::Before if self.resize != Resize::No && self.ends == Ends::Compared => Question::Ends,
            // An earlier pass, which had the file to itself, has set the size and was cut off; or all is there.
            Size::After | Size::Beyond
                if self.resize.grows()
                    && self.sharing == Sharing::Shared
                    && !mutant::on(Mutant::AppendedTwice) =>
            {
                Question::UpToNewSize
            }
            // After a power loss the size may have survived without its bytes. File systems write blocks, so an
            // outsider has made any size within a sector.
            Size::HalfwayAtSector if self.pass == Pass::Redo && !self.appends() => Question::UpToPresentSize,
            Size::HalfwayWithin
                if self.pass == Pass::Redo && !self.appends() && mutant::on(Mutant::AnyEndIsOurs) =>
            {
                Question::UpToPresentSize
            }
            _ => Question::Nothing,
        }
    }

    /// Decides what is done about the size.
    pub fn verdict(&self, answer: Answer) -> Verdict {
        match (self.size, answer) {
            _ if self.cuts_foreign() => Verdict::SetAside,
            // Another size would mix the outsider's bytes with ours, or cut them off.
            (Size::Before, Answer::Foreign) => Verdict::Rewritten,
            // All that is to be appended is there already; another append would bring it twice (I5).
            (Size::After | Size::Beyond, Answer::Ours) => Verdict::Keep,
            // Before any verdict that sets the size, which would cut off what another process appends meanwhile (I6).
            _ if self.appends() => Verdict::Append,
            (Size::Before, _) if self.resize == Resize::No => Verdict::Keep,
            (Size::Before, _) | (Size::HalfwayAtSector | Size::HalfwayWithin, Answer::Ours) => Verdict::Set,
            (Size::After, _) => Verdict::Keep,
            (Size::HalfwayAtSector | Size::HalfwayWithin | Size::Beyond | Size::Other, _) => Verdict::Theirs,
        }
    }
}

// ---- one attribute --------------------------------------------------------------------------------------------------

/// The present value of an attribute that a record changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// The new one: nothing is left to do.
    New,
    /// The old one.
    Old,
    /// A mode that a recovery, killed while it patched the file, has left open to the owner.
    Opened,
    /// An outsider's, which is later: it stays.
    Theirs,
}

/// The state of a value.
pub(super) fn value<T: PartialEq>(now: &T, old: &T, new: &T) -> Value {
    if now == new {
        Value::New
    } else if now == old {
        Value::Old
    } else {
        Value::Theirs
    }
}

/// The state of a mode. chown(2), and without privileges a patch, drops setuid and setgid: then it is neither
/// old nor new, and no outsider's.
pub(super) fn mode(now: u32, old: u32, new: u32) -> Value {
    match value(&now, &old, &new) {
        Value::Theirs if now == old & !0o6000 => Value::Old,
        Value::Theirs if now == opened(new) => Value::Opened,
        found => found,
    }
}

/// A mode while its file is opened for writing by an owner whom it keeps out.
pub(super) fn opened(mode: u32) -> u32 {
    mode | 0o600
}

// ---- the contents of a small file, in a redo ----------------------------------------------------------------------------

/// Where a small file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SmallEnd {
    /// Where its contents end.
    Whole,
    /// Before that, at the end of a sector: a power loss leaves such a size.
    AtSector,
    /// Before that, within a sector.
    Within,
    /// After that.
    Beyond,
}

impl SmallEnd {
    /// Of a file of `now` bytes whose contents are `whole` bytes.
    pub fn of(whole: usize, now: usize) -> SmallEnd {
        match now {
            _ if now == whole => SmallEnd::Whole,
            _ if now > whole => SmallEnd::Beyond,
            _ if now % SECTOR_BYTES == 0 => SmallEnd::AtSector,
            _ => SmallEnd::Within,
        }
    }
}

/// The times of a small file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SmallTime {
    /// Not later than its record.
    Published,
    /// Later: an outsider has changed it.
    Later,
    /// Later or not, with the mark of a redo that was cut off while it wrote.
    Restoring,
}

/// True if a small file may be one that a power loss has left; then its bytes decide.
pub(super) fn may_be_lost(end: SmallEnd, time: SmallTime) -> bool {
    matches!(end, SmallEnd::Whole | SmallEnd::AtSector) && time != SmallTime::Later
}

/// True if its contents are written again: nothing in it is an outsider's, and something is missing, or a
/// redo that was cut off has left its mark.
pub(super) fn is_restored(sectors: &[Sector], time: SmallTime) -> bool {
    let any = |state| sectors.contains(&state);
    !any(Sector::Foreign) && (any(Sector::Lost) || time == SmallTime::Restoring)
}

#[cfg(test)]
mod tests {
    use super::Answer::{Foreign, NotAsked, Ours};
    use super::Resize::{Cut, GrowFar, GrowPage, GrowSome, No};
    use super::Size::{After, Before as Old, Beyond, HalfwayAtSector, HalfwayWithin, Other};
    use super::Stamp::{AsNoted, Moved};
    use super::Verdict::{Append, Keep, Rewritten, Set, SetAside, Theirs};
    use super::*;
    use crate::record::{PatchRange, Source};
    use systx_os::Handle;

    const SECTOR: usize = SECTOR_BYTES;

    /// A cell that no state leads to: the question has another answer there.
    const NONE: Option<Verdict> = None;

    const fn all(verdict: Verdict) -> [Option<Verdict>; 4] {
        [Some(verdict); 4]
    }

    const fn exclusive(verdict: Verdict) -> [Option<Verdict>; 4] {
        [Some(verdict), Some(verdict), NONE, NONE]
    }

    const fn shared(verdict: Verdict) -> [Option<Verdict>; 4] {
        [NONE, NONE, Some(verdict), Some(verdict)]
    }

    const fn each(alone: Verdict, open: Verdict) -> [Option<Verdict>; 4] {
        [Some(alone), Some(alone), Some(open), Some(open)]
    }

    /// Columns: exclusive in the first pass, in a redo; shared in the first pass, in a redo.
    type Row = (Resize, Size, Answer, [Option<Verdict>; 4]);

    /// Before all others.
    const MOVED: Row = (Cut, Old, NotAsked, all(SetAside));

    const TABLE: [Row; 49] = [
        (No, Old, NotAsked, all(Keep)),
        (No, Other, NotAsked, all(Theirs)),
        (Cut, Old, NotAsked, all(Set)),
        (Cut, Old, Ours, all(Set)),
        (Cut, Old, Foreign, all(Rewritten)),
        (Cut, After, NotAsked, all(Keep)),
        (Cut, Other, NotAsked, all(Theirs)),
        (GrowPage, Old, NotAsked, each(Set, Append)),
        (GrowPage, Old, Ours, each(Set, Append)),
        (GrowPage, Old, Foreign, all(Rewritten)),
        (GrowPage, HalfwayAtSector, NotAsked, [Some(Theirs), NONE, Some(Append), Some(Append)]),
        (GrowPage, HalfwayAtSector, Ours, [NONE, Some(Set), NONE, NONE]),
        (GrowPage, HalfwayAtSector, Foreign, [NONE, Some(Theirs), NONE, NONE]),
        (GrowPage, HalfwayWithin, NotAsked, each(Theirs, Append)),
        (GrowPage, After, NotAsked, exclusive(Keep)),
        (GrowPage, After, Ours, shared(Keep)),
        (GrowPage, After, Foreign, shared(Append)),
        (GrowPage, Beyond, NotAsked, exclusive(Theirs)),
        (GrowPage, Beyond, Ours, shared(Keep)),
        (GrowPage, Beyond, Foreign, shared(Append)),
        (GrowPage, Other, NotAsked, each(Theirs, Append)),
        (GrowSome, Old, NotAsked, each(Set, Append)),
        (GrowSome, Old, Ours, each(Set, Append)),
        (GrowSome, Old, Foreign, all(Rewritten)),
        (GrowSome, HalfwayAtSector, NotAsked, [Some(Append), NONE, Some(Append), Some(Append)]),
        (GrowSome, HalfwayAtSector, Ours, [NONE, Some(Set), NONE, NONE]),
        (GrowSome, HalfwayAtSector, Foreign, [NONE, Some(Theirs), NONE, NONE]),
        (GrowSome, HalfwayWithin, NotAsked, [Some(Append), Some(Theirs), Some(Append), Some(Append)]),
        (GrowSome, After, NotAsked, exclusive(Keep)),
        (GrowSome, After, Ours, shared(Keep)),
        (GrowSome, After, Foreign, shared(Append)),
        (GrowSome, Beyond, NotAsked, exclusive(Theirs)),
        (GrowSome, Beyond, Ours, shared(Keep)),
        (GrowSome, Beyond, Foreign, shared(Append)),
        (GrowSome, Other, NotAsked, each(Theirs, Append)),
        (GrowFar, Old, NotAsked, all(Set)),
        (GrowFar, Old, Ours, all(Set)),
        (GrowFar, Old, Foreign, all(Rewritten)),
        (GrowFar, HalfwayAtSector, NotAsked, [Some(Theirs), NONE, Some(Theirs), NONE]),
        (GrowFar, HalfwayAtSector, Ours, [NONE, Some(Set), NONE, Some(Set)]),
        (GrowFar, HalfwayAtSector, Foreign, [NONE, Some(Theirs), NONE, Some(Theirs)]),
        (GrowFar, HalfwayWithin, NotAsked, all(Theirs)),
        (GrowFar, After, NotAsked, exclusive(Keep)),
        (GrowFar, After, Ours, shared(Keep)),
        (GrowFar, After, Foreign, shared(Keep)),
        (GrowFar, Beyond, NotAsked, exclusive(Theirs)),
        (GrowFar, Beyond, Ours, shared(Keep)),
        (GrowFar, Beyond, Foreign, shared(Theirs)),
        (GrowFar, Other, NotAsked, all(Theirs)),
    ];

    fn sizes(resize: Resize) -> &'static [Size] {
        match resize {
            No => &[Old, Other],
            Cut => &[Old, After, Other],
            GrowPage | GrowSome | GrowFar => &[Old, HalfwayAtSector, HalfwayWithin, After, Beyond, Other],
        }
    }

    /// All targets with the answers that they can get, and the column of each in the table.
    fn targets() -> impl Iterator<Item = (Target, Answer, usize)> {
        let resized = [No, Cut, GrowPage, GrowSome, GrowFar];
        let sized = resized.into_iter().flat_map(|r| sizes(r).iter().map(move |s| (r, *s)));
        let columns = [Sharing::Exclusive, Sharing::Shared]
            .into_iter()
            .flat_map(|s| [Pass::First, Pass::Redo].map(|p| (s, p)))
            .enumerate();
        sized.flat_map(move |(resize, size)| {
            columns.clone().flat_map(move |(n, (sharing, pass))| {
                let known = [Ends::Compared, Ends::Unknown].map(|ends| [(ends, AsNoted), (ends, Moved)]);
                known.into_iter().flatten().flat_map(move |(ends, stamp)| {
                    let target = Target { resize, size, sharing, pass, ends, stamp };
                    let answers: &[_] = match target.question() {
                        Question::Nothing => &[NotAsked],
                        _ => &[Ours, Foreign],
                    };
                    answers.iter().map(move |answer| (target, *answer, n))
                })
            })
        })
    }

    #[test]
    fn the_size_of_a_patched_file_is_judged_by_the_table() {
        let mut met = 0;
        for (target, answer, column) in targets() {
            let of = |row: &&Row| (row.0, row.1, row.2) == (target.resize, target.size, answer);
            let moved = [MOVED].into_iter().filter(|_| target.stamp == Moved);
            let rows: Vec<Row> = moved.chain(TABLE).collect();
            let expected = rows.iter().find(of).and_then(|row| row.3[column]);
            assert_eq!(Some(target.verdict(answer)), expected, "{target:?} {answer:?}");
            let counts = target.ends == Ends::Unknown || target.question() == Question::Ends;
            met += usize::from(counts && target.stamp == AsNoted);
        }
        let cells = TABLE.iter().flat_map(|row| row.3).flatten().count();
        assert_eq!(met, cells, "no cell of the table is left over");
    }

    #[test]
    fn only_a_size_of_ours_is_set() {
        for (target, answer, _) in targets().filter(|(t, a, _)| t.verdict(*a) == Set) {
            let lost = target.pass == Pass::Redo && answer == Ours;
            let known = target.size == Old || target.size == HalfwayAtSector && lost;
            assert!(known && answer != Foreign, "{target:?} {answer:?}");
        }
    }

    #[test]
    fn what_another_process_has_open_gets_no_new_end_but_by_an_append() {
        for (target, answer, _) in targets() {
            let small = matches!(target.resize, GrowPage | GrowSome);
            if target.sharing == Sharing::Shared && small {
                assert_ne!(target.verdict(answer), Set, "{target:?} {answer:?}");
            }
        }
    }

    fn patch(size_before: u64, size_after: u64) -> Patch {
        let before = Before::Zeros;
        let range = PatchRange { offset: 0, len: 1, source: Source::Hole, before };
        let file = Handle::new(0, &[]).expect("short");
        Patch { file, size_before, size_after, ranges: vec![range], ends: Vec::new(), by_pages: None }
    }

    #[test]
    fn sizes_are_told_apart_at_their_bounds() {
        let of =
            |before, after, now| (Resize::of(&patch(before, after)), Size::of(&patch(before, after), now));
        let page = PAGE_BYTES;
        for (before, after, now, expected) in [
            (5, 5, 5, (No, Old)),
            (5, 5, 6, (No, Other)),
            (9, 5, 9, (Cut, Old)),
            (9, 5, 5, (Cut, After)),
            (9, 5, 7, (Cut, Other)),
            (9, 5, 10, (Cut, Other)),
            (5, page, 4, (GrowPage, Other)),
            (5, page, 5, (GrowPage, Old)),
            (5, page, 6, (GrowPage, HalfwayWithin)),
            (5, page, 512, (GrowPage, HalfwayAtSector)),
            (5, page, page, (GrowPage, After)),
            (5, page, 1 + page, (GrowPage, Beyond)),
            (page, 2 * page, 5, (GrowPage, Other)),
            (5, 1 + page, 5, (GrowSome, Old)),
            (page - 1, 1 + page, page, (GrowSome, HalfwayAtSector)),
            (5, 5 + APPEND_BYTES_MAX, 5, (GrowSome, Old)),
            (5, 6 + APPEND_BYTES_MAX, 5, (GrowFar, Old)),
        ] {
            assert_eq!(of(before, after, now), expected, "{before} to {after}, found {now}");
        }
    }

    #[test]
    fn an_attribute_is_judged_by_the_table() {
        use Value::{New, Old, Opened, Theirs};
        let (old, new) = (0o6755, 0o4400);
        for (now, expected) in [
            (0o4400, New),
            (0o6755, Old),
            (0o0755, Old),
            (0o4600, Opened),
            (0o0400, Theirs),
            (0o2755, Theirs),
        ] {
            assert_eq!(mode(now, old, new), expected, "{now:o}");
        }
        // Without set-id bits it is new, even if the old one without them is the same.
        assert_eq!(mode(0o755, 0o4755, 0o755), New);
        let values = [None, Some(b"a"), Some(b"b")];
        for (now, old, new) in
            values.iter().flat_map(|n| values.iter().flat_map(move |o| values.map(|w| (*n, *o, w))))
        {
            let found = value(&now, &old, &new);
            assert_eq!(found == New, now == new, "{now:?}, {old:?} to {new:?}");
            assert_eq!(found == Theirs, now != new && now != old, "{now:?}, {old:?} to {new:?}");
        }
    }

    /// The states that a sector can have, by the bytes that are found.
    fn present() -> [(&'static str, Vec<u8>); 5] {
        let cut = [&[1; 100][..], &[0; SECTOR - 100]].concat();
        [
            ("new", vec![1; SECTOR]),
            ("old", vec![2; SECTOR]),
            ("cut", cut),
            ("zeros", vec![0; SECTOR]),
            ("theirs", vec![3; SECTOR]),
        ]
    }

    #[test]
    fn a_sector_is_judged_by_the_table() {
        use Sector::{After, Before as Was, Cut, Foreign, Lost};
        let at = 8 * SECTOR as u64;
        let crcs = |bytes: &[u8]| Before::Sectors(vec![0, sector_crc(bytes)]);
        let (old, zeros, unknown) = (crcs(&[2; SECTOR]), Before::Zeros, Before::Sectors(Vec::new()));
        let same = crcs(&[1; SECTOR]);
        let (none, within) = (OldEnds::new(), OldEnds::from([7, at + 100, at + 2 * SECTOR as u64]));
        let outside = OldEnds::from([at, at + SECTOR as u64]);
        let after = vec![1; SECTOR];
        for (before, ends, expected) in [
            (&old, &none, [After, Was, Foreign, Lost, Foreign]),
            (&old, &within, [After, Was, Cut, Lost, Foreign]),
            (&old, &outside, [After, Was, Foreign, Lost, Foreign]),
            (&zeros, &none, [After, Foreign, Foreign, Was, Foreign]),
            (&zeros, &within, [After, Foreign, Cut, Was, Foreign]),
            (&unknown, &none, [After, Foreign, Foreign, Lost, Foreign]),
            (&unknown, &within, [After, Foreign, Cut, Lost, Foreign]),
            (&same, &within, [After, Foreign, Cut, Lost, Foreign]),
        ] {
            for ((name, present), expected) in present().iter().zip(expected) {
                let known = Known { before: (before, 1), after: &after, at, ends };
                assert_eq!(known.judge(present), expected, "{name}, {before:?}, {ends:?}");
            }
        }
    }

    #[test]
    fn a_sector_of_a_small_file_is_judged_by_the_table() {
        let ours = [[1; 256], [0; 256]].concat();
        for (present, expected) in [
            (&ours[..], Sector::After),
            (&[], Sector::Lost),
            (&ours[..100], Sector::Lost),
            (&[0; SECTOR], Sector::Lost),
            (&[0; 100], Sector::Lost),
            (&[2; 100], Sector::Foreign),
            (&[1; SECTOR], Sector::Foreign),
            (&[&ours[..], b"more"].concat(), Sector::Foreign),
        ] {
            assert_eq!(of_small(&ours, present), expected, "{} bytes", present.len());
        }
    }

    #[test]
    fn a_small_file_is_restored_only_where_all_of_it_may_be_lost() {
        use SmallEnd::{AtSector, Beyond, Whole, Within};
        use SmallTime::{Later, Published, Restoring};
        for (end, expected) in [
            (Whole, [true, false, true]),
            (AtSector, [true, false, true]),
            (Within, [false, false, false]),
            (Beyond, [false, false, false]),
        ] {
            for (time, expected) in [Published, Later, Restoring].into_iter().zip(expected) {
                assert_eq!(may_be_lost(end, time), expected, "{end:?} {time:?}");
            }
        }
        let whole = SECTOR * 2 + 7;
        let ends = [(0, AtSector), (1, Within), (SECTOR, AtSector), (whole - 1, Within), (whole, Whole)];
        for (now, expected) in ends.into_iter().chain([(whole + 1, Beyond), (SECTOR * 3, Beyond)]) {
            assert_eq!(SmallEnd::of(whole, now), expected, "{now} bytes");
        }
        let (ours, lost, theirs) = (Sector::After, Sector::Lost, Sector::Foreign);
        for (sectors, published, restoring) in [
            (&[][..], false, true),
            (&[ours, ours], false, true),
            (&[ours, lost], true, true),
            (&[lost], true, true),
            (&[lost, theirs], false, false),
            (&[theirs], false, false),
        ] {
            assert_eq!(is_restored(sectors, Published), published, "{sectors:?}");
            assert_eq!(is_restored(sectors, Restoring), restoring, "{sectors:?}");
        }
    }
}
