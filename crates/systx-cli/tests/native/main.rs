//! New directories that the kernel serves: what it does by itself in them is part of the transaction as what the view does; and
//! programs find in them what they find outside.
//!
//! `cargo test -p systx-cli --test native [-- PART-OF-A-NAME]`; `SYSTX_LONG=1` for more kills. Programs of others with
//! it: tests/programs.rs.

#[path = "../machine/mod.rs"]
mod machine;

mod border;
mod ends;

use machine::picture::{difference, picture};
use machine::volume::Volume;
use machine::{code, err, have, must, out, Case};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn main() {
    let own: &[(&str, Case)] = &[
        ("the_kernel_serves_new_directories_by_itself", the_kernel_serves_new_directories_by_itself),
        ("what_it_makes_is_committed_as_it_is_plainly", what_it_makes_is_committed_as_it_is_plainly),
        ("what_it_makes_leaves_no_trace_when_the_command_fails", what_it_makes_leaves_no_trace),
        ("options_of_the_mount_hold_in_new_directories", options_of_the_mount_hold),
        ("more_directories_than_are_bound_at_a_time", more_directories_than_are_bound),
        ("mounts_of_the_commands_own_end_it", mounts_of_the_commands_own_end_it),
        ("others_watch_the_same_command", others_watch_the_same_command),
        ("inner_runs_are_as_without_it", inner_runs_are_as_without_it),
        ("it_can_be_switched_off", it_can_be_switched_off),
    ];
    machine::main(&[own, border::ALL, ends::ALL].concat());
}

/// A file system, and a directory of it that is served.
struct World {
    volume: Volume,
    served: PathBuf,
}

impl World {
    fn new(dir: &Path, kind: &'static str) -> Option<World> {
        let volume = Volume::new(dir, kind, 400)?;
        let served = volume.point.join("tree");
        std::fs::create_dir(&served).unwrap();
        Some(World { volume, served })
    }

    fn each(dir: &Path, case: impl Fn(&World)) {
        for kind in ["ext4", "xfs", "btrfs", "tmpfs"] {
            let below = dir.join(kind);
            std::fs::create_dir(&below).unwrap();
            if let Some(world) = World::new(&below, kind) {
                case(&world);
            }
        }
    }

    fn command(&self, options: &[&str], command: &[&str]) -> Command {
        let mut run = machine::run(&self.served, options, command);
        run.stdin(Stdio::null());
        // A case in which nothing is bound would show nothing.
        run.env("SYSTX_LOG", "systx::native=debug").env("SYSTX_LOG_FILE", self.log());
        run
    }

    fn log(&self) -> PathBuf {
        self.volume.image.with_extension("log")
    }

    /// How many directories have been bound so far.
    fn bound(&self) -> usize {
        std::fs::read_to_string(self.log()).unwrap_or_default().matches("a directory is bound").count()
    }

    fn run(&self, options: &[&str], command: &[&str]) -> Output {
        self.command(options, command).output().unwrap()
    }

    /// A shell script that must succeed; what it prints.
    fn shell(&self, script: &str) -> String {
        let output = self.run(&[], &["sh", "-ec", script]);
        assert_eq!((code(&output), err(&output)), (0, String::new()), "{} {script}", self.volume.kind);
        out(&output)
    }

    fn plain(&self, script: &str) -> String {
        must(Command::new("sh").args(["-ec", script]).current_dir(&self.served))
    }
}

/// Looks at its own mounts: those of new directories show where on the file system they lie.
const BOUND: &str = "grep -c '/tx/\\|/slots' /proc/self/mountinfo";

/// A program that makes a directory and things in it; `then` runs while they are there.
fn maker(then: &str) -> String {
    format!(
        "import os, subprocess, sys\nos.mkdir('n')\nfor i in range(200):\n    \
         open('n/f%d' % i, 'w').write('x' * i)\nos.mkdir('n/d')\n{then}"
    )
}

