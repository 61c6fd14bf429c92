//! Licences, sources and double versions of the dependencies, by deny.toml, from what `cargo metadata` says.
//!
//! This is the part of cargo-deny that needs neither that program nor its database, so that the habit does not sleep
//! where they can't be had. Guarantees: refuses what cargo-deny with the same file refuses. Does not: know of
//! advisories; read more of TOML than `[section]`, `name = "word"` and lists of words, or of `{ name, version }`.

use crate::{files, spdx, Report};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The rules of deny.toml.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rules {
    licences: Vec<String>,
    /// `name@version`: allowed beside another version of the same package.
    doubles: Vec<String>,
    /// `name@version` or a name: never allowed.
    banned: Vec<String>,
    registries: Vec<String>,
}

/// A package of the dependency graph.
struct Package {
    name: String,
    version: String,
    licence: Option<String>,
    /// `None`: it is in this repository.
    source: Option<String>,
}

impl Rules {
    fn parse(text: &str) -> Result<Rules, String> {
        let plain = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let (mut section, mut rules, mut list) = (String::new(), Rules::default(), String::new());
        for line in plain.filter(|line| !line.is_empty()) {
            if list.is_empty() && line.starts_with('[') {
                section = line.trim_matches(['[', ']']).to_owned();
                continue;
            }
            list += line;
            let Some((name, value)) = list.split_once('=') else {
                return Err(format!("deny.toml: this is not understood: {list}"));
            };
            if value.trim().starts_with('[') && !value.trim().ends_with(']') {
                continue;
            }
            let words: Vec<String> = value.split('"').skip(1).step_by(2).map(String::from).collect();
            match (section.as_str(), name.trim()) {
                ("licenses", "allow") => rules.licences = words,
                ("bans", "skip") => rules.doubles = words,
                ("bans", "deny") => rules.banned = words,
                ("sources", "allow-registry") => rules.registries = words,
                _ => {}
            }
            list.clear();
        }
        match rules.licences.is_empty() || rules.registries.is_empty() {
            true => Err("deny.toml allows no licence, or no registry".into()),
            false => Ok(rules),
        }
    }

    fn judge(&self, packages: &[Package]) -> Report {
        let mut report = Report::default();
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for package in packages {
            versions.entry(&package.name).or_default().insert(&package.version);
            let at = format!("{}@{}", package.name, package.version);
            if self.banned.contains(&at) || self.banned.contains(&package.name) {
                report.faults.push(format!("{at} is banned"));
            }
            match package.licence.as_deref().map(|licence| spdx::is_allowed(licence, &self.licences)) {
                Some(Ok(true)) => {}
                Some(Ok(false)) => {
                    let licence = package.licence.as_deref().unwrap_or_default();
                    report.faults.push(format!("{at} has a licence that is not allowed: {licence}"));
                }
                Some(Err(why)) => report.faults.push(format!("{at}: {why}")),
                None => report.faults.push(format!("{at} names no licence")),
            }
            let source = package.source.as_deref().map(|source| source.trim_start_matches("registry+"));
            if source.is_some_and(|source| !self.registries.iter().any(|allowed| allowed == source)) {
                report.faults.push(format!("{at} is from elsewhere: {}", source.unwrap_or_default()));
            }
        }
        for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
            let excused = |version: &&&str| self.doubles.contains(&format!("{name}@{version}"));
            if versions.iter().filter(|version| !excused(version)).count() > 1 {
                let versions: Vec<_> = versions.iter().copied().collect();
                report.faults.push(format!("{name} is there in versions {}", versions.join(" and ")));
            }
        }
        let gone = |skip: &&String| !packages.iter().any(|p| format!("{}@{}", p.name, p.version) == **skip);
        report
            .faults
            .extend(self.doubles.iter().filter(gone).map(|skip| format!("{skip} need not be skipped")));
        report.said.push(format!("{} packages: licences, sources, versions", packages.len()));
        report
    }
}

