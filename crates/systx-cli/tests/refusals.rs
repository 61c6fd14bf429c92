//! An obstacle on which publication could fail is refused where the native call would fail, or before the
//! commit point; what becomes impossible only after the last look is set aside and reported, and the rest
//! takes effect.
//!
//! `cargo test -p systx-cli --test refusals [-- PART-OF-A-NAME]`

mod machine;

use machine::picture::{difference, picture};
use machine::processes::Stopped;
use machine::volume::Volume;
use machine::word::{hear, say};
use machine::{code, err, have, must, recover, run, shell, verb};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn main() {
    machine::main(&[
        ("a_link_too_many_is_refused_as_natively", a_link_too_many_is_refused_as_natively),
        ("a_size_too_large_is_refused_as_natively", a_size_too_large_is_refused_as_natively),
        ("attributes_without_room_are_refused_as_natively", attributes_without_room_are_refused_as_natively),
        ("attributes_that_make_room_for_others_commit", attributes_that_make_room_for_others_commit),
        (
            "what_became_immutable_meanwhile_aborts_before_the_commit_point",
            what_became_immutable_meanwhile_aborts,
        ),
        ("a_directory_mounted_on_meanwhile_aborts_before_the_commit_point", a_directory_mounted_on_aborts),
        (
            "what_becomes_impossible_while_publishing_is_displaced_and_the_rest_goes_on",
            what_becomes_impossible_is_displaced,
        ),
        ("what_is_made_immutable_after_a_commit_is_not_told_by_a_redo", what_is_made_immutable_is_not_told),
        (
            "a_step_that_a_redo_may_not_take_is_displaced_and_the_file_system_stays_usable",
            a_step_that_a_redo_may_not_take_is_displaced,
        ),
        (
            "flags_that_a_directory_passes_on_are_as_natively",
            flags_that_a_directory_passes_on_are_as_natively,
        ),
        ("an_encrypted_directory_gets_nothing_that_it_can_t_have", an_encrypted_directory_gets_nothing),
        ("a_case_folded_directory_loses_and_gets_no_name", a_case_folded_directory_keeps_its_names),
    ]);
}

struct World {
    volume: Volume,
    served: PathBuf,
}

fn world(dir: &Path) -> Option<World> {
    let volume = Volume::new(dir, "ext4", 64)?;
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    std::fs::write(served.join("f"), "one\n").unwrap();
    std::fs::create_dir(served.join("d")).unwrap();
    std::fs::write(served.join("d/in"), "in\n").unwrap();
    std::fs::create_dir(served.join("e")).unwrap();
    // The area is made.
    let world = World { volume, served };
    assert_eq!(code(&shell(&world.served, "echo two > f")), 0);
    Some(world)
}

impl World {
    /// The script's own call fails with the words that a native one gets, and nothing happens.
    fn refused_as_natively(&self, script: &str, words: &str) {
        let native = Command::new("sh").args(["-c", script]).current_dir(&self.served).output().unwrap();
        assert!(
            code(&native) != 0 && err(&native).contains(words),
            "natively: {} {}",
            code(&native),
            err(&native)
        );
        let before = picture(&self.served);
        let inside = shell(&self.served, script);
        let text = err(&inside);
        assert_eq!(code(&inside), code(&native), "{text}");
        assert!(text.contains(words) && text.contains("nothing was changed"), "{text}");
        let after = picture(&self.served);
        assert!(after == before, "{text}{}", difference(&after, &before));
        self.works();
    }

    /// Nothing is pending, also after a reboot, and the next one works.
    fn works(&self) {
        recover();
        self.reboot();
        recover();
        let output = shell(&self.served, "echo again > unrelated && rm unrelated && echo more >> f");
        assert_eq!((code(&output), err(&output).as_str()), (0, ""));
        let status: serde_json::Value = serde_json::from_slice(&verb("status", &["--json"]).stdout).unwrap();
        assert_eq!((&status[0]["running"], &status[0]["in_flight"]), (&0.into(), &0.into()), "{status}");
    }

    fn reboot(&self) {
        self.volume.unmount();
        self.volume.mount();
        self.volume.forget_boot();
    }

