//! Shared mappings: `maps.py` in a plain directory and in a view.

use super::alone::place::{code, err, must, out, Place};
use super::{same_answers, seeds};
use std::path::Path;
use std::process::{Command, Output};

/// The words of `maps.py` in front of its own.
const PYTHON: [&str; 3] = ["python3", "-c", include_str!("maps.py")];

/// Checks that bytes stored through a mapping are there after the commit: files of every size around the
/// limits between memory, staging and passthrough, and every order of opening, reading, faulting, storing,
/// msync, closing, growing.
pub fn agree(p: &Place) {
    if Command::new("python3").arg("-c").arg("").status().map_or(true, |status| !status.success()) {
        println!("skipped: no python3");
        return;
    }
    for seed in seeds().into_iter().take(if super::long() { 60 } else { 1 }) {
        let (plain, viewed) = (p.mount.join(format!("maps.{seed}")), p.served.join(seed.to_string()));
        for dir in [&plain, &viewed] {
            std::fs::create_dir(dir).unwrap();
            must(python(&["begin"]).current_dir(dir));
        }
        let text = seed.to_string();
        let play = [&PYTHON[..], &["play", &text]].concat();
        let natively = Command::new(play[0]).args(&play[1..]).current_dir(&plain).output().unwrap();
        let inside = p.systx(&[], &play).current_dir(&viewed).output().unwrap();
        assert_eq!((code(&natively), err(&natively).as_str()), (0, ""), "seed {seed}");
        same_answers(seed, &natively, &inside);
        assert_eq!((code(&inside), err(&inside).as_str()), (0, ""), "seed {seed}");
        let (said, committed) = (in_the_end(&natively), look(&viewed));
        let wrong: Vec<_> = said.iter().zip(&committed).filter(|(natively, here)| natively != here).collect();
        assert!(said.len() == committed.len() && wrong.is_empty(), "seed {seed}: {wrong:#?}");
        std::fs::remove_dir_all(plain).unwrap();
        std::fs::remove_dir_all(viewed).unwrap();
    }
}

fn python(words: &[&str]) -> Command {
    let mut python = Command::new(PYTHON[0]);
    python.args(&PYTHON[1..]).args(words);
    python
}

fn look(dir: &Path) -> Vec<String> {
    in_the_end(&python(&["end"]).current_dir(dir).output().unwrap())
}

fn in_the_end(output: &Output) -> Vec<String> {
    out(output).lines().skip_while(|line| *line != "end").map(str::to_owned).collect()
}
