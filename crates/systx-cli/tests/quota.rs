//! Quotas of ext4 and xfs: who is bound by one is bound in a transaction as plainly; a quota met at the
//! commit refuses it; one met while publishing loses nothing and leaves nothing.
//!
//! Skipped where the kernel has no such quotas; `make vm` has them. Those of btrfs: tests/faults.rs,
//! tests/outcomes.rs.
//!
//! `cargo test -p systx-cli --test quota [-- PART-OF-A-NAME]`

mod machine;

use machine::picture::{difference, picture};
use machine::processes::{children, Held, Stopped, Tell};
use machine::user::{open_fuse_to_all, UNPRIVILEGED, USER};
use machine::volume::Volume;
use machine::word::say;
use machine::{code, err, have, must, out, systx, AREA};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn main() {
    machine::main(&[
        ("a_quota_met_by_the_command_is_told_as_plainly", a_quota_met_by_the_command_is_told_as_plainly),
        ("a_quota_of_inodes_met_by_the_command_is_told_as_plainly", a_quota_of_inodes_is_told_as_plainly),
        ("a_quota_met_at_the_commit_aborts_it", a_quota_met_at_the_commit_aborts_it),
        ("a_quota_met_while_publishing_loses_nothing", a_quota_met_while_publishing_loses_nothing),
        ("xfs_binds_a_user_in_roots_run", xfs_binds_a_user_in_roots_run),
        ("what_is_new_belongs_to_the_project_of_its_directory", what_is_new_belongs_to_the_project),
    ]);
}

const PROJECT: u32 = 7;

/// Whom a quota is for, and who runs systx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The whole file system is one project, which binds root without CAP_SYS_RESOURCE (on xfs also with it).
    Project,
    /// An ordinary user, in a run of that user.
    User,
}

/// The project of one directory, which passes it on; systx's area has none.
const PART: u32 = 8;
const WHO: [Who; 2] = [Who::Project, Who::User];
const KINDS: [&str; 2] = ["ext4", "xfs"];

/// Prefix of root's commands, so that root is bound on ext4, too.
const BOUND: [&str; 4] = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", "--"];

struct World {
    who: Who,
    kind: &'static str,
    dir: PathBuf,
    volume: Volume,
    served: PathBuf,
    program: PathBuf,
}

/// Runs a case for each file system and holder of a quota that can be had here.
fn each(dir: &Path, case: fn(&World)) {
    if !have("setquota") || !have("setpriv") || !have("chattr") {
        return;
    }
    for kind in KINDS {
        for who in WHO {
            let below = dir.join(format!("{kind}-{who:?}"));
            std::fs::create_dir(&below).unwrap();
            if let Some(world) = world(&below, kind, who) {
                case(&world);
            }
        }
    }
}

/// A file system with quotas, or with projects only, which xfs has on every kernel.
fn volume(dir: &Path, kind: &'static str, quotas: bool) -> Option<Volume> {
    let (tool, make, mount): (&str, &[&str], &str) = match kind {
        "ext4" => (
            "mkfs.ext4",
            &["-q", "-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"],
            "loop,usrquota,grpquota,prjquota",
        ),
        _ if quotas => ("mkfs.xfs", &["-q"], "loop,uquota,gquota,pquota"),
        _ => ("mkfs.xfs", &["-q"], "loop"),
    };
    if !have(tool) {
        return None;
    }
    let volume = Volume { image: dir.join("image"), point: dir.join(kind), kind };
    std::fs::create_dir(&volume.point).unwrap();
    std::fs::File::create(&volume.image).unwrap().set_len(400 << 20).unwrap();
    must(Command::new(tool).args(make).arg(&volume.image));
    let mounted = Command::new("mount").args(["-o", mount]).arg(&volume.image).arg(&volume.point).output();
    let mounted = mounted.unwrap();
    if !mounted.status.success() {
        println!("skipped: {kind} with quotas can't be mounted: {}", err(&mounted).trim());
        return None;
    }
    Some(volume)
}

