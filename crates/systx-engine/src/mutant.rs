//! Rules of the protocol that can be left out, to see a test notice.
//!
//! Owns: the list of mutants and the question at each switch point. Guarantees: outside of this crate's own tests the
//! answer is a constant `false`, so that what is shipped has no branch. Does not: switch anything at run time: the
//! environment variable `SYSTX_MUTANT` holds for a whole test process (`commit/tests/mutants.rs` starts them).

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule that is left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Mutant {
            $($(#[$doc])* $name,)*
        }

        #[cfg(test)]
        impl Mutant {
            /// Every rule that can be left out.
            pub(crate) const ALL: &'static [Mutant] = &[$(Mutant::$name,)*];
        }
    };
}

mutants! {
    /// V2: numbered although an active transaction overlaps.
    NoV2,
    /// V3: numbered although what was read may have changed.
    NoV3,
    /// V4: built on what is not durable.
    NoV4,
    /// F: no comparison before the commit point.
    NoFinalLook,
    /// V6: no comparison before the header.
    NoV6,
    /// The slot is free before the steps are taken.
    EarlyRelease,
    /// P4: staged objects are not written out.
    NoStageBarrier,
    /// S: the header is not synced.
    HeaderNotSynced,
    /// REPLACE: what came out wrongly is not put back.
    NoExchangeBack,
    /// Names are removed and placed whatever the slot holds.
    UnconditionalRedo,
    /// ABORT is not synced before the slot is free.
    AbortNotSynced,
    /// The slot is PUBLISHING, and the steps are taken, before the header is synced.
    PublishBeforeSync,
    /// C: records are dropped without a sync of the file system.
    DropWithoutSyncfs,
    /// C: the bound ignores what is in flight.
    CheckpointTooHigh,
    /// Pages are announced as the whole file.
    PagesTooCoarse,
    /// Pages are announced without what stands for the whole file.
    PagesTooFine,
    /// Bytes that were read by pages have no hash.
    PageHashNotKept,
    /// A size that was shown is not compared.
    EndUnclaimed,
    /// An overwrite of pages sets the size that the file had.
    PagesSetSize,
    /// The rule of chains goes by files, also where records are of different pages.
    ChainsOfFiles,
    /// A file that another process has cut is left, and what it may lack is dropped.
    CutByOthersUnsaid,
    /// A redo judges the last sector of a file as the record leaves it by its front, whatever is behind.
    SectorsJudgedInPart,
    /// A file gets power over bytes that a record before has, and that others may have put back.
    PowerOverRecord,
    /// A file is cut that only a record before has.
    CutOverRecord,
    /// A file grows that only a record before has cut.
    GrowthOverCut,
    /// A recovery that writes contents again does not note it.
    RestoringNotNoted,
    /// A sync that has failed is tried again.
    SyncsRepeated,
    /// Of the errors of a sync EIO alone counts.
    OneErrorLoses,
    /// A publication that fails does not ask whether bytes were lost.
    LostUnasked,
    /// An empty entry is that of a step that was taken, also in the first pass.
    EmptyIsTaken,
    /// Bytes that were read twice are compared with what is there at two times.
    ReadsApart,
    /// Power that a dead process has given stays given.
    GivenForGood,
    /// A commit goes on in an area that was removed.
    RemovedUnseen,
    /// A lease counts as held however long ago it was seen.
    LeaseOutlived,
    /// Power is given while a process waits for the lease on the file.
    WaitingUnseen,
    /// Bytes behind the old end of a file that are the same as the owner's count as its own.
    SameIsOurs,
    /// A directory that is to come below itself waits.
    CircleWaits,
    /// Objects of a removed tree may go by any name.
    PlacesOfTheDead,
    /// A checkpoint that finds something in a removed tree makes no note for the owner.
    CheckpointsSilent,
    /// A recovery is tried again whose sync has failed.
    RecoverySyncsAgain,
    /// A sector of which an exchange changes some words is torn only if nobody has stored the others.
    WordsOfOthers,
    /// A table whose log is closed is given up although something is published that no record has.
    UnloggedForgotten,
    /// An exchange word by word makes no note of the old bytes before it.
    WordsNotNoted,
    /// A redo takes the time of its own writes for another process's.
    TimesOfRedoUnknown,
    /// A recovery that lacks anything keeps whatever it is refused.
    LimitsAlike,
    /// A file gets its rights back whose owner has changed.
    RightsOfAnyOwner,
    /// Refusals count as those of the object, whatever the process lacks that recovers.
    RightsUnasked,
    /// A commit without a record changes what an uncovered one says.
    RecordsOverwritten,
    /// A commit without a record moves a directory through which a redo would go to what an uncovered one says.
    MovedOverRecord,
    /// Verbs don't look at the disk for names that processes have made in a shared directory.
    SharedNotLookedAt,
    /// Objects of the committed tree come into directories that processes share.
    CommittedShared,
    /// A directory that was not read counts as one without files for the stage barrier.
    UnreadNotSynced,
    /// An append to a file whose end was not seen is not announced.
    AppendsUnclaimed,
    /// V3: the end that it is appended to is not looked for again when other commits came.
    EndsFoundOnce,
    /// V6 and F: that end is not compared.
    EndsNotLookedAt,
    /// An append that came behind an outsider's last bytes is not synced.
    MovedNotSynced,
    /// A redo does not ask whether an append came elsewhere than its record says.
    MovedForgotten,
    /// PATCH: bytes that an earlier pass has appended are appended again.
    AppendedTwice,
    /// R1: a look does not wait for slots.
    NoSlotWait,
    /// R1: commits that were active before a look are not asked for what it was at.
    ActiveUnasked,
    /// R1: a look is delivered without a refresh after it.
    NoRefreshAfterLook,
    /// Where handles can't be opened, an object is looked for at one path only.
    OneWay,
    /// Slots that are made again have tokens of files only.
    TokensOfFiles,
    /// Changes of a file that loses the name by which it is found are not synced.
    LinksNotSynced,
    /// `tx/<id>.<owner>~` is made under its final name at once, and a shared staging directory's seal is not looked at.
    NoSeal,
    /// A `tx/<id>` without a number yet is not announced.
    SealNotNoted,
    /// A transaction that lost and is tried again is as young as any.
    AgeNotKept,
    /// Nice values don't count.
    NiceUnseen,
    /// What ends the priority wakes none of those that wait for it.
    ResignUnheard,
    /// A transaction that sleeps keeps the priority.
    SleepersHold,
    /// A transaction that never waits does.
    NeverWaits,
    /// A commit point is told of before it is passed.
    CountedEarly,
    /// A helper publishes what is only VALIDATED.
    HelperPublishesValidated,
    /// V5: `next` moves before the slot is filled.
    NextBeforeSlot,
    /// V7: the header is written when the slot is free again.
    LateHeader,
    /// A participant's PREPARED is not synced before the coordinator's header.
    PreparedNotSynced,
    /// REPLACE is taken again although the slot holds what it brought out.
    ReplaceAgain,
    /// A helper does not free the slot that it has finished.
    HelperKeepsSlot,
    /// The log goes on behind a cell whose body is damaged.
    LogGoesOn,
    /// A participant is taken back before its coordinator.
    ParticipantFirst,
    /// A transaction that has waited for a moment goes on, whatever the record of the other one says.
    RealHitPassed,
    /// A record that was read for one use of an active entry counts for the next use, too.
    RecordOfAnother,
    /// V5: numbered although the log has left the segment of the body.
    BodyLeft,
    /// Cells behind a damaged one of their segment are left out silently.
    SkippedNotTold,
    /// A cell that this version does not know ends the log.
    UnknownIsAnEnd,
    /// A redo takes its first step before all records are understood.
    RedoBeforeUnderstood,
    /// A table counts for each mount of its file system in one boot.
    TableOutlivesMount,
    /// An opening does not look whether the log goes on behind the end in the table.
    LogOverwritten,
    /// A redo that finds no room for a new log does not say in the old one that it is done.
    FullForgets,
    /// A process that finds a table stale does not say so before it looks for living owners.
    StaleFirst,
    /// The number of a dead owner's slot is given once more.
    NextNotRaised,
    /// C2: a checkpoint that began before a slot was free counts for it.
    AnyCheckpointCovers,
    /// C2: the bound is taken without the commit lock, the slots before `next`.
    BoundWithoutLock,
    /// A sign of a copy is compared with another kind of sign.
    KindsMixed,
    /// An area whose file `format` is gone or has no signs is what its log says.
    SignsNotNeeded,
    /// A lock on a file that others can open proves that an area is in use.
    LocksOfAnybody,
    /// Whichever file `format` says the handle of its directory is the area's.
    FormatOfAnybody,
    /// The time at which an area was made is not compared.
    MadeAtAnyTime,
    /// A file `format` is believed that an archiver can have made: nothing is allocated behind its end.
    AllocatedByAnybody,
    /// A file `format` is believed that another user can have written.
    FormatOfOthers,
    /// Handles are opened from a part of a file system, and in other subvolumes.
    HandlesLeadOut,
    /// What stands in the log under an identity that the area had before is redone.
    OldIdentityCounts,
    /// An area that was copied goes on as its original.
    CopyGoesOn,
    /// A directory is an area of a subtransaction because of its name.
    AreaByItsName,
    /// An area of root's own subtransactions that can't be finished is left out as another user's is.
    OwnAreaSetAside,
    /// The log of an area in a view is replayed although its table is gone.
    ReplayWithoutTable,
    /// Cells that are appended during a sync of the log count as synced by it.
    SyncCountsLate,
    /// C: the removal of a segment is not synced before that of the next one.
    RemovalNotSynced,
    /// Slots that a recovery makes again get their final name before they are on the disk.
    RebuiltNotSynced,
    /// Extended attributes that were read are not compared.
    XattrsNotCompared,
    /// The stamp of a listing is taken after its names.
    ListingStampLate,
    /// Types that a listing has shown are not compared.
    TypesNotCompared,
    /// A name that this process has looked at before still has the same object, whatever its stamp says.
    KnownByName,
    /// Further bytes of a file are delivered without a look at what commits.
    PagesUnasked,
    /// A look over a whole path counts, though a commit came meanwhile.
    NumbersUnasked,
    /// A redo knows the old end of a file only while it redoes the record that let it grow.
    OldEndsForgotten,
    /// A participant whose abort has begun is taken back, whatever its coordinator's log says.
    AbortingIsAborted,
    /// U: in a redo a file of whatever size between before and after is taken for one that a power loss has cut.
    AnyEndIsOurs,
    /// U: a file of the old size gets the new one whatever is in it.
    EndsNotCompared,
    /// A commit that changes the type under an unchanged name does not announce the listing.
    TypesNotAnnounced,
    /// Link counts are counted with what lies in the slots of a commit that is done.
    LinksLate,
    /// REPLACE exchanges back only once.
    ExchangeBackOnce,
    /// A conflict copy is noted after its rename.
    DisplacedNotNoted,
    /// C5: what is taken out is not compared with what was read.
    TakenNotCompared,
    /// C2: who makes a checkpoint sooner than promised leaves the promise in the table.
    PromiseNotTakenBack,
    /// C2: who has promised a checkpoint counts as alive.
    PromisesOfTheDead,
    /// C1: a process that is to make a checkpoint later does not keep others from taking the table for one of
    /// another life.
    WatchersUnseen,
    /// A directory gets the time that was seen inside, even if another process has changed a name in it.
    TimesGivenBlindly,
    /// C6: power is given to whatever bytes an object has.
    PowerByName,
    /// C10: what a commit builds on is not synced.
    BaseNotSynced,
    /// C10: what was on the disk once counts as being there, whatever was changed since.
    KnownForEver,
    /// C10: a redo takes steps of records that an outsider's change followed.
    NoChains,
    /// C10: a redo looks at two records that follow each other only, not at those before them.
    ShortChains,
    /// A transaction is known by its number alone.
    NumberIsIdentity,
    /// A file system that never comes back coordinates, and promises.
    ForgetfulPromises,
    /// C: a decision is kept only after the log has let go of its record.
    DecisionLate,
    /// C: a decision goes when its participant says that it knows, not when that is on the disk.
    DecisionEarly,
    /// Two areas of one identity are used side by side.
    TwinsWelcome,
    /// The mark that a record's attributes were set is ignored.
    MarkIgnored,
    /// That mark is made before they are set.
    MarkEarly,
    /// C6: power is given without a lease on the bytes that were compared.
    PowerUnleased,
    /// C6: of a mode that a redo does not give, nothing is given.
    NothingOfAMode,
    /// A coordinator that has not decided is a doubt at once, also where its process is just dying.
    DyingIsDoubt,
    /// C10: the wall clock decides what is older than a sync, although it was set since.
    ClockTrusted,
    /// What a commit without a record has taken out of the tree goes with its staging directory.
    LiftedDeleted,
    /// A process of another user goes where it might go when the transaction came there first.
    WayForgotten,
    /// A recovery takes names in a directory whose key is not there for removed ones.
    LockedIsGone,
    /// C10: a write is over at the time that it gives its file.
    WritesAtOnce,
    /// C10: bytes that were synced while a process was writing are known by their time.
    WritesOnUnseen,
    /// A coordinator's log that was read for an earlier record counts although it was undecided then.
    LogReadEarly,
    /// C2: a checkpoint of few records does not write out their bytes.
    CoveredNotWritten,
    /// C2: a checkpoint of few records syncs no names and attributes.
    CoveredUnordered,
    /// C2: numbers without a record count as covered by a sync of the records' objects.
    GapsCovered,
    /// A forked child goes on with what its parent has opened and begun.
    ForkUnseen,
    /// Descriptors are taken for what they were, whoever has closed them since.
    LostUnseen,
    /// What is made does not get the inode flags that its directory passes on.
    FlagsNotPassedOn,
    /// V5: files to be patched are opened for writing while the commit prepares.
    TargetsEarly,
    /// U: an outsider's write to what is cut off is not looked for.
    CutsUnseen,
    /// A patch that is set aside for an outsider's write to what it cuts off is not on the disk when that is reported.
    CutForgotten,
    /// A file under another process's lease is not tried again.
    LeasesNotAwaited,
    /// A name's handle and attributes are taken by two calls and count as one object's.
    LookTorn,
    /// On tmpfs bytes count as unchanged by their stamp.
    TmpfsByStamps,
    /// No note is made of what a commit without a record takes out of the tree.
    MovingNotNoted,
    /// A small new file rides in the record although an earlier state of it may be on the disk.
    WrittenOutUnseen,
    /// So does one that was cut.
    CutUnknown,
    /// Rights that writing a file's contents again takes away are not given back.
    RightsNotGivenBack,
    /// Contents that may be lost in a file that others have changed since, or moved, are dropped.
    LackingContentsDropped,
    /// Contents that can't be written again are dropped.
    RefusedContentsDropped,
}

