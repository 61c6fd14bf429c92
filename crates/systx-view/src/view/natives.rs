//! New directories that the kernel serves by itself.
//!
//! Owns: which directories may be, the question to whoever binds them, and those who wait for the answer. Guarantees: a
//! directory is bound only while it is empty and nobody has looked into it, as its programs must never see one name by
//! two ways at different times; the view never waits for the binding, since that waits for the view. Does not: bind.
//!
//! A directory that was made is *fresh*: its name is asked for at every walk. The program that made it has it bound by
//! its first walk, as programs compare the numbers that they see first (tar, cp). For another one it is not bound: a
//! binding costs as much as three new files, and a shell makes one or two in a directory of mkdir(1). Another one that may
//! keep it, open or as its place, or makes something in it, has it served by requests from then on: nobody reaches by the
//! view what the kernel serves by itself. Who moves it, links or removes finds it as it is: on a name that is bound such a
//! call fails.

use super::View;
use crate::call::Call;
use crate::nodes::id_of;
use crate::wire::{stale_attributes, Lasts, Reply};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use systx_engine::outcome::Verb;
use systx_engine::transaction::Node;
use systx_os::fuse::EventFd;
use systx_os::sandbox::bind::{intent, process_of, Binder, Intent, Job, Report};
use systx_os::{Errno, Os};

/// Directories that are bound at a time. The kernel allows 100,000 mounts (fs.mount-max).
const BOUND_MAX: usize = 256;
/// After so many looks by others it is served by requests.
const LOOKS_MAX: u8 = 8;
/// How long a program may take from its question to its waiting, on a machine with other work.
const TO_WAIT: Duration = Duration::from_millis(100);
/// A walk that waits holds a lock in a rare case, which the binding may wait for (a name that the kernel has forgotten
/// meanwhile). Then it goes on by requests.
const PATIENCE_MS: u32 = 400;

/// The state of that in a view.
#[derive(Default)]
pub(crate) struct Natives {
    by: Option<Binder>,
    fresh: HashMap<Node, Fresh>,
    asked: HashMap<Node, Asked>,
    bound: usize,
    /// No more are bound.
    is_over: bool,
}

#[derive(Debug)]
struct Fresh {
    /// The process that has made it, if it is known.
    maker: Option<u32>,
    looks: u8,
}

/// A directory of which it was asked that it be bound.
#[derive(Debug)]
struct Asked {
    since: Instant,
    waiting: Vec<Waiting>,
}

/// A walk that waits for it.
#[derive(Debug)]
struct Waiting {
    connection: usize,
    unique: u64,
}

impl Natives {
    pub(crate) fn by(binder: Binder) -> Natives {
        Natives { by: Some(binder), ..Natives::default() }
    }

    /// Returns true if directories are bound at all.
    fn are_bound(&self) -> bool {
        self.by.is_some()
    }

    /// Returns true if one is bound, or may be yet.
    pub(crate) fn may_be_bound(&self) -> bool {
        self.are_bound() && (self.bound > 0 || !self.is_over)
    }

    fn has_room(&self) -> bool {
        !self.is_over && self.bound < BOUND_MAX
    }

    /// None is bound from here on that is not asked for already.
    pub(crate) fn bind_no_more(&mut self) {
        self.is_over = true;
    }

    pub(crate) fn is_fresh(&self, node: Node) -> bool {
        !self.fresh.is_empty() && self.fresh.contains_key(&node)
    }

    /// Somebody looks into a directory, or makes something there, by a request.
    pub(crate) fn is_entered(&mut self, dir: Node) {
        if !self.fresh.is_empty() && !self.asked.contains_key(&dir) {
            self.fresh.remove(&dir);
        }
    }

    /// To be listened to besides requests.
    pub(crate) fn bells(&self) -> impl Iterator<Item = &EventFd> {
        self.by.iter().map(Binder::bell)
    }

    /// For how long, at most.
    pub(crate) fn limit_ms(&self) -> Option<u32> {
        (!self.asked.is_empty()).then_some(PATIENCE_MS)
    }
}

impl<O: Os<Fd: AsFd>> View<O> {
    /// Notes a directory that a program has made; how long its name lasts.
    pub(crate) fn made_directory(&mut self, call: &Call<'_>, node: Node) -> Lasts {
        // Without passthrough the kernel would keep other pages for the view than for itself.
        let may_be = self.natives.are_bound() && self.connections[call.connection].passthrough;
        if !may_be || self.natives.is_over || self.is_read_committed() || self.tx.is_shared(call.node) {
            return Lasts::Forever;
        }
        self.natives.fresh.insert(node, Fresh { maker: process_of(call.thread), looks: 0 });
        Lasts::Moment
    }

    /// Answers who looks a fresh directory up, at once or when it is bound.
    pub(crate) fn lookup_fresh(&mut self, call: &Call<'_>, node: Node, reply: &mut Reply) -> Verb<()> {
        let lasts = match self.fate(call, node) {
            Fate::Waits => {
                let waiting = Waiting { connection: call.connection, unique: call.unique };
                let asked = || Asked { since: Instant::now(), waiting: Vec::new() };
                self.natives.asked.entry(node).or_insert_with(asked).waiting.push(waiting);
                reply.postpone();
                return Ok(());
            }
            Fate::Later => Lasts::Moment,
            Fate::Ordinary => {
                self.natives.fresh.remove(&node);
                Lasts::Forever
            }
        };
        let attr = self.tx.getattr(node)?;
        let id = self.number_on(call.connection, node);
        reply.entry(id, &attr, lasts, Lasts::Moment);
        Ok(())
    }

