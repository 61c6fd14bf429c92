//! What changed under a transaction, and what became of a conflict copy: for people and for programs.
//!
//! Owns: the fragment of a sentence and the code of each kind. Guarantees: a code stays what it is, as programs compare
//! it in JSON (docs/output.md has all of them); a fragment may be worded anew. Does not: form a sentence.

/// Declares an enum of kinds, each with its code and its fragment.
macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($kind:ident, $code:literal, $fragment:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!("“", $fragment, "”.")] $kind,)*
        }

        impl $name {
            /// Every kind.
            pub const ALL: &'static [$name] = &[$($name::$kind),*];

            /// Returns the name for programs, which never changes.
            pub fn code(self) -> &'static str {
                match self { $($name::$kind => $code,)* }
            }

            /// Returns the kind, as the fragment of a sentence.
            pub fn fragment(self) -> &'static str {
                match self { $($name::$kind => $fragment,)* }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.fragment())
            }
        }
    };
}

kinds! {
    /// What changed under a transaction; "by" and a party follow its fragment.
    ConflictKind {
        NameMade, "name-made", "name made";
        NameRemoved, "name-removed", "name removed";
        NameReplaced, "name-replaced", "name given to another object";
        NameChanged, "name-changed", "name changed";
        NameAdded, "name-added", "it got another name";
        Removed, "removed", "removed";
        ReplacedOrRemoved, "replaced-or-removed", "replaced or removed";
        DirectoryRemoved, "directory-removed", "directory removed";
        ListingChanged, "listing-changed", "a name made or removed in it";
        TypeChanged, "type-changed", "a name in it given to an object of another type";
        ContentsChanged, "contents-changed", "contents changed";
        ContentsInDoubt, "contents-in-doubt", "contents may have changed";
        ContentsChangedWhileOpen, "contents-changed-while-open", "contents changed while it was open";
        ModeOrOwnerChanged, "mode-or-owner-changed", "mode or owner changed";
        LinksChanged, "links-changed", "hard links made or removed";
        XattrChanged, "xattr-changed", "an extended attribute changed";
        XattrsChanged, "xattrs-changed", "extended attributes changed";
        Opened, "opened", "it was opened meanwhile";
        OpenForWriting, "open-for-writing", "another program has it open for writing";
        HeldPrepared, "held-prepared", "held (prepared, not decided yet)";
        HeldPending, "held-pending", "held (committed, publication pending)";
        HeldInDoubt, "held-in-doubt", "held (in doubt)";
        HeldNow, "held-now", "held (to be waited for)";
    }
}

