//! Large things: many open files, huge sparse files, wide directories, many new files. Small sizes for everybody's tests,
//! the full ones with `SYSTX_LONG=1`.
//!
//! `cargo test -p systx --test limits [-- PART-OF-A-NAME]`

mod machine;

use machine::volume::Volume;
use machine::{code, err, have, must, out, recover, rounds, run, shell, verb};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    machine::main(&[
        ("many_open_files_at_once_commit", many_open_files_at_once_commit),
        ("one_byte_of_a_huge_sparse_file_costs_no_copy", one_byte_of_a_huge_sparse_file_costs_no_copy),
        ("one_name_in_a_wide_directory_commits", one_name_in_a_wide_directory_commits),
        ("many_new_files_commit_at_once", many_new_files_commit_at_once),
    ]);
}

/// A directory on an ext4 with room for `files` files.
fn world(dir: &Path, files: usize) -> Option<(Volume, PathBuf)> {
    let volume = Volume::new(dir, "ext4", 256 + files as u64 / 20)?;
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    Some((volume, served))
}

/// Nothing is left in flight or staged.
fn settled(volume: &Volume) {
    recover();
    let status: serde_json::Value = serde_json::from_slice(&verb("status", &["--json"]).stdout).unwrap();
    assert_eq!((&status[0]["running"], &status[0]["in_flight"]), (&0.into(), &0.into()), "{status}");
    let staged = std::fs::read_dir(volume.area().join("tx")).unwrap();
    let staged: Vec<_> = staged.map(|entry| entry.unwrap().file_name()).collect();
    assert!(staged.iter().all(|name| !name.to_string_lossy().ends_with('~')), "{staged:?}");
}

fn many_open_files_at_once_commit(dir: &Path) {
    let files = rounds(3000, 100_000);
    let Some((volume, served)) = world(dir, files) else { return };
    if !have("python3") {
        return;
    }
    for n in 0..files {
        std::fs::write(served.join(format!("f{n}")), "old\n").unwrap();
    }
    // All of them open for writing, one of ten written to, none closed before all are open: by as many processes as it
    // takes under the limit of each.
    let script = "import os, resource, sys\nn = int(sys.argv[1])\n\
        most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 1 << 20)\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n\
        told, tell = os.pipe()\nwait, go = os.pipe()\nparts = []\n\
        def hold(first):\n\
        \x20   for i in range(first, min(n, first + most - 100)):\n\
        \x20       fd = os.open('f%d' % i, os.O_RDWR)\n\
        \x20       if i % 10 == 0: os.pwrite(fd, b'new', 0)\n\
        \x20       else: os.read(fd, 10)\n\
        for first in range(0, n, most - 100):\n\
        \x20   parts.append(os.fork())\n\
        \x20   if parts[-1] == 0:\n\
        \x20       os.close(go)\n\
        \x20       try: hold(first)\n\
        \x20       except OSError as e: os.write(tell, b'!'); sys.exit(str(e))\n\
        \x20       os.write(tell, b'.')\n\
        \x20       os.read(wait, 1)\n\
        \x20       os._exit(0)\n\
        if b'!' in [os.read(told, 1) for part in parts]: sys.exit(9)\n\
        os.close(go)\n\
        sys.exit(any(os.waitpid(part, 0)[1] for part in parts))\n";
    let words = ["python3", "-c", script, &files.to_string()];
    let output = run(&served, &[], &words).output().unwrap();
    if err(&output).contains("Too many open files") {
        // What the machine does not let anybody have is no promise: but the answer has to be clear.
        assert!(err(&output).contains("nothing happened"), "{}", err(&output));
        println!("skipped: {files} open files: {}", err(&output));
        return;
    }
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    for n in 0..files {
        let expected = if n % 10 == 0 { "new\n" } else { "old\n" };
        assert_eq!(std::fs::read_to_string(served.join(format!("f{n}"))).unwrap(), expected, "f{n}");
    }
    settled(&volume);
}

fn one_byte_of_a_huge_sparse_file_costs_no_copy(dir: &Path) {
    // It does not fit on its file system in any other way than sparse.
    let Some((volume, served)) = world(dir, 0) else { return };
    let bytes: u64 = 10 << 30;
    let path = served.join("huge");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(bytes).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    file.write_all_at(b"last", bytes - 4).unwrap();
    file.sync_all().unwrap();
    let (ino, blocks) = (file.metadata().unwrap().ino(), file.metadata().unwrap().blocks());
    drop(file);
    let script = "printf X | dd of=huge bs=1 seek=5000000000 conv=notrunc status=none && dd if=huge bs=1 skip=5000000000 count=1 status=none";
    let output = shell(&served, script);
    assert_eq!((code(&output), out(&output).as_str()), (0, "X"), "{}", err(&output));
    let mut file = std::fs::File::open(&path).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.len(), meta.ino()), (bytes, ino));
    assert!(meta.blocks() <= blocks + 64, "{} blocks of 512 bytes, {blocks} before", meta.blocks());
    for (offset, expected) in
        [(0, &b"first"[..]), (5_000_000_000 - 1, b"\0X\0"), (bytes - 4, b"last"), (7_000_000_000, b"\0\0")]
    {
        let mut found = vec![0; expected.len()];
        file.seek(SeekFrom::Start(offset)).unwrap();
        file.read_exact(&mut found).unwrap();
        assert_eq!(found, expected, "at {offset}");
    }
    settled(&volume);
}

fn one_name_in_a_wide_directory_commits(dir: &Path) {
    let names = rounds(20_000, 200_000);
    let Some((volume, served)) = world(dir, names) else { return };
    for n in 0..names {
        std::fs::File::create(served.join(format!("n{n}"))).unwrap();
    }
    let script = "ls -f | wc -l && rm n7 && mv n8 m8 && echo new > new && ls -f | wc -l";
    let output = shell(&served, script);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let counts: Vec<usize> = out(&output).split_whitespace().map(|word| word.parse().unwrap()).collect();
    // With `.` and `..`.
    assert_eq!(counts, [names + 2, names + 2]);
    let found = std::fs::read_dir(&served).unwrap().count();
    assert_eq!(found, names);
    assert!(!served.join("n7").exists() && !served.join("n8").exists());
    assert!(served.join("m8").exists() && served.join("new").exists() && served.join("n9").exists());
    settled(&volume);
}

fn many_new_files_commit_at_once(dir: &Path) {
    let files = rounds(3000, 50_000);
    let Some((volume, served)) = world(dir, files) else { return };
    std::fs::create_dir(served.join("old")).unwrap();
    // Half in a new tree, which is published as a whole, half in a directory that is there, name by name.
    let script =
        "mkdir new; i=0; while [ $i -lt $N ]; do echo $i > new/f$i; echo $i > old/f$i; i=$((i + 1)); done";
    let mut command = run(&served, &[], &["sh", "-c", script]);
    let output = command.env("N", (files / 2).to_string()).output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    for at in ["new", "old"] {
        assert_eq!(std::fs::read_dir(served.join(at)).unwrap().count(), files / 2);
        for n in 0..files / 2 {
            assert_eq!(
                std::fs::read_to_string(served.join(at).join(format!("f{n}"))).unwrap(),
                format!("{n}\n")
            );
        }
    }
    let output = shell(&served, "rm -r new old/f1*");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    must(Command::new("test").arg("!").arg("-e").arg(served.join("new")));
    settled(&volume);
}
