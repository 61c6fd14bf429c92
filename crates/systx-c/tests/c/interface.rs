//! Header, symbols and manual pages say the same, to each compiler.

use super::built::{have, must, package, Built, Compiler};
use super::volume::Volume;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use systx_runner::Tried;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Names of functions of ours in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("systx_") || word.starts_with("sys_x"))
}

/// The functions that the header declares: a name before an opening parenthesis, outside of comments.
fn declared() -> BTreeSet<String> {
    let header = read(&package().join("include/systx.h"));
    let code: Vec<&str> = header
        .split("/*")
        .enumerate()
        .map(|(n, part)| if n == 0 { part } else { part.split_once("*/").expect("a comment ends").1 })
        .collect();
    let code = code.concat();
    let calls =
        code.split('(').filter_map(|before| names(before).last().filter(|name| before.ends_with(name)));
    calls.map(String::from).collect()
}

pub fn symbols(built: &Built, _: &Path) -> Tried {
    if !have("nm") {
        return Tried::Skipped;
    }
    let declared = declared();
    assert!(declared.len() > 80 && declared.contains("sys_xbegin"), "{declared:?}");
    let said = must(Command::new("nm").args(["-D", "--defined-only"]).arg(built.lib.join("libsystx.so")));
    let symbols: Vec<&str> = said.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let exported: BTreeSet<String> =
        symbols.iter().filter_map(|symbol| symbol.strip_suffix("@@SYSTX_0.1")).map(String::from).collect();
    let others: Vec<_> =
        symbols.iter().filter(|symbol| !symbol.contains("@@") && **symbol != "SYSTX_0.1").collect();
    assert!(others.is_empty(), "exported without a version: {others:?}");
    assert_eq!(exported, declared, "the library's functions, and the header's");
    let soname = must(Command::new("readelf").arg("-d").arg(built.lib.join("libsystx.so")));
    assert!(soname.contains("soname: [libsystx.so.0]") && soname.contains("NODELETE"), "{soname}");
    Tried::Passed
}

pub fn manual(_: &Built, _: &Path) -> Tried {
    let mandoc = have("mandoc");
    let (mut described, header) = (BTreeSet::new(), read(&package().join("include/systx.h")));
    for page in std::fs::read_dir(package().join("man")).unwrap() {
        let path = page.unwrap().path();
        let text = read(&path);
        // Each page says which functions it is about.
        let said: BTreeSet<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix(".Nm "))
            .flat_map(names)
            .map(String::from)
            .collect();
        assert!(!said.is_empty(), "{}: about nothing", path.display());
        for name in &said {
            let synopsis = text.lines().find_map(|line| line.strip_prefix(&format!(".Fn {name} \"")));
            let arguments = synopsis.unwrap_or_else(|| panic!("{name}: no synopsis")).trim_end_matches('"');
            let prototype = format!("{name}({});", arguments.replace("\" \"", ", "));
            assert!(header.contains(&prototype), "systx.h does not say {prototype}");
        }
        described.extend(said);
        if mandoc {
            let lint =
                Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).arg(&path).output().unwrap();
            let said = String::from_utf8_lossy(&lint.stdout).into_owned();
            assert!(lint.status.success() && said.is_empty(), "{said}");
        }
    }
    assert_eq!(described, declared(), "the functions of the manual pages, and the header's");
    Tried::Passed
}

pub fn compilers(built: &Built, dir: &Path) -> Tried {
    let Some(volume) = Volume::new(dir, "tmpfs", 32) else { return Tried::Skipped };
    let mut tried = 0;
    for compiler in Compiler::ALL.into_iter().filter(|compiler| have(compiler.program())) {
        let program = built.program(compiler, "first", &[]);
        let tree = volume.tree().join(format!("{compiler:?}"));
        std::fs::create_dir(&tree).unwrap();
        built.run(&program, &[tree.as_os_str()]);
        tried += 1;
    }
    // With the static library, too.
    let program = dir.join("static");
    let mut cc = Command::new(Compiler::C.program());
    cc.arg("-I")
        .arg(package().join("include"))
        .arg(package().join("tests/c/first.c"))
        .arg("-o")
        .arg(&program);
    must(cc.arg(&built.archive).args(["-lgcc_s", "-lpthread", "-ldl", "-lm"]));
    let tree = volume.tree().join("static");
    std::fs::create_dir(&tree).unwrap();
    must(Command::new(&program).arg(tree));
    if tried > 1 {
        Tried::Passed
    } else {
        Tried::Skipped
    }
}