fn the_kernel_serves_new_directories_by_itself(dir: &Path) {
    if !have("python3") {
        return;
    }
    World::each(dir, |w| {
        let look = "print(os.stat('n').st_dev == os.stat('n/f1').st_dev != os.stat('.').st_dev)\n\
                    print(os.listdir('.'), os.path.realpath('n/d'), os.stat('n/..').st_ino == os.stat('.').st_ino)";
        let mut run = w.command(&[], &["python3", "-c", &maker(look)]);
        let output = run.env("SYSTX_LOG", "systx_view=trace").env_remove("SYSTX_LOG_FILE").output().unwrap();
        let here = w.served.join("n/d");
        assert_eq!(out(&output), format!("True\n['n'] {} True\n", here.display()), "{}", w.volume.kind);
        let in_python = |line: &&str| line.contains("request request=");
        let asked = err(&output).lines().filter(in_python).filter(|line| line.contains("Create")).count();
        assert_eq!((code(&output), asked), (0, 0), "{}", err(&output));
        assert_eq!(std::fs::read_dir(w.served.join("n")).unwrap().count(), 201);
        assert_eq!(std::fs::read(w.served.join("n/f7")).unwrap(), b"xxxxxxx");
    });
}

/// Objects of each kind, with each kind of attribute, made by shells and by what they start.
const THINGS: &str = "umask 027; mkdir a; echo one >a/one; mkdir -p a/b/c; seq 20000 >a/b/long; ln a/one a/b/hard; \
    ln -s ../one a/b/soft; mkfifo a/b/pipe; mknod a/b/null c 1 3; mkdir s; chmod 2770 s; mkdir s/in; echo x >s/in/x; \
    truncate -s 3000000 a/holes; echo end >>a/holes; chown 5:6 a/one a/b/c; chmod 4751 a/b/long; \
    setfattr -n user.k -v v a/one; cp -a a copied; mv copied/b moved; rm -r copied; mkdir gone; echo >gone/x; \
    rm -r gone; mkdir tmp; echo t >tmp/t; mv tmp final; echo more >>final/t; mkdir empty; echo o >old/in; \
    mkdir old/new; echo n >old/new/n; mkdir t; tar c a s final old/new | tar x -C t; \
    cp -a t again; rm -r again/a; find . -exec touch -h -d @77 {} +";

fn what_it_makes_is_committed_as_it_is_plainly(dir: &Path) {
    if !have("setfattr") {
        return;
    }
    World::each(dir, |w| {
        let plain = w.volume.point.join("plain");
        std::fs::create_dir(&plain).unwrap();
        for top in [&plain, &w.served] {
            must(Command::new("sh").args(["-ec", "mkdir old; echo >old/file"]).current_dir(top));
        }
        must(Command::new("sh").args(["-ec", THINGS]).current_dir(&plain));
        w.shell(THINGS);
        assert!(w.bound() > 3, "{}", w.bound());
        let (found, expected) = (picture(&w.served), picture(&plain));
        assert!(found == expected, "{}:\n{}", w.volume.kind, difference(&found, &expected));
        assert!(expected.len() > 20);
    });
}

fn what_it_makes_leaves_no_trace(dir: &Path) {
    World::each(dir, |w| {
        w.plain("mkdir old; echo >old/file");
        let before = picture(&w.served);
        let output = w.run(&[], &["sh", "-ec", &format!("{THINGS}; exit 3")]);
        assert_eq!(code(&output), 3, "{}", err(&output));
        assert!(w.bound() > 3, "{}", w.bound());
        let (found, expected) = (picture(&w.served), before);
        assert!(found == expected, "{}:\n{}", w.volume.kind, difference(&found, &expected));
        // Those that are deleted behind a run's end.
        machine::recover();
        let area = w.volume.area();
        let made = ["-name", "long", "-o", "-mindepth", "2", "-type", "d"];
        let staged = must(Command::new("find").arg(&area).args(made));
        assert_eq!(staged, "", "{}", w.volume.kind);
    });
}

