//! Logs that nobody of systx has written where they are: forged by the root of a container in the part of a file
//! system that it has, or brought by an archive. Nothing is redone that reaches outside of the part, or that an
//! archive has made.
//!
//! `cargo test -p systx-cli --test forged [-- PART-OF-A-NAME]`

mod machine;

use machine::volume::Volume;
use machine::{code, err, have, must, out, shell, verb, AREA};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;
use systx_os::{Fallocate, Linux, Open, Os};

fn main() {
    machine::main(&[
        ("a_log_in_a_bind_mount_reaches_nothing_outside_of_it_on_ext4", |dir| bound(dir, "ext4")),
        ("a_log_in_a_bind_mount_reaches_nothing_outside_of_it_on_xfs", |dir| bound(dir, "xfs")),
        ("a_log_in_a_bind_mount_reaches_nothing_outside_of_it_on_btrfs", |dir| bound(dir, "btrfs")),
        ("a_log_in_a_subvolume_reaches_no_other", in_a_subvolume),
        ("what_is_committed_in_a_bind_mount_is_redone_in_it_on_ext4", |dir| redone(dir, "ext4")),
        ("what_is_committed_in_a_bind_mount_is_redone_in_it_on_xfs", |dir| redone(dir, "xfs")),
        ("an_archive_that_foretells_all_that_it_can_is_not_replayed_on_ext4", |dir| foretold(dir, "ext4")),
        ("an_archive_that_foretells_all_that_it_can_is_not_replayed_on_xfs", |dir| foretold(dir, "xfs")),
        ("an_archive_that_foretells_all_that_it_can_is_not_replayed_on_btrfs", |dir| foretold(dir, "btrfs")),
        ("names_in_an_area_that_are_others_files_are_not_written_to", other_names),
        ("no_archiver_allocates_what_shows_an_area_on_ext4", |dir| archived(dir, "ext4")),
        ("no_archiver_allocates_what_shows_an_area_on_xfs", |dir| archived(dir, "xfs")),
        ("no_archiver_allocates_what_shows_an_area_on_btrfs", |dir| archived(dir, "btrfs")),
    ]);
}

/// What a file is, as far as a redo changes it.
fn look(file: &Path) -> (String, u32) {
    let mode = file.metadata().unwrap().mode() & 0o7777;
    (std::fs::read_to_string(file).unwrap(), mode)
}

/// A volume with a file `secret` and a directory `part` with a file `own`, both lost after a commit has changed them:
/// a redo is due.
fn with_a_log(dir: &Path, kind: &'static str, make_part: &[&str]) -> Option<Volume> {
    let volume = Volume::new(dir, kind, 320)?;
    must(Command::new(make_part[0]).args(&make_part[1..]).arg(volume.point.join("part")));
    let begin = "echo old >secret; echo old >part/own; chmod 600 secret part/own; sync -f .";
    must(Command::new("sh").args(["-ec", begin]).current_dir(&volume.point));
    // A run over the whole does not serve subvolumes in it.
    let files = if make_part[0] == "mkdir" { "secret part/own" } else { "secret" };
    let script = format!("for f in {files}; do echo forged >>$f; chmod 4755 $f; done; echo >new");
    let done = shell(&volume.point, &script);
    assert_eq!(code(&done), 0, "{}", err(&done));
    volume.lose_cache()?;
    assert_eq!(look(&volume.point.join("secret")), ("old\n".into(), 0o600), "nothing is to be redone");
    Some(volume)
}

/// How much of its `format` the maker of an area knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Knows {
    /// All, as root of a container does, who can allocate, too.
    Everything,
    /// All, to the nanosecond at which it will be unpacked.
    Instants,
    /// All but when it will be unpacked.
    Handles,
}

/// Where systx allocates a block behind the end of `format`.
const BEHIND: u64 = 2 << 40;

