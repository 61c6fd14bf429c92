//! Report of a run on its changes, before it commits them or discards them.

use super::place::word::{hear, say};
use super::place::{code, err, out, Place, AREA, SYSTX};
use super::Case;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("a_dry_run_tells_every_kind_of_change_and_changes_nothing", a_dry_run_tells_every_kind),
    ("a_dry_run_ends_with_the_status_of_the_command", a_dry_run_ends_with_the_status_of_the_command),
    ("what_is_told_is_what_is_committed", what_is_told_is_what_is_committed),
    ("a_removed_tree_is_told_to_its_last_file", a_removed_tree_is_told_to_its_last_file),
    ("a_patch_can_be_applied", a_patch_can_be_applied),
    ("a_patch_tells_binary_files_and_attributes_in_words", a_patch_tells_binary_files_and_attributes),
    ("a_changed_attribute_is_told_by_name", a_changed_attribute_is_told_by_name),
    ("a_stat_counts_lines", a_stat_counts_lines),
    ("changes_in_json_have_all_bytes_of_their_names", changes_in_json_have_all_bytes_of_their_names),
    ("a_changed_name_begins_no_line", a_changed_name_begins_no_line),
    ("an_inner_run_tells_no_changes", an_inner_run_tells_no_changes),
    (
        "a_conflict_that_is_met_while_telling_is_a_conflict",
        a_conflict_that_is_met_while_telling_is_a_conflict,
    ),
];

fn run(p: &Place, options: &[&str], script: &str) -> Output {
    p.systx(options, &["sh", "-c", &format!("umask 022; {script}")]).output().unwrap()
}

/// Returns what was printed, with names from the served directory on.
fn told(p: &Place, output: &Output) -> String {
    let served = format!("{}/", p.served.display());
    let mut text = err(output);
    for (from, to) in [("a/", "a/"), ("b/", "b/"), ("/", "")] {
        text = text.replace(&format!("{from}{}", &served[1..]), to);
    }
    text
}

/// Runs a script outside of any transaction.
fn plain(p: &Place, script: &str) -> String {
    let script = format!("umask 022; {script}");
    let output = Command::new("sh").args(["-c", &script]).current_dir(&p.served).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    out(&output)
}

fn prepare(p: &Place) {
    plain(
        p,
        "mkdir d old; echo 1 > d/gone; for f in mode text moved turned linked; do echo $f > $f; done; \
        echo inner > old/inner; chmod 600 mode",
    );
}

const EVERY_KIND: &str = "mkdir new; echo x > new/file; ln -s file new/symlink; rm -r d; chmod 755 mode; echo more >> text; \
    mv moved elsewhere; mv old renamed; echo more >> renamed/inner; rm turned; mkdir turned; ln linked second; \
    touch -d 2001-01-01 linked; echo to the command";

fn a_dry_run_tells_every_kind(p: &Place) {
    prepare(p);
    let before = p.picture();
    let output = run(p, &["--dry-run"], EVERY_KIND);
    let expected = "D\td/\n\
        D\td/gone\n\
        R100\tmoved\telsewhere\n\
        M\tlinked\t(links 1 -> 2, times)\n\
        M\tmode\t(mode 0600 -> 0755)\n\
        A\tnew/\n\
        A\tnew/file\n\
        A\tnew/symlink\n\
        R100\told/\trenamed/\n\
        M\trenamed/inner\n\
        A\tsecond\t(link to linked)\n\
        M\ttext\n\
        T\tturned/\t(file -> directory, mode 0644 -> 0755)\n\
        systx: dry run, nothing was changed: 13 changes are not committed.\n";
    assert_eq!((code(&output), told(p, &output).as_str()), (0, expected));
    assert_eq!(out(&output), "to the command\n");
    assert_eq!(p.picture(), before);
    let nothing = run(p, &["--dry-run"], "cat text; echo > x; rm x");
    assert_eq!(err(&nothing), "systx: dry run, nothing was changed: there is nothing to commit.\n");
}

fn a_dry_run_ends_with_the_status_of_the_command(p: &Place) {
    p.write("f", "1\n");
    let failed = run(p, &["--dry-run"], "echo 2 > f; exit 3");
    let expected = "systx: aborted, nothing was changed: the command exited with status 3.\n";
    assert_eq!((code(&failed), err(&failed).as_str()), (3, expected), "it would not have been committed");
    let failed = run(p, &["--dry-run", "--on-error", "commit"], "echo 2 > f; exit 3");
    let expected = "M\tf\nsystx: dry run, nothing was changed: 1 change is not committed.\n";
    assert_eq!((code(&failed), told(p, &failed).as_str()), (3, expected));
    assert_eq!(p.read("f"), "1\n");
}

