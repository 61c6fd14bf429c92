//! An ordinary user's run over the whole tree: everything that the user could change is one transaction,
//! everything else is read-only.
//!
//! The user's home and /tmp lie on one file system, as on most machines; /var/tmp has one of its own.

use super::cut::kill;
use super::machine::picture::{picture, Picture};
use super::machine::processes::Stopped;
use super::machine::user::USER;
use super::machine::{code, err, have, must, out, Case, AREA};
use super::world::{world, World};
use std::io::Write;
use std::os::unix::fs::{chown, symlink, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("whole_his_places_are_one_transaction", his_places_are_one_transaction),
    ("whole_everything_else_is_read_only", everything_else_is_read_only),
    ("whole_what_others_have_in_tmp_stays_theirs", what_others_have_in_tmp_stays_theirs),
    ("whole_tmp_itself_stays_roots", tmp_itself_stays_roots),
    ("whole_two_users_in_tmp_do_not_disturb_each_other", two_users_do_not_disturb_each_other),
    ("whole_an_area_that_others_have_made_is_not_used", an_area_of_others_is_not_used),
    ("whole_an_area_in_tmp_is_its_users_alone", an_area_in_tmp_is_its_users_alone),
    ("whole_mounts_in_his_home_leave_it_out", mounts_in_his_home_leave_it_out),
    ("whole_a_mount_of_his_is_served", a_mount_of_his_is_served),
    ("whole_a_cleaned_area_is_made_anew", a_cleaned_area_is_made_anew),
    ("whole_nothing_left_to_serve_is_refused", nothing_left_is_refused),
    ("whole_every_verb_works", every_verb_works),
    ("whole_a_transaction_stays_open", a_transaction_stays_open),
    ("whole_killed_in_mid_commit_it_is_finished", killed_in_mid_commit_it_is_finished),
    ("whole_doctor_says_what_is_served", doctor_says_what_is_served),
];

/// The other one.
pub const OTHER: u32 = USER + 1;

/// A world whose /tmp is a directory of the file system that the user's directory is on.
pub fn whole(dir: &Path) -> Option<World> {
    with_tmp(world(dir)?)
}

pub fn with_tmp(w: World) -> Option<World> {
    let tmp = w.own.parent().unwrap().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    std::fs::set_permissions(&tmp, PermissionsExt::from_mode(0o1777)).unwrap();
    must(Command::new("umount").arg("/tmp"));
    must(Command::new("mount").arg("--bind").arg(&tmp).arg("/tmp"));
    Some(w)
}

/// A verb of systx by a user who lives in a directory of their own.
pub fn verb(w: &World, uid: u32, words: &[&str]) -> Command {
    let program = w.program.to_str().unwrap();
    let all: Vec<_> = [program, words[0], "--area-name", AREA].iter().chain(&words[1..]).copied().collect();
    let mut command = as_user(w, uid, &all);
    let home = if uid == USER { w.own.clone() } else { home_of_the_other(w) };
    command.env("HOME", &home).current_dir(home);
    command
}

fn home_of_the_other(w: &World) -> PathBuf {
    let home = w.own.with_file_name("other");
    if !home.exists() {
        std::fs::create_dir(&home).unwrap();
        chown(&home, Some(OTHER), Some(OTHER)).unwrap();
    }
    home
}

/// These words by a user without privileges.
fn as_user(w: &World, uid: u32, words: &[&str]) -> Command {
    // The namesakes of World's own user, with another number.
    let plain = w.through(&[], words);
    let mut command = Command::new(plain.get_program());
    for word in plain.get_args() {
        let text = word.to_str().unwrap();
        let number = text.strip_prefix("--reuid=").or(text.strip_prefix("--regid="));
        command.arg(number.map_or(text.into(), |number| text.replace(number, &uid.to_string())));
    }
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(plain.get_current_dir().unwrap()).stdin(Stdio::null());
    command
}

pub fn run(w: &World, options: &[&str], script: &str) -> Output {
    verb(w, USER, &[&["run"], options, &["--", "bash", "-c", script]].concat()).output().unwrap()
}