/// Makes an area that was copied say that it is where it was made.
fn forge(area: &Path, knows: Knows) {
    let format = area.join("format");
    let os = Linux::new();
    let told = |path: &Path, rest: &str| {
        let handle = os.handle(&os.open_path(path, Open::Path).unwrap()).unwrap();
        let hex: String = handle.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let time = path.metadata().unwrap().created().unwrap().duration_since(UNIX_EPOCH).unwrap();
        let now = format!("{}.{:09}", time.as_secs(), time.subsec_nanos());
        match rest.split(' ').nth(2) {
            Some(_) if knows != Knows::Handles => format!("{} {hex} {now}", handle.kind),
            Some(then) => format!("{} {hex} {then}", handle.kind),
            None => format!("{} {hex}", handle.kind),
        }
    };
    let fsid = os.fs_info(&os.open_path(area, Open::Directory).unwrap()).unwrap().fsid;
    let text = std::fs::read_to_string(&format).unwrap();
    let lines = text.lines().map(|line| match line.split_once(' ') {
        // Each subvolume has its own.
        Some(("fsid", _)) => format!("fsid {:016x}\n", fsid.unwrap()),
        Some(("handle", rest)) => format!("handle {}\n", told(area, rest)),
        Some(("file", rest)) => format!("file {}\n", told(&format, rest)),
        _ => format!("{line}\n"),
    });
    let lines: String = lines.collect();
    // Takes away what is allocated.
    std::fs::write(&format, lines).unwrap();
    if knows == Knows::Everything {
        let file = os.open_path(&format, Open::ReadWrite).unwrap();
        os.fallocate(&file, Fallocate::KeepSize, BEHIND, 1).unwrap();
    }
    // The flag that bsdtar puts back.
    must(Command::new("chattr").arg("+d").arg(area));
}

