//! The difference between a fact and the present: pure functions, tested over all of their inputs.
//!
//! Owns: which differences count, and which of them is named. Guarantees: without a trusted stamp nothing is
//! taken for unchanged that was not looked at. Does not: look (`compare`).

use super::{DataFact, Depth};
use crate::mutant::{self, Mutant};
use crate::outcome::ConflictKind;
use systx_os::{FileType, Stat, Timestamp};

/// How a name was first seen, if it had an object then.
#[derive(Clone, Copy)]
pub(super) struct Then<'a> {
    pub stat: &'a Stat,
    pub data: Option<&'a DataFact>,
    pub depth: Depth,
}

/// The change times of a file system: trusted if they move with each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamps {
    Trusted,
    Coarse,
}

/// The result of a first comparison, by attributes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// The fact still holds.
    Holds,
    /// It does but for the bytes that were delivered, into which a process may have stored.
    HoldsButBytes,
    /// It does not, for this reason.
    Differs(ConflictKind),
    /// The identity of the object has to be looked at; if that is the same, the rest is compared.
    Unclear,
}

impl Name {
    /// The reason why the fact does not hold, as far as that is known.
    pub fn difference(self) -> Option<ConflictKind> {
        match self {
            Name::Differs(what) => Some(what),
            Name::Holds | Name::HoldsButBytes | Name::Unclear => None,
        }
    }
}

/// The bytes of a file, compared with those that were delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bytes {
    Same,
    Differ,
    /// A process can store into the file without moving its stamp: their hashes decide.
    ByHash,
}

/// Compares what a name had with what it has, before anything else is asked.
pub(super) fn name(then: Option<Then<'_>>, now: Option<&Stat>, stamps: Stamps) -> Name {
    let (then, now) = match (then, now) {
        (None, None) => return Name::Holds,
        (None, Some(_)) => return Name::Differs(ConflictKind::NameMade),
        (Some(_), None) => return Name::Differs(ConflictKind::NameRemoved),
        (Some(then), Some(now)) => (then, now),
    };
    // A number that is reused gets a later change time, so an unmoved stamp says that nothing at all happened.
    let stamp: Timestamp = then.data.map_or(then.stat.ctime, |data| data.ctime);
    let unmoved = stamps == Stamps::Trusted && (now.ino, now.ctime) == (then.stat.ino, stamp);
    let hot = then.data.is_some_and(|data| data.hot);
    if !unmoved || attributes(then.stat, now, then.depth).is_some() {
        Name::Unclear
    } else if hot {
        Name::HoldsButBytes
    } else {
        Name::Holds
    }
}

/// The first difference of the attributes of one object that are facts.
pub(super) fn attributes(then: &Stat, now: &Stat, depth: Depth) -> Option<ConflictKind> {
    let is_file = then.kind() == FileType::File;
    let size = depth >= Depth::Sized && now.size != then.size && !mutant::on(Mutant::EndUnclaimed);
    let time = depth == Depth::Whole && now.mtime != then.mtime;
    if (now.mode, now.uid, now.gid) != (then.mode, then.uid, then.gid) {
        Some(ConflictKind::ModeOrOwnerChanged)
    } else if is_file && (size || time) {
        Some(ConflictKind::ContentsChanged)
    } else if links(now) != links(then) {
        Some(ConflictKind::LinksChanged)
    } else {
        None
    }
}

/// How many names an object has. That of a directory follows from the names in it, and means nothing on some
/// file systems.
pub(super) fn links(stat: &Stat) -> Option<u32> {
    (stat.kind() != FileType::Directory).then_some(stat.nlink)
}

/// Compares the stamp under which bytes were delivered. A commit of other pages moves it, too, and a size that was not
/// shown.
pub(super) fn bytes(then: &DataFact, now: &Stat, depth: Depth) -> Bytes {
    if depth != Depth::Whole {
        let unread = then.reads.is_empty();
        let unmoved = !then.hot && now.ctime == then.ctime;
        if unread || unmoved {
            Bytes::Same
        } else {
            Bytes::ByHash
        }
    } else if now.size != then.size {
        Bytes::Differ
    } else if then.hot {
        Bytes::ByHash
    } else if now.ctime != then.ctime {
        Bytes::Differ
    } else {
        Bytes::Same
    }
}

