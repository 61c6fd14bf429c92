//! Abilities of an ordinary user's run, and its limits.

use super::machine::user::USER;
use super::machine::{code, err, have, must, out, Case, AREA};
use super::world::{world, Waiting};
use std::os::unix::fs::{chown, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

pub const ALL: &[(&str, Case)] = &[
    ("all_of_an_ordinary_users_run_or_nothing", all_of_an_ordinary_users_run_or_nothing),
    ("the_command_has_no_privilege_and_its_own_number", the_command_has_no_privilege),
    ("a_setuid_program_stays_the_users", a_setuid_program_stays_the_users),
    ("what_belongs_to_others_stays_as_it_is", what_belongs_to_others_stays_as_it_is),
    ("what_is_forbidden_fails_as_natively_and_nothing_happens", what_is_forbidden_fails_as_natively),
    ("a_permission_that_goes_before_the_commit_is_told_and_nothing_happens", a_permission_that_goes_is_told),
    ("a_mode_changes_beside_list_entries_of_others", modes_change_beside_entries),
];

fn all_of_an_ordinary_users_run_or_nothing(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let setup =
        "mkdir old ro; echo one >old/one; echo two >two; chmod 0400 two; seq 100000 >large; ln two link; \
                 echo a >ro/a; chmod 0555 ro";
    assert_eq!(code(&w.plain(setup)), 0);
    let before = w.picture();
    let change =
        "mkdir -p new/deep; echo n >new/deep/n; rm -r old; chmod 0640 two; echo more >>two; ln -s two sym; \
                  mv large grown; echo end >>grown; setfattr -n user.a -v b grown 2>/dev/null; mkfifo pipe; \
                  touch -d @1 new; chmod 0500 new; chmod u+w ro; mv ro/a ro/b; chmod 0500 ro; mv ro moved; \
                  echo none >none; chmod 0 none";
    let failed = w.shell(&format!("{change}; exit 3"));
    assert_eq!(code(&failed), 3, "{}", err(&failed));
    assert_eq!(w.picture(), before);

    let done = w.shell(change);
    assert_eq!((code(&done), err(&done)), (0, String::new()));
    assert_eq!((w.read("two"), w.read("link")), ("two\nmore\n".into(), "two\nmore\n".into()));
    assert_eq!(w.read("new/deep/n"), "n\n");
    assert!(!w.tree.join("old").exists() && !w.tree.join("large").exists());
    let grown = w.read("grown");
    assert!(grown.starts_with("1\n") && grown.ends_with("100000\nend\n"));
    let meta = |name: &str| std::fs::symlink_metadata(w.tree.join(name)).unwrap();
    assert_eq!((meta("new").mode() & 0o7777, meta("new").mtime()), (0o500, 1));
    assert_eq!(meta("two").mode() & 0o7777, 0o640);
    assert_eq!((meta("moved").mode() & 0o7777, w.read("moved/b")), (0o500, "a\n".into()));
    assert_eq!((meta("none").mode() & 0o7777, w.read("none")), (0, "none\n".into()));
    for name in ["none", "moved/b", "new", "new/deep", "new/deep/n", "two", "sym", "grown", "pipe"] {
        assert_eq!((meta(name).uid(), meta(name).gid()), (USER, USER), "{name}");
    }
    let area = std::fs::symlink_metadata(w.area()).unwrap();
    assert_eq!((area.uid(), area.mode() & 0o7777), (USER, 0o700));
    // Files that the user can't see are not left where root's area would be.
    assert!(!w.own.join(AREA).exists() && !w.own.parent().unwrap().join(AREA).exists());
    assert_eq!(out(&w.verb(&["list"]).output().unwrap()), "");
}

fn the_command_has_no_privilege(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let script = "id -u; id -g; cat /proc/self/uid_map /proc/self/gid_map | tr -s ' '; grep -E 'Cap(Eff|Prm|Inh|Amb)' \
                  /proc/self/status | cut -f2; umount . 2>/dev/null || echo stays; ls -a ..";
    let told = w.shell(script);
    assert_eq!(code(&told), 0, "{}", err(&told));
    let none = "0000000000000000\n".repeat(4);
    let begin = format!("{USER}\n{USER}\n {USER} {USER} 1\n {USER} {USER} 1\n{none}stays\n");
    assert!(out(&told).starts_with(&begin), "{}", out(&told));
    // With the whole of the user's directory served, the area is not in it.
    let own = w.own.to_str().unwrap();
    let listed = w.verb(&["run", "--only", own, "--", "ls", "-a", own]).output().unwrap();
    assert_eq!(out(&listed), ".\n..\ntree\n", "{}", err(&listed));
}

/// A limit: root has no number in the user namespace. docs/limits.md.
fn a_setuid_program_stays_the_users(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let id = w.tree.join("id");
    must(Command::new("sh").args(["-c", "cp \"$(command -v id)\" \"$0\" && chmod 4755 \"$0\""]).arg(&id));
    let plain = w.plain("./id -u");
    if out(&plain) != "0\n" {
        println!(
            "skipped: setuid programs get nothing in {}: {}{}",
            w.tree.display(),
            out(&plain),
            err(&plain)
        );
        return;
    }
    let told = w.shell("./id -u; ./id -ru; stat -c %a id");
    assert_eq!((code(&told), out(&told)), (0, format!("{USER}\n{USER}\n4755\n")), "{}", err(&told));
    assert_eq!(out(&w.plain("./id -u")), "0\n");
}

fn what_belongs_to_others_stays_as_it_is(dir: &Path) {
    let Some(w) = world(dir) else { return };
    for (name, mode, uid) in [("shown", 0o644, 0), ("secret", 0o600, 0), ("open", 0o666, 1001)] {
        std::fs::write(w.tree.join(name), format!("{name}\n")).unwrap();
        std::fs::set_permissions(w.tree.join(name), PermissionsExt::from_mode(mode)).unwrap();
        chown(w.tree.join(name), Some(uid), Some(uid)).unwrap();
    }
    let before = w.picture();
    let tried = "cat shown; cat secret; echo x >shown; echo x >secret; echo x >open; chmod 0777 shown; \
                 touch shown; chown $(id -u) shown; mv secret mine; rm -f shown; mkdir -p own; echo own >own/file";
    let tried = w.shell(tried);
    assert_eq!((code(&tried), out(&tried)), (0, "shown\n".into()), "{}", err(&tried));
    assert_eq!(w.read("own/file"), "own\n");
    std::fs::remove_dir_all(w.tree.join("own")).unwrap();
    let without_times = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with(" d ")).map(String::from).collect()
    };
    assert_eq!(without_times(&w.picture()), without_times(&before));
}