    /// A command that has done what `script` says and waits for a word before it ends.
    fn meet(&self, script: &str) -> Meeting {
        let (here, word) = (self.volume.point.join("here"), self.volume.point.join("word"));
        for fifo in [&here, &word] {
            let _ = std::fs::remove_file(fifo);
            must(Command::new("mkfifo").arg(fifo));
        }
        // Beside what is served the command reaches the file system natively.
        let script = format!("{script}; echo here > {}; read word < {}", here.display(), word.display());
        let mut systx = run(&self.served, &[], &["sh", "-c", &script]);
        let mut systx = systx.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        assert_eq!(hear(&here, &mut systx), "here\n");
        Meeting { systx, word }
    }

    /// The commit is refused because of what was done to the tree meanwhile.
    fn aborts(&self, meeting: Meeting, undo: &mut dyn FnMut(), words: &[&str]) {
        let before = picture(&self.served);
        let output = meeting.end();
        let after = picture(&self.served);
        undo();
        let text = err(&output);
        assert_eq!(code(&output), 125, "{text}");
        assert!(text.contains("nothing was changed"), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "not all of {words:?} in: {text}");
        assert!(after == before, "{text}{}", difference(&after, &before));
        self.works();
    }
}

struct Meeting {
    systx: Child,
    word: PathBuf,
}

impl Meeting {
    fn end(mut self) -> Output {
        say(&self.word, &mut self.systx, "go");
        self.systx.wait_with_output().unwrap()
    }
}

/// EXT4_LINK_MAX.
const LINKS_MAX: u32 = 65_000;

fn a_link_too_many_is_refused_as_natively(dir: &Path) {
    let Some(w) = world(dir) else { return };
    let many = w.volume.point.join("many");
    std::fs::create_dir(&many).unwrap();
    for n in 1..LINKS_MAX {
        std::fs::hard_link(w.served.join("f"), many.join(n.to_string())).unwrap();
    }
    w.refused_as_natively("ln f extra", "Too many links");
    std::fs::remove_file(many.join("1")).unwrap();
    assert_eq!(code(&shell(&w.served, "ln f extra")), 0, "one is left");
    std::fs::remove_file(many.join("2")).unwrap();
    std::fs::remove_file(w.served.join("extra")).unwrap();
    // The transaction's own links count against those that are left, too.
    w.refused_in_the_transaction("ln f extra1 && ln f extra2 && ln f extra3", "Too many links");
}

impl World {
    /// Like `refused_as_natively`, where a native run would leave something behind.
    fn refused_in_the_transaction(&self, script: &str, words: &str) {
        let before = picture(&self.served);
        let inside = shell(&self.served, script);
        let text = err(&inside);
        assert_eq!(code(&inside), 1, "{text}");
        assert!(text.contains(words) && text.contains("nothing was changed"), "{text}");
        let after = picture(&self.served);
        assert!(after == before, "{text}{}", difference(&after, &before));
        self.works();
    }
}

fn a_size_too_large_is_refused_as_natively(dir: &Path) {
    let Some(w) = world(dir) else { return };
    // Large enough not to be copied when it is changed.
    std::fs::write(w.served.join("big"), vec![b'x'; 300_000]).unwrap();
    for script in ["truncate -s 17T big", "truncate -s 17T f", "fallocate -n -o 17T -l 4096 big"] {
        w.refused_as_natively(script, "File too large");
    }
}

fn attributes_without_room_are_refused_as_natively(dir: &Path) {
    let Some(w) = world(dir) else { return };
    if !have("setfattr") {
        return;
    }
    let value = "x".repeat(600);
    // Blocks of 1 KiB: one value fits.
    for target in ["d", "f"] {
        w.refused_in_the_transaction(
            &format!(
                "setfattr -n user.a -v {value} {target} && {{ setfattr -n user.b -v {value} {target} || exit 1; }}"
            ),
            "No space left",
        );
        must(Command::new("setfattr").args(["-n", "user.a", "-v", &value]).arg(w.served.join(target)));
        w.refused_as_natively(&format!("setfattr -n user.b -v {value} {target}"), "No space left");
    }
}

