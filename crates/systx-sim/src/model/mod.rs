//! The commit protocol as exhaustive models, and the checker that walks them.
//!
//! Owns a readable copy of the protocol's rules as transition systems, apart from the engine's code: the
//! engine is tested against the rules elsewhere, here the rules themselves are tested. Guarantees, by `cargo
//! test`: in every configuration the protocol as designed breaks no promise, and each rule is needed: for
//! each [`Mutant`] a named test shows a promise broken without that rule. Does not do: anything about the
//! engine's code, time, or more than a handful of parties.
//!
//! | module | who | promises |
//! |---|---|---|
//! | [`cooperation`] | up to three transactions, kill, helper, hash collisions, ring overrun | strict serializability, opacity, no deadlock |
//! | [`outsiders`] | a transaction, a cooperating reader, an outsider's calls | serializability of writing outsiders |
//! | [`alone`] | a transaction that begins with one look by the kernel, a commit over two file systems, an outsider | what R4 promises |
//! | [`crash`] | a transaction, an outsider, kills, power losses, recovery that crashes | I4, I5, I6, I8, all or nothing |
//! | [`shared_staging`] | two transactions whose slots share a directory, power losses | what the redo in `crash` relies on |
//! | [`mark`] | a transaction that sets attributes, an outsider who puts them back, power losses, also in recovery | (c) for attributes, I8 |
//! | [`redo`], [`chain`] | two transactions that depend on each other, power losses, checkpoint | I3, I7, I8, I12 |
//! | [`participants`] | two file systems, mounted in any order | all or nothing on both |
//! | [`away`] | two file systems of which one never comes back, stays away, is rolled back; checkpoints, orderly shutdowns | I8, all or nothing, no doubt for ever |
//! | [`appends`] | two transactions that append to one file, an outsider that does, kills, power losses | nothing is lost or comes twice; no needless conflict |
//! | [`liveness`] | rivals that loop, a holder of priority, ordered and prepared ones | no deadlock, at most one more loss |
//!
//! The tests use small bounds (a minute altogether in the dev profile). `SYSTX_LONG=1 cargo test -p
//! systx-sim` takes the larger ones: more kills, power losses and outsider's calls.

pub mod alone;
pub mod appends;
pub mod away;
pub mod chain;
pub mod checker;
pub mod cooperation;
pub mod crash;
mod crash_parts;
mod crash_steps;
mod crash_world;
pub mod liveness;
pub mod mark;
pub mod outsiders;
pub mod participants;
pub mod redo;
pub mod shared_staging;
mod workloads;

/// Returns true if the larger configurations are requested.
pub fn long() -> bool {
    std::env::var_os("SYSTX_LONG").is_some_and(|v| v == "1")
}