fn what_is_forbidden_fails_as_natively(dir: &Path) {
    let Some(w) = world(dir) else { return };
    std::fs::write(w.tree.join("not-mine"), "root's\n").unwrap();
    std::fs::create_dir(w.tree.join("not-my-dir")).unwrap();
    std::fs::write(w.tree.join("not-my-dir/in"), "in\n").unwrap();
    // For names and attributes of objects whose owner has no number in the user's namespace the kernel has
    // another word (docs/limits.md).
    for (script, same_words) in [
        ("echo x > not-mine", true),
        ("echo x >> not-mine", true),
        ("echo x > not-my-dir/new", true),
        ("mkdir not-my-dir/new", true),
        ("ln not-my-dir/in here && echo x > here", false),
        ("mv not-my-dir/in here", false),
        ("rm -f not-my-dir/in", false),
        ("chmod 0666 not-mine", false),
        ("chown $(id -u) not-mine", false),
        ("touch -d @1 not-mine", false),
    ] {
        let before = w.picture();
        // Earlier changes of the run go with it.
        let run = w.shell(&format!("echo mine > mine; {script}"));
        assert_eq!(w.picture(), before, "{script}");
        let native = w.plain(script);
        assert_eq!(w.picture(), before, "{script} is not forbidden");
        assert_ne!(code(&native), 0, "{script} is not forbidden");
        assert_eq!(code(&run), code(&native), "{script}: {}", err(&run));
        let (told, words) = (err(&run), err(&native));
        assert!(told.contains("nothing was changed"), "{script}: {told}");
        let overflow = told.contains("Value too large for defined data type");
        assert!(told.starts_with(&words) || (!same_words && overflow), "{script}: {told}natively: {words}");
    }
}

fn a_permission_that_goes_is_told(dir: &Path) {
    let Some(w) = world(dir) else { return };
    // Change by the user, later change by root, and the path that is reported.
    let to_dir = ["chmod 500 d", "chown root d", "chown root:root d; chmod 700 d"];
    let to_file = ["chmod 400 d/f", "chown root d/f", "chown root:root d/f; chmod 600 d/f"];
    let in_dir =
        ["echo new > d/new", "rm d/f", "mv d/f d/g", "mv d/f here", "mkdir -p d/sub/deep", "ln f d/l"];
    let in_file = ["echo more >> d/f", "echo other > d/f", "chmod 640 d/f", "touch -d @1 d/f"];
    let cases = in_dir.iter().flat_map(|ours| to_dir.iter().map(move |roots| (ours, roots, "d")));
    let cases =
        cases.chain(in_file.iter().flat_map(|ours| to_file.iter().map(move |roots| (ours, roots, "d/f"))));
    for (ours, roots, place) in cases {
        let at = format!("{ours}, then {roots}");
        std::fs::remove_dir_all(&w.tree).unwrap();
        std::fs::create_dir(&w.tree).unwrap();
        chown(&w.tree, Some(USER), Some(USER)).unwrap();
        assert_eq!(code(&w.plain("mkdir d; seq 3 > d/f; echo f > f")), 0);
        let run = Waiting::begin(&w, &[], ours, "true");
        must(Command::new("sh").args(["-c", roots]).current_dir(&w.tree));
        let then = w.picture();
        let output = run.end();
        assert!([75, 125].contains(&code(&output)), "{at}: {} {}", code(&output), err(&output));
        assert_eq!(w.picture(), then, "{at}");
        let told = err(&output);
        let path = w.tree.join(place);
        assert!(
            told.contains("nothing was changed") && told.contains(path.to_str().unwrap()),
            "{at}: {told}"
        );
    }
    assert_eq!(out(&w.verb(&["list"]).output().unwrap()), "");
}

fn modes_change_beside_entries(dir: &Path) {
    let Some(w) = world(dir) else { return };
    if !have("setfacl") || !have("getfacl") {
        return;
    }
    assert_eq!(
        code(&w.plain("echo a >file; mkdir d; setfacl -m u:1234:rw,g:1235:r file; setfacl -m u:1234:rwx d")),
        0
    );
    let done = w.shell("chmod 0640 file; chmod 0750 d; stat -c %a file d; echo b >>file; mv file d");
    assert_eq!((code(&done), out(&done), err(&done)), (0, "640\n750\n".into(), String::new()));
    let lists = out(&w.plain("getfacl -cn --omit-header --no-effective d d/file"));
    let wanted = "user::rwx\nuser:1234:rwx\ngroup::r-x\nmask::r-x\nother::---\n\n\
                  user::rw-\nuser:1234:rw-\ngroup::r--\ngroup:1235:r--\nmask::r--\nother::---\n\n";
    assert_eq!((lists.as_str(), w.read("d/file").as_str()), (wanted, "a\nb\n"));
    assert_eq!(out(&w.verb(&["list"]).output().unwrap()), "");
}