/// Runs a user's script without a transaction.
pub fn plain(w: &World, uid: u32, script: &str) -> Output {
    let mut command = as_user(w, uid, &["bash", "-c", script]);
    command.env("HOME", &w.own).current_dir(&w.own).output().unwrap()
}

/// Returns what is below a directory, but for areas and what systx notes in a home.
pub fn seen(dir: &Path) -> Picture {
    let mut picture = picture(dir);
    let ours = |name: &str| {
        name.is_empty()
            || name.starts_with(&format!("{AREA}-"))
            || name == ".local"
            || name.starts_with(".local/state")
    };
    picture.retain(|name, _| !ours(name));
    picture
}

fn everything(w: &World) -> [Picture; 3] {
    [seen(&w.own), seen(Path::new("/tmp")), seen(Path::new("/var/tmp"))]
}

fn his_places_are_one_transaction(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    let before = everything(&w);
    // Files that `mktemp` and here-documents of a script need, and the ones that stay.
    let script = "set -e; t=$(mktemp); sort <<<$'b\\na' >$t; mkdir -p ~/done; cp $t ~/done/sorted; d=$(mktemp -d); \
                  cp $t $d/copy; mv $d/copy ~/done/moved; rm -r $d $t; echo kept >/tmp/kept; ln /tmp/kept /tmp/link; \
                  mkdir /tmp/dir; mv /tmp/kept /tmp/dir/in; ln -s dir /tmp/sym; echo v >/var/tmp/v; echo s >/dev/shm/s";
    let failed = run(&w, &[], &format!("{script}; cat /dev/shm/s; exit 3"));
    assert_eq!((code(&failed), out(&failed)), (3, "s\n".into()), "{}", err(&failed));
    assert_eq!(everything(&w), before);
    let done = run(&w, &[], script);
    assert_eq!((code(&done), err(&done)), (0, String::new()));
    let names = |dir: &str| seen(Path::new(dir)).into_keys().collect::<Vec<_>>();
    assert_eq!(names("/tmp"), ["dir", "dir/in", "link", "sym"]);
    assert_eq!(names("/var/tmp"), ["v"]);
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert_eq!(
        (read("/tmp/sym/in"), read("/tmp/link"), read("/var/tmp/v")),
        ("kept\n".into(), "kept\n".into(), "v\n".into())
    );
    assert_eq!(std::fs::metadata("/tmp/link").unwrap().nlink(), 2);
    for name in ["sorted", "moved"] {
        assert_eq!(std::fs::read_to_string(w.own.join("done").join(name)).unwrap(), "a\nb\n");
    }
    for path in ["/tmp/dir", "/tmp/dir/in", "/tmp/sym", "/var/tmp/v"] {
        let meta = std::fs::symlink_metadata(path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (USER, USER), "{path}");
    }
    // POSIX IPC is the command's own.
    assert!(!Path::new("/dev/shm/s").exists());
    assert_eq!(out(&verb(&w, USER, &["list"]).output().unwrap()), "");
}

