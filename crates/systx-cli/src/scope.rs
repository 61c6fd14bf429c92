//! The file systems that a run serves: planned, held, and opened.
//!
//! Owns: the way from a mount table to open domains, and the places that an ordinary user's whole tree leaves
//! out. Guarantees: a place that is left out is read-only inside and reported: always where its area is at
//! fault, else with `--verbose`. Root's run leaves out only what any user may have spoiled, so that none can
//! keep root from transactions. Does not: choose the mounts ([`crate::tree`] does) or find an ordinary user's
//! places ([`places`](ordinary::places)).

use crate::args::Area;
use crate::domains::{self, Mounted, NotHeld};
use crate::failure::{Failure, LeftOut, Result};
use crate::ordinary;
use crate::ordinary::places::{places, Places};
use crate::sub::Around;
use crate::tree::Tree;
use crate::words::{shown, Voice};
use std::path::PathBuf;
use std::sync::Arc;
use systx_engine::domain::Domain;
use systx_os::sandbox::mounts::Mount;
use systx_os::{process, Linux, Os};
use systx_view::{ShownAs, View};

/// From where a run looks at its machine: as root, or from within an ordinary user's namespace.
pub struct Standpoint {
    table: Vec<Mount>,
    /// How many transactions deep it is to run: 1 outside of any.
    depth: u32,
    /// Of an ordinary user's whole tree.
    places: Option<Places>,
}

impl Standpoint {
    /// Becomes able to mount, and looks at what there is for a run that serves what `only` says, inside of
    /// the transaction `around` it if there is one.
    pub fn enter(table: Vec<Mount>, only: &[PathBuf], around: Option<&Around>) -> Result<Standpoint> {
        let depth = around.map_or(1, Around::depth_inside);
        if !ordinary::is_ordinary() {
            ordinary::fuse()?;
            return Ok(Standpoint { table: seen_from(around, table), depth, places: None });
        }
        // Before entering: inside, root's directories look like any other user's. For an inner run the whole
        // tree is what the outer transaction serves.
        let places = (around.is_none() && domains::is_everything(only)).then(|| places(&table));
        ordinary::fuse().and_then(|()| ordinary::enter())?;
        // The same mounts have other numbers in a mount namespace of its own.
        Ok(Standpoint { table: seen_from(around, domains::table()?), depth, places })
    }
}

fn seen_from(around: Option<&Around>, table: Vec<Mount>) -> Vec<Mount> {
    match around {
        Some(around) => around.table(table),
        None => table,
    }
}

/// The mounts that a run is to serve, with a hold on them.
pub struct Scope {
    depth: u32,
    tree: Tree,
    lower: Vec<Mounted>,
    /// Of a whole tree: for who has to do without a part of it.
    whole: Option<Whole>,
}

/// The input that a whole tree was planned from.
enum Whole {
    /// Root's, by the mount table.
    Roots(Vec<Mount>),
    /// An ordinary user's, with the places.
    Places(Vec<Mount>, Vec<Vec<u8>>),
}

/// The mounts that a run serves.
pub struct Opened<'a> {
    /// How many transactions deep it is.
    pub depth: u32,
    /// The command's tree.
    pub tree: Tree,
    /// Served mounts.
    pub lower: Vec<&'a Mounted>,
    /// Their domains.
    pub domains: Vec<Arc<Domain<Linux>>>,
}

impl Scope {
    /// Plans it for the directories in `only`, or for the whole tree.
    pub fn take(from: Standpoint, only: &[PathBuf], voice: Voice) -> Result<Scope> {
        let scope = match from.places {
            Some(places) => Scope::of_places(from.table, places, voice)?,
            _ => {
                let tree = domains::plan(&from.table, only)?;
                let lower = domains::hold(&tree.lower)?;
                if voice.verbose {
                    say_served(&tree);
                }
                // A subtransaction and --only mean what they name; and what root's tree stands on is served
                // or nothing is.
                let whole = tree.named.is_empty() && from.depth == 1 && !ordinary::is_ordinary();
                Scope { depth: from.depth, tree, lower, whole: whole.then_some(Whole::Roots(from.table)) }
            }
        };
        if voice.verbose {
            for (point, fs_type) in &scope.tree.read_only {
                eprintln!("systx: {} is read-only inside: {fs_type} can't be served.", shown(point));
            }
        }
        Ok(scope)
    }

    /// An ordinary user's whole tree.
    fn of_places(table: Vec<Mount>, places: Places, voice: Voice) -> Result<Scope> {
        let Places { mut found, mut left_out } = places;
        let (tree, lower) = loop {
            let tree = domains::plan_places(&table, &found)?;
            match domains::hold_all(&tree.lower) {
                Ok(lower) => break (tree, lower),
                Err(NotHeld { mount, why }) => {
                    let point = tree.lower[mount].point.clone();
                    found.retain(|place| *place != point);
                    left_out.push(LeftOut { point, why });
                }
            }
        };
        if voice.verbose {
            left_out.iter().for_each(say_left_out);
        }
        if lower.is_empty() {
            return Err(nothing_left(&left_out));
        }
        Ok(Scope { depth: 1, tree, lower, whole: Some(Whole::Places(table, found)) })
    }