/// A rule of the protocol left out or put in the wrong place. Each has a test that shows what breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    // cooperation
    /// V2: in-flight transactions that overlap are not waited for.
    NoV2,
    /// V3: the ring is not looked at under the commit lock.
    NoV3,
    /// R1 (1): slots are not looked at before the object.
    NoSlotWait,
    /// R1 (3): no refresh after the look.
    NoRing,
    /// R1: the refresh comes before the look.
    RingBeforeLook,
    /// An overrun of the ring counts as "nothing moved".
    OverrunIgnored,
    /// The slot is free before publication.
    EarlyRelease,
    /// V5: `next` moves before the slot is visible.
    NextBeforeSlot,
    /// The active entry of a dead owner is never finished.
    NoHelper,
    // outsiders
    /// F: facts and befores are not compared.
    NoFinalLook,
    // crash
    /// V6: facts are not compared before the header.
    NoV6,
    /// U starts before the header is synced.
    PublishBeforeSync,
    /// An abort leaves no record.
    NoAbortRecord,
    /// The abort is reported before its record is synced.
    AbortNotSynced,
    /// A foreign object that came out of an exchange stays in the slot and goes with the trash.
    NoExchangeBack,
    /// Steps act on the name whatever is there.
    UnconditionalRedo,
    /// A displaced object stays in its slot instead of `aside/`.
    NoAside,
    /// REMOVE without a token: an empty slot means "not yet".
    NoToken,
    /// The slot is free, and success reported, before the steps.
    DoneBeforePublish,
    /// The record is dropped at D, without a sync of the file system.
    RecordDroppedWithoutSync,
    /// The helper goes forward with a slot that is only VALIDATED.
    HelperPublishesValidated,
    /// Slots and tokens are made in `tx/<id>` itself instead of in `tx/<id>~`.
    DirectoryBuiltInPlace,
    /// The stage barrier comes before `tx/<id>~` gets its final name.
    BarrierBeforeRename,
    /// `tx/<id>` goes at D, while its record may still be redone.
    DirectoryRemovedAtDone,
    // shared staging directory
    /// The seal is put before the slots are made.
    SealBeforeSlots,
    /// A transaction gets the number of its seal before its slots are made.
    SealNumberedEarly,
    /// A shared staging directory is used again after a reboot.
    ShelfOfAllBoots,
    // mark
    /// Attributes with their old values are set, whatever the mark says.
    AttributesByValue,
    /// Attributes are left wherever the object's change time is not the one before the commit.
    AttributesByChangeTime,
    /// The mark is made before the attributes are set.
    MarkBeforeAttributes,
    /// Marks count where metadata survive in any order.
    MarkInAnyOrder,
    // redo
    /// An invalid cell is skipped instead of ending the log.
    HoleSkipped,
    /// Commits of durability `none` have a record, which is redone.
    NoneInLog,
    /// V4: no syncfs before building on the result of a `none` commit.
    NoV4,
    /// A segment is written to before the one before it is synced.
    SegmentNotSynced,
    /// A segment is dropped before an older one.
    SegmentDroppedEarly,
    /// V7 before V5: the header is in the log before the slot is visible.
    HeaderBeforeSlot,
    /// S: success is reported without a sync of the log.
    NoLogSync,
    /// C2: a checkpoint of few records does not write out their bytes.
    CoveredNotWritten,
    // participants
    /// PREPARED is not synced in the participant's log before the coordinator's header.
    PreparedNotSynced,
    /// No COMMITTED in the participant's log before the slot is free.
    NoCommittedMark,
    /// The helper frees the slot before its ABORT is synced.
    HelperAbortNotSynced,
    /// The coordinator's record is dropped without a sync of the participant.
    NoCoordinatorSync,
    /// Objects of a transaction in doubt can be written.
    InDoubtNotBlocked,
    // away
    /// C3: a file system that never comes back coordinates and promises.
    ForgetfulPromises,
    /// C4: a checkpoint does not pass a record that a participant may ask for.
    ParticipantHoldsLog,
    /// C4: CKPT comes before the decision beside the log.
    DecisionAfterCheckpoint,
    /// C4: a decision goes when the participant's answer is appended, not when it is synced.
    DecisionDroppedUnsynced,
    /// C4: a decision goes when a person gives the participant up.
    DecisionGivenUp,
    /// C11: a participant obeys whatever has the number of its transaction.
    NumberIsIdentity,
    // liveness
    /// A transaction that keeps losing never gets priority.
    NoSenior,
    /// An ordered transaction may have priority before its number is up.
    SeniorBeforeNumber,
    /// A transaction that waits for a number of a dead owner waits on.
    NoErrorForDeadNumber,
    /// A prepared slot is waited for instead of conflicting at once.
    WaitForPrepared,
    /// Priority ends at D instead of V5.
    SeniorUntilDone,
    // pages of a file, in cooperation
    /// Pages are announced as the whole file.
    PagesTooCoarse,
    /// Reads and writes of pages say nothing of the file as a whole.
    PagesTooFine,
    // appends
    /// V3: an end is not looked for again when other commits came.
    EndFoundOnce,
    /// V6 and F: an end is not compared.
    EndNotCompared,
    /// An append that came behind an outsider's last bytes is not synced.
    MovedNotSynced,
    /// A helper or a redo appends whatever is there.
    AppendedTwice,
    // alone
    /// R4: what is known of a path is delivered without a look.
    AloneUnlooked,
    /// R4: a look is delivered although a commit is under way.
    AloneNotQuiet,
    /// R4: a look counts although a commit got its number meanwhile.
    AloneNumberUnasked,
    /// R4: the transaction goes on without a walk along the path.
    AloneUnwalked,
    /// R4: no second look at the end.
    AloneUnchecked,
}
