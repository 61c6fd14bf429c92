//! Ends: kills, power losses, and descriptors that leave the transaction.

use super::machine::processes::{let_pass, systx_below};
use super::machine::word::{hear, say};
use super::machine::{self, code, err, have, out, Case};
use super::World;
use std::path::Path;
use std::process::{Command, Stdio};

pub const ALL: &[(&str, Case)] = &[
    ("what_is_committed_is_whole_after_a_power_loss", what_is_committed_is_whole),
    ("killed_at_any_time_it_is_all_or_nothing", killed_at_any_time),
    ("a_descriptor_that_is_outside_keeps_the_commit_back", a_descriptor_that_is_outside),
    ("a_command_that_is_killed_leaves_nothing", a_command_that_is_killed),
];

const TREE: &str =
    "import os\nfor d in range(5):\n    os.makedirs('n%d/a/b' % d)\n    for i in range(60):\n        \
                    open('n%d/a/b/f%d' % (d, i), 'w').write('%d' % i * 700)\n";

fn whole(served: &Path) -> usize {
    let files = (0..5).flat_map(|d| (0..60).map(move |i| (format!("n{d}/a/b/f{i}"), i)));
    let is_whole = |(name, i): &(String, i32)| {
        std::fs::read_to_string(served.join(name)).is_ok_and(|text| text == i.to_string().repeat(700))
    };
    files.filter(is_whole).count()
}

fn what_is_committed_is_whole(dir: &Path) {
    if !have("python3") {
        return;
    }
    World::each(dir, |w| {
        if w.volume.kind == "tmpfs" {
            return;
        }
        let done = w.run(&[], &["python3", "-c", TREE]);
        assert_eq!((code(&done), w.bound()), (0, 5), "{}", err(&done));
        if w.volume.lose_cache().is_none() {
            return;
        }
        machine::recover();
        assert_eq!(whole(&w.served), 300, "{}", w.volume.kind);
    });
}

fn killed_at_any_time(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    let started = std::time::Instant::now();
    assert_eq!(code(&w.run(&[], &["python3", "-c", TREE])), 0);
    let whole_run = started.elapsed().as_micros() as u64;
    let mut seen = [0; 2];
    for round in 0..machine::rounds(20, 300) {
        w.plain("rm -rf n0 n1 n2 n3 n4");
        let mut child = w.command(&[], &["python3", "-c", TREE]).stderr(Stdio::null()).spawn().unwrap();
        let_pass(fastrand::u64(0..2 * whole_run));
        if let Some(owner) = systx_below(child.id()) {
            owner.kill();
        }
        child.wait().unwrap();
        machine::recover();
        let found = whole(&w.served);
        assert!(found == 0 || found == 300, "round {round}: {found} of 300");
        assert_eq!(found == 300, w.served.join("n0").exists(), "round {round}");
        seen[usize::from(found == 300)] += 1;
    }
    println!("{} × nothing, {} × all", seen[0], seen[1]);
    assert!(seen[0] > 0, "none was killed in time");
}

/// A server outside gets an open file of a new directory.
fn a_descriptor_that_is_outside(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    let socket = dir.join("socket");
    let (here, word) = (dir.join("here"), dir.join("word"));
    for fifo in [&here, &word] {
        machine::must(Command::new("mkfifo").arg(fifo));
    }
    let server = r#"
import socket, sys, os
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()
open(sys.argv[2], 'w').write('ready')
c = s.accept()[0]; held = socket.recv_fds(c, 9, 1)[1][0]; c.send(b'x')
open(sys.argv[3]).read(); os.close(held)
open(sys.argv[2], 'w').write('closed')
"#;
    let mut server = Command::new("python3")
        .args(["-c", server])
        .args([&socket, &here, &word])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    hear(&here, &mut server);
    let give = format!(
        "import os, socket\nos.mkdir('n'); f = os.open('n/f', os.O_CREAT | os.O_RDWR); os.write(f, b'written')\n\
         s = socket.socket(socket.AF_UNIX); s.connect({:?}); socket.send_fds(s, [b'f'], [f]); s.recv(1)",
        socket.display().to_string()
    );
    let refused = w.run(&[], &["python3", "-c", &give]);
    assert_eq!((code(&refused), w.served.join("n").exists()), (125, false), "{}", err(&refused));
    assert!(err(&refused).contains("a process outside has files of the new directory "), "{}", err(&refused));
    say(&word, &mut server, "now");
    hear(&here, &mut server);
    assert!(server.wait().unwrap().success());
    assert!(!w.served.join("n").exists());
}

fn a_command_that_is_killed(dir: &Path) {
    let Some(w) = World::new(dir, "ext4") else { return };
    if !have("python3") {
        return;
    }
    let output = w.run(&[], &["python3", "-c", &super::maker("os.kill(os.getpid(), 9)")]);
    assert_eq!((code(&output), out(&output)), (137, String::new()), "{}", err(&output));
    assert!(!w.served.join("n").exists());
    let late = w.run(&["--timeout", "1"], &["python3", "-c", &super::maker("import signal; signal.pause()")]);
    assert_eq!((code(&late), w.served.join("n").exists()), (124, false), "{}", err(&late));
}
