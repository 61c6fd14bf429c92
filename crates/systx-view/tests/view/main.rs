//! The same operations in a plain directory and through a view must give the same results, the same errors and, in the
//! view as after the commit, the same tree, on the file system of the temporary directory and on tmpfs.
//!
//! What differs on purpose: inode numbers of new objects, device numbers, change times, sizes and link counts of
//! directories (the file system's business), allocated blocks.

mod calls;
mod ends;
mod plain;
mod requests;
mod scripts;
mod tap;
mod world;

use std::path::Path;
use world::World;

/// Runs one set of operations in both trees and compares what they say and what they leave.
fn agree(what: &str, operations: fn(&World, &Path) -> Vec<String>) {
    for place in world::PLACES {
        let Some(mut world) = World::new(place) else { continue };
        let plain = operations(&world, &world.plain);
        let viewed = operations(&world, &world.view);
        for (line, (plain, viewed)) in plain.iter().zip(&viewed).enumerate() {
            assert_eq!(viewed, plain, "{what} on {place:?}: answer {line}");
        }
        assert_eq!(viewed.len(), plain.len());
        assert!(!plain.is_empty());
        same(&world.view, &world.plain, &format!("{what} on {place:?}: tree in the view"));
        world.commit();
        same(&world.below, &world.plain, &format!("{what} on {place:?}: tree after commit"));
    }
}

/// Compares two trees and shows only what differs.
fn same(viewed: &Path, plain: &Path, what: &str) {
    let (viewed, plain) = (plain::dump(viewed), plain::dump(plain));
    let only = |a: &[String], b: &[String]| a.iter().filter(|l| !b.contains(l)).cloned().collect::<Vec<_>>();
    assert_eq!(only(&viewed, &plain), only(&plain, &viewed), "{what}");
}

#[test]
fn shell_scripts_do_in_a_view_what_they_do_outside() {
    agree("scripts", |_, dir| scripts::ALL.iter().map(|script| scripts::run(script, dir)).collect());
}

#[test]
fn mapped_files_agree_with_written_ones() {
    if !scripts::has_python() {
        return;
    }
    agree("mappings", |_, dir| scripts::PYTHON.iter().map(|script| scripts::python(script, dir)).collect());
}

#[test]
fn data_calls_agree() {
    agree("data calls", |_, dir| calls::data(dir));
}

#[test]
fn name_calls_agree() {
    agree("name calls", |_, dir| calls::names(dir));
}

#[test]
fn attribute_calls_agree() {
    agree("attribute calls", |_, dir| calls::attributes(dir));
}

#[test]
fn directories_can_be_read_while_they_change() {
    agree("directories", |_, dir| calls::directories(dir));
}