fn everything_else_is_read_only(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    // Owned by the user, and where no run would find it: not served, so nothing of it may escape.
    let hidden = w.own.parent().unwrap().join("srv/app");
    std::fs::create_dir_all(&hidden).unwrap();
    std::fs::write(hidden.join("file"), "old\n").unwrap();
    for path in [hidden.clone(), hidden.join("file")] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let hidden = hidden.to_str().unwrap();
    let told = run(
        &w,
        &["--verbose"],
        &format!("echo x >{hidden}/file; echo x >{hidden}/new; rm -f {hidden}/file; chmod 0 {hidden}/file; echo home >~/a; \
                  echo to-null >/dev/null; echo 5 >/proc/self/oom_score_adj && cat /proc/self/oom_score_adj; cat {hidden}/file"),
    );
    assert_eq!((code(&told), out(&told)), (0, "5\nold\n".into()), "{}", err(&told));
    assert_eq!(err(&told).matches("Read-only file system").count(), 4, "{}", err(&told));
    let own = w.own.display();
    let served = format!("systx: served: {own}, /tmp, /var/tmp. Everything else is read-only inside.\n");
    assert!(err(&told).contains(&served), "{}", err(&told));
    assert_eq!(std::fs::read_to_string(Path::new(hidden).join("file")).unwrap(), "old\n");
    assert_eq!(std::fs::read_to_string(w.own.join("a")).unwrap(), "home\n");
    // Directories that others could take from the user are not served either.
    for (mode, owner) in [(0o777, 0), (0o1777, OTHER), (0o3777, 0)] {
        let open = w.dir.join(format!("open-{mode:o}"));
        std::fs::create_dir(&open).unwrap();
        chown(&open, Some(owner), Some(owner)).unwrap();
        std::fs::set_permissions(&open, PermissionsExt::from_mode(mode)).unwrap();
        let mut there = verb(&w, USER, &["run", "--", "sh", "-c", "echo x >x"]);
        let there = there.env("TMPDIR", &open).current_dir(&open).output().unwrap();
        assert!(err(&there).contains("x: Read-only file system"), "{mode:o}: {}", err(&there));
        assert_eq!(std::fs::read_dir(&open).unwrap().count(), 0, "{mode:o}");
    }
    // From there it is served, with all that is the user's above it.
    let here = || verb(&w, USER, &["run", "--", "sh", "-c", "echo new >file"]);
    let there = here().current_dir(hidden).output().unwrap();
    assert_eq!(code(&there), 0, "{}", err(&there));
    assert_eq!(std::fs::read_to_string(Path::new(hidden).join("file")).unwrap(), "new\n");
    // And ever after, as systx has noted it.
    let noted = run(&w, &[], &format!("echo again >{hidden}/file"));
    assert_eq!(code(&noted), 0, "{}", err(&noted));
    assert_eq!(std::fs::read_to_string(Path::new(hidden).join("file")).unwrap(), "again\n");
}

/// Makes the other user's files in /tmp.
fn others(w: &World) {
    let made = "cd /tmp; echo open >open; chmod 666 open; echo shut >shut; chmod 600 shut; mkdir dir; echo in >dir/in; \
                ln -s open sym; mkdir wide; chmod 777 wide; echo his >wide/his; touch -d @1 open shut dir/in wide/his";
    assert_eq!(code(&plain(w, OTHER, made)), 0);
    std::fs::write("/tmp/roots", "root's\n").unwrap();
    std::fs::set_permissions("/tmp/roots", PermissionsExt::from_mode(0o666)).unwrap();
}

fn what_others_have_in_tmp_stays_theirs(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    others(&w);
    let read = run(&w, &[], "cd /tmp; cat open dir/in roots wide/his; cat shut; ls dir");
    assert_eq!(out(&read), "open\nin\nroot's\nhis\nin\n", "{}", err(&read));
    assert!(err(&read).contains("shut: Permission denied"), "{}", err(&read));
    let before = seen(Path::new("/tmp"));
    for script in [
        "rm -f open",
        "rm -f shut",
        "rm -rf dir",
        "rm sym",
        "rm -f roots",
        "mv open mine",
        "mv dir mine",
        "mv roots mine",
        "touch mine; mv -f mine open",
        "touch mine; mv -fT mine roots",
        "mkdir mine; mv -T mine dir",
        "touch mine; mv --exchange mine open",
        "chmod 777 open",
        "chmod 777 roots",
        "chown $(id -u) open",
        "touch -d @5 open",
        "touch dir/new",
        "rm -f dir/in",
        "echo x >shut",
        "cat shut",
        "ln shut mine && cat mine",
        "ln -sf x open",
    ] {
        let script = format!("cd /tmp; {script}");
        let native = plain(&w, USER, &script);
        must(Command::new("sh").args(["-c", "rm -rf /tmp/mine"]));
        let inside = run(&w, &[], &script);
        assert!(
            code(&native) != 0 && code(&native) == code(&inside),
            "{script}: {}{}",
            err(&native),
            err(&inside)
        );
        assert!(err(&inside).contains("nothing was changed"), "{script}: {}", err(&inside));
        assert_eq!(seen(Path::new("/tmp")), before, "{script}");
    }
}

