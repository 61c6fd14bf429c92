//! U of the crash model: one system call of one step at a time, each decided by what name and slot hold.
//!
//! The same function is owner, helper and recovery: they differ only in where they start.

use super::checker::Emit;
use super::crash::Crash;
use super::crash_parts::{Cell, Kind, Micro, Object, State};
use super::Mutant;
use Object::{Before, None as Nothing, Ours, Theirs, Token};

/// One step under way: applies a change to its cell and says where to go on.
struct At<'a, 'e> {
    s: &'a State,
    emit: &'a mut Emit<'e, State>,
}

impl At<'_, '_> {
    fn cell(&self) -> &Cell {
        &self.s.names.cells[self.s.step as usize]
    }

    fn go(&mut self, label: &str, micro: Option<Micro>, change: impl FnOnce(&mut Cell)) {
        let mut next = *self.s;
        let cell = &mut next.names.cells[next.step as usize];
        let old = (cell.name, cell.dest, cell.slot);
        change(cell);
        cell.begun |= old != (cell.name, cell.dest, cell.slot);
        match micro {
            Some(micro) => next.micro = micro,
            None => (next.step, next.micro) = (next.step + 1, Micro::Look),
        }
        let who = if self.s.recovering { "[recovery] U" } else { "U" };
        (self.emit)(next, format_args!("{who} step {}: {label}", self.s.step));
    }

    /// Goes on within the step.
    fn then(&mut self, label: &str, micro: Micro) {
        self.go(label, Some(micro), |_| {});
    }

    /// The step is through.
    fn finish(&mut self, label: &str, change: impl FnOnce(&mut Cell)) {
        self.go(label, None, |cell| {
            change(cell);
            cell.decided = true;
        });
    }
}

impl Crash {
    pub(super) fn publish(&self, s: &State, emit: &mut Emit<'_, State>) {
        let kind = self.kinds[s.step as usize];
        let mut at = At { s, emit };
        if self.is(Mutant::UnconditionalRedo) {
            at.finish("acts whatever is there", |cell| blind(kind, cell));
            return;
        }
        if s.micro == Micro::SetAside {
            at.finish("to aside/, reported", |cell| {
                (cell.aside, cell.slot) = (cell.slot, Nothing);
                (cell.reported, cell.put_decided) = (true, true);
            });
            return;
        }
        match kind {
            Kind::Place | Kind::Link => self.place(&mut at),
            Kind::Replace => self.replace(&mut at),
            Kind::Remove => self.remove(&mut at),
            Kind::Move => self.take_and_put(&mut at),
            Kind::PatchLeased | Kind::Patch | Kind::Attr => overwrite(kind, &mut at),
        }
    }

    fn place(&self, at: &mut At<'_, '_>) {
        let Cell { name, slot, .. } = *at.cell();
        match slot {
            // The one token of all LINKs is the cell's here: it goes when the slots have what they link.
            Token => at.go("link into the slot, token unlinked", Some(Micro::Look), |cell| cell.slot = Ours),
            Ours if name == Nothing => at.finish("RENAME_NOREPLACE slot -> name", |cell| {
                (cell.name, cell.slot) = (Ours, Nothing);
            }),
            // Left in the slot, a later redo that finds the name free again would place it.
            Ours if self.is(Mutant::NoAside) => {
                at.finish("name taken, reported", |cell| cell.reported = true)
            }
            Ours => at.then("name taken", Micro::SetAside),
            _ => at.finish("slot empty: applied", |_| {}),
        }
    }

    fn replace(&self, at: &mut At<'_, '_>) {
        let Cell { name, slot, .. } = *at.cell();
        match (at.s.micro, slot) {
            (Micro::Look, Ours) if name == Before => at.then("name = before", Micro::Act),
            (Micro::Look, Ours) => at.then("theirs is later", Micro::SetAside),
            (Micro::Look, Theirs(_)) if name == Ours => at.then("foreign in the slot", Micro::Back(Ours)),
            (Micro::Look, Theirs(_)) => at.then("foreign in the slot, theirs at the name", Micro::SetAside),
            (Micro::Look, _) => at.finish("applied", |_| {}),
            (Micro::Act, _) if name == Nothing => at.then("EXCHANGE: ENOENT", Micro::SetAside),
            (Micro::Act, _) => at.go("EXCHANGE", Some(Micro::Acted), |cell| {
                std::mem::swap(&mut cell.name, &mut cell.slot);
                cell.decided |= cell.slot == Before;
            }),
            (Micro::Acted, Before) => at.finish("before came out", |_| {}),
            (Micro::Acted, _) if self.is(Mutant::NoExchangeBack) => {
                at.finish("foreign came out: trash", |cell| cell.slot = Nothing)
            }
            (Micro::Acted, _) => at.then("foreign came out", Micro::Back(Ours)),
            (_, _) if name == Nothing => at.then("EXCHANGE back: ENOENT", Micro::SetAside),
            (_, _) => {
                // The object that comes out must be the one last put in, else a newer object of an outsider
                // came out: again.
                let Micro::Back(put) = at.s.micro else { unreachable!("a REPLACE knows no other place") };
                let micro = if name == put { Micro::SetAside } else { Micro::Back(slot) };
                at.go("EXCHANGE back", Some(micro), |cell| std::mem::swap(&mut cell.name, &mut cell.slot));
            }
        }
    }

