//! An area whose name another user has taken first.

use super::place::{code, err, must, out, Place, SYSTX};
use super::Case;
use std::os::unix::fs::{lchown, symlink, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const ALL: &[(&str, Case)] = &[
    ("another_user_can_not_keep_root_from_its_area", another_user_can_not_keep_root_from_its_area),
    ("what_root_has_put_there_is_left_alone", what_root_has_put_there_is_left_alone),
    ("another_users_area_is_told_by_doctor_and_no_list_fails", another_users_area_is_told_by_doctor),
    ("an_error_of_the_area_names_the_file_that_it_is_about", an_error_names_its_file),
];

/// Not root, and owner of nothing.
const NOBODY: u32 = 65534;
const NAME: &str = ".systx-taken";

/// A run over the mount with an area of this name.
fn run(p: &Place, options: &[&str]) -> std::process::Output {
    let mut systx = Command::new(SYSTX);
    systx
        .args(["run", "--area-name", NAME, "--only"])
        .arg(&p.served)
        .args(options)
        .args(["--", "touch", "made"]);
    systx.current_dir(&p.served).output().unwrap()
}

fn foreign(p: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&p.mount).unwrap().map(|entry| entry.unwrap().path());
    let prefix = format!("{NAME}.foreign-");
    entries
        .filter(|path| path.file_name().unwrap().to_str().is_some_and(|n| n.starts_with(&prefix)))
        .collect()
}

/// Nothing of an earlier case is there.
fn clean(p: &Place) -> PathBuf {
    let area = p.mount.join(NAME);
    for path in foreign(p).into_iter().chain([area.clone(), p.served.join("made")]) {
        match std::fs::symlink_metadata(&path) {
            // A checkpoint of the run before may still add to it.
            Ok(meta) if meta.is_dir() => loop {
                match std::fs::remove_dir_all(&path) {
                    Ok(()) => break,
                    Err(e) if e.kind() == std::io::ErrorKind::DirectoryNotEmpty => {}
                    Err(e) => panic!("{}: {e}", path.display()),
                }
            },
            Ok(_) => std::fs::remove_file(path).unwrap(),
            Err(_) => {}
        }
    }
    area
}

fn is_an_area_of_root(area: &Path) {
    let meta = std::fs::symlink_metadata(area).unwrap();
    assert!(meta.is_dir() && meta.uid() == 0 && meta.mode() & 0o7777 == 0o700, "{meta:?}");
    assert!(area.join("format").exists());
}

fn another_user_can_not_keep_root_from_its_area(p: &Place) {
    let target = p.beside.join("target");
    std::fs::create_dir(&target).unwrap();
    type Occupy = fn(&Path, &Path);
    let occupants: [(&str, Occupy); 4] = [
        ("an empty directory", |at, _| std::fs::create_dir(at).unwrap()),
        ("what looks like an area", |at, _| {
            for dir in [at.to_path_buf(), at.join("tx"), at.join("aside"), at.join("log")] {
                std::fs::create_dir(dir).unwrap();
            }
            std::fs::write(at.join("format"), "systx area 1\n").unwrap();
        }),
        ("a file", |at, _| std::fs::write(at, "mine\n").unwrap()),
        ("a symbolic link", |at, target| symlink(target, at).unwrap()),
    ];
    for (what, occupy) in occupants {
        let area = clean(p);
        occupy(&area, &target);
        lchown(&area, Some(NOBODY), Some(NOBODY)).unwrap();
        let was = std::fs::symlink_metadata(&area).unwrap().ino();
        let output = run(p, &[]);
        assert_eq!(code(&output), 0, "{what}: {}", err(&output));
        assert!(p.served.join("made").exists());
        is_an_area_of_root(&area);
        // The user's object is there, under the reported name, and was not touched.
        let moved = foreign(p);
        assert_eq!(moved.len(), 1, "{what}: {moved:?}");
        let meta = std::fs::symlink_metadata(&moved[0]).unwrap();
        assert_eq!((meta.ino(), meta.uid()), (was, NOBODY), "{what}");
        assert!(err(&output).contains(moved[0].to_str().unwrap()), "{what}: {}", err(&output));
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0, "{what}: the link was followed");
        // Once is enough.
        std::fs::remove_file(p.served.join("made")).unwrap();
        let again = run(p, &["--json"]);
        assert_eq!((code(&again), foreign(p).len()), (0, 1), "{what}: {}", err(&again));
    }
    clean(p);
}