fn options_of_the_mount_hold(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    // Of a part alone, as the file system's own are on the copied mount already.
    must(Command::new("mount").arg("--bind").args([&w.served, &w.served]));
    must(Command::new("mount").args(["-o", "remount,bind,nosuid,nodev,noexec"]).arg(&w.served));
    let look = "os.mknod('n/null', 0o666 | 0o020000, os.makedev(1, 3))\n\
                open('n/run', 'w').write('#!/bin/sh\\n')\nos.chmod('n/run', 0o755)\n\
                try: open('n/null')\nexcept OSError as e: print(e.errno)\n\
                try: os.execv('n/run', ['run'])\nexcept OSError as e: print(e.errno)\n\
                sys.stdout.flush(); subprocess.call(['findmnt', '-no', 'OPTIONS', '-T', 'n'])";
    let output = w.run(&[], &["python3", "-c", &maker(look)]);
    let told = out(&output);
    let options: Vec<_> = told.lines().last().unwrap_or_default().split(',').collect();
    assert!(told.starts_with("13\n13\n"), "EACCES of a device and of a program: {told}{}", err(&output));
    assert!(["nosuid", "nodev", "noexec"].iter().all(|option| options.contains(option)), "{told}");
}

fn more_directories_than_are_bound(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    let many = format!(
        "import os, subprocess\nfor i in range(300):\n    os.mkdir('d%d' % i); open('d%d/f' % i, 'w').write(str(i))\n\
         subprocess.call(['sh', '-c', {BOUND:?}])\n\
         print(sum(open('d%d/f' % i).read() == str(i) for i in range(300)))\n\
         for i in range(0, 300, 2):\n    os.rename('d%d' % i, 'e%d' % i)\n    os.rename('e%d/f' % i, 'd%d/g' % (i + 1))\n    \
         os.rmdir('e%d' % i)"
    );
    let output = w.run(&[], &["python3", "-c", &many]);
    assert_eq!((code(&output), out(&output)), (0, "256\n300\n".into()), "{}", err(&output));
    let names = must(
        Command::new("sh")
            .args(["-c", "ls -d * | wc -l; cat d*/g | wc -c; ls d*/* | wc -l"])
            .current_dir(&w.served),
    );
    // The numbers of even directories below 300, in decimal.
    let digits: usize = (0..300).step_by(2).map(|n: u32| n.to_string().len()).sum();
    assert_eq!(names, format!("150\n{digits}\n300\n"));
}

/// A copy of a directory's mount would outlive it, and one that is mounted on it would keep it.
fn mounts_of_the_commands_own_end_it(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    for (n, mounts) in [
        "mount --bind n dir",
        "mount -t tmpfs none n/d",
        "mount --bind n/d n/f1 2>/dev/null; mount -t tmpfs none dir",
        "unshare -m --propagation private true",
        "umount n 2>/dev/null; umount -l n 2>/dev/null; true",
    ]
    .iter()
    .enumerate()
    {
        w.plain("rm -rf n m dir; mkdir dir");
        let then = format!(
            "os.mkdir('n/e')\nsame = lambda d: os.stat(d).st_dev == os.stat('.').st_dev\nprint(same('n/f2'))\n\
             sys.stdout.flush()\nprint(subprocess.call(['sh', '-c', {mounts:?}]), same('n/f2'))\n\
             os.mkdir('m'); open('m/f', 'w').write('m')\nprint(same('m'))\n\
             sys.stdout.flush()\nheld = open('m/f')\nprint(subprocess.call(['mount', '--bind', 'm', 'dir']))"
        );
        let output = w.run(&[], &["python3", "-c", &maker(&then)]);
        assert_eq!(out(&output), "False\n0 True\nTrue\n0\n", "{n}: {}", err(&output));
        assert_eq!(code(&output), 0, "{n}: {}", err(&output));
        assert_eq!(std::fs::read(w.served.join("n/f3")).unwrap(), b"xxx");
    }
    // One in which something is open stays for whoever uses it.
    w.plain("rm -rf n m dir; mkdir dir");
    let then = "held = open('n/f1', 'r+')\nsys.stdout.flush()\nsh = lambda line: subprocess.call(['sh', '-c', line])\n\
                print(sh('mount --bind n dir; echo new >dir/new'), sh('umount n 2>/dev/null'), sh('umount -l n 2>/dev/null'))\n\
                held.close(); sh('cd n; ls >/dev/null; cd ..; echo late >dir/late'); held = open('n/f1', 'r+')\n\
                print(open('n/new').read(), open('n/late').read(), sh('umount dir'), os.path.exists('dir/new'))\nheld.write('y'); held.flush()\n\
                sys.stdout.flush(); sh('cat n/f1')\nos.mkdir('m'); open('m/f', 'w')\nprint(os.stat('m').st_dev == os.stat('.').st_dev)";
    let output = w.run(&[], &["python3", "-c", &maker(then)]);
    let expected = "0 32 32\nnew\n late\n 0 False\nyTrue\n";
    assert_eq!((code(&output), out(&output)), (0, expected.into()), "{}", err(&output));
    assert_eq!(std::fs::read(w.served.join("n/f1")).unwrap(), b"y");
    assert_eq!(std::fs::read(w.served.join("n/late")).unwrap(), b"late\n");
}

