//! Random transactions, and random paths in them.

use super::{choice, files, name, same_but_for_the_area};
use crate::world::*;
use systx_engine::changes::part::Unfit;
use systx_engine::changes::{Change, Kind};
use systx_engine::transaction::{Access, SetAttr, Transaction};
use systx_os::{FileType, Linux, Open, Rename};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn some_path(rng: &mut fastrand::Rng) -> String {
    let names: Vec<_> = (0..rng.usize(1..4)).map(|_| NAMES[rng.usize(0..NAMES.len())]).collect();
    names.join("/")
}

/// One random act; most of them are errors.
fn act(t: &mut Transaction<Linux>, rng: &mut fastrand::Rng) {
    let (path, other) = (some_path(rng), some_path(rng));
    let ((dir, name), (other_dir, other_name)) = (split(&path), split(&other));
    let (Ok((dir, _)), Ok((other_dir, _))) = (walk(t, dir), walk(t, other_dir)) else { return };
    let (name, other_name) = (name.as_bytes(), other_name.as_bytes());
    match rng.u8(0..14) {
        12 | 13 => {
            if let Ok((node, _)) = walk(t, &path) {
                let names = t.readdir(node).unwrap_or_else(|_| [].into());
                let all_gone = names.iter().all(|e| t.unlink(node, &e.name).is_ok());
                if all_gone && t.rmdir(dir, name).is_ok() {
                    let (made, _) = t.mkdir(dir, name, 0o755, me()).unwrap();
                    let again = names.first().map_or(&b"a"[..], |e| &e.name);
                    t.create(made, again, 0o644, me()).unwrap();
                }
            }
        }
        0 | 1 => drop(t.create(dir, name, 0o644, me())),
        2 | 3 => drop(t.mkdir(dir, name, 0o755, me())),
        4 => drop(t.unlink(dir, name)),
        5 => drop(t.rmdir(dir, name)),
        6 | 7 => drop(t.rename(dir, name, other_dir, other_name, Rename::Replace)),
        8 => drop(t.rename(dir, name, other_dir, other_name, Rename::Exchange)),
        9 => {
            if let Ok((node, _)) = walk(t, &path) {
                let _ = t.link(node, other_dir, other_name);
            }
        }
        10 => {
            let mode = Some(0o700 | rng.u32(0..64));
            if let Ok((node, _)) = walk(t, &path) {
                let _ = t.setattr(node, &SetAttr { mode, ..SetAttr::default() });
            }
        }
        _ => {
            if let Ok((node, attr)) = walk(t, &path) {
                if FileType::from_mode(attr.mode) == Some(FileType::File) {
                    t.open(node, Access::Write, rng.bool()).unwrap();
                    let bytes = vec![rng.u8(..); rng.usize(1..40_000)];
                    assert!(t.write_at(node, &bytes, rng.u64(0..3)).is_ok());
                    t.close(node);
                }
            }
        }
    }
}

/// The tree at a path and below it; how many names a file has is said elsewhere, too.
fn below<'a>(tree: &'a Tree, path: &str) -> Vec<(&'a String, Object)> {
    let at = if path.is_empty() { String::new() } else { format!("/{path}") };
    let under = format!("{at}/");
    let here = tree.iter().filter(|(name, _)| **name == at || name.starts_with(&under));
    let links = |object: &Object| if object.kind == FileType::Directory { object.nlink } else { 0 };
    here.map(|(name, object)| (name, Object { nlink: links(object), ..object.clone() })).collect()
}

/// What can be written to by other names.
fn has_links(tree: &Tree, path: &str) -> bool {
    tree.get(path).is_some_and(|object| object.kind != FileType::Directory && object.nlink > 1)
}

/// Chosen is as inside, excluded is as before, and what is shown in between is what is committed.
#[test]
fn parts_of_random_transactions_are_as_inside_where_chosen_and_as_before_where_excluded() {
    let seed = std::env::var("SYSTX_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| 20 + systx_runner::first_seed());
    let mut counts = [0u32; 5];
    for round in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed << 20 | round);
        let Some(scratch) = Scratch::new(std::env::temp_dir()) else {
            println!("skipped: the temporary directory is not writable");
            return;
        };
        let domain = domain(&scratch, "lower");
        let lower = scratch.0.join("lower");
        files(&lower, &["a/a", "a/b/c", "a/b/d", "b/a/a", "b/c", "c"]);
        std::fs::hard_link(lower.join("c"), lower.join("b/d")).unwrap();
        let mut t = begin(&domain);
        let before = seen(&mut t);
        (0..rng.usize(1..60)).for_each(|_| act(&mut t, &mut rng));
        let inside = seen(&mut t);
        let changes = t.changes().unwrap();
        let sides = changes.iter().flat_map(|change| [&change.before, &change.after]).flatten();
        let changed: Vec<_> = sides.map(|version| String::from_utf8(version.path.clone()).unwrap()).collect();
        let path = match changed.len() {
            0 => some_path(&mut rng),
            count => changed[rng.usize(..count)].clone(),
        };
        let path = if rng.u8(..4) == 0 { split(&path).0.to_string() } else { path };
        let mode = rng.usize(0..3);
        let choice = match mode {
            0 => choice(&[&path], &[]),
            1 => choice(&[], &[&path]),
            _ => choice(&[split(&path).0], &[&path]),
        };
        let what = format!("seed {seed}, round {round}: {choice:?}");
        let part = match t.choose(&changes, &choice).unwrap() {
            Ok(part) => part,
            Err(why) => {
                counts[3 + usize::from(matches!(why, Unfit::Needs(..)))] += 1;
                t.abort();
                continue;
            }
        };
        let chosen: Vec<_> = changes.iter().filter(|change| part.has(change)).map(name).collect();
        t.keep_only(&part).unwrap();
        let left: Vec<_> = t.changes().unwrap().iter().map(name).collect();
        assert_eq!(left, chosen, "{what}");
        let after = seen(&mut t);
        t.commit().unwrap_or_else(|e| panic!("{what}: {e}"));
        let root = Linux::new().open_path(&lower, Open::Directory).unwrap();
        same_but_for_the_area(after.clone(), real(&root), &what);
        let moved = |change: &Change| {
            change.kind == Kind::Renamed && change.before.as_ref().unwrap().kind() == FileType::Directory
        };
        if mode == 0 {
            assert_eq!(below(&after, &path), below(&inside, &path), "{what}");
        } else if !changes.iter().any(moved) {
            let [mut after_here, mut before_here] = [&after, &before].map(|tree| below(tree, &path));
            for here in [&mut after_here, &mut before_here] {
                here.retain(|(name, _)| ![&before, &inside, &after].iter().any(|tree| has_links(tree, name)));
            }
            assert_eq!(after_here, before_here, "{what}");
        } else {
            continue;
        }
        counts[mode] += 1;
    }
    println!("only, exclude, both; nothing there, refused: {counts:?}");
    assert!(counts[..4].iter().all(|count| *count > 0), "{counts:?}");
}