fn what_is_told_is_what_is_committed(p: &Place) {
    prepare(p);
    let dry = told(p, &run(p, &["--dry-run"], EVERY_KIND));
    let output = run(p, &["--diff"], EVERY_KIND);
    assert_eq!(code(&output), 0);
    assert_eq!(
        dry.strip_suffix("systx: dry run, nothing was changed: 13 changes are not committed.\n"),
        Some(&*told(p, &output))
    );
    assert_eq!(
        (p.read("text").as_str(), p.read("renamed/inner").as_str()),
        ("text\nmore\n", "inner\nmore\n")
    );
    let again = run(p, &["--diff"], "true");
    assert_eq!((code(&again), err(&again).as_str()), (0, ""));
}

fn a_removed_tree_is_told_to_its_last_file(p: &Place) {
    plain(p, "mkdir -p t/u; for n in $(seq 3000); do : > t/u/$n; done");
    let output = run(p, &["--diff"], "rm -r t");
    assert_eq!(
        (code(&output), err(&output).lines().filter(|line| line.starts_with("D\t")).count()),
        (0, 3002)
    );
    assert!(!p.served.join("t").exists());
}

fn a_patch_can_be_applied(p: &Place) {
    if Command::new("git").arg("--version").output().is_err() {
        println!("skipped: no git to apply a patch with");
        return;
    }
    let script =
        "umask 022; seq 100 > text; printf 'no end' > end; echo gone > gone; echo moved > moved; : > empty; \
        seq 9 > both; ln -s one symlink; printf 'a\\rb\\n\\377\\n' > odd";
    plain(p, script);
    let before = p.picture();
    let change = "sed -i -e 3d -e s/50/fifty/ text; printf 'no end\\nno end' > end; rm gone; mv moved name; rm empty; \
        mv both renamed; echo 10 >> renamed; chmod +x renamed; echo new > new; : > nothing; ln -sf two symlink; \
        printf 'a\\rc\\n\\376\\n' > odd";
    let dry = run(p, &["--dry-run", "-p"], change);
    assert_eq!((code(&dry), p.picture()), (0, before));
    let patch = err(&dry);
    let depth = p.served.components().count().to_string();
    let mut git = Command::new("git");
    git.args(["apply", &format!("-p{depth}"), "-"]).current_dir(&p.served).stdin(Stdio::piped());
    let mut git = git.env("GIT_CEILING_DIRECTORIES", "/").spawn().unwrap();
    std::io::Write::write_all(&mut git.stdin.take().unwrap(), &dry.stderr).unwrap();
    assert!(git.wait().unwrap().success(), "{patch}");
    let list = "find . -printf '%P %y %m %l\\n' | sort; find . -type f | sort | xargs sha256sum";
    let picture = || plain(p, list);
    let applied = picture();
    // Compared with the changes by the command itself, on what was there.
    plain(p, &format!("rm -r * && {script}"));
    assert_eq!(code(&run(p, &[], change)), 0);
    assert_eq!(applied, picture(), "{patch}");
}

fn a_patch_tells_binary_files_and_attributes(p: &Place) {
    p.write("binary", "a\0b");
    p.write("times", "1");
    p.write("f", "1\n");
    let script =
        "printf 'c\\0d' > binary; chown 7:8 f; echo 2 >> f; mkdir dir; touch -d 2001-01-01 times; ln f g";
    let output = run(p, &["--dry-run", "--patch"], script);
    let expected = "diff --git a/binary b/binary\n\
        Binary files a/binary and b/binary differ\n\
        A\tdir/\n\
        M\tf\t(owner 0:0 -> 7:8, links 1 -> 2)\n\
        diff --git a/f b/f\n\
        --- a/f\n\
        +++ b/f\n\
        @@ -1 +1,2 @@\n \
        1\n\
        +2\n\
        A\tg\t(link to f)\n\
        M\ttimes\t(times)\n\
        systx: dry run, nothing was changed: 5 changes are not committed.\n";
    assert_eq!(told(p, &output), expected);
}