fn others_watch_the_same_command(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    let call = "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\nexcept OSError as e: print(e.errno)\n\
                os.rename('n/f1', 'f1'); os.rename('n', 'm')\nprint(os.stat('m/f2').st_dev == os.stat('.').st_dev)";
    let output = w.run(&["--network", "deny"], &["python3", "-c", &maker(call)]);
    // ECONNREFUSED: in a network of its own it has a loopback device.
    assert_eq!((code(&output), out(&output)), (0, "111\nTrue\n".into()), "{}", err(&output));
    assert!(w.served.join("f1").exists() && w.served.join("m/f2").exists() && !w.served.join("n").exists());
}

fn inner_runs_are_as_without_it(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    let (systx, area) = (machine::systx(), machine::AREA);
    let joins = format!("{} run -- sh -c 'mkdir i; echo >i/f'; ls i", systx.display());
    let output = w.run(&[], &["sh", "-c", &joins]);
    assert_eq!((code(&output), out(&output)), (0, "f\n".into()), "{}", err(&output));
    let sub = |held: &str, then: &str| {
        maker(&format!(
            "{held}\nsys.stdout.flush()\nsub = lambda line: subprocess.call([{:?}, 'run', '--sub', '--area-name', {area:?}, '--', \
             'sh', '-c', line])\nprint(sub('mkdir s s/t; mv n/f9 s; rm -r n/d; echo s >n/new; ln n/f1 s/t/l'))\n\
             print(sub('rm -r n s; exit 3'), sorted(os.listdir('s')), os.stat('n/f1').st_nlink)\n{then}",
            systx.display().to_string()
        ))
    };
    let output = w.run(&[], &["python3", "-c", &sub("", "os.mkdir('o'); open('o/f', 'w').write('o')")]);
    assert_eq!((code(&output), out(&output)), (0, "0\n3 ['f9', 't'] 2\n".into()), "{}", err(&output));
    assert!(w.bound() > 0);
    let found = w.plain("cat n/new o/f; ls n | wc -l; ls s; stat -c %h s/t/l; rm -r n o s");
    assert_eq!(found, "s\no200\nf9\nt\n2\n");
    // While a program uses one none is begun, and nothing is lost.
    let output = w.run(
        &[],
        &["python3", "-c", &sub("held = open('n/f1')\nos.mkdir('s')", "held.close()\nprint(sub('true'))")],
    );
    assert_eq!((code(&output), out(&output)), (0, "125\n125 [] 1\n0\n".into()), "{}", err(&output));
    assert!(
        err(&output).contains("while a program in it uses a directory that it has made"),
        "{}",
        err(&output)
    );
}

fn it_can_be_switched_off(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    for options in [&["--no-native"][..], &["--isolation", "committed"], &["--on-error", "keep"]] {
        w.plain("rm -rf n");
        let look = "print(os.stat('n').st_dev == os.stat('.').st_dev)";
        let output = w.run(options, &["python3", "-c", &maker(look)]);
        assert!(code(&output) == 0 && out(&output).starts_with("True\n"), "{options:?}: {}", err(&output));
    }
    assert_eq!(w.bound(), 0);
}