/// An archive brings an area in which the files to which lines are added are hard links to other files, devices, FIFOs
/// and links.
fn other_names(dir: &Path) {
    let Some(volume) = Volume::new(dir, "ext4", 96) else { return };
    let (work, area) = (volume.point.join("work"), volume.area());
    std::fs::create_dir(&work).unwrap();
    let device = dir.join("device.img");
    std::fs::write(&device, [b'd'; 4096]).unwrap();
    let number = must(Command::new("losetup").args(["-f", "--show"]).arg(&device));
    let device_of = number.trim();
    let names = ["history", "report.1", "barrier"];
    // Each with a transaction of its own, so that nothing is kept from the one before.
    for kind in ["hard link", "symbolic link", "FIFO", "block device"] {
        let victim = volume.point.join("profile");
        let begin = "rm -rf .systx* profile; echo victim >profile; touch -d @7 profile";
        must(Command::new("sh").args(["-ec", begin]).current_dir(&volume.point));
        std::fs::create_dir(&area).unwrap();
        std::fs::set_permissions(&area, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        for name in names {
            let at = area.join(name);
            match kind {
                "hard link" => std::fs::hard_link(&victim, &at).unwrap(),
                "symbolic link" => std::os::unix::fs::symlink(&victim, &at).unwrap(),
                "FIFO" => drop(must(Command::new("mkfifo").arg(&at))),
                _ => {
                    let node = must(Command::new("stat").args(["-c", "%Hr %Lr", device_of]));
                    must(Command::new("mknod").arg(&at).arg("b").args(node.split_whitespace()));
                }
            }
        }
        let done = shell(&work, "echo '$(id)' >f; mkdir d; mv f d/f");
        assert_eq!(code(&done), 0, "{kind}: {}", err(&done));
        for words in ["recover", "log", "list", "prune"] {
            let done = verb(words, &[]);
            assert_eq!(code(&done), 0, "{kind}: {words}: {}", err(&done));
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "victim\n", "{kind}: added to");
        assert_eq!(victim.metadata().unwrap().mtime(), 7, "{kind}: touched");
        assert_eq!(std::fs::read(&device).unwrap(), [b'd'; 4096], "{kind}: a device was written to");
        must(Command::new("sh").args(["-ec", "rm -rf work; mkdir work"]).current_dir(&volume.point));
    }
    must(Command::new("losetup").args(["-d", device_of]));
}

/// The one window on the file system that is left.
fn window(volume: &Volume, dir: &Path, options: &[&str]) -> PathBuf {
    let window = dir.join("window");
    std::fs::create_dir_all(&window).unwrap();
    must(Command::new("mount").args(options).arg(&window));
    must(Command::new("umount").arg(&volume.point));
    window
}

/// Mounts the whole file system again, and takes the window away.
fn whole(volume: &Volume, window: &Path) {
    let device = must(Command::new("findmnt").args(["-no", "SOURCE"]).arg(window));
    let device = device.trim().split('[').next().unwrap().to_owned();
    let mut mount = Command::new("mount");
    if volume.kind == "btrfs" {
        mount.args(["-o", "subvolid=5"]);
    }
    must(mount.arg(device).arg(&volume.point));
    must(Command::new("umount").arg(window));
}

fn reaches_nothing_outside(volume: &Volume, window: &Path) {
    let said = verb("recover", &[]);
    let then = shell(window, "echo more >more");
    whole(volume, window);
    let found = look(&volume.point.join("secret"));
    let said = format!("{}{}{}", out(&said), err(&said), err(&then));
    assert_eq!(found, ("old\n".into(), 0o600), "outside of {}: {said}", window.display());
    assert!(!volume.point.join("new").exists(), "outside of {}: {said}", window.display());
}

fn bound(dir: &Path, kind: &'static str) {
    let Some(volume) = with_a_log(dir, kind, &["mkdir"]) else { return };
    let part = volume.point.join("part");
    std::fs::rename(volume.area(), part.join(AREA)).unwrap();
    let window = window(&volume, dir, &["--bind", part.to_str().unwrap()]);
    reaches_nothing_outside(&volume, &window);
}

fn in_a_subvolume(dir: &Path) {
    if !have("btrfs") || !have("chattr") {
        return;
    }
    let Some(volume) = with_a_log(dir, "btrfs", &["btrfs", "-q", "subvolume", "create"]) else { return };
    let part = volume.point.join("part");
    must(Command::new("mv").arg(volume.area()).arg(&part));
    forge(&part.join(AREA), Knows::Everything);
    let device = must(Command::new("findmnt").args(["-no", "SOURCE"]).arg(&volume.point));
    let window = window(&volume, dir, &["-o", "subvol=part", device.trim()]);
    reaches_nothing_outside(&volume, &window);
}

/// What a log in such a part has of its own is found by the paths in it.
fn redone(dir: &Path, kind: &'static str) {
    let Some(volume) = Volume::new(dir, kind, 320) else { return };
    let part = volume.point.join("part");
    std::fs::create_dir(&part).unwrap();
    let begin = "mkdir d; echo old >d/f; chmod 600 d/f; echo old >gone; echo old >d/moved; sync -f .";
    must(Command::new("sh").args(["-ec", begin]).current_dir(&part));
    let bind = ["--bind", part.to_str().unwrap()];
    let within = window(&volume, dir, &bind);
    let script =
        "echo new >>d/f; chmod 640 d/f; rm gone; mv d/moved .; mkdir d/new; echo new >d/new/f; mv d e";
    for script in [script, "echo again >>e/f; chmod 644 e/new/f"] {
        let done = shell(&within, script);
        assert_eq!(code(&done), 0, "{}", err(&done));
    }
    whole(&volume, &within);
    if volume.lose_cache().is_none() {
        return;
    }
    let within = window(&volume, dir, &bind);
    let said = verb("recover", &[]);
    let at = |name: &str| look(&within.join(name));
    assert_eq!(code(&said), 0, "{}{}", out(&said), err(&said));
    assert_eq!(at("e/f"), ("old\nnew\nagain\n".into(), 0o640), "{}", out(&said));
    assert_eq!(at("e/new/f"), ("new\n".into(), 0o644), "{}", out(&said));
    assert!(at("moved").0 == "old\n" && !within.join("gone").exists() && !within.join("d").exists());
    whole(&volume, &within);
}

/// btrfs counts objects, and xfs gives neighbours one generation; the instant at which root will unpack it is a tick's
/// that can be guessed. An archiver allocates nothing behind the end of a file.
fn foretold(dir: &Path, kind: &'static str) {
    if !have("chattr") {
        return;
    }
    let Some(volume) = with_a_log(dir, kind, &["mkdir"]) else { return };
    let archive = dir.join("archive.tar");
    let tar =
        |how: &str| must(Command::new("tar").arg("-C").arg(&volume.point).arg(how).arg(&archive).arg(AREA));
    tar("-cf");
    std::fs::remove_dir_all(volume.area()).unwrap();
    tar("-xf");
    for knows in [Knows::Handles, Knows::Instants] {
        forge(&volume.area(), knows);
        let said = verb("recover", &[]);
        assert_eq!(look(&volume.point.join("secret")), ("old\n".into(), 0o600), "{}", out(&said));
        assert!(err(&said).contains("a copied area is not replayed"), "{}{}", out(&said), err(&said));
    }
    // The forgery has no other fault.
    forge(&volume.area(), Knows::Everything);
    let said = verb("recover", &[]);
    assert_eq!(look(&volume.point.join("secret")), ("old\nforged\n".into(), 0o4755), "{}", err(&said));
}

/// Each way to copy an area, on one file system and from another.
fn archived(dir: &Path, kind: &'static str) {
    let (Some(volume), Some(other)) = (Volume::new(dir, kind, 320), Volume::new(dir, "ext4-4k", 100)) else {
        return;
    };
    assert_eq!(code(&shell(&volume.point, "echo >new")), 0);
    let os = Linux::new();
    let shows = |area: &Path| {
        let file = os.open_path(&area.join("format"), Open::Read).unwrap();
        os.reserved_at(&file, BEHIND).unwrap()
    };
    assert!(shows(&volume.area()), "none is allocated");
    let ways = [
        ("tar", "tar -cf - $AREA | tar -xf - -C to"),
        ("tar", "tar -cSf - $AREA | tar -xf - -C to"),
        ("cp", "cp -a $AREA to"),
        ("cp", "cp -a --sparse=always $AREA to"),
        ("cp", "cp -a --sparse=never $AREA to"),
        ("mv", "cp -a $AREA $O && mv $O/$AREA to"),
        ("cpio", "find $AREA | cpio -pd --quiet to"),
        ("bsdtar", "bsdtar -cf - $AREA | bsdtar -xf - -C to"),
        ("rsync", "rsync -aS $AREA to"),
        ("rsync", "rsync -a --preallocate $AREA to"),
        ("rsync", "rsync -a --inplace --preallocate $AREA to"),
    ];
    let reflinks = [("cp", "cp -a --reflink=always $AREA to")];
    let streams = [(
        "btrfs",
        "btrfs -q subvolume snapshot -r . snap && btrfs -q send snap | btrfs -q receive to && \
         btrfs property set -f to/snap ro false && ln -s snap/$AREA to/$AREA",
    )];
    let reflinks = reflinks.iter().filter(|_| kind != "ext4");
    let streams = streams.iter().filter(|_| kind == "btrfs");
    for (tool, way) in ways.iter().chain(reflinks).chain(streams) {
        if !have(tool) {
            continue;
        }
        let to = volume.point.join("to");
        std::fs::create_dir(&to).unwrap();
        let mut copy = Command::new("sh");
        must(copy.args(["-ec", way]).env("O", &other.point).env("AREA", AREA).current_dir(&volume.point));
        assert!(!shows(&to.join(AREA)), "{way}");
        must(Command::new("rm").arg("-rf").arg(&to));
    }
}