fn tmp_itself_stays_roots(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    let look = || {
        let meta = std::fs::metadata("/tmp").unwrap();
        (meta.uid(), meta.gid(), meta.mode(), meta.mtime())
    };
    must(Command::new("touch").args(["-d", "@1000000000", "/tmp"]));
    assert_eq!(code(&run(&w, &[], "true")), 0);
    must(Command::new("touch").args(["-d", "@1000000000", "/tmp"]));
    let before = look();
    for script in [
        "chmod 777 /tmp",
        "chown $(id -u) /tmp",
        "touch -d @5 /tmp",
        "setfattr -n user.a -v b /tmp",
        "rmdir /tmp",
        "mv /tmp /tmp2",
    ] {
        let native = plain(&w, USER, script);
        let inside = run(&w, &[], script);
        assert!(
            code(&native) != 0 && code(&inside) == code(&native),
            "{script}: {}{}",
            err(&native),
            err(&inside)
        );
        assert_eq!(look(), before, "{script}");
    }
    // It is shown as the user's own, since else the kernel would let the user make nothing in it.
    let shown = run(&w, &[], "stat -c '%u %a' /tmp; echo a >/tmp/a");
    assert_eq!((code(&shown), out(&shown)), (0, format!("{USER} 1777\n")), "{}", err(&shown));
    assert_eq!((look().0, look().2), (before.0, before.2));
}

fn two_users_do_not_disturb_each_other(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    home_of_the_other(&w);
    // Both stand in the middle of their transactions at once; each waits for the other one.
    let meet = |name: &str| {
        let path = w.beside.join(name);
        must(Command::new("mkfifo").args(["-m", "666"]).arg(&path));
        path.to_str().unwrap().to_string()
    };
    std::fs::set_permissions(&w.beside, PermissionsExt::from_mode(0o755)).unwrap();
    let (a, b) = (meet("a"), meet("b"));
    let script = |first: &str, second: &str| {
        format!(
            "set -e; t=$(mktemp); echo $(id -u) >$t; echo $(id -u) >/tmp/of-$(id -u); mkdir /tmp/d-$(id -u); {first}; {second}; \
             test \"$(cat $t)\" = $(id -u); rm $t; echo done"
        )
    };
    let begin = |uid: u32, script: &str| {
        let mut run = verb(&w, uid, &["run", "--", "bash", "-c", script]);
        run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let one = begin(USER, &script(&format!("echo x >{a}"), &format!("read w <{b}")));
    let two = begin(OTHER, &script(&format!("read w <{a}"), &format!("echo x >{b}")));
    for run in [one, two] {
        let output = run.wait_with_output().unwrap();
        assert_eq!((code(&output), out(&output)), (0, "done\n".into()), "{}", err(&output));
    }
    for uid in [USER, OTHER] {
        let file = format!("/tmp/of-{uid}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{uid}\n"));
        assert_eq!(std::fs::metadata(&file).unwrap().uid(), uid);
        assert_eq!(std::fs::metadata(format!("/tmp/d-{uid}")).unwrap().uid(), uid);
    }
    let left: Vec<_> = seen(Path::new("/tmp")).into_keys().collect();
    assert_eq!(left.len(), 4, "{left:?}");
}

fn an_area_of_others_is_not_used(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    let area = format!("/tmp/{AREA}-{USER}");
    assert_eq!(code(&plain(&w, USER, "mkdir own; chmod 700 own")), 0);
    let own = w.own.join("own");
    let squat: [(&str, &dyn Fn()); 4] = [
        ("another user has taken this name", &|| {
            assert_eq!(code(&plain(&w, OTHER, &format!("mkdir -m 700 {area}"))), 0)
        }),
        ("is no directory", &|| assert_eq!(code(&plain(&w, OTHER, &format!("echo x >{area}"))), 0)),
        ("is no directory", &|| symlink(&own, &area).unwrap()),
        ("others may have changed it", &|| {
            std::fs::create_dir(&area).unwrap();
            chown(&area, Some(USER), Some(USER)).unwrap();
            std::fs::set_permissions(&area, PermissionsExt::from_mode(0o777)).unwrap();
        }),
    ];
    for (n, (why, make)) in squat.into_iter().enumerate() {
        make();
        let told = run(&w, &[], &format!("echo {n} >~/n; echo x >/tmp/x"));
        assert_eq!(code(&told), 1, "{}", err(&told));
        let left_out = format!("systx: /tmp is read-only inside: {area}: ");
        assert!(err(&told).starts_with(&left_out) && err(&told).contains(why), "{}", err(&told));
        assert!(err(&told).contains("/tmp/x: Read-only file system"), "{}", err(&told));
        // The user's other places still work.
        let rest = run(&w, &[], &format!("echo {n} >~/n"));
        assert_eq!(code(&rest), 0, "{}", err(&rest));
        assert_eq!(std::fs::read_to_string(w.own.join("n")).unwrap(), format!("{n}\n"));
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0, "nothing went where the link leads");
        must(Command::new("rm").args(["-r", &area]));
    }
    let done = run(&w, &[], "echo x >/tmp/x");
    assert_eq!((code(&done), err(&done)), (0, String::new()));
}