/// Reads what `cargo metadata` prints, of those packages that `cargo tree` names: the former has some that nothing
/// compiles, for features that are off.
fn packages(metadata: &str, tree: &str) -> Result<Vec<Package>, String> {
    let metadata: Value = serde_json::from_str(metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let word = |value: &Value| value.as_str().map(String::from);
    // `name v1.2.3 …`
    let used: BTreeSet<_> = tree
        .lines()
        .filter_map(|line| {
            line.split_once(' ').map(|(name, rest)| (name, rest.split(' ').next().unwrap_or_default()))
        })
        .collect();
    let all = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let used = all.iter().filter(|package| {
        let (name, version) = (package["name"].as_str(), package["version"].as_str());
        used.contains(&(name.unwrap_or_default(), &*format!("v{}", version.unwrap_or_default())))
    });
    let package = |package: &Value| {
        Some(Package {
            name: word(&package["name"])?,
            version: word(&package["version"])?,
            licence: word(&package["license"]),
            source: word(&package["source"]),
        })
    };
    used.map(package).collect::<Option<_>>().ok_or("cargo metadata: a package without a name".into())
}

/// Checks the dependencies that are used on this kind of machine.
pub fn check(root: &Path) -> Result<Report, String> {
    let rules = Rules::parse(&files::read(&root.join("deny.toml"))?)?;
    let said = |command: &str, args: &[&str]| {
        let output = Command::new(command).args(args).current_dir(root).output();
        let output = output.map_err(|e| format!("{command}: {e}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                Err(format!("{command} {}: {}", args[0], String::from_utf8_lossy(&output.stderr).trim()))
            }
        }
    };
    let host = said(&std::env::var("RUSTC").unwrap_or("rustc".into()), &["-vV"])?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    let cargo = std::env::var("CARGO").unwrap_or("cargo".into());
    let metadata = ["metadata", "--format-version", "1", "--locked", "--filter-platform", host];
    let tree = [
        "tree",
        "--locked",
        "--workspace",
        "--edges",
        "normal,build,dev",
        "--prefix",
        "none",
        "--target",
        host,
    ];
    let packages = packages(&said(&cargo, &metadata)?, &said(&cargo, &tree)?)?;
    match packages.is_empty() {
        true => Err("cargo names no packages".into()),
        false => Ok(rules.judge(&packages)),
    }
}

/// Plants a package of each fault.
pub fn proof() -> Result<(), String> {
    let rules = "[licenses]\nallow = [\n  \"MIT\", # ours\n]\n[bans]\nskip = [\"twice@1.0.0\"]\n\
                 deny = [{ crate = \"bad\" }]\n[sources]\nallow-registry = [\"https://here\"]\n";
    let rules = Rules::parse(rules)?;
    let package = |name: &str, version: &str, licence: Option<&str>, source: Option<&str>| Package {
        name: name.into(),
        version: version.into(),
        licence: licence.map(String::from),
        source: source.map(String::from),
    };
    let here = Some("registry+https://here");
    let faults = |with: Vec<Package>| {
        let twice = ["1.0.0", "2.0.0"].map(|version| package("twice", version, Some("MIT"), here));
        let mut all = vec![package("ours", "0.1.0", Some("MIT"), None)];
        all.extend(twice);
        all.extend(with);
        rules.judge(&all).faults
    };
    if let Some(fault) = faults(Vec::new()).first() {
        return Err(format!("a good package is refused: {fault}"));
    }
    for (says, planted) in [
        ("is banned", vec![package("bad", "1.0.0", Some("MIT"), here)]),
        ("not allowed", vec![package("one", "1.0.0", Some("GPL-3.0-only"), here)]),
        ("names no licence", vec![package("one", "1.0.0", None, here)]),
        ("from elsewhere", vec![package("one", "1.0.0", Some("MIT"), Some("git+https://there"))]),
        (
            "in versions 1.0.0 and 3.0.0",
            ["1.0.0", "3.0.0"].map(|v| package("one", v, Some("MIT"), here)).into(),
        ),
    ] {
        if !faults(planted).iter().any(|fault| fault.contains(says)) {
            return Err(says.into());
        }
    }
    match rules.judge(&[]).faults.iter().any(|fault| fault.contains("need not be skipped")) {
        true => Ok(()),
        false => Err("a package that need not be skipped".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_allow_nothing_or_are_not_understood_are_errors() {
        assert!(Rules::parse("[licenses]\nallow = []\n").is_err());
        assert!(Rules::parse("[licenses]\nallow\n").is_err());
    }

    #[test]
    fn only_packages_that_are_used_count() {
        let metadata = r#"{"packages": [{"name": "a", "version": "1.0.0", "license": "MIT", "source": null},
            {"name": "a", "version": "2.0.0", "license": null, "source": null}]}"#;
        let found = packages(metadata, "a v1.0.0 (/here)\nb v2.0.0\n").unwrap();
        assert_eq!(found.iter().map(|package| package.version.as_str()).collect::<Vec<_>>(), ["1.0.0"]);
        assert!(packages("{}", "").is_err());
    }
}
