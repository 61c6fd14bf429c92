//! Programs of other authors, as transactions: committed they leave what a plain run leaves, aborted nothing.
//! The ones of `scripts/programs` that need no network and are quick, where they are installed; and that the
//! comparison can fail.
//!
//! `cargo test -p systx-cli --test programs [-- PART-OF-A-NAME]`; all programs: `scripts/programs.sh`.

mod machine;

use machine::volume::Volume;
use machine::{code, err, out, systx};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn main() {
    machine::main(&[
        ("bash_commits_what_it_does_plainly_and_aborts_without_a_trace", |dir| agrees(dir, "bash")),
        ("coreutils_commit_what_they_do_plainly_and_abort_without_a_trace", |dir| agrees(dir, "coreutils")),
        ("tar_commits_what_it_does_plainly_and_aborts_without_a_trace", |dir| agrees(dir, "tar")),
        ("cc_and_make_commit_what_they_do_plainly_and_abort_without_a_trace", |dir| {
            agrees(dir, "make-small")
        }),
        ("git_commits_what_it_does_plainly_and_aborts_without_a_trace", |dir| agrees(dir, "git")),
        ("sqlite_commits_what_it_does_plainly_and_aborts_without_a_trace", |dir| agrees(dir, "sqlite")),
        ("dpkg_commits_what_it_does_plainly_and_aborts_without_a_trace", |dir| agrees(dir, "dpkg")),
        ("a_broken_maintainer_script_leaves_no_trace", |dir| agrees(dir, "dpkg-broken")),
        ("apt_commits_what_it_does_plainly_and_aborts_without_a_trace", |dir| agrees(dir, "apt")),
        ("a_script_that_fails_in_the_middle_of_apt_leaves_no_trace", |dir| agrees(dir, "apt-broken")),
        ("vim_commits_what_it_does_plainly_and_aborts_without_a_trace", |dir| agrees(dir, "vim")),
        ("java_commits_what_it_does_plainly_and_aborts_without_a_trace", |dir| agrees(dir, "java")),
        ("cargo_commits_what_it_does_plainly_and_aborts_without_a_trace", |dir| agrees(dir, "cargo")),
        ("postgres_commits_what_it_does_plainly_and_aborts_without_a_trace", |dir| agrees(dir, "postgres")),
        ("tar_does_so_where_the_kernel_serves_nothing", |dir| agrees_by_requests(dir, "tar")),
        ("git_does_so_where_the_kernel_serves_nothing", |dir| agrees_by_requests(dir, "git")),
        ("coreutils_do_so_where_the_kernel_serves_nothing", |dir| agrees_by_requests(dir, "coreutils")),
        ("dpkg_does_so_where_the_kernel_serves_nothing", |dir| agrees_by_requests(dir, "dpkg")),
        ("a_run_that_differs_is_found_out", a_run_that_differs_is_found_out),
        ("plain_runs_that_agree_by_chance_are_told_apart", plain_runs_that_agree_by_chance_are_told_apart),
        (
            "a_comparison_that_cannot_be_made_is_no_agreement",
            a_comparison_that_cannot_be_made_is_no_agreement,
        ),
        ("an_abort_that_leaves_a_trace_is_found_out", an_abort_that_leaves_a_trace_is_found_out),
    ]);
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/programs")
}

/// Returns what `try.sh` says of one program, on a new ext4.
fn tried(dir: &Path, program: &Path, systx: &Path) -> Option<Output> {
    tried_with(dir, program, systx, &[])
}

/// Like `tried`, with more in its environment.
fn tried_with(dir: &Path, program: &Path, systx: &Path, more: &[(&str, &str)]) -> Option<Output> {
    let volume = Volume::new(dir, "ext4", 512)?;
    let output = Command::new("bash")
        .arg(programs().join("try.sh"))
        .arg(program)
        .envs([("FS", &*volume.point), ("SCRATCH", dir), ("SYSTX", systx)])
        .env("AREA", machine::AREA)
        .envs(more.iter().copied())
        .stdin(Stdio::null())
        .output();
    Some(output.unwrap())
}

fn agrees(dir: &Path, name: &str) {
    agrees_by(dir, name, &systx());
}