/// The difference of a directory's list of names, by hashes of names and of types.
pub(super) fn listing(then: (u128, u128), now: (u128, u128)) -> Option<ConflictKind> {
    if now.0 != then.0 {
        Some(ConflictKind::ListingChanged)
    } else if now.1 != then.1 {
        Some(ConflictKind::TypeChanged)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::DeliveredBytes;

    fn stat() -> Stat {
        let time = Timestamp { sec: 7, nsec: 0 };
        Stat {
            dev: 1,
            ino: 2,
            mnt_id: 3,
            mode: FileType::File.mode_bits() | 0o644,
            nlink: 1,
            uid: 5,
            gid: 6,
            rdev: 0,
            size: 100,
            blocks: 8,
            blksize: 4096,
            atime: time,
            mtime: time,
            ctime: time,
            immutable: false,
            append_only: false,
        }
    }

    const LATER: Timestamp = Timestamp { sec: 8, nsec: 0 };

    fn data(stat: &Stat, hot: bool) -> DataFact {
        DataFact { size: stat.size, ctime: stat.ctime, hot, reads: Vec::new(), pages: Vec::new() }
    }

    /// A change, by its name, and the difference that is named.
    type Change = (&'static str, fn(&mut Stat), Option<ConflictKind>);

    /// Changes that may happen to a file or directory, each alone.
    fn changes() -> [Change; 11] {
        let contents = Some(ConflictKind::ContentsChanged);
        let owner = Some(ConflictKind::ModeOrOwnerChanged);
        [
            ("nothing", |_| (), None),
            ("number", |now| now.ino = 9, None),
            ("change time", |now| now.ctime = LATER, None),
            ("access time", |now| now.atime = LATER, None),
            ("size", |now| now.size = 101, contents),
            ("modification time", |now| now.mtime = LATER, contents),
            ("links", |now| now.nlink = 2, Some(ConflictKind::LinksChanged)),
            ("mode", |now| now.mode ^= 0o100, owner),
            ("owner", |now| now.uid = 9, owner),
            ("group", |now| now.gid = 9, owner),
            ("type", |now| now.mode = FileType::Symlink.mode_bits() | 0o777, owner),
        ]
    }

    /// Size and time are not shown by a name, nor by pages; the time by nothing but itself.
    fn is_unshown(what: &str, depth: Depth) -> bool {
        match what {
            "size" => depth < Depth::Sized,
            "modification time" => depth < Depth::Whole,
            _ => false,
        }
    }

    #[test]
    fn attributes_are_compared_by_the_table() {
        for (what, change, expected) in changes() {
            let (then, mut now) = (stat(), stat());
            change(&mut now);
            assert_eq!(attributes(&then, &now, Depth::Whole), expected, "{what}");
            for depth in [Depth::Name, Depth::Pages, Depth::Sized] {
                let shown = expected.filter(|_| !is_unshown(what, depth));
                assert_eq!(attributes(&then, &now, depth), shown, "{what} {depth:?}");
            }
            // A directory's size, time and number of links say nothing.
            let dir = FileType::Directory.mode_bits() | 0o755;
            let (then, mut now) = (Stat { mode: dir, ..then }, Stat { mode: dir, ..stat() });
            change(&mut now);
            let expected = expected.filter(|what| *what == ConflictKind::ModeOrOwnerChanged);
            assert_eq!(attributes(&then, &now, Depth::Whole), expected, "{what} of a directory");
        }
    }

    #[test]
    fn a_name_holds_at_once_only_by_an_unmoved_stamp() {
        for (what, change, _) in changes() {
            for stamps in [Stamps::Trusted, Stamps::Coarse] {
                for hot in [None, Some(false), Some(true)] {
                    let (then, mut now) = (stat(), stat());
                    change(&mut now);
                    let data = hot.map(|hot| data(&then, hot));
                    for depth in [Depth::Name, Depth::Pages, Depth::Sized, Depth::Whole] {
                        let seen = Then { stat: &then, data: data.as_ref(), depth };
                        let same = matches!(what, "nothing" | "access time") || is_unshown(what, depth);
                        let holds = if hot == Some(true) { Name::HoldsButBytes } else { Name::Holds };
                        let is_known = same && stamps == Stamps::Trusted;
                        let expected = if is_known { holds } else { Name::Unclear };
                        let found = name(Some(seen), Some(&now), stamps);
                        assert_eq!(found, expected, "{what} {stamps:?} {hot:?} {depth:?}");
                    }
                }
            }
        }
        for stamps in [Stamps::Trusted, Stamps::Coarse] {
            let there = stat();
            let seen = Then { stat: &there, data: None, depth: Depth::Whole };
            assert_eq!(name(None, None, stamps), Name::Holds);
            assert_eq!(name(None, Some(&there), stamps), Name::Differs(ConflictKind::NameMade));
            assert_eq!(name(Some(seen), None, stamps), Name::Differs(ConflictKind::NameRemoved));
        }
    }

    #[test]
    fn bytes_are_known_by_their_stamp_unless_a_store_need_not_move_it() {
        for (what, change, _) in changes() {
            let (then, mut now) = (stat(), stat());
            change(&mut now);
            let (cold, hot) = match what {
                "size" => (Bytes::Differ, Bytes::Differ),
                "change time" => (Bytes::Differ, Bytes::ByHash),
                _ => (Bytes::Same, Bytes::ByHash),
            };
            assert_eq!(bytes(&data(&then, false), &now, Depth::Whole), cold, "{what}");
            assert_eq!(bytes(&data(&then, true), &now, Depth::Whole), hot, "{what}");
            // By pages neither the size nor another commit's stamp counts, but what was read does.
            let moved = what == "change time";
            let read = || vec![DeliveredBytes { offset: 0, asked: 1, hash: 0 }];
            for (is_hot, reads, expected) in [
                (false, Vec::new(), Bytes::Same),
                (true, Vec::new(), Bytes::Same),
                (false, read(), if moved { Bytes::ByHash } else { Bytes::Same }),
                (true, read(), Bytes::ByHash),
            ] {
                let then = DataFact { reads, ..data(&then, is_hot) };
                assert_eq!(bytes(&then, &now, Depth::Pages), expected, "{what}");
                assert_eq!(bytes(&then, &now, Depth::Sized), expected, "{what}");
            }
        }
    }

    #[test]
    fn a_listing_is_its_names_and_their_types() {
        assert_eq!(listing((1, 2), (1, 2)), None);
        assert_eq!(listing((1, 2), (1, 3)), Some(ConflictKind::TypeChanged));
        for types in [2, 3] {
            assert_eq!(listing((1, 2), (4, types)), Some(ConflictKind::ListingChanged));
        }
    }
}
