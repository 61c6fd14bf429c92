//! Each call of the library beside the plain call of its name: the same answers, and the same trees behind a commit.

use super::built::{must, Built, Compiler};
use super::volume::Volume;
use super::KINDS;
use std::fs::{create_dir, write, Permissions};
use std::os::unix::fs::{chown, symlink, PermissionsExt};
use std::path::Path;
use std::process::Command;
use systx_runner::Tried;

/// A user who has no rights but the own.
const USER: u32 = 1000;

/// What the play begins with. Most of it is the player's.
fn begin_with(tree: &Path, player: u32) {
    let at = |name: &str| tree.join(name);
    for name in ["dir", "full", "tree", "tree/a"] {
        create_dir(at(name)).unwrap();
    }
    for name in ["file", "file2", "log", "cut", "emptied", "gone", "moved", "swap", "timed", "target"] {
        write(at(name), format!("{name}: 0123456789\nabcdefghijkl\n")).unwrap();
    }
    for name in ["dir/inner", "full/one", "tree/a/b", "program"] {
        write(at(name), name).unwrap();
    }
    for (target, name) in [("file", "link"), ("loop", "loop"), ("nowhere", "dangling")] {
        symlink(target, at(name)).unwrap();
    }
    std::fs::set_permissions(at("program"), Permissions::from_mode(0o755)).unwrap();
    must(Command::new("chown").args(["-R", "-h", &player.to_string()]).arg(tree));
    for (name, mode) in [("theirs", 0o644), ("secret", 0o600)] {
        write(at(name), name).unwrap();
        std::fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
    }
    create_dir(at("closed")).unwrap();
    write(at("closed/x"), "x").unwrap();
    std::fs::set_permissions(at("closed"), Permissions::from_mode(0o700)).unwrap();
    chown(at("closed"), Some(0), Some(0)).unwrap();
}

/// Names, types, modes, owners, links, sizes and bytes of a tree.
pub fn picture(tree: &Path) -> String {
    let script = "find . -name '.systx*' -prune -o -printf '%P %y %m %U:%G %l ' \
        \\( -type f -printf '%n %s ' -exec sh -c 'sha1sum < \"$1\"' sh {} \\; -o -printf '\\n' \\) | sort; \
        getfattr -R -h -d -m '^user' . 2>/dev/null | sed 's/^# file: //' ";
    must(Command::new("sh").arg("-c").arg(script).current_dir(tree))
}

fn same(what: &str, plain: &str, inside: &str) {
    let differs = plain.lines().zip(inside.lines()).filter(|(plain, inside)| plain != inside);
    let differences: Vec<_> =
        differs.map(|(plain, inside)| format!("plainly {plain}\n inside {inside}")).collect();
    assert!(differences.is_empty(), "{what}:\n{}", differences.join("\n"));
    assert_eq!(plain.lines().count(), inside.lines().count(), "{what}: one has said more");
}

fn play(built: &Built, dir: &Path, user: u32) -> Tried {
    let (plain, inside) =
        (built.program(Compiler::C, "calls", &["-DPLAIN"]), built.program(Compiler::C, "calls", &[]));
    let mut tried = Tried::Skipped;
    for kind in KINDS {
        let Some(volume) = Volume::new(dir, kind, 64) else { continue };
        let trees = ["plain", "inside"].map(|name| volume.tree().join(name));
        chown(volume.tree(), Some(user), None).unwrap();
        for tree in &trees {
            create_dir(tree).unwrap();
            begin_with(tree, user);
        }
        let user = user.to_string();
        let said = built.run(&plain, &[trees[0].as_os_str(), user.as_ref()]);
        assert!(said.lines().count() > 300, "{said}");
        let also = built.run(&inside, &[trees[1].as_os_str(), user.as_ref()]);
        same(kind, &said, &also);
        same(&format!("{kind}, behind the commit"), &picture(&trees[0]), &picture(&trees[1]));
        tried = Tried::Passed;
    }
    tried
}

pub fn as_root(built: &Built, dir: &Path) -> Tried {
    play(built, dir, 0)
}

pub fn as_a_user(built: &Built, dir: &Path) -> Tried {
    // The user has to come there.
    for above in dir.ancestors().take_while(|above| above.starts_with(std::env::temp_dir())) {
        std::fs::set_permissions(above, Permissions::from_mode(0o755)).unwrap();
    }
    play(built, dir, USER)
}
