//! Import circles: no module of any crate uses, directly or through others, a sibling that uses it.
//!
//! The unit is the module among its siblings: the modules at the top of a crate, and those of each directory.
//! A module counts with everything below it, so that directories are held apart, too. What a directory's own
//! `mod.rs` has is no sibling of the files in it: they may use what it defines, and it uses them. An import
//! leads to the module that defines what is imported, whatever re-exports it. Code under `#[cfg(test)]` does
//! not count.

mod source;

use source::{Crate, Path};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;

/// One use of a module by another: both names, and what is used.
type Edges = BTreeMap<(Path, Path), BTreeSet<String>>;

/// Which siblings use which, below one module, each with one example.
type Siblings = BTreeMap<Path, BTreeMap<Path, String>>;

/// The siblings below `parent` that use one another.
fn siblings(edges: &Edges, parent: &[String]) -> Siblings {
    let unit = |path: &Path| {
        let below = path.len() > parent.len() && path.starts_with(parent);
        below.then(|| path[..=parent.len()].to_vec())
    };
    let mut found = Siblings::new();
    for ((from, to), names) in edges {
        let (Some(one), Some(other)) = (unit(from), unit(to)) else { continue };
        if one != other {
            let example = names.first().map_or("", |name| name);
            let example = format!("{} uses {}::{example}", from.join("::"), to.join("::"));
            found.entry(one).or_default().entry(other).or_insert(example);
        }
    }
    found
}

/// A shortest way from `start` back to itself.
fn circle(siblings: &Siblings, start: &Path) -> Option<Vec<Path>> {
    let mut came: BTreeMap<&Path, &Path> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(at) = queue.pop_front() {
        for next in siblings.get(at).into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                let mut way = vec![at.clone()];
                while way[way.len() - 1] != *start {
                    way.push(came[&way[way.len() - 1]].clone());
                }
                way.reverse();
                return Some(way);
            }
            if !came.contains_key(next) {
                came.insert(next, at);
                queue.push_back(next);
            }
        }
    }
    None
}

/// Every circle of a crate, one a knot, told with an example of each import.
fn circles(of: &Crate) -> Vec<String> {
    let edges = of.edges();
    let mut told = Vec::new();
    for parent in of.modules.keys() {
        let siblings = siblings(&edges, parent);
        let mut known: BTreeSet<Path> = BTreeSet::new();
        for start in siblings.keys() {
            if known.contains(start) {
                continue;
            }
            let Some(way) = circle(&siblings, start) else { continue };
            let names: Vec<_> = way.iter().chain([start]).map(|path| path.join("::")).collect();
            let mut text = names.join(" → ");
            for (n, one) in way.iter().enumerate() {
                text += &format!("\n    {}", siblings[one][&way[(n + 1) % way.len()]]);
            }
            told.push(text);
            known.extend(way);
        }
    }
    told
}

#[test]
fn no_crate_has_an_import_circle_among_sibling_modules() {
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut told, mut modules) = (Vec::new(), 0);
    for entry in fs::read_dir(crates).expect("lists") {
        let dir = entry.expect("lists").path();
        let src = dir.join("src");
        let Some(root) = ["lib.rs", "main.rs"].iter().map(|name| src.join(name)).find(|file| file.exists())
        else {
            continue;
        };
        let of = Crate::load(&root, &|file| fs::read_to_string(file).ok());
        modules += of.modules.len();
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        told.extend(circles(&of).into_iter().map(|circle| format!("{name}: {circle}")));
    }
    assert!(modules > 300, "only {modules} modules were found");
    assert!(told.is_empty(), "import circles:\n{}", told.join("\n"));
}

/// A crate of these files.
fn planted(files: &[(&str, &str)]) -> Crate {
    let read = |file: &std::path::Path| {
        let named = |(name, _): &&(&str, &str)| std::path::Path::new(name) == file;
        files.iter().find(named).map(|(_, text)| (*text).to_owned())
    };
    Crate::load(std::path::Path::new("lib.rs"), &read)
}

#[test]
fn a_circle_is_named_with_its_imports() {
    let of = planted(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "pub use crate::c::hidden::C as B; // not here: crate::a::A"),
        ("c/mod.rs", "pub mod hidden;"),
        ("c/hidden.rs", "pub struct C; fn f() { crate::a::A; }"),
    ]);
    let told = circles(&of);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("a → c → a\n"), "what b only passes on is no use of b: {told:?}");
    assert!(told[0].contains("c::hidden uses a::A"), "{told:?}");
}

#[test]
fn tests_strings_and_the_parent_make_no_circle() {
    let of = planted(&[
        ("lib.rs", "mod a; mod b; pub const N: u8 = 1; fn f() { a::g(); }"),
        ("a.rs", "use crate::{b::B, N}; #[cfg(test)] use crate::b; pub fn g() {}"),
        (
            "b.rs",
            "pub struct B; const S: &str = r#\"crate::a::g\"#; const C: char = '\"'; fn h<'a>(_: &'a str) {}
             #[cfg(test)] mod tests { use super::*; use crate::a::g; }
             #[cfg(test)] fn only() { crate::a::g() }
             impl B { #[cfg(test)] pub fn only(&self) { crate::a::g() } }",
        ),
    ]);
    assert_eq!(circles(&of), Vec::<String>::new());
}
