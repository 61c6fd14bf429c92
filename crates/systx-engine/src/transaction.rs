//! A transaction as its users see it.
//!
//! Owns: [`Transaction`], which joins what it keeps private over what it has seen ([`crate::workset`],
//! [`crate::facts`]), how it competes ([`crate::contention`]) and what was asked for; its beginning, its end
//! without a commit, and its tries. The verbs are in [`crate::verbs`], one file a family, the commit is in
//! `commit`. Guarantees: a verb answers exactly as the plain system call would. Does not: check permissions
//! and sticky bits; that is the caller's part (the kernel's, in a view).

use crate::contention::{Age, Contention};
use crate::domain::{Announced, Domain};
use crate::id::{ObjectId, Objects, TxId};
use crate::mutant::{self, Mutant};
use crate::outcome::{Conflict, Conflicts, Isolation, Options, Verb};
use crate::workset::node::node_of;
use crate::workset::Workset;
use std::sync::Arc;
use systx_os::{Errno, FileType, Os};

pub use crate::facts::Grain;
pub use crate::types::{Access, AppendedAt, Attr, Caller, DirEntry, Node, SetAttr, SetTime};

/// A transaction: private changes over the committed tree.
pub struct Transaction<O: Os> {
    /// What it keeps private, and what it has seen.
    pub(crate) workset: Workset<O>,
    /// How it competes.
    pub(crate) contention: Contention,
    /// What was asked for.
    pub(crate) options: Options,
    /// Why it can't commit.
    refusal: Option<String>,
    /// Of the process that began it.
    lineage: u64,
    /// So long others see it.
    announced: Vec<Announced<O>>,
}

impl<O: Os> Transaction<O> {
    /// Begins a transaction over `mounts`. Nothing is written before it makes something.
    ///
    /// It belongs to this process. A forked child gets `ECHILD` from each of its verbs and
    /// [`Forked`](crate::outcome::CommitError::Forked) from its commit; aborting or dropping it there changes nothing.
    ///
    /// # Errors
    /// `ECHILD`: this process is a forked child of the one that opened a domain, and has to open it for itself.
    pub fn begin(os: O, mounts: Vec<Arc<Domain<O>>>, options: Options) -> Verb<Transaction<O>> {
        mounts.iter().try_for_each(|domain| domain.ours())?;
        let lineage = os.lineage();
        let ids: Vec<_> = mounts.iter().map(|domain| domain.new_tx()).collect();
        let announced = mounts.iter().zip(&ids).map(|(domain, id)| domain.announce(*id, &options.command));
        let announced = announced.collect();
        let contention = Contention::new(&mounts, &ids, options.nice);
        let workset = Workset::begin(os, mounts, ids, &options)?;
        Ok(Transaction { workset, contention, options, refusal: None, lineage, announced })
    }

    /// Refuses a forked child.
    pub(crate) fn ours(&self) -> Verb<()> {
        if self.workset.os().lineage() == self.lineage || mutant::on(Mutant::ForkUnseen) {
            Ok(())
        } else {
            Err(Errno::CHILD.into())
        }
    }

    /// Sets how much of a file the looks at names from here on make facts. One that reads what is committed, and claims
    /// little anyway, goes by files.
    pub fn look_by(&mut self, grain: Grain) {
        if self.options.isolation == Isolation::Serializable {
            self.workset.facts_mut().grain = grain;
        }
    }

    /// Returns its numbers: one in the domain of each mount.
    pub fn ids(&self) -> &[TxId] {
        self.workset.ids()
    }

    /// Serves one more mount from here on, and returns its index. For callers that learn only on their way
    /// which file systems a transaction touches.
    ///
    /// # Errors
    /// Of the first look at the root; the mount is not served then.
    pub fn add_mount(&mut self, domain: Arc<Domain<O>>) -> Verb<usize> {
        let id = domain.new_tx();
        let announced = domain.announce(id, &self.options.command);
        let mount = self.workset.add_mount(domain, id)?;
        self.contention.add_mount(self.workset.mounts(), id);
        self.announced.push(announced);
        Ok(mount)
    }

    /// The root of a mount.
    pub fn root(&self, mount: usize) -> Node {
        node_of(self.workset.root(mount))
    }

    /// Returns its number in the domain of its first mount: the one it is known by. 0 without mounts.
    pub fn id(&self) -> TxId {
        self.ids().first().copied().unwrap_or(TxId(0))
    }

    /// The mount of a node.
    pub fn mount_of(&self, node: Node) -> usize {
        usize::from(self.workset.object(self.workset.ix(node)).mount)
    }

    /// Returns the options of its beginning.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Makes the transaction one that can't commit, and says why. The first reason stays.
    pub fn refused(&mut self, why: String) {
        if !self.workset.is_spoiled() {
            self.refusal.get_or_insert(why);
        }
    }

    /// Returns the type of a node.
    pub fn kind(&self, node: Node) -> FileType {
        self.workset.object(self.workset.ix(node)).kind
    }

    /// Returns the inode number of a node.
    pub fn ino(&self, node: Node) -> u64 {
        self.workset.object(self.workset.ix(node)).ino
    }

    /// Some present path of a node, from the root of its mount, for messages.
    pub fn path_of(&self, node: Node) -> Vec<u8> {
        self.workset.path(self.workset.ix(node))
    }

