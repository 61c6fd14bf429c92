//! `SYSTX_LOG`: what systx does, line by line, and nothing of it without.

use super::place::word::hear;
use super::place::{code, err, must, out, Place};
use super::Case;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{chown, symlink};
use std::process::{Command, Output};

pub const ALL: &[(&str, Case)] = &[
    ("a_log_has_the_phases_of_a_commit_in_order", a_log_has_the_phases_in_order),
    ("without_a_filter_nothing_is_logged", without_a_filter_nothing_is_logged),
    ("a_log_file_is_for_systx_and_its_helper_alone", a_log_file_is_for_systx_and_its_helper_alone),
    ("a_log_that_can_not_be_written_is_refused_before_anything", a_wrong_log_is_refused),
    ("a_log_file_that_another_user_has_planted_is_left_alone", a_planted_log_file_is_left_alone),
];

/// One that changes a file, with these variables.
fn run(p: &Place, variables: &[(&str, &str)]) -> Output {
    let mut systx =
        p.systx(&[], &["sh", "-c", "echo printed; echo new > new; ls -l /proc/self/fd > fds; env > env"]);
    systx
        .env_remove("SYSTX_LOG")
        .env_remove("SYSTX_LOG_FILE")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn a_log_has_the_phases_in_order(p: &Place) {
    let output = run(p, &[("SYSTX_LOG", "debug")]);
    assert_eq!((code(&output), out(&output).as_str()), (0, "printed\n"));
    let text = err(&output);
    assert!(text.lines().all(|line| line.starts_with("systx[")), "{text}");
    // A span is reported when it closes: `… commit{tx=1 …}:log{lsn=1}: … close time.busy=…`.
    let phases = text.lines().filter(|line| line.contains(" close time.busy=")).filter_map(|line| {
        let phase = line.split_once(" commit{tx=")?.1.split_once("}:")?.1;
        let (span, _) = phase.split_once(": ")?;
        Some(span.split('{').next().unwrap_or(span))
    });
    // What a phase has waited for, if anything, stands before it.
    let phases: Vec<_> = phases.filter(|phase| !phase.contains(':')).collect();
    assert_eq!(
        phases,
        ["prepare", "validate", "log", "final_look", "commit_point", "publish", "done"],
        "{text}"
    );
    assert!(text.contains(" open{file_system="), "{text}");
    assert!(text.contains(" the command is over "), "{text}");
    // A filter by module, and steps, which are many.
    let output = run(p, &[("SYSTX_LOG", "systx_engine::publish=trace")]);
    let text = err(&output);
    assert!(text.lines().any(|line| line.contains(" step n=") && line.contains("/new")), "{text}");
    assert!(!text.contains(":validate"), "{text}");
}

fn without_a_filter_nothing_is_logged(p: &Place) {
    let log = p.beside.join("log");
    for variables in [&[][..], &[("SYSTX_LOG", "")], &[("SYSTX_LOG_FILE", log.to_str().unwrap())]] {
        let output = run(p, variables);
        assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (0, "printed\n", ""));
    }
    assert!(!log.exists());
}

fn a_log_file_is_for_systx_and_its_helper_alone(p: &Place) {
    let log = p.beside.join("log");
    let output = run(p, &[("SYSTX_LOG", "debug"), ("SYSTX_LOG_FILE", log.to_str().unwrap())]);
    assert_eq!((code(&output), out(&output).as_str(), err(&output).as_str()), (0, "printed\n", ""));
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains(":commit_point{"), "{text}");
    assert!(!p.read("fds").contains("/log\n"), "the command has it open: {}", p.read("fds"));
    assert!(!p.read("env").contains("SYSTX_LOG"), "its own systx would write there from inside");
    // Of a run that is killed the helper process tells. Both ends are held, so that every line finds a reader.
    let (go, lines) = (p.fifo("go"), p.fifo("lines"));
    let both = File::options().read(true).write(true).open(&lines).unwrap();
    let mut systx = p.systx(&[], &["sh", "-c", "echo there > $BESIDE/go; read go < $BESIDE/go"]);
    systx.env("SYSTX_LOG", "debug").env("SYSTX_LOG_FILE", &lines);
    let mut systx = systx.spawn().unwrap();
    assert_eq!(hear(&go, &mut systx), "there\n");
    let pid = systx.id();
    systx.kill().unwrap();
    systx.wait().unwrap();
    let lines = BufReader::new(both).lines().map(|line| line.unwrap());
    let mut helpers = lines.filter(|line| line.starts_with("helper["));
    let first = helpers.next().unwrap();
    assert!(!first.starts_with(&format!("helper[{pid}]")), "{first}");
    assert!(helpers.any(|line| line.contains("systx has died")));
    // It has opened the area and looked for what was left.
    assert!(helpers.any(|line| line.contains("dead owners")));
}

fn a_wrong_log_is_refused(p: &Place) {
    for variables in
        [&[("SYSTX_LOG", "a=b=c")][..], &[("SYSTX_LOG", "debug"), ("SYSTX_LOG_FILE", "/no/such/log")]]
    {
        let output = run(p, variables);
        assert_eq!((code(&output), out(&output).as_str()), (125, ""));
        assert!(err(&output).starts_with("systx: SYSTX_LOG"), "{}", err(&output));
        assert!(!p.served.join("new").exists());
    }
}

/// A user who owns the directory knows the name in advance.
fn a_planted_log_file_is_left_alone(p: &Place) {
    let (dir, secret) = (p.beside.join("theirs"), p.beside.join("secret"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(&secret, "root's\n").unwrap();
    let at = |name: &str| dir.join(name);
    symlink(&secret, at("link")).unwrap();
    symlink(&p.beside, at("dir")).unwrap();
    std::fs::hard_link(&secret, at("name")).unwrap();
    std::fs::write(at("file"), "").unwrap();
    chown(at("file"), Some(61234), Some(61234)).unwrap();
    must(Command::new("mkfifo").args([at("fifo"), at("read")]));
    chown(at("read"), Some(61234), Some(61234)).unwrap();
    let reader = OpenOptions::new().read(true).write(true).open(at("read")).unwrap();
    let planted = ["link", "dir/secret", "dir/new", "name", "file", "read", "fifo"];
    for (name, says) in planted.into_iter().zip([
        "a symbolic link",
        "a symbolic link",
        "a symbolic link",
        "a file with other names",
        "another user's file",
        "another user's file",
        "a FIFO that nobody reads",
    ]) {
        let log = at(name);
        let output = run(p, &[("SYSTX_LOG", "debug"), ("SYSTX_LOG_FILE", log.to_str().unwrap())]);
        let said = err(&output);
        assert_eq!((code(&output), out(&output).as_str()), (125, ""), "{name}: {said}");
        assert!(said.contains(log.to_str().unwrap()) && said.contains(says), "{name}: {said}");
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "root's\n");
    assert!(std::fs::read(at("file")).unwrap().is_empty() && !p.beside.join("new").exists());
    assert!(!p.served.join("new").exists());
    drop(reader);
}