fn attributes_that_make_room_for_others_commit(dir: &Path) {
    let Some(w) = world(dir) else { return };
    if !have("setfattr") || !have("getfattr") {
        return;
    }
    let value = "x".repeat(600);
    let f = w.served.join("f");
    must(Command::new("setfattr").args(["-n", "user.a", "-v", &value]).arg(&f));
    let script =
        format!("setfattr -n user.b -v small f && setfattr -x user.a f && setfattr -n user.b -v {value} f");
    let output = shell(&w.served, &script);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let found = must(Command::new("getfattr").args(["--absolute-names", "-d"]).arg(&f));
    assert!(found.contains(&value) && !found.contains("user.a"), "{found}");
    w.works();
}

fn what_became_immutable_meanwhile_aborts(dir: &Path) {
    let Some(w) = world(dir) else { return };
    if !have("chattr") {
        return;
    }
    for (flag, target, script) in [
        ("i", "d", "echo new > d/new"),
        ("i", "d", "rm d/in"),
        ("i", "d", "mv f d/f"),
        ("i", "d", "chmod 700 d"),
        ("i", "d", "mv d moved"),
        ("i", "d/in", "rm d/in"),
        ("i", "d/in", "mv d/in in"),
        ("i", "d/in", "echo other > d/in"),
        ("i", "d/in", "chmod 600 d/in"),
        ("i", "d/in", "ln d/in linked"),
        ("i", "d/in", "echo x > new && mv new d/in"),
        ("a", "d", "rm d/in"),
        ("a", "d/in", "echo other > d/in"),
    ] {
        let meeting = w.meet(&format!("echo other > e/other; {script}"));
        let target = w.served.join(target);
        let chattr =
            |sign: &str| drop(must(Command::new("chattr").arg(format!("{sign}{flag}")).arg(&target)));
        chattr("+");
        println!("{script}, then chattr +{flag} {}", target.display());
        w.aborts(meeting, &mut || chattr("-"), &["Operation not permitted"]);
    }
    let meeting = w.meet("echo new > d/new");
    let chattr = |sign: &str| drop(must(Command::new("chattr").arg(sign).arg(w.served.join("d"))));
    chattr("+i");
    w.aborts(meeting, &mut || chattr("-i"), &["immutable", "tree/d"]);
}

fn a_directory_mounted_on_aborts(dir: &Path) {
    let Some(w) = world(dir) else { return };
    for script in ["rmdir e", "mv e moved", "mkdir n && mv -T n e", "mv e d/e"] {
        let meeting = w.meet(script);
        let e = w.served.join("e");
        must(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&e));
        let undo = &mut || drop(must(Command::new("umount").arg(&e)));
        println!("{script}, then a mount on e");
        w.aborts(meeting, undo, &["mount", "tree/e"]);
    }
}

/// New names in a directory that is there: one step each.
const NAMES: usize = 6;

fn what_becomes_impossible_is_displaced(dir: &Path) {
    let Some(w) = world(dir) else { return };
    if !have("strace") || !have("chattr") {
        return;
    }
    let script = "for i in 0 1 2 3 4 5; do echo ours $i > d/n$i; done; rm f";
    let d = w.served.join("d");
    let published = || (0..NAMES).filter(|n| d.join(format!("n{n}")).exists()).count();
    let command = run(&w.served, &[], &["sh", "-c", script]);
    for call in 1.. {
        let stopped = Stopped::after(dir, &command, "renameat2", call);
        let stopped = stopped.unwrap_or_else(|o| panic!("never in mid-publication: {}", err(&o)));
        let done = published();
        if done == 0 || done == NAMES {
            let output = stopped.go_on();
            assert_eq!(code(&output), 0, "{}", err(&output));
            assert_eq!(code(&shell(&w.served, "rm d/n* && echo two > f")), 0);
            continue;
        }
        must(Command::new("chattr").arg("+i").arg(&d));
        let output = stopped.go_on();
        must(Command::new("chattr").arg("-i").arg(&d));
        let text = err(&output);
        assert_eq!(code(&output), 76, "{text}");
        assert_eq!(published(), done, "{text}");
        assert!(text.contains("d/n5") && text.contains("aside/"), "{text}");
        assert!(!w.served.join("f").exists(), "the rest of the publication goes on");
        let aside = std::fs::read_dir(w.volume.area().join("aside")).unwrap().count();
        assert_eq!(aside, NAMES - done, "{text}");
        std::fs::write(w.served.join("f"), "two\n").unwrap();
        w.works();
        break;
    }
}