    /// Returns the mounts that the helper process keeps.
    pub fn lower(&self) -> &[Mounted] {
        &self.lower
    }

    /// Opens the domains.
    pub fn open(&self, os: &Linux, area: &Area, voice: Voice) -> Result<Opened<'_>> {
        let mut lower: Vec<&Mounted> = self.lower.iter().collect();
        let mut left_out = Vec::new();
        let (table, places) = match &self.whole {
            Some(Whole::Places(table, places)) => (table, places),
            whole => {
                let table = match whole {
                    Some(Whole::Roots(table)) => Some(table),
                    _ => None,
                };
                let domains = loop {
                    match domains::open(os, &lower, area) {
                        Ok(domains) => break domains,
                        Err(refused) => {
                            let point = lower[refused.mount].lower.point.clone();
                            if table.is_none() || !refused.by_anybody || point == b"/" {
                                return Err(refused.why);
                            }
                            lower.remove(refused.mount);
                            left_out.push(LeftOut { point, why: refused.why });
                        }
                    }
                };
                let tree = match table.filter(|_| !left_out.is_empty()) {
                    Some(table) => self.without(table, &left_out, &lower)?,
                    None => self.tree.clone(),
                };
                if !voice.json {
                    left_out.iter().for_each(say_left_out);
                }
                return Ok(Opened { depth: self.depth, tree, lower, domains });
            }
        };
        let domains = domains::open_what_opens(os, &mut lower, area, &mut left_out);
        let tree = if left_out.is_empty() {
            self.tree.clone()
        } else {
            let rest = |place: &&Vec<u8>| lower.iter().any(|mounted| mounted.lower.point == **place);
            let rest: Vec<_> = places.iter().filter(rest).cloned().collect();
            domains::plan_places(table, &rest)?
        };
        if !voice.json {
            left_out.iter().for_each(say_left_out);
        }
        if lower.is_empty() {
            return Err(nothing_left(&left_out));
        }
        if voice.verbose {
            let served: Vec<_> = lower.iter().map(|mounted| mounted.point()).collect();
            eprintln!("systx: served: {}. Everything else is read-only inside.", served.join(", "));
        }
        Ok(Opened { depth: self.depth, tree, lower, domains })
    }
}

impl Scope {
    /// Root's tree with these mounts left out, which has `lower` for views.
    fn without(&self, table: &[Mount], out: &[LeftOut], lower: &[&Mounted]) -> Result<Tree> {
        let points: Vec<_> = out.iter().map(|out| out.point.clone()).collect();
        let tree = domains::plan_without(table, &points)?;
        if tree.lower.iter().eq(lower.iter().map(|mounted| &mounted.lower)) {
            Ok(tree)
        } else {
            // Something was mounted meanwhile.
            Err("the mounts have changed; run again".into())
        }
    }
}

impl Opened<'_> {
    /// Shows roots that are not the user's as owned by the user: in the user's namespace no program could
    /// write below them else.
    pub fn share(&self, view: &mut View<Linux>) {
        let shown_as = ShownAs { uid: Linux::new().uid(), gid: process::group() };
        for (n, _) in self.lower.iter().enumerate().filter(|(_, mounted)| mounted.is_shared()) {
            view.share(n, shown_as);
        }
    }
}

/// Where it is more than one place: of several `--only` each is meant to be there.
fn say_served(tree: &Tree) {
    let (places, rest): (Vec<_>, _) = if tree.named.is_empty() {
        (tree.lower.iter().map(|lower| shown(&lower.point)).collect(), "")
    } else {
        (tree.named.iter().map(|dir| shown(dir)).collect(), " Outside of them the command runs natively.")
    };
    if places.len() > 1 {
        eprintln!("systx: served: {}.{rest}", places.join(", "));
    }
}

fn say_left_out(LeftOut { point, why }: &LeftOut) {
    eprintln!("systx: {} is read-only inside: {why}.", shown(point));
}

fn nothing_left(left_out: &[LeftOut]) -> Failure {
    let each: Vec<_> =
        left_out.iter().map(|LeftOut { point, why }| format!("{}: {why}", shown(point))).collect();
    let each = if each.is_empty() { String::new() } else { format!(" ({})", each.join("; ")) };
    let why = format!("nothing that user {} could change can be served{each}", Linux::new().uid());
    Failure::from(why).hint("name a directory of yours with --only")
}