    /// Why it can't commit, for what was asked of it.
    pub(crate) fn refusal(&self) -> Option<&String> {
        self.refusal.as_ref()
    }

    /// Puts that back to what it was.
    pub(crate) fn set_refusal(&mut self, refusal: Option<String>) {
        self.refusal = refusal;
    }

    /// Why it can't commit, if it can't; from here on it could for all that was said.
    pub(crate) fn take_refusal(&mut self) -> Option<String> {
        let spoiled = self.workset.take_spoiled();
        self.refusal.take().or(spoiled)
    }

    /// About how much room its changes take, in bytes.
    pub fn staged_bytes(&mut self) -> u64 {
        self.workset.private_bytes()
    }

    /// Checks that all facts still hold, as far as a commit would find now.
    ///
    /// # Errors
    ///
    /// `Doomed`, naming the first that does not.
    pub fn still_true(&mut self) -> Verb<()> {
        self.ours()?;
        self.workset.facts_mut().refresh_all()?;
        self.workset.facts_mut().check_all_named()
    }

    /// Compares everything that was seen with what is there now, and lists at most `most` of what differs. It is only a
    /// look: the transaction goes on as before, also where something differs, and its commit compares again. Of what a
    /// commit in flight has not published yet nothing is known.
    ///
    /// # Errors
    /// Of the looks.
    pub fn conflicts(&self, most: usize) -> Verb<Conflicts> {
        self.ours()?;
        self.workset.facts().conflicts(most)
    }

    /// Hands out everything that was read, open (O_PATH), for a caller that wants to know when it changes.
    ///
    /// # Errors
    /// Of opening it, and of `each`.
    pub fn each_read(&mut self, each: &mut dyn FnMut(&O::Fd) -> systx_os::Result<()>) -> Verb<()> {
        self.ours()?;
        Ok(self.workset.facts().each_read(each)?)
    }

    /// Makes this a further try of what began with `age`, over the same domains, which have been open since.
    pub fn inherit(&mut self, age: &Age) {
        self.contention.inherit(age, self.workset.mounts().len());
    }

    /// Announces that it is tried again if it loses, and returns the age that the next try inherits. Between
    /// the two, for a while, no younger transaction commits what would make the next try lose, too.
    ///
    /// The while is as long as it ran since the first call. One that comes to further mounts has another age
    /// then, and asks for it once more at its end.
    pub fn will_be_tried_again(&mut self) -> Age {
        self.contention.will_be_tried_again(self.workset.os().monotonic_ns())
    }

    /// Has `told` called when the transaction has passed its commit point, if it changes something: before anything is
    /// public, in the thread that commits. Others wait for that commit, so it must not wait.
    pub fn at_commit_point(&mut self, told: impl FnOnce() + Send + 'static) {
        self.workset.facts_mut().at_commit_point = Some(Box::new(told));
    }

    /// Gives up the priority and wakes those that wait for it: for one that is about to wait for something else than a
    /// transaction. Its further tries keep their age.
    pub fn defer(&self) {
        if self.ours().is_ok() && !mutant::on(Mutant::SleepersHold) {
            self.contention.resign(self.workset.mounts());
        }
    }

    /// The files that it has met on each mount, any of which it may write: for [`crate::contention::stall`]. Without the
    /// directories, which all have on their ways.
    pub fn files(&self) -> Vec<Objects> {
        let written = |mount| self.workset.committed_files(mount).map(|file| ObjectId::data(&file)).collect();
        let objects = |mount| Objects { written: written(mount), ..Objects::default() };
        (0..self.workset.mounts().len()).map(objects).collect()
    }

    /// Gives up the hope to commit, for `conflict` or another reason, and all claims, but not what was done:
    /// it can still be looked at. It holds nothing that others wait for. What it has only read is from here
    /// on what the committed tree has now.
    pub fn give_up(&mut self, conflict: Option<&Conflict>) {
        self.end_contention(conflict);
        self.workset.facts_mut().give_up();
        self.workset.see_the_present();
        self.refused("it is lost".into());
    }

    /// Ends it as [`Transaction::commit`] does that meets a conflict: nothing was changed.
    pub fn lose(self, conflict: &Conflict) {
        self.end_contention(Some(conflict));
        self.workset.discard_staging();
    }

    /// Forgets everything: nothing was changed.
    pub fn abort(self) {
        self.end_contention(None);
        self.workset.discard_staging();
    }

    /// Aborts on process exit. If much is staged, leaves its deletion to the successor of this owner and
    /// returns true.
    pub fn abandon(self) -> bool {
        // A user who looks for the reason of the failure must find the room that it took.
        if self.ours().is_err() {
            return false;
        }
        let short = || self.workset.mounts().iter().any(|domain| domain.is_short_of_room());
        if !self.workset.has_much_staged() || short() {
            self.abort();
            return false;
        }
        self.end_contention(None);
        true
    }

    /// Ends its part in contention, where it has `lost` or not.
    pub(crate) fn end_contention(&self, lost: Option<&Conflict>) {
        // What it has asked for stays its parent's.
        if self.ours().is_err() {
            return;
        }
        let reads = |mount: usize| self.workset.facts().read_set(mount).collect();
        self.contention.end(self.workset.mounts(), &reads, lost);
    }
}
