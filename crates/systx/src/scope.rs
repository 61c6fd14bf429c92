//! What a run serves: planned, held, and opened.
//!
//! Owns: the way from a mount table to open domains, and what an ordinary user's whole tree leaves out on it. Guarantees: what is
//! left out is read-only inside, and told: always where something is wrong with an area, else with `--verbose`. Does not:
//! decide which mounts are served ([`crate::tree`] does) or find an ordinary user's places ([`places`](ordinary::places)).

use crate::args::Area;
use crate::domains::{self, Mounted};
use crate::ordinary;
use crate::ordinary::places::{places, Places};
use crate::report::shown;
use crate::tree::Tree;
use std::path::PathBuf;
use std::sync::Arc;
use systx_engine::domain::Domain;
use systx_os::sandbox::mounts::Mount;
use systx_os::{process, Linux, Os};
use systx_view::{ShownAs, View};

/// From where a run looks at its machine: as root, or from within an ordinary user's namespace.
pub struct Standpoint {
    table: Vec<Mount>,
    /// Of an ordinary user's whole tree.
    places: Option<Places>,
}

impl Standpoint {
    /// Becomes able to mount, and looks at what there is for a run that serves what `only` says.
    pub fn enter(table: Vec<Mount>, only: &[PathBuf]) -> Result<Standpoint, String> {
        if !ordinary::is_ordinary() {
            ordinary::fuse().map_err(|refusal| refusal.to_string())?;
            return Ok(Standpoint { table, places: None });
        }
        // Before: in there nobody can tell root's directories from anybody's.
        let places = domains::is_everything(only).then(|| places(&table));
        ordinary::fuse().and_then(|()| ordinary::enter()).map_err(|refusal| refusal.to_string())?;
        Ok(Standpoint { table: domains::table()?, places })
    }
}

/// What a run is to serve, with a hold on it.
pub struct Scope {
    tree: Tree,
    lower: Vec<Mounted>,
    /// Of an ordinary user's whole tree: the mount table and the places, for who has to do without one of them.
    places: Option<(Vec<Mount>, Vec<Vec<u8>>)>,
}

/// What a run serves.
pub struct Opened<'a> {
    /// The command's tree.
    pub tree: Tree,
    /// Its served mounts.
    pub lower: Vec<&'a Mounted>,
    /// Their domains.
    pub domains: Vec<Arc<Domain<Linux>>>,
}

impl Scope {
    /// Plans it for the directories in `only`, or for the whole tree.
    pub fn take(from: Standpoint, only: &[PathBuf], verbose: bool) -> Result<Scope, String> {
        let scope = match from.places {
            Some(places) => Scope::of_places(from.table, places, verbose)?,
            _ => {
                let tree = domains::plan(&from.table, only)?;
                let lower = domains::hold(&tree.lower)?;
                Scope { tree, lower, places: None }
            }
        };
        if verbose {
            for (point, fs_type) in &scope.tree.read_only {
                eprintln!("systx: {} is read-only inside: {fs_type} can't be served.", shown(point));
            }
        }
        Ok(scope)
    }

    /// An ordinary user's whole tree.
    fn of_places(table: Vec<Mount>, places: Places, verbose: bool) -> Result<Scope, String> {
        let Places { mut found, mut left_out } = places;
        let (tree, lower) = loop {
            let tree = domains::plan_places(&table, &found)?;
            match domains::hold_all(&tree.lower) {
                Ok(lower) => break (tree, lower),
                Err((n, why)) => {
                    let point = tree.lower[n].point.clone();
                    found.retain(|place| *place != point);
                    left_out.push((point, why));
                }
            }
        };
        if verbose {
            left_out.iter().for_each(|(point, why)| say_left_out(point, why));
        }
        if lower.is_empty() {
            return Err(nothing_left(&left_out));
        }
        Ok(Scope { tree, lower, places: Some((table, found)) })
    }

    /// What a twin keeps.
    pub fn lower(&self) -> &[Mounted] {
        &self.lower
    }

    /// Opens the domains. `quiet`: standard error is for programs.
    pub fn open(&self, os: &Linux, area: &Area, verbose: bool, quiet: bool) -> Result<Opened<'_>, String> {
        let mut lower: Vec<&Mounted> = self.lower.iter().collect();
        let Some((table, places)) = &self.places else {
            let domains = domains::open(os, &lower, area).map_err(|(_, why)| why)?;
            return Ok(Opened { tree: self.tree.clone(), lower, domains });
        };
        let mut left_out = Vec::new();
        let domains = domains::open_what_opens(os, &mut lower, area, &mut left_out);
        let tree = match left_out.is_empty() {
            true => self.tree.clone(),
            false => {
                let rest = |place: &&Vec<u8>| lower.iter().any(|mounted| mounted.lower.point == **place);
                let rest: Vec<_> = places.iter().filter(rest).cloned().collect();
                domains::plan_places(table, &rest)?
            }
        };
        if !quiet {
            left_out.iter().for_each(|(point, why)| say_left_out(point, why));
        }
        if lower.is_empty() {
            return Err(nothing_left(&left_out));
        }
        if verbose {
            let served: Vec<_> = lower.iter().map(|mounted| mounted.point()).collect();
            eprintln!("systx: served: {}. Everything else is read-only inside.", served.join(", "));
        }
        Ok(Opened { tree, lower, domains })
    }
}

impl Opened<'_> {
    /// Shows the roots that are not the user's as his own: in his namespace nobody could write below them else.
    pub fn share(&self, view: &mut View<Linux>) {
        let shown_as = ShownAs { uid: Linux::new().uid(), gid: process::group() };
        for (n, _) in self.lower.iter().enumerate().filter(|(_, mounted)| mounted.is_shared()) {
            view.share(n, shown_as);
        }
    }
}

fn say_left_out(point: &[u8], why: &str) {
    eprintln!("systx: {} is read-only inside: {why}.", shown(point));
}

fn nothing_left(left_out: &[(Vec<u8>, String)]) -> String {
    let each: Vec<_> = left_out.iter().map(|(point, why)| format!("{}: {why}", shown(point))).collect();
    let each = if each.is_empty() { String::new() } else { format!(" ({})", each.join("; ")) };
    format!(
        "nothing that user {} could change can be served{each}; name a directory of yours with --only",
        Linux::new().uid()
    )
}