fn a_changed_attribute_is_told_by_name(p: &Place) {
    if Command::new("setfattr").arg("--version").output().is_err() {
        println!("skipped: no setfattr");
        return;
    }
    plain(p, "mkdir d; for f in f g h; do echo 1 > $f; setfattr -n user.k -v 1 $f; done");
    let change = "setfattr -n user.k -v 2 f; setfattr -n user.new -v 2 d; setfattr -x user.k g; setfattr -n user.k -v 1 h";
    let lines = "M\td/\t(xattr +user.new)\nM\tf\t(xattr ~user.k)\nM\tg\t(xattr -user.k)\n";
    for form in ["--dry-run", "--diff"] {
        let output = run(p, &[form], change);
        let text = told(p, &output);
        let text: String = text
            .lines()
            .filter(|line| !line.starts_with("systx: "))
            .map(|line| line.to_string() + "\n")
            .collect();
        assert_eq!((code(&output), text.as_str()), (0, lines), "{form}");
    }
    let kept =
        plain(p, "getfattr -n user.k --only-values f; getfattr -n user.new --only-values d; getfattr -d g h");
    assert_eq!(kept, "22# file: h\nuser.k=\"1\"\n\n");
    let json = run(p, &["--dry-run", "--json"], "setfattr -n user.k -v 3 f");
    let first: serde_json::Value = serde_json::from_str(err(&json).lines().next().unwrap()).unwrap();
    let wanted = serde_json::json!([{ "name": "user.k", "before": true, "after": true }]);
    assert_eq!(first["changes"][0]["xattrs"], wanted, "{first}");
}

fn a_stat_counts_lines(p: &Place) {
    p.write("text", "1\n2\n3\n");
    p.write("binary", "a\0b");
    let output = run(p, &["--stat"], "printf '1\\n3\\n4\\n5\\n' > text; printf 'a\\0bc' > binary; mkdir dir");
    let expected = format!(
        " {served}/binary | Bin 3 -> 4 bytes\n {served}/dir/   |   0 \n {served}/text   |   3 ++-\n 3 changes, 2 insertions(+), 1 deletion(-)\n",
        served = p.served.display()
    );
    assert_eq!((code(&output), err(&output)), (0, expected));
}

fn changes_in_json_have_all_bytes_of_their_names(p: &Place) {
    p.write("moved", "12345");
    let output =
        run(p, &["--dry-run", "--json"], "printf x > $(printf 'n\\377\\nn'); mv moved to; chmod 751 to");
    let text = err(&output);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [changes, outcome] = &lines[..] else { panic!("{text}") };
    assert_eq!((outcome["outcome"].as_str(), outcome["exit"].as_u64()), (Some("dry-run"), Some(0)));
    let changes = changes["changes"].as_array().unwrap();
    let hex = changes[0]["path_hex"].as_str().unwrap();
    let name: String =
        p.served.join("").as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, name + "6eff0a6e");
    assert_eq!(
        (changes[0]["kind"].as_str(), &changes[0]["before"]),
        (Some("added"), &serde_json::Value::Null)
    );
    let moved = &changes[1];
    let path = |name: &str| p.served.join(name).to_str().unwrap().to_string();
    assert_eq!(moved["path_before"].as_str(), Some(&*path("moved")));
    assert_eq!((moved["kind"].as_str(), moved["path"].as_str()), (Some("renamed"), Some(&*path("to"))));
    assert_eq!(moved["what"], serde_json::json!(["mode"]));
    let size = |side: &str| moved[side]["size"].as_u64();
    assert_eq!(
        (moved["after"]["mode"].as_str(), size("before"), size("after")),
        (Some("0751"), Some(5), Some(5))
    );
    assert_eq!(moved["after"]["type"], "file");
}

fn a_changed_name_begins_no_line(p: &Place) {
    for form in ["--diff", "--stat", "--patch"] {
        let name = format!("x$(printf '\\n\\033[2Jsystx: committed'){form}");
        let output = run(p, &[form], &format!("echo 1 > \"{name}\""));
        assert_eq!(code(&output), 0);
        let text = err(&output);
        assert!(text.contains(r"x\n\033[2Jsystx: committed"), "{text:?}");
        assert!(!text.contains("\nsystx") && !text.contains('\x1b'), "{text:?}");
    }
}

fn an_inner_run_tells_no_changes(p: &Place) {
    let inner = format!("{SYSTX} run --area-name {AREA} --only . --dry-run -- sh -c ': > made'");
    let output = run(p, &[], &format!("{inner}; test $? = 125 && test ! -e made"));
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("this run is part of another one"), "{}", err(&output));
}

fn a_conflict_that_is_met_while_telling_is_a_conflict(p: &Place) {
    p.write("f", "1\n");
    let (here, word) = (p.fifo("here"), p.fifo("word"));
    let script = "cat f > copy; echo > $BESIDE/here; read w < $BESIDE/word; echo 2 >> f";
    let mut systx = p.systx(&["--dry-run", "-p"], &["sh", "-c", script]);
    let mut systx = systx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    hear(&here, &mut systx);
    p.write("f", "theirs\n");
    say(&word, &mut systx, "go");
    let output = systx.wait_with_output().unwrap();
    assert_eq!(code(&output), 75, "{}", err(&output));
    assert_eq!(p.read("f"), "theirs\n");
}