fn what_is_made_immutable_is_not_told(dir: &Path) {
    let Some(w) = world(dir) else { return };
    if !have("chattr") {
        return;
    }
    std::fs::write(w.served.join("big"), vec![b'x'; 300_000]).unwrap();
    let script = "echo three > f; echo new > n; chmod 600 d/in; touch -d 2001-01-01 e; \
        printf changed | dd of=big bs=1 seek=200000 conv=notrunc status=none";
    let output = shell(&w.served, script);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let all = ["f", "n", "d/in", "e", "big"].map(|name| w.served.join(name));
    must(Command::new("chattr").arg("+i").args(&all));
    let before = picture(&w.served);
    w.reboot();
    let told = recover();
    assert!(!told.contains("displaced") && !told.contains("not finished"), "{told}");
    let after = picture(&w.served);
    must(Command::new("chattr").arg("-i").args(&all));
    assert!(after == before, "{}", difference(&after, &before));
    assert_eq!(std::fs::read_dir(w.volume.area().join("aside")).unwrap().count(), 0);
    w.works();
}

fn a_step_that_a_redo_may_not_take_is_displaced(dir: &Path) {
    let Some(w) = world(dir) else { return };
    if !have("chattr") {
        return;
    }
    let f = w.served.join("f");
    let output = shell(&w.served, "echo ours > f; echo more > d/more");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    // The exact bytes of before: a redo would write ours again.
    std::fs::write(&f, "two\n").unwrap();
    must(Command::new("chattr").arg("+i").arg(&f));
    w.reboot();
    let told = recover();
    assert!(told.contains("tree/f") && told.contains("aside/"), "{told}");
    let output = shell(&w.served, "echo unrelated > unrelated");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    assert_eq!(std::fs::read_to_string(&f).unwrap(), "two\n");
    let aside = std::fs::read_dir(w.volume.area().join("aside")).unwrap();
    let aside: Vec<_> = aside.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(aside.len(), 1);
    assert_eq!(std::fs::read_to_string(&aside[0]).unwrap(), "ours\n");
    must(Command::new("chattr").arg("-i").arg(&f));
    // Decided is decided: another redo leaves it so.
    w.works();
    assert_eq!(std::fs::read_to_string(&f).unwrap(), "two\nmore\n");
}

/// Objects made in directories with flags, by hand and inside: few small ones, which could ride in the
/// record, and large ones.
fn flags_that_a_directory_passes_on_are_as_natively(dir: &Path) {
    if !(have("chattr") && have("lsattr")) {
        return;
    }
    for (kind, flags) in [("ext4", "+SdAD"), ("xfs", "+SdA"), ("btrfs", "+C"), ("tmpfs", "+dA")] {
        let Some(volume) = Volume::new(dir, kind, 400) else { continue };
        let served = volume.point.join("tree");
        for place in ["native", "inside"] {
            std::fs::create_dir_all(served.join(place)).unwrap();
            let set = Command::new("chattr").arg(flags).arg(served.join(place)).output().unwrap();
            if !set.status.success() {
                println!("skipped: chattr {flags} on {kind}: {}", err(&set));
            }
        }
        let make = |n: usize, size: &str| {
            format!("mkdir d{n} && echo x > d{n}/in && echo x > f{n} && truncate -s {size} l{n} && echo y >> l{n} && mv f{n} g{n}")
        };
        for (n, size) in [(1, "10"), (2, "3M")] {
            let script = make(n, size);
            must(Command::new("sh").args(["-c", &script]).current_dir(served.join("native")));
            let done = shell(&served, &format!("cd inside && {script}"));
            assert_eq!(code(&done), 0, "{kind}: {}", err(&done));
        }
        let flags_in = |place: &str| {
            let listed = must(Command::new("lsattr").args(["-R", "."]).current_dir(served.join(place)));
            let mut lines: Vec<String> = listed.lines().map(|line| line.to_string()).collect();
            lines.sort();
            lines
        };
        assert_eq!(flags_in("inside"), flags_in("native"), "{kind}");
        volume.unmount();
    }
}

