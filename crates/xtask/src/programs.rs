//! The test programs that a build has made, in the order in which they are best run.

use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// The programs that take longest (package/program), so that nothing long is left for the end.
const FIRST: [&str; 14] = [
    "systx-engine/systx_engine",
    "systx-cli/faults",
    "systx-cli/sub",
    "systx-cli/agreement",
    "systx-cli/crash_kill",
    "systx-cli/programs",
    "systx-cli/run",
    "systx-cli/conservation",
    "systx-cli/users",
    "systx-cli/crash_power",
    "systx-cli/undo",
    "systx-cli/crash_redo",
    "systx-cli/isolation_committed",
    "systx-cli/sessions",
];

/// A test program.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// Directory of its package.
    package: String,
    source: String,
    executable: String,
}

impl Program {
    /// Reads one message of cargo. Only what was built as a test counts: that a target can be tested is true of the
    /// program systx, too.
    fn of(message: &str) -> Option<Program> {
        let message: Value = serde_json::from_str(message).ok()?;
        let is_test = message["profile"]["test"].as_bool()?;
        let manifest = Path::new(message["manifest_path"].as_str()?);
        is_test.then_some(Program {
            package: manifest.parent()?.to_str()?.to_owned(),
            source: message["target"]["src_path"].as_str()?.to_owned(),
            executable: message["executable"].as_str()?.to_owned(),
        })
    }

    /// Where it stands in [`FIRST`].
    fn turn(&self) -> usize {
        let name =
            |path: &str| Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (package, program) = (name(&self.package), name(&self.executable));
        // Behind the last dash stands cargo's number.
        let program = program.rsplit_once('-').map_or(program.as_str(), |(name, _)| name);
        FIRST.iter().position(|first| *first == format!("{package}/{program}")).unwrap_or(FIRST.len())
    }
}

/// The programs that cargo's messages name, each once, the long ones first.
fn in_order(messages: &str) -> Vec<Program> {
    let mut programs: Vec<Program> = Vec::new();
    for program in messages.lines().filter_map(Program::of) {
        if !programs.contains(&program) {
            programs.push(program);
        }
    }
    programs.sort_by_key(Program::turn);
    programs
}

/// Prints a line for each program: the package's directory, the source, the program.
///
/// # Errors
/// The messages name none.
pub fn print() -> Result<(), String> {
    let mut messages = String::new();
    std::io::stdin().read_to_string(&mut messages).map_err(|e| format!("programs: standard input: {e}"))?;
    let programs = in_order(&messages);
    for Program { package, source, executable } in &programs {
        println!("{package} {source} {executable}");
    }
    match programs.is_empty() {
        true => Err("programs: cargo names no test program".into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(package: &str, program: &str, test: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/w/{package}/Cargo.toml","target":{{"src_path":"/w/a.rs","test":true}},"profile":{{"test":{test}}},"executable":"/t/{program}-0123"}}"#
        )
    }

    #[test]
    fn long_programs_come_first_and_each_once() {
        let messages = [
            message("systx-cli", "hooks", true),
            message("systx-cli", "systx", false),
            "not json".to_owned(),
            message("systx-cli", "run", true),
            message("systx-view", "run", true),
            message("systx-engine", "systx_engine", true),
            message("systx-cli", "run", true),
        ];
        let order = in_order(&messages.join("\n"));
        let order: Vec<_> = order.iter().map(|p| format!("{} {}", p.package, p.executable)).collect();
        let expected = [
            "/w/systx-engine /t/systx_engine-0123",
            "/w/systx-cli /t/run-0123",
            "/w/systx-cli /t/hooks-0123",
        ];
        assert_eq!(order[..3], expected);
        assert_eq!(order.len(), 4);
    }
}