fn world(dir: &Path, kind: &'static str, who: Who) -> Option<World> {
    let volume = volume(dir, kind, true)?;
    if who == Who::Project {
        // Everything on it, systx's area, too.
        let project = PROJECT.to_string();
        must(Command::new("chattr").args(["+P", "-p", &project]).arg(&volume.point));
    }
    let top = volume.point.join("own");
    let served = top.join("tree");
    let world = World { who, kind, program: dir.join("bin/systx"), dir: dir.into(), volume, served };
    for made in [&top, &world.served, &world.served.join("d")] {
        std::fs::create_dir(made).unwrap();
    }
    std::fs::write(world.served.join("a"), "one\n").unwrap();
    std::fs::write(world.served.join("b"), vec![b'x'; 100_000]).unwrap();
    std::fs::write(world.served.join("large"), vec![b'y'; 3_000_000]).unwrap();
    if who == Who::User {
        must(Command::new("chown").args(["-R", &format!("{USER}:{USER}")]).arg(&top));
        std::fs::create_dir(dir.join("home")).unwrap();
        chown(dir.join("home"), Some(USER), Some(USER)).unwrap();
        open_fuse_to_all(dir);
    }
    // Where it was built others may have no way to it.
    std::fs::create_dir(dir.join("bin")).unwrap();
    std::fs::copy(systx(), &world.program).unwrap();
    // The area is made.
    let output = world.shell("echo two > a");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{kind} {who:?}");
    Some(world)
}

impl Drop for World {
    fn drop(&mut self) {
        if self.who == Who::User {
            let _ = Command::new("umount").arg("/dev/fuse").status();
        }
    }
}

impl World {
    fn plainly(&self, words: &[&str]) -> Command {
        let wrapper: &[&str] = if self.who == Who::User { &UNPRIVILEGED } else { &BOUND };
        let words: Vec<_> = wrapper.iter().chain(words).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.served).stdin(Stdio::null());
        command.env("HOME", self.dir.join("home")).env_remove("XDG_STATE_HOME");
        command
    }

    fn verb(&self, words: &[&str]) -> Command {
        let program = self.program.to_str().unwrap();
        self.plainly(&[&[program, words[0], "--area-name", AREA], &words[1..]].concat())
    }

    fn run(&self, options: &[&str], script: &str) -> Command {
        let served = self.served.to_str().unwrap();
        self.verb(&[&["run", "--only", served], options, &["--", "sh", "-c", script]].concat())
    }

    fn shell(&self, script: &str) -> Output {
        self.run(&[], script).output().unwrap()
    }

    fn holder(&self) -> (&'static str, String) {
        match self.who {
            Who::Project => ("-P", PROJECT.to_string()),
            Who::User => ("-u", USER.to_string()),
        }
    }

    /// Sets the limits, from what is used now: kilobytes and inodes. `None`: no limit.
    fn leave(&self, kilobytes: Option<u64>, inodes: Option<u64>) {
        let (option, id) = self.holder();
        let (used, files) = self.used();
        let of = |used: u64, left: Option<u64>| left.map_or(0, |left| (used + left).max(1)).to_string();
        let limits = [of(used, kilobytes), of(files, inodes)];
        must(
            Command::new("setquota")
                .args([option, id.as_str(), "0", &limits[0], "0", &limits[1]])
                .arg(&self.volume.point),
        );
    }

    /// Kilobytes and inodes that the holder has.
    fn used(&self) -> (u64, u64) {
        must(Command::new("sync").arg("-f").arg(&self.volume.point));
        let (option, id) = self.holder();
        let mut repquota = Command::new("repquota");
        let text = must(repquota.args([option, "-n", "-v", "-O", "csv"]).arg(&self.volume.point));
        let line = text.lines().find(|line| line.starts_with(&format!("#{id},"))).unwrap_or_default();
        let words: Vec<_> = line.split(',').collect();
        let number = |n: usize| words.get(n).and_then(|word| word.parse().ok()).unwrap_or(0);
        // Name, two states, used, soft, hard, grace, inodes used, …
        (number(3), number(7))
    }

    /// Returns true if a text names the quota. For a project's quota xfs says that there is no space, and so
    /// does statfs, by which room is reserved for a commit.
    fn names_it(&self, text: &str) -> bool {
        let space = self.kind == "xfs" || text.contains("reserving space");
        (space && self.who == Who::Project && text.contains("No space left")) || text.contains("quota")
    }

    fn told(&self, output: &Output) -> String {
        format!("{} {:?}: status {}: {}", self.kind, self.who, code(output), err(output))
    }

    /// Nothing is left behind, and the next one works.
    fn works(&self) {
        self.leave(None, None);
        let output = self.shell("echo again > again && rm again && echo more >> a");
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{}", self.told(&output));
        let recovered = self.verb(&["recover"]).output().unwrap();
        assert_eq!(code(&recovered), 0, "{}", self.told(&recovered));
        let status = self.verb(&["status", "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        let zero = &serde_json::Value::from(0);
        assert_eq!((&status[0]["running"], &status[0]["in_flight"]), (zero, zero), "{status}");
        assert_eq!(status[0]["displaced"].as_array().map(Vec::len), Some(0), "{status}");
        let left = std::fs::read_dir(self.area().join("tx")).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with('~')).collect();
        assert!(left.is_empty(), "staging is left: {left:?}");
    }

    fn area(&self) -> PathBuf {
        match self.who {
            Who::Project => self.volume.area(),
            Who::User => self.served.parent().unwrap().join(format!("{AREA}-{USER}")),
        }
    }
}