/// Gives a directory a policy of encryption, with a key that the file system gets: fscrypt.rst.
const ENCRYPT: &str = "
import fcntl, os, struct, sys
top, directory = (os.open(path, os.O_RDONLY) for path in sys.argv[1:3])
key = bytearray(80 + 64)
struct.pack_into('I', key, 0, 2)
struct.pack_into('I', key, 40, 64)
key[80:] = b'k' * 64
fcntl.ioctl(top, 0xC0506617, key)
fcntl.ioctl(directory, 0x800C6613, bytes([2, 1, 4, 3, 0, 0, 0, 0]) + bytes(key[8:24]))
";

fn an_encrypted_directory_gets_nothing(dir: &Path) {
    if !have("python3") {
        return;
    }
    let Some(volume) = Volume::new(dir, "ext4-encrypt", 100) else { return };
    let served = volume.point.join("tree");
    let enc = served.join("enc");
    std::fs::create_dir_all(&enc).unwrap();
    let set = Command::new("python3").args(["-c", ENCRYPT]).arg(&volume.point).arg(&enc).output().unwrap();
    if !set.status.success() {
        println!("skipped: this kernel encrypts no directory: {}", err(&set));
        return;
    }
    let script =
        "echo old > enc/f; echo g > enc/g; mkdir enc/dir enc/other; echo x > enc/dir/x; echo p > plain; \
        head -c 2000000 /dev/zero > enc/big";
    must(Command::new("sh").args(["-c", script]).current_dir(&served));
    // Changes that natively make something new, and ones that natively fail, too.
    let before = picture(&served);
    for (script, words) in [
        ("echo new > enc/n", "not supported"),
        ("mkdir enc/n", "not supported"),
        ("ln -s x enc/n", "not supported"),
        ("cp plain enc/dir/n", "not supported"),
        ("ln plain enc/n", "cross-device"),
        ("perl -e 'rename(\"plain\", \"enc/n\") or die $!'", "cross-device"),
    ] {
        let done = shell(&served, script);
        assert!(!matches!(code(&done), 0 | 76), "{script}: {}", err(&done));
        assert!(err(&done).to_lowercase().contains(words), "{script}: {}", err(&done));
        let after = picture(&served);
        assert!(after == before, "{script}: {}", difference(&after, &before));
    }
    for script in [
        "echo NEW > enc/f",
        "mv enc/g enc/h",
        "mv enc/h enc/other/h; ln enc/f enc/other/f",
        "rm -r enc/dir",
        "head -c 2000000 /dev/zero | tr '\\0' x > enc/big",
        "mv enc moved; echo p > plain2",
        "mv moved enc",
    ] {
        let done = shell(&served, script);
        assert_eq!(code(&done), 0, "{script}: {}", err(&done));
    }
    let text = |name: &str| std::fs::read_to_string(enc.join(name)).unwrap();
    assert_eq!((text("f"), text("other/h"), text("other/f")), ("NEW\n".into(), "g\n".into(), "NEW\n".into()));
    assert_eq!(text("big"), "x".repeat(2_000_000));
    assert!(!enc.join("dir").exists());
    let told = machine::out(&verb("doctor", &[]));
    let line =
        told.lines().find(|line| line.contains("special directories") && line.contains("/ext4-encrypt:"));
    assert!(line.is_some_and(|line| line.contains("encrypted")), "{told}");
}

