//! `systx wrap`: programs that are transactions whenever they are started.

use super::place::{code, err, out, Place, AREA, SYSTX};
use super::Case;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

pub const ALL: &[(&str, Case)] = &[
    ("a_wrapped_program_is_a_transaction", a_wrapped_program_is_a_transaction),
    ("a_wrapped_program_joins_the_transaction_it_is_in", a_wrapped_program_joins_the_transaction_it_is_in),
    ("what_is_wrapped_is_listed_and_unwrapped", what_is_wrapped_is_listed_and_unwrapped),
    ("what_can_not_be_wrapped_is_said_and_nothing_is_written", what_can_not_be_wrapped_is_said),
    (
        "what_else_stands_beside_the_scripts_is_neither_written_nor_waited_for",
        what_else_stands_there_is_let_be,
    ),
];

/// A program `make it` on a path, and where its wrapper goes.
struct Wrapped<'p> {
    p: &'p Place,
    wrap: PathBuf,
    path: String,
}

const NAME: &str = "make it";

impl<'p> Wrapped<'p> {
    fn new(p: &'p Place) -> Wrapped<'p> {
        let bin = p.beside.join("it's bin");
        std::fs::create_dir(&bin).unwrap();
        let program = bin.join(NAME);
        std::fs::write(&program, "#!/bin/sh\necho \"$#:$2\" > made\nexit $1\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let wrap = p.beside.join("wrap");
        let path = format!("{}:{}:{}", wrap.display(), bin.display(), std::env::var("PATH").unwrap());
        Wrapped { p, wrap, path }
    }

    fn systx(&self, args: &[&str]) -> Output {
        let mut systx = Command::new(SYSTX);
        systx.args(["wrap", "--area-name", AREA, "--dir"]).arg(&self.wrap).args(args);
        systx.env("PATH", &self.path).output().unwrap()
    }

    /// Runs a line as a user types it, in the directory that is served.
    fn typed(&self, line: &str) -> Output {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env("PATH", &self.path).current_dir(&self.p.served).output().unwrap()
    }
}

fn a_wrapped_program_is_a_transaction(p: &Place) {
    let w = Wrapped::new(p);
    let output = w.systx(&["--only", ".", "--retry", "2", NAME]);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert!(!out(&output).contains("PATH="), "it stands first: {}", out(&output));
    let failed = w.typed("'make it' 3 x");
    assert_eq!((code(&failed), p.served.join("made").exists()), (3, false), "{}", err(&failed));
    assert!(err(&failed).contains("aborted, nothing was changed"), "{}", err(&failed));
    let done = w.typed("'make it' 0 \"a  b\" ''");
    assert_eq!((code(&done), p.read("made").as_str()), (0, "3:a  b\n"), "{}", err(&done));
    // Again is no error, and does not wrap the wrapper.
    let again = w.systx(&["--only", ".", NAME]);
    assert!(out(&again).contains("it's bin/make it as a transaction"), "{}{}", out(&again), err(&again));
}

fn a_wrapped_program_joins_the_transaction_it_is_in(p: &Place) {
    let w = Wrapped::new(p);
    w.systx(&[NAME]);
    let script = "'make it' 0 x && cat made && exit 4";
    let output = p.systx(&[], &["sh", "-c", script]).env("PATH", &w.path).output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (4, "2:x\n"), "{}", err(&output));
    assert!(!p.served.join("made").exists(), "it has committed by itself");
}

fn what_is_wrapped_is_listed_and_unwrapped(p: &Place) {
    let w = Wrapped::new(p);
    assert!(out(&w.systx(&["--list"])).ends_with("wrap: nothing is wrapped\n"));
    let elsewhere = Command::new(SYSTX)
        .args(["wrap", "--dir"])
        .arg(p.beside.join("other dir"))
        .arg("sh")
        .output()
        .unwrap();
    let told = out(&elsewhere);
    assert!(told.contains(&format!("PATH='{}/other dir':$PATH\n", p.beside.display())), "{told}");
    w.systx(&["--only", "/srv/a b", NAME, "sh"]);
    let listed = out(&w.systx(&["--list"]));
    assert!(listed.contains("--only '/srv/a b' -- ") && listed.lines().count() == 2, "{listed}");
    std::fs::write(w.wrap.join("mine"), "#!/bin/sh\n").unwrap();
    let foreign = w.systx(&["--remove", NAME, "mine"]);
    assert_eq!(code(&foreign), 125);
    assert!(err(&foreign).contains("mine was not written by `systx wrap`: left alone; move it away first, or choose another place with --dir."), "{}", err(&foreign));
    assert!(w.wrap.join(NAME).exists(), "one name is wrong, and the others are removed");
    let removed = w.systx(&["--remove", NAME, "sh"]);
    assert_eq!((code(&removed), out(&removed).lines().count()), (0, 2), "{}", err(&removed));
    let gone = w.systx(&["--remove", NAME]);
    assert!(err(&gone).contains("make it is not wrapped in "), "{}", err(&gone));
    assert!(w.wrap.join("mine").exists());
}

fn what_can_not_be_wrapped_is_said(p: &Place) {
    let w = Wrapped::new(p);
    let wrong = |names: &[&str], why: &str| {
        let output = w.systx(names);
        assert_eq!((code(&output), out(&output).as_str()), (125, ""));
        assert!(err(&output).contains(why), "{}", err(&output));
        assert!(!w.wrap.join(NAME).exists());
    };
    wrong(
        &[NAME, "no-such-program"],
        "no-such-program: there is no such program on the path; install it first, or check PATH.",
    );
    wrong(&[NAME, "/bin/sh"], "/bin/sh: name a program as it is typed, without a directory.");
    wrong(&[], "Usage: ");
    std::fs::create_dir(&w.wrap).unwrap();
    std::fs::write(w.wrap.join("sh"), "#!/bin/sh\n").unwrap();
    wrong(&[NAME, "sh"], "sh was not written by `systx wrap`: left alone; move it away first, or choose another place with --dir.");
}

fn what_else_stands_there_is_let_be(p: &Place) {
    let w = Wrapped::new(p);
    w.systx(&[NAME]);
    let (kept, link) = (p.beside.join("kept"), w.wrap.join(format!("{NAME}.systx-new")));
    std::fs::write(&kept, "kept").unwrap();
    std::os::unix::fs::symlink(&kept, &link).unwrap();
    let made = Command::new("mkfifo").arg(w.wrap.join("fifo")).status().unwrap();
    assert!(made.success());
    let again = w.systx(&[NAME]);
    assert_eq!((code(&again), err(&again).as_str()), (0, ""));
    assert_eq!((std::fs::read_to_string(&kept).unwrap().as_str(), link.is_symlink()), ("kept", true));
    assert!(
        w.wrap.join(NAME).symlink_metadata().unwrap().is_file(),
        "a link has come in place of the script"
    );
    let listed = w.systx(&["--list"]);
    assert_eq!((code(&listed), out(&listed).lines().count()), (0, 1), "{}", err(&listed));
    assert_eq!(std::fs::read_dir(&w.wrap).unwrap().count(), 3, "something of ours is left");
}