fn an_area_in_tmp_is_its_users_alone(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    assert_eq!(code(&run(&w, &[], "echo x >/tmp/x")), 0);
    let area = format!("/tmp/{AREA}-{USER}");
    let meta = std::fs::symlink_metadata(&area).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (USER, 0o700));
    for script in ["ls {}", "mv {} /tmp/moved", "rm -r {}", "mkdir mine; mv -T mine {}", "chmod 777 {}"] {
        let script = script.replace("{}", &area);
        assert_ne!(
            code(&plain(&w, OTHER, &format!("cd {}; {script}", home_of_the_other(&w).display()))),
            0,
            "{script}"
        );
    }
    // Neither the user nor another one finds it inside.
    let inside = run(&w, &[], "ls -A /tmp");
    assert_eq!(out(&inside), "x\n", "{}", err(&inside));
}

fn mounts_in_his_home_leave_it_out(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    assert_eq!(code(&plain(&w, USER, "mkdir -p disk .cache proj")), 0);
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(w.own.join("disk")));
    let told = run(&w, &["-v"], "echo a >~/a; echo c >~/.cache/c; echo t >/tmp/t");
    assert_eq!(code(&told), 0, "{}", err(&told));
    let own = w.own.display();
    let why = format!(
        "systx: {own} is read-only inside: {own}/disk is mounted below it, so only root can serve it.\n"
    );
    assert!(err(&told).contains(&why) && err(&told).contains("/a: Read-only file system"), "{}", err(&told));
    assert!(!w.own.join("a").exists() && w.own.join(".cache/c").exists() && Path::new("/tmp/t").exists());
    // The user's working directory is served all the same.
    let there = verb(&w, USER, &["run", "--", "sh", "-c", "echo p >p"])
        .current_dir(w.own.join("proj"))
        .output()
        .unwrap();
    assert_eq!((code(&there), w.own.join("proj/p").exists()), (0, true), "{}", err(&there));
}

fn a_mount_of_his_is_served(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    let mounted = w.dir.join("runtime");
    std::fs::create_dir(&mounted).unwrap();
    let owner = format!("uid={USER},gid={USER},mode=700");
    must(Command::new("mount").args(["-t", "tmpfs", "-o", &owner, "none"]).arg(&mounted));
    let at = mounted.to_str().unwrap();
    let failed = run(&w, &[], &format!("echo x >{at}/x; echo y >/tmp/y; cat {at}/x; exit 3"));
    assert_eq!((code(&failed), out(&failed)), (3, "x\n".into()), "{}", err(&failed));
    assert!(!mounted.join("x").exists());
    let done = run(&w, &[], &format!("echo x >{at}/x; echo y >/tmp/y"));
    assert_eq!((code(&done), err(&done)), (0, String::new()));
    assert!(mounted.join("x").exists() && Path::new("/tmp/y").exists());
    // With something mounted on it, as on a desktop, it can't be: then it is as it is, and its sockets can be reached.
    let inner = mounted.join("doc");
    std::fs::create_dir(&inner).unwrap();
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&inner));
    let told = run(&w, &[], &format!("echo y >>/tmp/y; cat {at}/x; echo z >{at}/z"));
    assert_eq!((code(&told), out(&told)), (1, "x\n".into()), "{}", err(&told));
    assert!(
        err(&told).contains("z: Read-only file system") && !err(&told).contains("systx: /"),
        "{}",
        err(&told)
    );
}