/// Two names that differ in case are one there. Kernels with CONFIG_UNICODE only, such as Debian's: `make vm`.
fn a_case_folded_directory_keeps_its_names(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4-casefold", 100) else { return };
    let served = volume.point.join("tree");
    let folded = served.join("folded");
    std::fs::create_dir_all(&folded).unwrap();
    must(Command::new("chattr").arg("+F").arg(&folded));
    let script = "echo old > folded/File; mkdir folded/Dir; echo in > folded/Dir/In; echo p > plain; cat folded/fILE; \
        head -c 2000000 /dev/zero > folded/Big";
    assert_eq!(must(Command::new("sh").args(["-c", script]).current_dir(&served)), "old\n");
    let before = picture(&served);
    for script in [
        "echo new > folded/n",
        "mkdir folded/n",
        "mkdir folded/Dir/n",
        "ln -s x folded/n",
        "ln plain folded/n",
        "perl -e 'rename(\"plain\", \"folded/FILE\") or die $!'",
        "perl -e 'rename(\"folded/file\", \"gone\") or die $!'",
        "rm folded/file",
        "rm -r folded/dir",
    ] {
        let done = shell(&served, script);
        assert!(!matches!(code(&done), 0 | 76), "{script}: {}", err(&done));
        assert!(err(&done).to_lowercase().contains("not supported"), "{script}: {}", err(&done));
        let after = picture(&served);
        assert!(after == before, "{script}: {}", difference(&after, &before));
    }
    for (script, said) in [
        (
            "cat folded/FILE; echo 1 > folded/file; echo 2 >> folded/FILE; cat folded/File; ls folded",
            "old\n1\n2\nBig\nDir\nFile\n",
        ),
        ("chmod 600 folded/FILE; stat -c %a folded/file folded/File", "600\n600\n"),
        ("echo more >> folded/DIR/IN; cat folded/dir/in", "in\nmore\n"),
        ("head -c 2000000 /dev/zero | tr '\\0' x > folded/BIG", ""),
        ("ln folded/FILE linked; cat linked; rm linked", "1\n2\n"),
        ("mv folded moved; cat moved/fILE", "1\n2\n"),
        ("mv moved folded; cat folded/DIR/In", "in\nmore\n"),
    ] {
        let done = shell(&served, script);
        assert_eq!((code(&done), machine::out(&done).as_str()), (0, said), "{script}: {}", err(&done));
    }
    let text = |name: &str| std::fs::read_to_string(folded.join(name)).unwrap();
    assert_eq!((text("FILE"), text("dir/IN")), ("1\n2\n".into(), "in\nmore\n".into()));
    assert_eq!(text("big"), "x".repeat(2_000_000));
    assert_eq!(must(Command::new("ls").arg(&folded)), "Big\nDir\nFile\n");

    // The kernel takes two spellings for two names of one file, and to rename the one to the other does nothing.
    let done = shell(
        &served,
        "perl -e 'rename(\"folded/File\", \"folded/file\") or die $!'; ! mv folded/File folded/file",
    );
    assert_eq!(code(&done), 0, "{}", err(&done));
    assert_eq!(must(Command::new("ls").arg(&folded)), "Big\nDir\nFile\n");
    // By whichever name an outsider changes what was read, it is a conflict.
    let w = World { volume, served };
    for act in
        ["echo theirs >> folded/fILE", "rm folded/FILE; echo theirs > folded/File", "chmod 640 folded/fILE"]
    {
        let meeting = w.meet("stat folded/File > stat; cat folded/FILE >> stat");
        must(Command::new("sh").args(["-c", act]).current_dir(&w.served));
        let done = meeting.end();
        assert_eq!(code(&done), 75, "{act}: {}", err(&done));
        assert!(!w.served.join("stat").exists(), "{act}");
    }
    let done = shell(&w.served, "echo ours > folded/fILE");
    assert_eq!((code(&done), text("File").as_str()), (0, "ours\n"), "{}", err(&done));
    w.reboot();
    recover();
    assert_eq!((text("FILE"), text("dir/IN")), ("ours\n".into(), "in\nmore\n".into()));
    let told = machine::out(&verb("doctor", &[]));
    // The root of the guest is an overlay: there doctor speaks of no other mount.
    let line =
        told.lines().find(|line| line.contains("special directories") && line.contains("/ext4-casefold:"));
    let alone = told.contains("/ is on overlay");
    assert!(alone || line.is_some_and(|line| line.contains("blind to case")), "{told}");
}
