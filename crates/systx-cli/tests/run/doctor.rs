//! `systx doctor`: a line for each guarantee, also where all is well.

use super::place::{code, err, must, out, Place, AREA, SYSTX};
use super::Case;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("doctor_has_a_line_for_each_guarantee", doctor_has_a_line_for_each_guarantee),
    ("doctor_changes_nothing", doctor_changes_nothing),
    ("doctor_says_what_is_weaker_and_what_to_do", doctor_says_what_is_weaker_and_what_to_do),
    ("doctor_says_no_and_what_to_do", doctor_says_no_and_what_to_do),
];

const OF_THE_MACHINE: [&str; 9] = [
    "privilege",
    "kernel",
    "FUSE",
    "FUSE passthrough",
    "user namespaces",
    "isolation",
    "recovery at boot",
    "helper",
    "watcher",
];
const OF_A_MOUNT: [&str; 7] = [
    "area",
    "power loss",
    "file handles",
    "conditional renames",
    "multigrain stamps",
    "leases",
    "opening by handle",
];

fn doctor(options: &[&str]) -> Command {
    let mut doctor = Command::new(SYSTX);
    doctor.args(["doctor", "--area-name", AREA]).args(options);
    doctor
}

/// How far each guarantee of the machine, or of one mount, holds.
fn holds(value: &serde_json::Value, mount: Option<&Path>) -> BTreeMap<String, String> {
    let of = |line: &&serde_json::Value| line["mount"].as_str() == mount.map(|m| m.to_str().unwrap());
    let text = |line: &serde_json::Value, key: &str| line[key].as_str().unwrap().to_string();
    let lines: Vec<_> = value.as_array().unwrap().iter().filter(of).collect();
    let holds: BTreeMap<_, _> = lines.iter().map(|l| (text(l, "subject"), text(l, "holds"))).collect();
    assert_eq!(holds.len(), lines.len(), "a guarantee has two lines: {lines:?}");
    holds
}

fn doctor_has_a_line_for_each_guarantee(p: &Place) {
    let json = doctor(&["--json"]).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let (machine, mount) = (holds(&value, None), holds(&value, Some(&p.mount)));
    for (subjects, holds) in [(&OF_THE_MACHINE[..], &machine), (&OF_A_MOUNT[..], &mount)] {
        assert!(subjects.iter().all(|s| holds.contains_key(*s)), "not all of {subjects:?} in {holds:?}");
    }
    // All file systems of the tests can do all of this.
    for subject in ["area", "file handles", "conditional renames", "leases", "power loss"] {
        assert_eq!(mount[subject], "yes", "{subject}");
    }
    assert_eq!((machine["privilege"].as_str(), machine["FUSE"].as_str()), ("yes", "yes"));

    // In words, each line with its mark; the status shows if something needed is missing.
    let words = doctor(&[]).output().unwrap();
    let text = out(&words);
    let mark = |holds: &str| match holds {
        "yes" => "ok  ",
        "weaker" => "weak",
        _ => "NO  ",
    };
    let expected = machine.iter().map(|(s, h)| format!("{} {s}: ", mark(h)));
    let here = p.mount.display();
    let expected = expected.chain(mount.iter().map(|(s, h)| format!("{} {s} on {here}: ", mark(h))));
    for begin in expected {
        assert_eq!(text.lines().filter(|l| l.starts_with(&begin)).count(), 1, "{begin}\n{text}");
    }
    let missing = text.lines().any(|line| line.starts_with("NO  "));
    assert_eq!((code(&words), code(&json)), (i32::from(missing), i32::from(missing)), "{}", err(&words));
}

fn doctor_changes_nothing(p: &Place) {
    let listing = || {
        let names = std::fs::read_dir(&p.mount).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let before = (listing(), p.picture());
    doctor(&[]).output().unwrap();
    // Where there is no area, none is made.
    let output = Command::new(SYSTX).args(["doctor", "--area-name", ".systx-never"]).output().unwrap();
    assert!(out(&output).contains("none yet"), "{}{}", out(&output), err(&output));
    assert_eq!((listing(), p.picture()), before);
}

fn doctor_says_what_is_weaker_and_what_to_do(p: &Place) {
    let (ram, bare) = (p.beside.join("ram"), p.beside.join("bare"));
    std::fs::create_dir(&ram).unwrap();
    must(Command::new("mount").args(["-t", "ramfs", "none"]).arg(&ram));
    let line = |subject: &str, at: &Path| {
        let text = out(&doctor(&[]).output().unwrap());
        let begin = format!("weak {subject} on {}: ", at.display());
        text.lines()
            .find(|line| line.starts_with(&begin))
            .unwrap_or_else(|| panic!("{begin}\n{text}"))
            .to_string()
    };
    assert!(line("file system", &ram).contains("ramfs can't be served: read-only inside"));
    must(Command::new("umount").arg(&ram));

    std::fs::create_dir(&bare).unwrap();
    let image = p.beside.join("bare.img");
    std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-O", "^has_journal"]).arg(&image).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("skipped: ext4 without a journal: no mkfs.ext4");
        return;
    }
    must(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&bare));
    let text = line("power loss", &bare);
    must(Command::new("umount").arg(&bare));
    assert!(text.contains("without a journal") && text.contains("tune2fs -O has_journal"), "{text}");
}

fn doctor_says_no_and_what_to_do(_: &Place) {
    const NOBODY: u32 = 65534;
    let mut unprivileged = doctor(&[]);
    let output = unprivileged.uid(NOBODY).gid(NOBODY).current_dir("/").stdin(Stdio::null()).output();
    let Ok(output) = output else {
        println!("skipped: another user can't execute {SYSTX}");
        return;
    };
    let text = out(&output);
    assert_eq!(code(&output), 1, "{text}{}", err(&output));
    let line =
        text.lines().find(|line| line.starts_with("NO   privilege: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("user 65534") && line.ends_with("Use sudo"), "{line}");
}