fn a_cleaned_area_is_made_anew(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    let area = format!("/tmp/{AREA}-{USER}");
    for (n, cleaned) in ["", "/log", "/format", "/table", "/owners", "/tx", "/aside"].iter().enumerate() {
        assert_eq!(code(&run(&w, &[], "echo x >/tmp/x")), 0);
        // Programs that tidy /tmp remove what was not used for long: by then a checkpoint covers the log.
        assert_eq!(code(&verb(&w, USER, &["recover"]).output().unwrap()), 0);
        must(Command::new("rm").args(["-rf", &format!("{area}{cleaned}")]));
        let done = run(&w, &[], &format!("echo {n} >/tmp/n"));
        assert_eq!((code(&done), err(&done)), (0, String::new()), "{cleaned}");
        assert_eq!(std::fs::read_to_string("/tmp/n").unwrap(), format!("{n}\n"), "{cleaned}");
    }
}

fn nothing_left_is_refused(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    for open in ["/tmp", "/var/tmp"] {
        std::fs::set_permissions(open, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut run = verb(&w, USER, &["run", "--", "echo", "not reached"]);
    let refused = run.env("HOME", "/nonexistent").current_dir("/").output().unwrap();
    assert_eq!((code(&refused), out(&refused)), (125, String::new()), "{}", err(&refused));
    let words =
        format!("nothing that user {USER} could change can be served; name a directory of yours with --only");
    assert!(
        err(&refused).contains(&words) && err(&refused).contains("nothing was changed"),
        "{}",
        err(&refused)
    );
}

fn every_verb_works(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    let told = run(&w, &["--dry-run"], "echo a >/tmp/a; echo b >~/b");
    assert_eq!(code(&told), 0, "{}", err(&told));
    let own = w.own.display();
    for line in ["A\t/tmp/a".to_string(), format!("A\t{own}/b")] {
        assert!(err(&told).contains(&line), "{line}: {}", err(&told));
    }
    assert!(!Path::new("/tmp/a").exists());
    let done = run(&w, &["--undoable", "--verbose"], "echo a >/tmp/a; echo b >~/b");
    assert_eq!(code(&done), 0, "{}", err(&done));
    let log = out(&verb(&w, USER, &["log"]).output().unwrap());
    assert!(log.contains(" /tmp ") && log.contains(&format!(" {own} ")), "{log}");
    let id = log.split_whitespace().next().unwrap();
    let undone = verb(&w, USER, &["undo", id]).output().unwrap();
    assert_eq!(code(&undone), 0, "{}", err(&undone));
    assert!(!Path::new("/tmp/a").exists() && !w.own.join("b").exists());
    for words in [&["list"][..], &["status"], &["recover"], &["prune"], &["doctor"]] {
        let answer = verb(&w, USER, words).output().unwrap();
        assert_eq!(code(&answer), 0, "{words:?}: {}{}", out(&answer), err(&answer));
    }
    let mut shell = verb(&w, USER, &["shell"]);
    let mut shell =
        shell.env("SHELL", "/bin/sh").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(b"echo s >/tmp/s; echo x >/usr/x; cat /tmp/s >~/s").unwrap();
    let shell = shell.wait_with_output().unwrap();
    assert_eq!((code(&shell), w.own.join("s").exists()), (0, true), "{}", err(&shell));
    assert!(err(&shell).contains("/usr/x: Read-only file system"), "{}", err(&shell));
    // A run inside joins, and --only serves what it served.
    let inner = format!(
        "{} run --area-name {AREA} -- sh -c 'echo i >/tmp/i'; cat /tmp/i; exit 4",
        w.program.display()
    );
    let joined = run(&w, &[], &inner);
    assert_eq!((code(&joined), out(&joined)), (4, "i\n".into()), "{}", err(&joined));
    let only = run(&w, &["--only", "."], "echo o >o; echo t >/tmp/t; exit 5");
    assert_eq!((code(&only), w.own.join("o").exists(), Path::new("/tmp/t").exists()), (5, false, true));
}

fn a_transaction_stays_open(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    let begin = || {
        let begun = verb(&w, USER, &["begin"]).output().unwrap();
        assert_eq!(code(&begun), 0, "{}", err(&begun));
        out(&begun).trim().to_string()
    };
    let id = begin();
    let exec = |script: &str| verb(&w, USER, &["exec", &id, "--", "sh", "-c", script]).output().unwrap();
    let told = exec("echo t >/tmp/t; echo h >~/h; echo x >/etc/systx-x");
    assert!(err(&told).contains("Read-only file system"), "{}", err(&told));
    assert_eq!(out(&exec("cat /tmp/t ~/h")), "t\nh\n");
    assert!(!Path::new("/tmp/t").exists());
    let diff = verb(&w, USER, &["diff", &id]).output().unwrap();
    assert!(out(&diff).contains("A\t/tmp/t"), "{}{}", out(&diff), err(&diff));
    let committed = verb(&w, USER, &["commit", &id]).output().unwrap();
    assert_eq!(code(&committed), 0, "{}", err(&committed));
    assert_eq!(std::fs::read_to_string("/tmp/t").unwrap(), "t\n");
    let id = begin();
    let told = verb(&w, USER, &["exec", &id, "--", "sh", "-c", "rm /tmp/t"]).output().unwrap();
    assert_eq!(code(&told), 0, "{}", err(&told));
    assert_eq!(code(&verb(&w, USER, &["abort", &id]).output().unwrap()), 0);
    assert!(Path::new("/tmp/t").exists());
}

const NAMES: usize = 6;

fn killed_in_mid_commit_it_is_finished(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    if !have("strace") {
        return;
    }
    let published = || (0..NAMES).filter(|n| Path::new(&format!("/tmp/d/f{n}")).exists()).count();
    let command = || {
        verb(
            &w,
            USER,
            &["run", "--", "sh", "-c", "for i in 0 1 2 3 4 5; do echo $i >/tmp/d/f$i; done; echo h >~/h"],
        )
    };
    for helper_too in [true, false] {
        let setup = || assert_eq!(code(&plain(&w, USER, "rm -rf /tmp/d ~/h; mkdir /tmp/d")), 0);
        setup();
        assert_eq!(code(&run(&w, &[], "true")), 0);
        let mut n = 0;
        let stopped = loop {
            n += 1;
            let stopped = Stopped::after(&w.dir, &command(), "renameat2", n);
            let stopped = stopped.unwrap_or_else(|o| panic!("never in mid-publication: {}", err(&o)));
            if 0 < published() && published() < NAMES {
                break stopped;
            }
            assert_eq!(code(&stopped.go_on()), 0);
            setup();
        };
        kill(stopped, helper_too);
        if helper_too {
            // Also where there is no home in which it was noted.
            let recovered = verb(&w, USER, &["recover"]).env("HOME", "/nonexistent").output().unwrap();
            assert!(published() < NAMES || out(&recovered).contains("/tmp"), "{}", out(&recovered));
            let recovered = verb(&w, USER, &["recover"]).output().unwrap();
            assert_eq!(code(&recovered), 0, "{}{}", out(&recovered), err(&recovered));
        }
        assert_eq!((published(), w.own.join("h").exists()), (NAMES, true));
    }
}

fn doctor_says_what_is_served(dir: &Path) {
    let Some(w) = whole(dir) else { return };
    assert_eq!(code(&run(&w, &[], "true")), 0);
    std::fs::create_dir(format!("/var/tmp/{AREA}-{OTHER}")).unwrap();
    let told = |uid| out(&verb(&w, uid, &["doctor"]).output().unwrap());
    let (own, text) = (w.own.display(), told(USER));
    for begin in [
        format!("weak privilege: user {USER}: `systx run` serves {own}, /tmp, /var/tmp; everything else is read-only inside"),
        format!("ok   area on {own}: there, and no other user can enter it"),
        "ok   area on /tmp: there, and no other user can enter it".into(),
    ] {
        assert!(text.lines().any(|line| line.starts_with(&begin)), "{begin}\n{text}");
    }
    let text = told(OTHER);
    let squatted = format!("NO   area on /var/tmp: {AREA}-{OTHER} belongs to user ");
    assert!(text.lines().any(|line| line.starts_with(&squatted)), "{text}");
    must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(w.own.join("tree")));
    let why = format!("weak directories on {own}: read-only inside: {own}/tree is mounted below it, so only root can serve it");
    assert!(told(USER).lines().any(|line| line.starts_with(&why)), "{}", told(USER));
}