/// Returns true if a rule is left out.
#[cfg(not(test))]
pub(crate) const fn on(_mutant: Mutant) -> bool {
    false
}

/// Returns true if a rule is left out in this test process.
#[cfg(test)]
pub(crate) fn on(mutant: Mutant) -> bool {
    let n = mutant as usize;
    left_out()[n / 128] >> (n % 128) & 1 == 1
}

/// The rules that are left out in this test process. Asked at every look: one bit a rule.
#[cfg(test)]
fn left_out() -> [u128; 2] {
    static LEFT_OUT: std::sync::OnceLock<[u128; 2]> = std::sync::OnceLock::new();
    *LEFT_OUT.get_or_init(|| {
        let mut bits = [0; 2];
        chosen().into_iter().map(|mutant| mutant as usize).for_each(|n| bits[n / 128] |= 1 << (n % 128));
        bits
    })
}

/// Returns true if any rule is left out.
#[cfg(not(test))]
pub(crate) const fn any() -> bool {
    false
}

/// Returns true if any rule is left out in this test process: then only lost or wrongly seen data count, not
/// the text of a message.
#[cfg(test)]
pub(crate) fn any() -> bool {
    left_out() != [0; 2]
}

/// The rules named by `SYSTX_MUTANT`, joined by `+`.
#[cfg(test)]
fn chosen() -> Vec<Mutant> {
    let Ok(names) = std::env::var("SYSTX_MUTANT") else { return Vec::new() };
    let named = |name: &str| Mutant::ALL.iter().copied().find(|m| format!("{m:?}") == name);
    names.split('+').map(|name| named(name).unwrap_or_else(|| panic!("there is no mutant {name}"))).collect()
}
