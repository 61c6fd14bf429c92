//! The library as programs in C find it, and these programs, compiled.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Warnings that are errors.
const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-unused-function"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// `cc`, as scripts/deps.sh installs it.
    C,
    Clang,
    Cxx,
    ClangCxx,
}

impl Compiler {
    pub const ALL: [Compiler; 4] = [Compiler::C, Compiler::Clang, Compiler::Cxx, Compiler::ClangCxx];

    pub fn program(self) -> &'static str {
        match self {
            Compiler::C => "cc",
            Compiler::Clang => "clang",
            Compiler::Cxx => "g++",
            Compiler::ClangCxx => "clang++",
        }
    }

    fn language(self) -> &'static [&'static str] {
        match self {
            Compiler::C | Compiler::Clang => &["-x", "c", "-std=c11"],
            Compiler::Cxx | Compiler::ClangCxx => &["-x", "c++", "-std=c++11"],
        }
    }
}

/// Returns true if a program can be run here; says so if not.
pub fn have(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: there is no {program} here (scripts/deps.sh)");
    }
    found
}

/// Runs a tool that must succeed.
pub fn must(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    said_well(command, &output);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said_well(command: &Command, output: &Output) {
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{}{}", output.status, said[0], said[1]);
}

/// The package's directory.
pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// libsystx, linked.
pub struct Built {
    /// Its directory.
    pub lib: PathBuf,
    /// The static library.
    pub archive: PathBuf,
    programs: PathBuf,
}

impl Built {
    /// `None`, with a reason printed: there is no compiler.
    pub fn new(scratch: &Path) -> Option<Built> {
        if !have(Compiler::C.program()) {
            return None;
        }
        let built =
            Built { lib: scratch.join("lib"), archive: archive(), programs: scratch.join("programs") };
        std::fs::create_dir(&built.programs).unwrap();
        let script = package().join("../../scripts/library.sh");
        must(Command::new("bash").arg(script).arg("link").arg(&built.archive).arg(&built.lib));
        Some(built)
    }

    /// Compiles `tests/c/NAME.c`, or that of another directory, against header and shared library.
    pub fn program(&self, compiler: Compiler, name: &str, options: &[&str]) -> PathBuf {
        let short = Path::new(name).file_name().unwrap().to_string_lossy();
        let program =
            self.programs.join(format!("{short}-{compiler:?}{}", options.concat().replace('/', "_")));
        let mut command = Command::new(compiler.program());
        command.args(STRICT).args(["-O1", "-g", "-pthread"]).args(options).args(compiler.language());
        command.arg("-I").arg(package().join("include")).arg("-I").arg(package().join("tests/c"));
        command.arg(package().join("tests/c").join(format!("{name}.c"))).arg("-o").arg(&program);
        must(command.args(["-x", "none"]).arg("-L").arg(&self.lib).arg("-lsystx"));
        program
    }

    /// A command of a program that finds the library.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", &self.lib);
        command
    }

    /// Runs a program that must succeed; returns what it has said.
    pub fn run(&self, program: &Path, args: &[&OsStr]) -> String {
        must(self.command(program).args(args))
    }
}

/// The static library that cargo has built beside this program.
fn archive() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let deps = me.parent().unwrap();
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libsystx_c") && name.ends_with(".a")
    };
    let entries = std::fs::read_dir(deps).unwrap().map(|entry| entry.unwrap().path());
    let newest =
        entries.filter(named).max_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("no libsystx_c*.a in {}", deps.display()))
}