    fn fate(&mut self, call: &Call<'_>, node: Node) -> Fate {
        let Some(binder) = &self.natives.by else { return Fate::Ordinary };
        if binder.is_own(call.thread) {
            return Fate::Later;
        }
        if self.natives.asked.contains_key(&node) {
            return Fate::Waits;
        }
        let asker = process_of(call.thread);
        let Some(fresh) = self.natives.fresh.get_mut(&node) else { return Fate::Ordinary };
        let who = if asker.is_some() && asker == fresh.maker { Who::Maker } else { Who::Other };
        match wish(intent(call.thread, TO_WAIT), who) {
            Wish::Ordinary => Fate::Ordinary,
            Wish::Later => Fate::Later,
            Wish::Look => {
                fresh.looks += 1;
                if fresh.looks < LOOKS_MAX {
                    Fate::Later
                } else {
                    Fate::Ordinary
                }
            }
            Wish::Bound => match asker {
                Some(user) if self.natives.has_room() && self.ask_to_bind(node, user) => Fate::Waits,
                _ => Fate::Ordinary,
            },
        }
    }

    /// Asks for a directory to be bound for a process, and says whether that could be asked for.
    fn ask_to_bind(&mut self, node: Node, user: u32) -> bool {
        let mount = self.tx.mount_of(node);
        let (path, ino) = (self.tx.path_of(node), self.tx.ino(node));
        let Ok(Some(dir)) = self.tx.share(node) else { return false };
        let job = Job { node: node.0, mount: mount as u32, user, ino, asked: Instant::now(), path };
        let asked = self.natives.by.as_ref().is_some_and(|binder| binder.ask(job, dir.as_fd()));
        if asked {
            self.natives.bound += 1;
        } else {
            self.tx.leave(node);
        }
        asked
    }

    /// Hears what has become of directories that were to be bound, and answers those who wait for it.
    pub(crate) fn hear_of_natives(&mut self, reply: &mut Reply) -> Result<(), Errno> {
        let Some(binder) = &self.natives.by else { return Ok(()) };
        for report in binder.reports() {
            match report {
                Report::Bound(node) => self.answer_waiting(Node(node), Lasts::Forever, reply)?,
                Report::NotBound(node) => {
                    self.is_left(Node(node));
                    self.answer_waiting(Node(node), Lasts::Forever, reply)?;
                }
                Report::Left(node) => self.is_left(Node(node)),
                Report::Over => self.natives.bind_no_more(),
            }
        }
        if self.natives.asked.is_empty() {
            return Ok(());
        }
        let late = |asked: &Asked| asked.since.elapsed() >= Duration::from_millis(PATIENCE_MS.into());
        let late: Vec<_> =
            self.natives.asked.iter().filter(|(_, asked)| late(asked)).map(|(node, _)| *node).collect();
        late.into_iter().try_for_each(|node| self.answer_waiting(node, Lasts::Moment, reply))
    }

    /// Hears of the directories that are bound no more, when no program is left.
    pub fn hear_last(&mut self) {
        let reports = self.natives.by.as_ref().map(Binder::reports).unwrap_or_default();
        for report in reports {
            if let Report::Left(node) | Report::NotBound(node) = report {
                self.is_left(Node(node));
            }
        }
    }

    fn is_left(&mut self, node: Node) {
        self.tx.leave(node);
        self.natives.bound = self.natives.bound.saturating_sub(1);
        let connection = self.tx.mount_of(node);
        let number = id_of(node, self.root(connection));
        // What the kernel knows of it is from before. An error means that there is nothing to forget.
        let _ = self.device(connection).write(&stale_attributes(number));
    }

    fn answer_waiting(&mut self, node: Node, lasts: Lasts, reply: &mut Reply) -> Result<(), Errno> {
        self.natives.fresh.remove(&node);
        let Some(asked) = self.natives.asked.remove(&node) else { return Ok(()) };
        for Waiting { connection, unique } in asked.waiting {
            reply.clear();
            let result = match self.tx.getattr(node) {
                Ok(attr) => {
                    let id = self.number_on(connection, node);
                    reply.entry(id, &attr, lasts, Lasts::Moment);
                    Ok(())
                }
                Err(e) => Err(self.error_number(e)),
            };
            let bytes = reply.finish(unique, result);
            self.connections[connection].device.answer(bytes)?;
        }
        Ok(())
    }
}

/// The way on of a walk that looks a fresh directory up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It waits until the directory is bound.
    Waits,
    /// It goes on by requests; the next one may have it bound.
    Later,
    /// It goes on by requests, as all others from now on.
    Ordinary,
}

/// The wish of a walk for a fresh directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Bound,
    /// Nothing that speaks for or against it.
    Look,
    Later,
    Ordinary,
}

/// Which process walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Maker,
    Other,
}

fn wish(intent: Intent, who: Who) -> Wish {
    match (intent, who) {
        (Intent::Makes | Intent::Looks | Intent::Uses, Who::Maker) => Wish::Bound,
        (Intent::Looks, Who::Other) => Wish::Look,
        (Intent::Renames | Intent::Removes, _) => Wish::Later,
        (Intent::Makes | Intent::Uses, Who::Other) | (Intent::Goes | Intent::Unknown | Intent::Gone, _) => {
            Wish::Ordinary
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_directory_is_bound_for_its_maker() {
        let all =
            [Intent::Renames, Intent::Goes, Intent::Makes, Intent::Looks, Intent::Uses, Intent::Unknown];
        let (bound, ordinary) = (Wish::Bound, Wish::Ordinary);
        let makers = [Wish::Later, ordinary, bound, bound, bound, ordinary];
        let others = [Wish::Later, ordinary, ordinary, Wish::Look, ordinary, ordinary];
        assert_eq!(all.map(|intent| wish(intent, Who::Maker)), makers);
        assert_eq!(all.map(|intent| wish(intent, Who::Other)), others);
    }
}