/// Checks that a script ends alike plainly and as a transaction, and gives equal messages.
fn alike(w: &World, script: &str) {
    let (used, _) = w.used();
    let plain = w.plainly(&["sh", "-c", script]).output().unwrap();
    assert_ne!(code(&plain), 0, "this quota doesn't bind: {}", w.told(&plain));
    assert!(w.names_it(&err(&plain)), "{}", w.told(&plain));
    must(Command::new("sh").args(["-c", "rm -rf new*; truncate -s 3000000 large"]).current_dir(&w.served));
    // xfs gives back what was removed a little later.
    assert!((0..1000).any(|_| w.used().0 <= used + 1000), "{} of {used} KB are still used", w.used().0);
    let before = picture(&w.served);
    let run = w.shell(script);
    assert_eq!(code(&run), code(&plain), "{}", w.told(&run));
    let (said, plainly) = (err(&run), err(&plain));
    assert!(said.starts_with(&plainly), "{plainly} or {}", w.told(&run));
    assert!(said.contains("nothing was changed"), "{}", w.told(&run));
    let after = picture(&w.served);
    assert!(after == before, "{said}{}", difference(&after, &before));
}

fn a_quota_met_by_the_command_is_told_as_plainly(dir: &Path) {
    each(dir, |w| {
        w.leave(Some(12_000), None);
        // Written anew, at the end, and in the midst.
        for script in [
            "head -c 25000000 /dev/zero 2>/dev/null | dd of=new bs=100000 status=none",
            "head -c 25000000 /dev/zero 2>/dev/null | dd of=large bs=100000 oflag=append conv=notrunc status=none",
            "i=0; while [ $i -lt 200 ]; do dd if=b of=new$i bs=100000 status=none || exit 3; i=$((i + 1)); done",
        ] {
            match script.contains("new$i") {
                // The message says which file it is by a name that may differ.
                true => {
                    let run = w.shell(script);
                    assert!(code(&run) == 3 && w.names_it(&err(&run)), "{}", w.told(&run));
                }
                false => alike(w, script),
            }
            must(Command::new("truncate").args(["-s", "3000000"]).arg(w.served.join("large")));
        }
        w.works();
    });
}

fn a_quota_of_inodes_is_told_as_plainly(dir: &Path) {
    each(dir, |w| {
        w.leave(None, Some(300));
        let run = w.shell("i=0; while [ $i -lt 2000 ]; do : > new$i || exit 3; i=$((i + 1)); done");
        // To the command, or at the commit: small files are made then.
        assert!([2, 3, 125].contains(&code(&run)), "{}", w.told(&run));
        assert!(w.names_it(&err(&run)) && err(&run).contains("nothing was changed"), "{}", w.told(&run));
        assert!(!w.served.join("new0").exists());
        w.works();
    });
}

