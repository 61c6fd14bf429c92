//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// The directory of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(".")).to_owned()
}

/// Reads a text file; an error names it.
pub fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Lists the files below a directory whose names end in `.extension`, in order, without what was built.
pub fn below(dir: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))? {
            let path = entry.map_err(|e| format!("{}: {e}", dir.display()))?.path();
            if path.is_dir() && !path.ends_with("target") {
                dirs.push(path);
            } else if path.extension().is_some_and(|ending| ending == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Lists the Rust sources of all crates, tests beside the code included.
pub fn sources(root: &Path) -> Result<Vec<PathBuf>, String> {
    let all = below(&root.join("crates"), "rs")?;
    let is_source = |path: &&PathBuf| {
        let inside = path.strip_prefix(root.join("crates")).unwrap_or(path);
        inside.components().nth(1).is_some_and(|part| part.as_os_str() == "src")
    };
    Ok(all.iter().filter(is_source).cloned().collect())
}

/// A path as it is shown, from the directory of the workspace.
pub fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