/// The same without directories that the kernel serves.
fn agrees_by_requests(dir: &Path, name: &str) {
    let requests = dir.join("requests");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = run ] || exec {0} \"$@\"\nshift\nexec {0} run --no-native \"$@\"\n",
        systx().display()
    );
    std::fs::write(&requests, script).unwrap();
    std::fs::set_permissions(&requests, std::fs::Permissions::from_mode(0o755)).unwrap();
    agrees_by(dir, name, &requests);
}

fn agrees_by(dir: &Path, name: &str, systx: &Path) {
    let Some(output) = tried(dir, &programs().join(name).with_extension("sh"), systx) else { return };
    print!("{}", out(&output));
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).starts_with("ok ") || out(&output).starts_with("skipped: "), "{}", out(&output));
}

/// A program of our own; PROGRAMS is needed by none of them.
fn planted(dir: &Path, work: &str) -> PathBuf {
    let file = dir.join("planted.sh");
    let prepare = "echo one > f; ln f g; ln -s f s; mkdir d; touch -d @1 f";
    std::fs::write(&file, format!("prepare() {{ {prepare}; }}\nwork() {{ {work}; }}\n")).unwrap();
    file
}

fn a_run_that_differs_is_found_out(dir: &Path) {
    // Only in a transaction, and only in one that commits.
    for difference in [
        "echo two > f; touch -d @1 f",
        "touch -d @2 f",
        "chmod 600 f",
        "chown 1 s",
        "rm g",
        "rm s; ln -s g s",
        "rm g; cp -p f g",
        "mkdir more",
        "rmdir d; : > d",
        "setfattr -n user.k -v v f",
        "echo words",
    ] {
        let dir = dir.join(format!("{:08x}", fastrand::u32(..)));
        std::fs::create_dir(&dir).unwrap();
        let program = planted(&dir, &format!("if [ -n \"${{SYSTX_ID-}}\" ]; then {difference}; fi"));
        let Some(output) = tried(&dir, &program, &systx()) else { return };
        assert_eq!(code(&output), 1, "{difference}: {}", out(&output));
        assert!(out(&output).starts_with("FAILED "), "{difference}: {}", out(&output));
    }
}

fn plain_runs_that_agree_by_chance_are_told_apart(dir: &Path) {
    // Such a difference arises from a date when midnight passes between the second run and those in
    // transactions.
    for (n, difference) in
        ["echo two > f", "chmod 600 f", "rm s", "mkdir more", "echo words"].iter().enumerate()
    {
        let dir = dir.join(n.to_string());
        std::fs::create_dir(&dir).unwrap();
        let runs = dir.join("runs");
        let work = format!("echo >> {0}; if [ $(wc -l < {0}) -gt 2 ]; then {difference}; fi", runs.display());
        let Some(output) = tried(&dir, &planted(&dir, &work), &systx()) else { return };
        assert_eq!(code(&output), 0, "{difference}: {}", out(&output));
        assert!(out(&output).starts_with("ok "), "{difference}: {}", out(&output));
    }
}

fn a_comparison_that_cannot_be_made_is_no_agreement(dir: &Path) {
    // Of the pictures: that call alone has this variable. As where there is no room for its words.
    let awk = ("BASH_FUNC_awk%%", "() { case \"$*\" in *named=*) return 2;; esac; command awk \"$@\"; }");
    let Some(output) = tried_with(dir, &planted(dir, "echo two > f"), &systx(), &[awk]) else { return };
    assert_eq!(code(&output), 1, "{}", out(&output));
    assert!(out(&output).starts_with("FAILED "), "{}", out(&output));
}

fn an_abort_that_leaves_a_trace_is_found_out(dir: &Path) {
    // Takes the place of systx and runs the command as it is.
    let none = dir.join("none");
    std::fs::write(&none, "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n").unwrap();
    std::fs::set_permissions(&none, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // The time of the last change gives away a change that was taken back.
    let Some(output) = tried(dir, &planted(dir, "chmod 600 f; chmod 644 f"), &none) else { return };
    assert_eq!(code(&output), 1, "{}", out(&output));
    assert!(out(&output).contains("left a trace"), "{}", out(&output));
}