fn a_quota_met_at_the_commit_aborts_it(dir: &Path) {
    each(dir, |w| {
        let mut tell = Tell::new(&w.dir);
        let wait = w.dir.join("wait");
        must(Command::new("mkfifo").args(["-m", "666"]).arg(&wait));
        must(Command::new("chmod").arg("666").arg(&tell.path));
        let mut seen = [0, 0];
        for changes in [
            // A record larger than what the log has ready; files that are made at the commit; a change in place.
            "i=0; while [ $i -lt 400 ]; do head -c 3000 /dev/urandom > d/new$i; i=$((i + 1)); done; rm b; echo three > a",
            "head -c 300000 /dev/urandom > d/new; echo three > a; rm b",
        ] {
            let before = picture(&w.served);
            let mut command = w.run(&[], &format!("{changes}; echo here > $TELL; read line < $WAIT"));
            command.env("TELL", &tell.path).env("WAIT", &wait).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            assert!(tell.wait(&child), "{}", err(&child.wait_with_output().unwrap()));
            w.leave(Some(0), Some(0));
            say(&wait, &mut child, "go");
            let output = child.wait_with_output().unwrap();
            match code(&output) {
                // It had all that it needed.
                0 => seen[0] += 1,
                125 => {
                    seen[1] += 1;
                    let text = err(&output);
                    assert!(w.names_it(&text) && text.contains("nothing was changed"), "{}", w.told(&output));
                    let after = picture(&w.served);
                    assert!(after == before, "{}{}", w.told(&output), difference(&after, &before));
                }
                _ => panic!("{}", w.told(&output)),
            }
            w.works();
        }
        println!("{} {:?}: {} × committed, {} × refused", w.kind, w.who, seen[0], seen[1]);
        assert!(seen[1] > 0, "a quota is never met at the commit");
    });
}

/// New names, one step each; then a file that grows in place, for which its blocks are needed once more.
const NAMES: usize = 10;
const PUBLISHED: &str =
    "for i in 0 1 2 3 4 5 6 7 8 9; do echo ours $i > f$i; done; head -c 2000000 /dev/zero >> large; \
    head -c 2000000 /dev/urandom | dd of=large bs=100000 seek=40 conv=notrunc status=none";
const STEP: &str = "renameat2";

fn published(w: &World) -> usize {
    (0..NAMES).filter(|n| w.served.join(format!("f{n}")).exists()).count()
}

fn a_quota_met_while_publishing_loses_nothing(dir: &Path) {
    if !have("strace") {
        return;
    }
    each(dir, |w| {
        let mut seen = [0, 0];
        let (mut calls, mut between) = (0, 0);
        while between < 2 {
            calls += 1;
            let stopped = match Stopped::after(&w.dir, &w.run(&[], PUBLISHED), STEP, calls) {
                Ok(stopped) => stopped,
                Err(output) => {
                    assert!(between > 0, "never in mid-publication: {}", w.told(&output));
                    break;
                }
            };
            let done = published(w);
            let helper = children(stopped.owner.pid);
            if done > 0 {
                between += 1;
                w.leave(Some(0), Some(0));
            }
            let output = stopped.go_on();
            helper.iter().for_each(Held::gone);
            match code(&output) {
                0 => seen[0] += 1,
                125 => {
                    seen[1] += 1;
                    let text = err(&output);
                    let pending = text.contains("committed, publication pending");
                    assert!(pending && w.names_it(&text) && text.contains("systx recover"), "{text}");
                    // Not before there is room again, and every command says why.
                    for output in [w.verb(&["recover"]).output().unwrap(), w.shell("echo > other")] {
                        assert_ne!(code(&output), 0, "{}", w.told(&output));
                        assert!(w.names_it(&err(&output)), "{}", w.told(&output));
                    }
                    w.leave(None, None);
                    let recovered = w.verb(&["recover"]).output().unwrap();
                    assert_eq!(code(&recovered), 0, "{}", w.told(&recovered));
                    assert!(out(&recovered).contains("1 committed finished"), "{}", out(&recovered));
                }
                _ => panic!("{}", w.told(&output)),
            }
            w.leave(None, None);
            assert_eq!(published(w), NAMES);
            for n in 0..NAMES {
                let text = std::fs::read_to_string(w.served.join(format!("f{n}"))).unwrap();
                assert_eq!(text, format!("ours {n}\n"));
            }
            assert_eq!(std::fs::metadata(w.served.join("large")).unwrap().len(), 6_000_000);
            w.works();
            let output = w.shell("rm f*; truncate -s 3000000 large");
            assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{}", w.told(&output));
        }
        println!("{} {:?}: {} × committed, {} × pending", w.kind, w.who, seen[0], seen[1]);
        assert!(seen[1] > 0, "a quota is never met while publishing");
    });
}

