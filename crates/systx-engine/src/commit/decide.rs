//! The questions of each look of a commit at the present: a pure function, tested over all of its inputs.
//!
//! A commit looks three times: while it prepares, before its record can count (V6), and in the final look. The
//! first finds obstacles, the second compares facts, the third does both, under leases, and asks nothing twice.

/// A look of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// P3: can it be published? Facts are refreshed, not compared.
    Prepare,
    /// V6: has the transaction, as it was numbered, seen all that is there? A power loss from here on may send
    /// it forward without another look.
    BeforeRecord,
    /// F: the same question, and whether the steps find what they expect and are possible still.
    Final,
}

/// A question about one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// Does a fact still hold?
    Fact,
    /// Does a name have the object that a step expects?
    Before,
    /// May names in a directory be changed?
    Directory,
    /// Which project does a directory pass on to what comes into it?
    Project,
    /// May an object leave its name?
    Leaving,
    /// May an object leave its name that a file's token replaces, so that it is no directory?
    LeavingForFile,
    /// May the bytes of a file be changed?
    Patched,
    /// May attributes be changed?
    Attributes,
    /// Can a descriptor be kept for the step, where handles can't be opened?
    Descriptor,
}

/// An answer that the comparison of facts in this very look has given already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    ByFacts,
    Not,
}

/// The party that answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Kernel,
    Nothing,
}

impl Look {
    /// Decides whether a look asks for a subject.
    pub fn asks(self, subject: Subject, shown: Shown) -> Ask {
        let asked = match (self, subject) {
            (Look::Prepare, Subject::Fact | Subject::Before) => false,
            // It is opened for writing after V5, which fails for the same reasons.
            (Look::Prepare, Subject::Patched) => false,
            (Look::Prepare, _) => true,
            (Look::BeforeRecord, subject) => subject == Subject::Fact,
            // Done in P, for good.
            (Look::Final, Subject::Project | Subject::Descriptor) => false,
            // No fact says it.
            (Look::Final, Subject::Fact | Subject::Leaving) => true,
            (Look::Final, Subject::Before | Subject::Directory | Subject::LeavingForFile) => {
                shown == Shown::Not
            }
            (Look::Final, Subject::Patched | Subject::Attributes) => shown == Shown::Not,
        };
        if asked {
            Ask::Kernel
        } else {
            Ask::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Subject::*;
    use super::*;

    #[test]
    fn the_looks_differ_by_the_table() {
        let (yes, no) = (Ask::Kernel, Ask::Nothing);
        // Prepare; before the record; final, and final where the facts have shown it.
        let table = [
            (Fact, [no, yes, yes, yes]),
            (Before, [no, no, yes, no]),
            (Directory, [yes, no, yes, no]),
            (Project, [yes, no, no, no]),
            (Leaving, [yes, no, yes, yes]),
            (LeavingForFile, [yes, no, yes, no]),
            (Patched, [no, no, yes, no]),
            (Attributes, [yes, no, yes, no]),
            (Descriptor, [yes, no, no, no]),
        ];
        for (subject, expected) in table {
            let found = [
                Look::Prepare.asks(subject, Shown::Not),
                Look::BeforeRecord.asks(subject, Shown::Not),
                Look::Final.asks(subject, Shown::Not),
                Look::Final.asks(subject, Shown::ByFacts),
            ];
            assert_eq!(found, expected, "{subject:?}");
            // Only the final look compares facts right before.
            for look in [Look::Prepare, Look::BeforeRecord] {
                assert_eq!(look.asks(subject, Shown::ByFacts), look.asks(subject, Shown::Not), "{subject:?}");
            }
        }
    }

    #[test]
    fn whatever_the_first_look_can_refuse_the_final_one_looks_at_again() {
        let obstacles = [Directory, Leaving, LeavingForFile, Attributes];
        for subject in obstacles {
            assert_eq!(Look::Prepare.asks(subject, Shown::Not), Ask::Kernel, "{subject:?}");
            assert_eq!(Look::Final.asks(subject, Shown::Not), Ask::Kernel, "{subject:?}");
        }
    }
}
