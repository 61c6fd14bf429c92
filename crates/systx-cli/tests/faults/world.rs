//! A small tree on a file system of its own, and what must be true of it after a fault.

use super::machine::picture::{difference, picture, Picture};
use super::machine::volume::Volume;
use super::machine::{code, err, recover, shell, verb};
use std::path::{Path, PathBuf};
use std::process::Output;

/// A small tree on a file system of its own.
pub struct World {
    pub volume: Volume,
    pub served: PathBuf,
    pub mounts: String,
}

pub fn world(dir: &Path, megabytes: u64) -> Option<World> {
    world_on(Volume::new(dir, "ext4", megabytes)?)
}

pub fn world_on(volume: Volume) -> Option<World> {
    let served = volume.point.join("tree");
    std::fs::create_dir(&served).unwrap();
    std::fs::write(served.join("a"), "one\n").unwrap();
    std::fs::write(served.join("b"), vec![b'x'; 100_000]).unwrap();
    std::fs::create_dir(served.join("d")).unwrap();
    // The area is made.
    let world = World { volume, served, mounts: mounts() };
    assert_eq!(code(&shell(&world.served, "echo two > a")), 0);
    Some(world)
}

/// Where something is mounted, and of which kind: numbers of mounts and loop devices change with a reboot.
pub fn mounts() -> String {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let kind = words.iter().skip_while(|word| **word != "-").nth(1);
        format!("{} {}\n", words[4], kind.unwrap_or(&""))
    };
    table.lines().map(line).collect()
}

impl World {
    /// Runs a script that must fail before the commit point, and leave everything as it was.
    pub fn refused(&self, output: &Output, before: &Picture, words: &[&str]) {
        let text = err(output);
        assert_eq!(code(output), 125, "{text}");
        assert!(text.contains("nothing was changed"), "no word about the commit point: {text}");
        assert!(words.iter().any(|word| text.contains(word)), "none of {words:?} in: {text}");
        let after = picture(&self.served);
        assert!(after == *before, "{text}{}", difference(&after, before));
    }

    /// Nothing is left behind, and the next one works.
    pub fn works(&self) {
        assert_eq!(mounts(), self.mounts, "a mount is left");
        let output = shell(&self.served, "echo again > again && rm again && echo more >> a");
        assert_eq!((code(&output), err(&output).as_str()), (0, ""));
        recover();
        let status: serde_json::Value = serde_json::from_slice(&verb("status", &["--json"]).stdout).unwrap();
        assert_eq!((&status[0]["running"], &status[0]["in_flight"]), (&0.into(), &0.into()), "{status}");
        let left =
            std::fs::read_dir(self.volume.area().join("tx")).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with('~')).collect();
        assert!(left.is_empty(), "staging is left: {left:?}");
    }

    pub fn newest_segment(&self) -> PathBuf {
        let log = std::fs::read_dir(self.volume.area().join("log")).unwrap();
        log.map(|entry| entry.unwrap().path()).max().expect("a log segment")
    }

    pub fn reboot(&self) {
        self.volume.unmount();
        self.volume.mount();
        self.volume.forget_boot();
    }
}
