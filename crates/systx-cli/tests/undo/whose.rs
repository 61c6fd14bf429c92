//! An ordinary user undoes the user's own transactions.

use super::machine::user::{open_fuse_to_all, UNPRIVILEGED, USER};
use super::machine::{systx, Case, AREA};
use super::*;
use std::os::unix::fs::chown;

pub const ALL: &[(&str, Case)] = &[("an_ordinary_user_undoes_his_own_transactions", an_ordinary_user)];

fn an_ordinary_user(dir: &Path) {
    let Some((_volume, tree)) = served(dir, "ext4") else { return };
    let beside = dir.join("beside");
    for made in [&tree, &beside] {
        std::fs::create_dir_all(made).unwrap();
        chown(made, Some(USER), Some(USER)).unwrap();
    }
    // Where it was built others may have no way to it.
    let program = dir.join("systx");
    std::fs::copy(systx(), &program).unwrap();
    open_fuse_to_all(dir);
    let as_user = |words: &[&str]| {
        let words: Vec<_> = UNPRIVILEGED.iter().chain(words).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&tree).env("HOME", &beside).env_remove("XDG_STATE_HOME");
        command.output().unwrap()
    };
    let (program, here) = (program.to_str().unwrap(), tree.to_str().unwrap());
    let plain = |script: &str| {
        let output = as_user(&["sh", "-e", "-c", script]);
        assert_eq!(code(&output), 0, "{}", err(&output));
    };
    let undoable = |script: &str| {
        let words = [
            program,
            "run",
            "--area-name",
            AREA,
            "--json",
            "--undoable",
            "--only",
            here,
            "--",
            "sh",
            "-e",
            "-c",
            script,
        ];
        let output = as_user(&words);
        assert_eq!(code(&output), 0, "{}", err(&output));
        outcome(&output)["id"].to_string()
    };
    let undo = |id: &str| as_user(&[program, "undo", "--area-name", AREA, id]);
    let area = format!("{AREA}-{USER}");
    let look = || {
        let mut all = picture(&tree);
        all.retain(|name, _| name.split('/').next() != Some(area.as_str()));
        all
    };
    plain("mkdir d; echo 1 > d/1; chmod 400 d/1; chmod 500 d; echo f > f; ln -s f l; ln f f2; chmod 000 f; seq 100000 > large");
    let before = look();
    let id = undoable(
        "chmod 700 d; rm -r d; chmod 600 f; echo more >> f; rm l; mkdir n; chmod 500 n; echo L >> large",
    );
    let after = look();
    assert!(after != before);
    // Root's undo knows nothing of it.
    let roots = super::undo(id.parse().unwrap(), &[]);
    assert_eq!(code(&roots), 125, "{}", err(&roots));
    let output = undo(&id);
    assert_eq!((code(&output), err(&output)), (0, String::new()));
    same(&look(), &before, &[""]);
    // Another user's change, here root's, is one of a program outside.
    let id = undoable("chmod 600 f; echo more >> f");
    let roots = run(&tree, &["--json"], &["sh", "-c", "echo root >> f"]).output().unwrap();
    assert_eq!(code(&roots), 0, "{}", err(&roots));
    let output = undo(&id);
    assert_eq!(code(&output), 75, "{}", err(&output));
    assert!(err(&output).contains("f: its contents have changed, by a program outside"), "{}", err(&output));
    must(Command::new("umount").arg("/dev/fuse"));
}
