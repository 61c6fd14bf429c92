//! `scripts/test.sh` with a cargo that has built shell scripts: what it says last, and its status.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("systx-script-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Runs the script on these test programs; `built` is cargo's status after the build.
    fn test(&self, programs: &[(&str, &str)], built: u8) -> Output {
        let mut cargo = format!(
            "case \" $* \" in ' xtask lint ' | ' doc '*) exit 0 ;; esac\n\
             case $1 in xtask) shift; exec {} \"$@\" ;; test) ;; *) exit 1 ;; esac\n\
             case \" $* \" in *\" --doc \"*) exit 0 ;; esac\n",
            env!("CARGO_BIN_EXE_xtask")
        );
        for (name, text) in programs {
            let program = self.program(name, text);
            let dir = self.0.display();
            cargo += &format!(
                "echo '{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"{dir}/Cargo.toml\",\"target\":\
                 {{\"kind\":[\"test\"],\"src_path\":\"{dir}/{name}.rs\"}},\"profile\":{{\"test\":true}},\
                 \"executable\":\"{}\"}}'\n",
                program.display()
            );
        }
        cargo += &format!("[ {built} = 0 ] || echo 'error: it does not compile' >&2; exit {built}");
        let cargo = self.program("cargo", &cargo);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test.sh");
        let mut test = Command::new("bash");
        test.arg(script).env("CARGO", cargo).env("TMPDIR", &self.0);
        // Only one of them says nothing at all.
        test.env("SYSTX_SILENCE", "5").env_remove("SYSTX_LINTS").output().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const PASSES: &str =
    "echo 'test a ... ok'; echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured'";
const FAILS: &str =
    "echo 'panicked at here'; echo 'test b ... FAILED'; echo 'test result: FAILED. 3 passed; 1 failed'; exit 101";

fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn what_passes_is_counted_together() {
    let scratch = Scratch::new("passes");
    let skips = "echo 'skipped: no mkfs.xfs'; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
    let output = scratch.test(&[("one", PASSES), ("two", PASSES), ("three", skips)], 0);
    assert_eq!(last_line(&output), "test result: ok. 5 passed; 0 failed; 2 ignored; all crates");
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Skipped on this machine:\n      1 skipped: no mkfs.xfs\n"), "{text}");
}

#[test]
fn the_five_slowest_programs_are_listed_at_the_end_with_their_seconds() {
    let scratch = Scratch::new("slow");
    let names = ["one", "two", "three", "four", "slow-0123456789abcdef", "six"];
    // Longer than a second, so that one has seconds to tell.
    let slow = format!("sleep 1.1; {PASSES}");
    let programs = names.map(|name| (name, if name.starts_with("slow") { slow.as_str() } else { PASSES }));
    let output = scratch.test(&programs, 0);
    let text = String::from_utf8_lossy(&output.stdout);
    let listed = text.lines().skip_while(|line| *line != "The slowest programs:").skip(1);
    let listed = listed.map_while(|line| line.strip_prefix("    ")?.split_once(" s "));
    let listed: Vec<_> =
        listed.map(|(seconds, name)| (seconds.parse::<u32>().expect("a number"), name)).collect();
    let told = text.lines().filter(|line| line.contains(" Running ")).map(|line| {
        let seconds = line.rsplit(' ').nth(1).expect("seconds");
        seconds.parse::<u32>().expect("a number")
    });
    let mut told: Vec<_> = told.collect();
    told.sort_by(|a, b| b.cmp(a));
    assert_eq!(listed.iter().map(|(seconds, _)| *seconds).collect::<Vec<_>>(), told[..5], "{text}");
    let slow = listed.iter().find(|(_, name)| name.ends_with(" slow"));
    assert!(slow.is_some_and(|(seconds, _)| *seconds > 0), "{text}");
}

#[test]
fn a_failure_a_death_and_a_hang_fail_the_whole_and_are_named() {
    for (name, text, passed, says) in [
        ("fails", FAILS, 7, "panicked at here"),
        ("dies", "echo 'test c ... ok'; kill -9 $$", 5, "last: test c ... ok"),
        ("quits", "exit 3", 4, "tests/"),
        ("hangs", "exec sleep 1000", 4, "hung, and was killed"),
    ] {
        let scratch = Scratch::new(name);
        let output = scratch.test(&[("one", PASSES), (name, text), ("two", PASSES)], 0);
        let line = format!("test result: FAILED. {passed} passed; 1 failed; 2 ignored; all crates");
        assert_eq!(last_line(&output), line);
        assert_ne!(output.status.code(), Some(0));
        let text = String::from_utf8_lossy(&output.stdout);
        let summary = &text[text.find("FAILED: ").expect("a summary")..];
        assert!(summary.contains(&format!("({name})")), "{summary}");
        assert!(says == "tests/" || summary.contains(says), "{summary}");
    }
}

#[test]
fn what_does_not_build_fails() {
    let scratch = Scratch::new("build");
    let output = scratch.test(&[("one", PASSES)], 101);
    assert_ne!(output.status.code(), Some(0));
    assert!(
        last_line(&output).starts_with("test result: FAILED. 0 passed; 1 failed"),
        "{}",
        last_line(&output)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("it does not compile"));
    let nothing = Scratch::new("nothing").test(&[], 0);
    assert_ne!(nothing.status.code(), Some(0), "no program is no success");
}
