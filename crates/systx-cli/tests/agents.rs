//! Eight agents on one git work tree, each command a transaction: who touches different files never
//! conflicts, every conflict names what another one has changed, and with `--retry` all get through.
//!
//! `cargo test -p systx-cli --test agents [-- PART-OF-A-NAME]`; more rounds with `SYSTX_LONG=1`. It prints what
//! it has counted.

mod machine;

use machine::volume::Volume;
use machine::{code, err, have, must, rounds, run};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const AGENTS: usize = 8;

fn main() {
    machine::main(&[
        ("transactions_on_different_files_overlap_and_commit", transactions_on_different_files_overlap),
        (
            "agents_that_touch_different_files_never_conflict",
            agents_that_touch_different_files_never_conflict,
        ),
        ("a_conflict_of_agents_names_what_another_one_changed", a_conflict_names_what_another_one_changed),
        ("agents_that_commit_to_one_repository_all_get_through", agents_that_commit_all_get_through),
    ]);
}

/// A repository in which each agent has a directory.
fn repository(dir: &Path) -> Option<PathBuf> {
    if !have("git") || !have("cc") {
        return None;
    }
    let work = Volume::new(dir, "ext4", 256)?.point.join("work");
    for agent in 0..AGENTS {
        let own = work.join(format!("src/{agent}"));
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("main.c"), format!("int main_{agent}(void) {{ return 0; }}\n")).unwrap();
    }
    std::fs::write(work.join(".gitignore"), "*.o\n").unwrap();
    must(&mut plain(&work, "git init -q . && git add -A && git commit -qm first"));
    Some(work)
}

/// Sets git up as on a machine where no user has any settings.
fn as_agent(command: &mut Command) {
    let name = [("AUTHOR", "NAME"), ("AUTHOR", "EMAIL"), ("COMMITTER", "NAME"), ("COMMITTER", "EMAIL")];
    command.envs(name.map(|(who, what)| (format!("GIT_{who}_{what}"), "agent@example.org")));
    command.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")]);
}

fn plain(work: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(work);
    as_agent(&mut command);
    command
}

/// A script of one agent (`$1` is its number), as a transaction.
fn transaction(work: &Path, options: &[&str], agent: usize, script: &str) -> Command {
    let number = agent.to_string();
    let mut command = run(work, options, &["sh", "-ec", script, "agent", &number]);
    as_agent(&mut command);
    command
}

/// A transaction that has said "here" and waits until it is sent on.
struct Paused(Child);

impl Paused {
    fn new(work: &Path, options: &[&str], agent: usize, before: &str, after: &str) -> Paused {
        let script = format!("{before}\necho here\nread go\n{after}");
        let mut command = transaction(work, options, agent, &script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "here\n", "{}", err(&child.wait_with_output().unwrap()));
        Paused(child)
    }

    fn tell(&mut self) {
        self.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }

    fn end(self) -> Output {
        self.0.wait_with_output().unwrap()
    }
}

/// All at once, each `count` times; every one must end with 0.
fn all_commit(work: &Path, options: &[&str], count: usize, script: &str) {
    std::thread::scope(|scope| {
        for agent in 0..AGENTS {
            scope.spawn(move || {
                for _ in 0..count {
                    let output = transaction(work, options, agent, script).output().unwrap();
                    assert_eq!(code(&output), 0, "agent {agent}: {script}: {}", err(&output));
                }
            });
        }
    });
    println!("{AGENTS} agents, {} transactions: all committed", AGENTS * count);
}

fn transactions_on_different_files_overlap(dir: &Path) {
    let Some(work) = repository(dir) else { return };
    let edit = "sed -i s/0/1/ src/$1/main.c";
    let mut first = Paused::new(&work, &[], 0, edit, "cc -c -o src/$1/main.o src/$1/main.c");
    // It runs from its beginning to its commit while the first one is open.
    let second = transaction(&work, &[], 1, edit).output().unwrap();
    assert_eq!(code(&second), 0, "{}", err(&second));
    first.tell();
    let first = first.end();
    assert_eq!(code(&first), 0, "{}", err(&first));
    let changed = must(&mut plain(&work, "git diff --name-only; ls src/0/main.o"));
    assert_eq!(changed, "src/0/main.c\nsrc/1/main.c\nsrc/0/main.o\n");
}

fn agents_that_touch_different_files_never_conflict(dir: &Path) {
    let Some(work) = repository(dir) else { return };
    for script in [
        // An edit, a build, a look at one's own part.
        "sed -i s/return/return\\ 1+/ src/$1/main.c; cc -c -o src/$1/main.o src/$1/main.c; \
         GIT_OPTIONAL_LOCKS=0 git diff --stat -- src/$1",
        // New names in a directory that all share; files that no agent changes are read.
        "echo note >> note.$1; cat .gitignore note.$1; mv note.$1 kept.$1; mkdir src/dir.$1; rmdir src/dir.$1",
        // A name that comes and goes, a link, attributes.
        "cp src/$1/main.c copy.$1; ln copy.$1 link.$1; chmod 600 copy.$1; touch link.$1; rm copy.$1 link.$1",
    ] {
        // No second try: any conflict here is a false one.
        all_commit(&work, &[], rounds(3, 50), script);
    }
}

fn a_conflict_names_what_another_one_changed(dir: &Path) {
    let Some(work) = repository(dir) else { return };
    for round in 0..rounds(2, 20) {
        // Each has seen every file before any of them changes its own.
        let look = "GIT_OPTIONAL_LOCKS=0 git status --short >&2";
        let edit = "sed -i s/return/return\\ 1+/ src/$1/main.c";
        let mut open: Vec<_> =
            (0..AGENTS).map(|agent| Paused::new(&work, &["--json"], agent, look, edit)).collect();
        open.iter_mut().for_each(Paused::tell);
        let ends: Vec<Output> = open.into_iter().map(Paused::end).collect();
        let won: Vec<usize> = (0..AGENTS).filter(|agent| code(&ends[*agent]) == 0).collect();
        let [won] = won[..] else { panic!("round {round}: one of them commits: {won:?}") };
        for (agent, end) in ends.iter().enumerate().filter(|(agent, _)| *agent != won) {
            let told = err(end);
            let outcome: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
            assert_eq!(code(end), 75, "agent {agent}: {told}");
            let conflict = &outcome["conflict"];
            let path = conflict["path"].as_str().unwrap();
            assert!(path.starts_with(work.join(format!("src/{won}")).to_str().unwrap()), "{outcome}");
            let theirs = conflict["with"]["command"].as_str().unwrap();
            assert!(theirs.starts_with("sh -ec"), "{outcome}");
        }
    }
    println!("{AGENTS} agents who have read what each of them changes: one commits, {} conflict", AGENTS - 1);
}

fn agents_that_commit_all_get_through(dir: &Path) {
    let Some(work) = repository(dir) else { return };
    let commit = "sed -i s/return/return\\ 1+/ src/$1/main.c; git add src/$1; git commit -qm $1";
    let count = rounds(2, 20);
    all_commit(&work, &["--retry", "64"], count, commit);
    let commits = must(&mut plain(&work, "git fsck --strict && git status --short && git log --format=%s"));
    assert_eq!(commits.lines().count(), 1 + AGENTS * count, "{commits}");
    for agent in 0..AGENTS {
        let mine = commits.lines().filter(|line| *line == agent.to_string()).count();
        assert_eq!(mine, count, "agent {agent}: {commits}");
        let text = std::fs::read_to_string(work.join(format!("src/{agent}/main.c"))).unwrap();
        assert_eq!(text.matches("1+").count(), count, "agent {agent}: {text}");
    }
}