    fn remove(&self, at: &mut At<'_, '_>) {
        let Cell { name, slot, .. } = *at.cell();
        let fresh = if self.is(Mutant::NoToken) { Nothing } else { Token };
        match at.s.micro {
            Micro::Look => match slot {
                Theirs(_) => at.then("foreign in the slot", Micro::PutBack),
                _ if slot == fresh && name == Before => at.then("name = before", Micro::Act),
                Token => at.finish("theirs is later: token unlinked", |cell| cell.slot = Nothing),
                _ => at.finish("applied", |_| {}),
            },
            Micro::Act if name == Nothing => at.finish("ENOENT: gone", |cell| {
                cell.slot = if cell.slot == Token { Nothing } else { cell.slot }
            }),
            Micro::Act => at.go("rename name -> slot", Some(Micro::Acted), |cell| {
                (cell.slot, cell.name) = (cell.name, Nothing);
                cell.decided |= cell.slot == Before;
            }),
            Micro::Acted if slot == Before => at.finish("before came out", |_| {}),
            Micro::Acted => at.then("foreign came out", Micro::PutBack),
            _ => self.put_back(at),
        }
    }

    fn put_back(&self, at: &mut At<'_, '_>) {
        if at.cell().name == Nothing {
            at.finish("put back", |cell| {
                (cell.name, cell.slot) = (cell.slot, Nothing);
                cell.put_decided = true;
            });
        } else {
            at.then("name taken", Micro::SetAside);
        }
    }

    fn take_and_put(&self, at: &mut At<'_, '_>) {
        let Cell { name, dest, slot, .. } = *at.cell();
        match (at.s.micro, slot) {
            (Micro::Look, Token) if name == Before => at.then("old name = before", Micro::Act),
            (Micro::Look, Token) => at.finish("TAKE: theirs is later, reported", |cell| {
                (cell.slot, cell.reported, cell.put_decided) = (Nothing, true, true);
            }),
            (Micro::Look, Before) => at.then("taken", Micro::Taken),
            (Micro::Look, Theirs(_)) => at.then("foreign in the slot", Micro::PutBack),
            (Micro::Look, _) => at.finish("slot empty: applied", |_| {}),
            (Micro::Act, _) if name == Nothing => at.finish("TAKE: ENOENT, reported", |cell| {
                (cell.slot, cell.reported, cell.put_decided) = (Nothing, true, true);
            }),
            (Micro::Act, _) => {
                let micro = if name == Before { Micro::Taken } else { Micro::PutBack };
                at.go("TAKE: rename old -> slot", Some(micro), |cell| {
                    (cell.slot, cell.name) = (cell.name, Nothing);
                    cell.decided |= cell.slot == Before;
                });
            }
            (Micro::Taken, _) if dest == Nothing => at.finish("PUT: RENAME_NOREPLACE slot -> new", |cell| {
                (cell.dest, cell.slot, cell.put_decided) = (cell.slot, Nothing, true);
            }),
            (Micro::Taken, _) => at.then("PUT: new name taken", Micro::SetAside),
            _ => self.put_back(at),
        }
    }
}

/// PATCH and ATTR: the value itself says whether the step was applied.
fn overwrite(kind: Kind, at: &mut At<'_, '_>) {
    match (at.s.micro, at.cell().name) {
        (Micro::Look, Ours) => at.finish("applied", |_| {}),
        (Micro::Look, Before) if kind == Kind::PatchLeased => {
            at.finish("write under the lease", |cell| cell.name = Ours)
        }
        (Micro::Look, Before) => at.then("equals the old value", Micro::Act),
        (Micro::Look, _) => at.finish("theirs is later, reported", |cell| cell.reported = true),
        _ => at.finish("write", |cell| cell.name = Ours),
    }
}

/// The mutant: redo by path, whatever is there.
fn blind(kind: Kind, cell: &mut Cell) {
    match kind {
        Kind::Place | Kind::Replace | Kind::Link if cell.slot != Nothing => {
            (cell.name, cell.slot) = (Ours, Nothing)
        }
        Kind::Place | Kind::Replace | Kind::Link => {}
        Kind::Remove => cell.name = Nothing,
        Kind::Move => (cell.dest, cell.name) = (cell.name, Nothing),
        Kind::PatchLeased | Kind::Patch | Kind::Attr => cell.name = Ours,
    }
}
