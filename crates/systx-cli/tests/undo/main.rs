//! `systx undo`: a committed transaction is taken back as a whole, where nothing has changed since; else it
//! is said what has.
//!
//! `cargo test -p systx-cli --test undo [-- PART-OF-A-NAME]`

mod cut;
mod keeping;
#[path = "../machine/mod.rs"]
mod machine;
mod refused;
mod restored;
mod whose;

use machine::picture::{difference, picture, Picture};
use machine::volume::Volume;
use machine::{code, err, must, out, run, verb};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn main() {
    let all = [restored::ALL, refused::ALL, keeping::ALL, cut::ALL, whose::ALL].concat();
    machine::main_without_strays(&all);
}

/// A directory on a file system of its own.
fn served(dir: &Path, kind: &'static str) -> Option<(Volume, PathBuf)> {
    let volume = Volume::new(dir, kind, if kind == "xfs" { 320 } else { 128 })?;
    let tree = volume.point.join("tree");
    std::fs::create_dir(&tree).unwrap();
    Some((volume, tree))
}

fn plain(tree: &Path, script: &str) {
    must(Command::new("sh").args(["-e", "-c", script]).current_dir(tree));
}

/// A committed transaction; its number.
fn committed(tree: &Path, options: &[&str], script: &str) -> u64 {
    let output = run(tree, &[&["--json"], options].concat(), &["sh", "-e", "-c", script]).output().unwrap();
    let told = outcome(&output);
    assert_eq!((code(&output), told["outcome"].as_str()), (0, Some("committed")), "{told}");
    told["id"].as_u64().unwrap()
}

fn undoable(tree: &Path, script: &str) -> u64 {
    committed(tree, &["--undoable"], script)
}

fn undo(id: u64, options: &[&str]) -> Output {
    verb("undo", &[&[id.to_string().as_str()], options].concat())
}

/// One that has to succeed, and says nothing then.
fn undone(id: u64) {
    let output = undo(id, &[]);
    assert_eq!((code(&output), err(&output), out(&output)), (0, String::new(), String::new()));
}

/// The outcome as JSON: the last line of standard error.
fn outcome(output: &Output) -> Value {
    let text = err(output);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Two trees are the same but for the times of these directories, whose names have changed.
fn same(found: &Picture, expected: &Picture, moved: &[&str]) {
    let without = |picture: &Picture| -> Picture {
        let line = |name: &String, line: &String| match moved.contains(&name.as_str()) {
            true => line.split(' ').enumerate().filter(|(n, _)| *n != 2).map(|(_, word)| word).collect(),
            false => line.clone(),
        };
        picture.iter().map(|(name, text)| (name.clone(), line(name, text))).collect()
    };
    let (found, expected) = (without(found), without(expected));
    assert!(found == expected, "{}", difference(&found, &expected));
}

/// Names in a directory of the area; none: there is no such directory.
fn in_area(volume: &Volume, dir: &str) -> Vec<String> {
    let mut names: Vec<_> = match std::fs::read_dir(volume.area().join(dir)) {
        Ok(names) => names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect(),
        Err(_) => Vec::new(),
    };
    names.sort();
    names
}