kinds! {
    /// Why a step of a commit was not taken, or what it took out is kept.
    ConflictCopyKind {
        NameTaken, "name-taken", "the name was taken by another program";
        NameChanged, "name-changed", "the name was changed by another program";
        NameRemoved, "name-removed", "the name was removed by another program";
        NameOnOtherMount, "name-on-other-mount", "the name is on another mount now";
        DirectoryGone, "directory-gone", "its directory is gone";
        DirectoryInside, "directory-inside", "another program has moved its directory into it";
        Replaced, "replaced", "replaced by another program meanwhile";
        ReplacedTwice, "replaced-twice", "replaced twice by another program";
        ReplacedAndRemoved, "replaced-and-removed", "replaced and removed by another program";
        ReplacementRemoved, "replacement-removed", "what took its place was removed by another program";
        SourceDirectoryGone, "source-directory-gone", "taken from a directory that is gone now";
        LinkedRemoved, "linked-removed", "the object to link was removed by another program";
        NotMovedReplaced, "not-moved-replaced", "not moved: replaced by another program";
        NotMovedGone, "not-moved-gone", "not moved: removed or replaced by another program";
        NotRemoved, "not-removed", "not removed: its directory is gone";
        NotRemovedMoved, "not-removed-moved", "not removed: another program has moved it";
        StagedRemoved, "staged-removed", "not done: what systx had staged for it was removed meanwhile";
        ContentsLeft, "contents-left", "contents changed by another program meanwhile: its bytes were left";
        ContentsGone, "contents-gone", "contents not changed: removed by another program";
        AttributeLeft, "attribute-left", "an attribute was changed by another program and left so";
        AttributesGone, "attributes-gone", "attributes not set: removed by another program";
        PowerNotGiven, "power-not-given",
            "set-id bits, capabilities or root's ownership not given: another program has changed its bytes, or may be doing so";
        WrittenAnewKept, "written-anew-kept",
            "another program opened, linked or changed it while it was written anew: its version is kept";
        ReadThenChanged, "read-then-changed",
            "removed or replaced, but changed by another program after it was read: its version is kept";
        TreeChanged, "tree-changed",
            "another program put something into the removed directory, changed something in it, or made it immutable";
        NotDeletable, "not-deletable",
            "removed, but can't be deleted: it is immutable or mounted on; it stays in the area's `tx`";
        NotPermitted, "not-permitted",
            "not permitted any more: it or its directory is immutable, append-only or another user's now";
        NoPermission, "no-permission", "no permission any more";
        TooManyLinks, "too-many-links", "as many links as the file system permits are there already";
        MountedOn, "mounted-on", "something is mounted there now";
        TooLarge, "too-large", "larger than the file system permits";
        Running, "running", "a program runs from it now";
        OtherMountOrProject, "other-mount-or-project", "it is on another mount or in another project now";
        RefusedByFileSystem, "refused-by-file-system", "the file system refuses it now";
        NoRoomForAttributes, "no-room-for-attributes", "no room for its attributes any more";
        CutOff, "cut-off", "a commit without durability that moved or removed it was cut off";
    }
}

impl ConflictCopyKind {
    /// Returns the kind with this fragment, as it stands in a report; `None`: another version of systx has written it.
    pub fn of_fragment(fragment: &str) -> Option<ConflictCopyKind> {
        ConflictCopyKind::ALL.iter().copied().find(|kind| kind.fragment() == fragment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A page with its code blocks.
    const PAGE: &str = include_str!("../../../../docs/output.md");

    /// The codes in the page's code block below a line that ends with `above`.
    fn documented(above: &str) -> Vec<&'static str> {
        let behind = PAGE.split_once(above).expect("the page has that line").1;
        let block = behind.trim_start_matches('\n').split("\n\n").next().expect("a block follows");
        assert!(block.lines().all(|line| line.starts_with("    ")), "no code block: {block}");
        block.split_whitespace().collect()
    }

    fn are_distinct_and_plain(texts: impl Iterator<Item = &'static str>, plain: impl Fn(char) -> bool) {
        let mut known = HashSet::new();
        for text in texts {
            assert!(known.insert(text), "twice: {text}");
            assert!(!text.is_empty() && text.chars().all(&plain), "{text}");
        }
    }

    #[test]
    fn codes_and_fragments_are_distinct_and_fit_into_their_places() {
        let of_code = |c: char| c.is_ascii_lowercase() || c == '-';
        are_distinct_and_plain(ConflictKind::ALL.iter().map(|kind| kind.code()), of_code);
        are_distinct_and_plain(ConflictCopyKind::ALL.iter().map(|kind| kind.code()), of_code);
        // A report has a line for each, with tabs between its fields.
        let of_fragment = |c: char| !c.is_control();
        are_distinct_and_plain(ConflictKind::ALL.iter().map(|kind| kind.fragment()), of_fragment);
        are_distinct_and_plain(ConflictCopyKind::ALL.iter().map(|kind| kind.fragment()), of_fragment);
    }

    #[test]
    fn the_document_has_all_codes() {
        let codes: Vec<_> = ConflictKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(documented("Of `conflict`, `code`:\n"), codes);
        let codes: Vec<_> = ConflictCopyKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(documented("Of `displaced`, `code`:\n"), codes);
    }

    #[test]
    fn a_fragment_of_a_report_has_its_kind_again() {
        for kind in ConflictCopyKind::ALL {
            assert_eq!(ConflictCopyKind::of_fragment(kind.fragment()), Some(*kind));
        }
        assert_eq!(ConflictCopyKind::of_fragment("of a later version"), None);
    }
}
