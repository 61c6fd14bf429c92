//! Transactions over several file systems of which one never comes back, is away, or is a copy of another.
//!
//! `cargo test -p systx-cli --test parties [-- PART-OF-A-NAME]`.

mod machine;

use machine::volume::Volume;
use machine::{code, err, must, out, recover, run, verb};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Tries until both orders of two areas, whose identities are random, have been met.
const TRIES: usize = 24;

fn main() {
    machine::main(&[
        ("a_tmpfs_neither_decides_nor_is_waited_for", a_tmpfs_neither_decides_nor_is_waited_for),
        ("a_doubt_is_ended_by_hand_and_compared_later", a_doubt_is_ended_by_hand_and_compared_later),
        ("a_copy_beside_its_original_is_refused", a_copy_beside_its_original_is_refused),
    ]);
}

fn volume(dir: &Path, name: &str, kind: &'static str) -> Option<Volume> {
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    Volume::new(&dir, kind, 64)
}

fn work(volume: &Volume) -> PathBuf {
    let work = volume.point.join("work");
    if !work.exists() {
        std::fs::create_dir(&work).unwrap();
    }
    work
}

fn over(one: &Path, other: &Path, script: &str) -> Output {
    let both = ["--only", other.to_str().unwrap()];
    run(one, &both, &["sh", "-c", script, "sh", other.to_str().unwrap()]).output().unwrap()
}

/// The identity of an area, by which the one that decides is chosen.
fn identity(volume: &Volume) -> String {
    let format = std::fs::read_to_string(volume.area().join("format")).unwrap();
    format.lines().find_map(|line| line.strip_prefix("identity ")).unwrap().to_owned()
}

fn a_tmpfs_neither_decides_nor_is_waited_for(dir: &Path) {
    let Some(disk) = volume(dir, "disk", "ext4") else { return };
    let Some(memory) = volume(dir, "memory", "tmpfs") else { return };
    let mut met = [false; 2];
    for n in 0..TRIES {
        let (a, b) = (work(&disk), work(&memory));
        must(Command::new("sync").arg("-f").arg(&a));
        let done = over(&a, &b, &format!("echo {n} >f{n}; echo {n} >\"$1\"/f"));
        assert_eq!(code(&done), 0, "{}", err(&done));
        met[usize::from(identity(&disk) < identity(&memory))] = true;
        let Some(switch) = disk.switch() else { return };
        switch.off();
        disk.unmount();
        must(Command::new("umount").arg(&memory.point));
        must(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&memory.point));
        disk.mount();
        let said = recover();
        let found = std::fs::read_to_string(a.join(format!("f{n}"))).unwrap_or_default();
        assert_eq!(found, format!("{n}\n"), "reported durable, and lost: {said}");
        // An outsider takes it away; with nothing to wait for, no boot does it again.
        std::fs::remove_file(a.join(format!("f{n}"))).unwrap();
        disk.boot();
        recover();
        assert!(!a.join(format!("f{n}")).exists(), "done again");
        if met == [true; 2] {
            return;
        }
        // The next one has another identity: an extreme one would be on the same side of all others.
        std::fs::remove_dir_all(disk.area()).unwrap();
    }
    panic!("in {TRIES} tries one order was never met: {met:?}");
}

fn a_doubt_is_ended_by_hand_and_compared_later(dir: &Path) {
    let [Some(one), Some(two)] = [volume(dir, "one", "ext4"), volume(dir, "two", "ext4")] else { return };
    for n in 0..TRIES {
        let both = [work(&one), work(&two)];
        both.iter().for_each(|work| drop(must(Command::new("sync").arg("-f").arg(work))));
        let [Some(first), Some(second)] = [one.switch(), two.switch()] else { return };
        let done = over(&both[0], &both[1], &format!("echo {n} >f{n}; echo {n} >\"$1\"/f{n}"));
        machine::volume::Switch::all_off([first, second]);
        assert_eq!(code(&done), 0, "{}", err(&done));
        let first_decides = {
            one.unmount();
            two.unmount();
            one.mount();
            two.mount();
            identity(&one) < identity(&two)
        };
        let (decides, asks) = if first_decides { (&one, &two) } else { (&two, &one) };
        decides.unmount();
        let said = verb("recover", &[]);
        let doubt = out(&said);
        let Some(id) = doubt.split("recover --commit ").nth(1).and_then(|rest| rest.split('`').next()) else {
            // It has got to its checkpoint before the power failed.
            assert_eq!(code(&said), 0, "{doubt}{}", err(&said));
            decides.mount();
            recover();
            continue;
        };
        assert_eq!(code(&said), 1, "{doubt}");
        let file = work(asks).join(format!("f{n}"));
        assert!(!file.exists());
        let nobody = verb("recover", &["--commit", "99999"]);
        assert_eq!(code(&nobody), 125, "{}{}", out(&nobody), err(&nobody));
        let ended = verb("recover", &["--abort", id]);
        assert_eq!(code(&ended), 0, "{}{}", out(&ended), err(&ended));
        assert!(!file.exists(), "aborted, and there");
        decides.mount();
        let compared = verb("recover", &[]);
        assert_eq!(code(&compared), 1, "{}", out(&compared));
        assert!(out(&compared).contains("by hand"), "{}", out(&compared));
        assert!(work(decides).join(format!("f{n}")).exists());
        recover();
        return;
    }
    panic!("in {TRIES} tries nobody was in doubt");
}

fn a_copy_beside_its_original_is_refused(dir: &Path) {
    let Some(original) = volume(dir, "original", "ext4") else { return };
    let a = work(&original);
    let done = machine::shell(&a, "echo 1 >f");
    assert_eq!(code(&done), 0, "{}", err(&done));
    original.unmount();
    let copy_dir = dir.join("copy");
    let copy = Volume { image: copy_dir.join("ext4.img"), point: copy_dir.join("ext4"), kind: "ext4" };
    std::fs::create_dir_all(&copy.point).unwrap();
    std::fs::copy(&original.image, &copy.image).unwrap();
    original.mount();
    copy.mount();
    let c = work(&copy);
    let refused = over(&a, &c, "echo 2 >f; echo 2 >\"$1\"/f");
    assert_eq!(code(&refused), 125, "{}", err(&refused));
    assert!(
        err(&refused).contains("a copy of a file system is not used beside its original"),
        "{}",
        err(&refused)
    );
    for work in [&a, &c] {
        assert_eq!(std::fs::read_to_string(work.join("f")).unwrap(), "1\n");
    }
    let both = verb("recover", &[]);
    assert_eq!(code(&both), 1, "{}{}", out(&both), err(&both));
    assert!(err(&both).contains("not used beside its original"), "{}", err(&both));
    // Done as the message says.
    std::fs::rename(copy.area(), copy.point.join("old")).unwrap();
    let done = over(&a, &c, "echo 2 >f; echo 2 >\"$1\"/f");
    assert_eq!(code(&done), 0, "{}", err(&done));
    recover();
}