fn what_is_new_belongs_to_the_project(dir: &Path) {
    if !have("chattr") {
        return;
    }
    for kind in KINDS {
        let below = dir.join(kind);
        std::fs::create_dir(&below).unwrap();
        let Some(volume) = volume(&below, kind, false) else { continue };
        let part = PART.to_string();
        let tree = |name: &str| {
            let tree = volume.point.join(name);
            std::fs::create_dir(&tree).unwrap();
            must(Command::new("chattr").args(["+P", "-p", &part]).arg(&tree));
            let filled = "mkdir old; echo one > old/a; echo two > b; head -c 3000000 /dev/zero > large";
            must(Command::new("sh").args(["-c", filled]).current_dir(&tree));
            tree
        };
        let (served, plain) = (tree("served"), tree("plain"));
        let script = "echo small > small; head -c 2000000 /dev/urandom > new; mkdir -p d/e/f; echo in > d/e/f/in; \
            yes | head -c 3000000 > large; echo end >> b; ln b link; ln small second; mv old/a d/a; rmdir old; \
            mv d/e moved; : > empty; cp -r moved copied";
        must(Command::new("sh").args(["-c", script]).current_dir(&plain));
        let output = machine::shell(&served, script);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{kind}");
        let projects = |tree: &Path| must(Command::new("sh").args(["-c", PROJECTS]).current_dir(tree));
        assert_eq!(projects(&served), projects(&plain), "{kind}");
        assert!(projects(&served).contains("./moved/f/in") && projects(&served).contains("P"), "{kind}");
        // Objects to which the kernel gives no project after they were made are refused before the commit
        // point.
        for special in ["ln -s small symlink", "mkfifo fifo"] {
            let output = machine::shell(&served, &format!("{special}; echo more > more"));
            match code(&output) {
                0 => assert!(served.join("more").exists()),
                _ => {
                    let words = ["nothing was changed", "project"];
                    assert!(words.iter().all(|word| err(&output).contains(word)), "{}", err(&output));
                    assert!(!served.join("more").exists());
                }
            }
            println!("{kind}: {special}: status {}", code(&output));
        }
        let status: serde_json::Value =
            serde_json::from_slice(&machine::verb("status", &["--json"]).stdout).unwrap();
        assert_eq!(status[0]["displaced"].as_array().map(Vec::len), Some(0), "{status}");
        let output = machine::shell(&served, "rm -r moved copied d; rm small b");
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{kind}");
    }
}

/// Names, projects, and whether it is passed on, without what has none that can be asked for.
const PROJECTS: &str = "find . -mindepth 1 '(' -type f -o -type d ')' | sort | xargs lsattr -pd";

/// On ext4 a quota does not bind who has CAP_SYS_RESOURCE, and there systx writes for everybody (docs/limits.md).
fn xfs_binds_a_user_in_roots_run(dir: &Path) {
    if !have("setquota") || !have("setpriv") {
        return;
    }
    for kind in KINDS {
        let below = dir.join(kind);
        std::fs::create_dir(&below).unwrap();
        let Some(w) = world(&below, kind, Who::User) else { continue };
        w.leave(Some(3000), None);
        let write = "head -c 25000000 /dev/zero 2>/dev/null | dd of=new bs=100000 status=none";
        let words = [&UNPRIVILEGED[..], &["sh", "-c", write]].concat();
        // The run has an area of its own, beside the user's.
        let output = machine::run(&w.served, &[], &words).output().unwrap();
        println!("{}", w.told(&output));
        if kind == "xfs" {
            assert!(code(&output) == 1 && err(&output).contains("quota"), "{}", w.told(&output));
            assert!(!w.served.join("new").exists());
        }
        w.works();
    }
}