fn what_root_has_put_there_is_left_alone(p: &Place) {
    type Occupy = fn(&Path);
    let occupants: [(&str, Occupy); 3] = [
        ("move away", |at| std::fs::write(at, "mine\n").unwrap()),
        ("move away", |at| symlink("/nowhere", at).unwrap()),
        ("chmod it to 0700", |at| {
            std::fs::create_dir(at).unwrap();
            std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o777)).unwrap();
        }),
    ];
    for (remedy, occupy) in occupants {
        let area = clean(p);
        occupy(&area);
        let before = std::fs::symlink_metadata(&area).unwrap();
        let output = run(p, &[]);
        let text = err(&output);
        // Where all may make names, any user can give the name to a file of root's: it is moved away as it
        // is.
        let open_to_all = std::fs::metadata(&p.mount).unwrap().mode() & 0o002 != 0;
        if open_to_all && !before.is_dir() {
            let moved = foreign(p);
            assert_eq!((code(&output), moved.len()), (0, 1), "{text}");
            assert_eq!(std::fs::symlink_metadata(&moved[0]).unwrap().ino(), before.ino());
            continue;
        }
        assert_eq!(code(&output), 125, "{text}");
        let words = [area.to_str().unwrap(), remedy, "nothing was changed"];
        assert!(words.iter().all(|word| text.contains(word)), "not all of {words:?} in: {text}");
        let after = std::fs::symlink_metadata(&area).unwrap();
        assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
        assert!(foreign(p).is_empty() && !p.served.join("made").exists());
    }
    clean(p);
}

fn another_users_area_is_told_by_doctor(p: &Place) {
    let area = clean(p);
    std::fs::create_dir(&area).unwrap();
    lchown(&area, Some(NOBODY), Some(NOBODY)).unwrap();
    let verb = |verb: &str| Command::new(SYSTX).args([verb, "--area-name", NAME]).output().unwrap();
    for quiet in ["list", "status", "recover"] {
        let output = verb(quiet);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{quiet}");
    }
    let text = out(&verb("doctor"));
    let line = text.lines().find(|line| line.contains(&format!("area on {}:", p.mount.display()))).unwrap();
    assert!(line.starts_with("weak") && line.contains("belongs to user 65534"), "{line}");
    // No run has worked in it, or moved it.
    assert_eq!(std::fs::read_dir(&area).unwrap().count(), 0);
    assert!(foreign(p).is_empty());
    must(Command::new("rmdir").arg(&area));
}

/// A directory in place of each file of an area, and a file in place of each directory.
fn an_error_names_its_file(p: &Place) {
    let area = clean(p);
    assert_eq!(code(&run(p, &[])), 0);
    // A note of a checkpoint.
    std::fs::write(area.join("history"), "").unwrap();
    let verb = |verb: &str| Command::new(SYSTX).args([verb, "--area-name", NAME]).output().unwrap();
    for name in ["format", "table", "owners", "history", "log", "log/0000000000000001", "tx", "aside"] {
        // On the same file system.
        let (file, put_by) = (area.join(name), p.mount.join("put-by"));
        if !file.exists() {
            continue;
        }
        let was_file = file.is_file();
        std::fs::rename(&file, &put_by).unwrap();
        match was_file {
            true => std::fs::create_dir(&file).unwrap(),
            false => std::fs::write(&file, "").unwrap(),
        }
        let mut said = 0;
        for output in [verb("log"), verb("status"), run(p, &[])] {
            if code(&output) != 0 {
                assert!(err(&output).contains(name), "{name}: {}", err(&output));
                assert!(err(&output).contains(p.mount.to_str().unwrap()), "which area: {}", err(&output));
                assert!(!err(&output).contains("0000000000000000"), "no segment: {}", err(&output));
                said += 1;
            }
        }
        let told = out(&verb("doctor"));
        let here = told.lines().find(|line| line.contains(&format!("area on {}:", p.mount.display())));
        // Doctor looks at what each area has.
        if !["history", "log/0000000000000001"].contains(&name) {
            let wrong = if was_file { "file" } else { "directory" };
            assert!(here.unwrap().contains(&format!("`{name}` in it is no {wrong}")), "{told}");
        }
        // An empty directory of btrfs has no bytes that could not be read.
        assert!(said > 0 || name == "history", "nothing needs {name}");
        match was_file {
            true => std::fs::remove_dir(&file).unwrap(),
            false => std::fs::remove_file(&file).unwrap(),
        }
        std::fs::rename(&put_by, &file).unwrap();
    }
    assert_eq!(code(&verb("log")), 0);
}
