//! Everything in the crash model that the transaction doesn't do itself: kills, write-back, power losses, the outsider.

use super::checker::Emit;
use super::crash::Crash;
use super::crash_parts::{Fact, Kind, Micro, Names, Object, Phase, State, Storage};
use super::Mutant;

impl Crash {
    pub(super) fn machine(&self, s: &State, emit: &mut Emit<'_, State>) {
        let mut go = |label: std::fmt::Arguments<'_>, change: &dyn Fn(&mut State)| {
            let mut next = *s;
            change(&mut next);
            emit(next, label);
        };
        if s.kills > 0 && s.phase != Phase::End {
            go(format_args!("KILL"), &|n| self.kill(n));
        }
        if s.losses == 0 {
            return;
        }
        for (unit, label) in ["metadata", "step 0", "step 1"].into_iter().enumerate() {
            let mut disk = s.disk;
            self.write_back(&mut disk, &s.names, unit);
            if disk != s.disk {
                go(format_args!("write-back of {label}"), &|n| n.disk = disk);
            }
        }
        if s.header.now != s.header.disk {
            go(format_args!("write-back of the header"), &|n| n.header.sync());
        }
        if s.abort.now != s.abort.disk {
            go(format_args!("write-back of ABORT"), &|n| n.abort.sync());
        }
        if s.fact.now != s.fact.disk {
            go(format_args!("write-back of the fact"), &|n| n.fact.sync());
        }
        go(format_args!("POWER LOSS"), &|n| {
            n.losses -= 1;
            n.names = n.disk;
            (n.fact.now, n.header.now, n.abort.now) = (n.fact.disk, n.header.disk, n.abort.disk);
            (n.step, n.micro, n.owner_dead) = (0, Micro::Look, true);
            if n.dropped || !n.header.now || n.abort.now {
                (n.phase, n.dropped) = (Phase::End, true);
            } else {
                (n.phase, n.recovering) = (Phase::Publish, true);
                n.overtook |= !n.looked && n.fact.now == Fact::ChangedBeforeV6;
            }
        });
    }

    /// Copies one unit of what is written back together.
    fn write_back(&self, disk: &mut Names, now: &Names, unit: usize) {
        let own = |i: usize| {
            let contents = matches!(self.kinds[i], Kind::Patch | Kind::PatchLeased);
            match self.storage {
                Storage::Prefix => contents,
                Storage::StepsInAnyOrder => contents || disk.directory == now.directory,
                Storage::AnySubset => true,
            }
        };
        match unit {
            0 => {
                let own = [own(0), own(1)];
                disk.directory = now.directory;
                for (i, _) in own.iter().enumerate().filter(|(_, &own)| !own) {
                    disk.cells[i] = now.cells[i];
                }
            }
            i if own(i - 1) => disk.cells[i - 1] = now.cells[i - 1],
            _ => {}
        }
    }

    pub(super) fn outsider(&self, s: &State, emit: &mut Emit<'_, State>) {
        if s.calls == 0 || s.phase < Phase::CheckAll {
            return;
        }
        let mut call = |what: &str, change: &dyn Fn(&mut State)| {
            let mut next = *s;
            next.calls -= 1;
            change(&mut next);
            emit(next, format_args!("OUTSIDER {what}"));
        };
        let kind = self.kinds[0];
        let cell = &s.names.cells[0];
        let leave = |n: &mut State, at: usize, object: Object| {
            let cell = &mut n.names.cells[0];
            *(if at == 0 { &mut cell.name } else { &mut cell.dest }) = object;
            cell.theirs[at] = Some(object);
            cell.later[at] = if at == 1 { cell.put_decided } else { cell.decided };
            n.fresh += u8::from(matches!(object, Object::Theirs(_)));
        };
        let new = Object::Theirs(s.fresh);
        if kind.is_name() {
            let places = [("the name", cell.name), ("the new name", cell.dest)];
            for (at, (what, now)) in
                places.into_iter().enumerate().take(if kind == Kind::Move { 2 } else { 1 })
            {
                if now == Object::None {
                    call(&format!("creates {what}"), &|n| leave(n, at, new));
                } else {
                    call(&format!("unlinks {what}"), &|n| leave(n, at, Object::None));
                    call(&format!("renames over {what}"), &|n| leave(n, at, new));
                }
            }
            let gone = cell.name != Object::Before && cell.dest != Object::Before;
            if self.restores && gone && kind.before() == Object::Before {
                call("links the very same old object at the name", &|n| leave(n, 0, Object::Before));
            }
            if kind == Kind::Move && cell.dest == Object::Before && cell.name == Object::None {
                call("moves it back", &|n| {
                    leave(n, 0, Object::Before);
                    leave(n, 1, Object::None);
                    n.names.cells[0].later = [n.names.cells[0].decided; 2];
                });
            }
        } else {
            call("writes", &|n| leave(n, 0, new));
            if self.restores && cell.name != Object::Before {
                call("writes the exact old value back", &|n| leave(n, 0, Object::Before));
            }
        }
        if s.fact.now == Fact::Unchanged {
            let seen = s.phase <= Phase::V6 || (self.is(Mutant::NoV6) && s.phase <= Phase::V7);
            let change = if seen { Fact::ChangedBeforeV6 } else { Fact::ChangedAfterV6 };
            call("changes the fact", &|n| n.fact.now = change);
        }
    }
}
