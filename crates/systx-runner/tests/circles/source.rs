//! Reads the modules of a crate: what each defines and which paths stand in it. As much of Rust as that takes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path as File, PathBuf};

/// A path, segment by segment. Of a module: from the root of its crate, which is empty.
pub type Path = Vec<String>;

/// Gives the text of a file, if there is one.
type Read<'a> = &'a dyn Fn(&File) -> Option<String>;

/// A `use`: of what, and under which name; `*` is everything.
struct Use {
    path: Path,
    name: String,
    is_public: bool,
}

/// One module, without its tests.
#[derive(Default)]
pub struct Module {
    children: BTreeSet<String>,
    items: BTreeSet<String>,
    uses: Vec<Use>,
    /// Other paths of two segments or more.
    paths: Vec<Path>,
    /// Every identifier outside of `use`.
    words: BTreeSet<String>,
}

/// The modules of a crate.
#[derive(Default)]
pub struct Crate {
    pub modules: BTreeMap<Path, Module>,
}

impl Crate {
    /// The crate with this root file.
    pub fn load(root: &File, read: Read<'_>) -> Crate {
        let mut of = Crate::default();
        let dir = root.parent().unwrap_or(File::new("")).to_owned();
        let text = read(root).unwrap_or_else(|| panic!("{} can't be read", root.display()));
        of.parse(Vec::new(), &without_tests(&tokens(&text)), &dir, read);
        of
    }

    /// Reads a module; those that are files of their own stand in `dir`.
    fn parse(&mut self, path: Path, tokens: &[String], dir: &File, read: Read<'_>) {
        let mut module = Module::default();
        let (mut n, mut depth) = (0, 0);
        let at = |n: usize| tokens.get(n).map_or("", |token| token.as_str());
        while n < tokens.len() {
            match at(n) {
                "mod" if at(n + 2) == ";" || at(n + 2) == "{" => {
                    let child = [&path[..], &[at(n + 1).to_owned()]].concat();
                    let below = dir.join(at(n + 1));
                    module.children.insert(at(n + 1).to_owned());
                    if at(n + 2) == "{" {
                        let end = closing(tokens, n + 2);
                        self.parse(child, &tokens[n + 3..end], &below, read);
                        n = end;
                    } else if let Some(text) = of_file(&below, read) {
                        self.parse(child, &without_tests(&self::tokens(&text)), &below, read);
                        n += 2;
                    }
                }
                "use" if is_word(at(n + 1)) || at(n + 1) == "::" => {
                    let end = (n..tokens.len()).find(|n| at(*n) == ";").unwrap_or(tokens.len());
                    let is_public = n > 0 && (at(n - 1) == "pub" || at(n - 1) == ")");
                    expand(&tokens[n + 1..end], &[], is_public, &mut module.uses);
                    n = end;
                }
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" if depth == 0 => {
                    module.items.insert(at(n + 1).to_owned());
                }
                "macro_rules" => drop(module.items.insert(at(n + 2).to_owned())),
                "{" => depth += 1,
                "}" => depth -= 1,
                word if is_word(word) => {
                    let mut found = vec![word.to_owned()];
                    while at(n + 1) == "::" && is_word(at(n + 2)) {
                        found.push(at(n + 2).to_owned());
                        n += 2;
                    }
                    module.words.extend(found.iter().cloned());
                    if found.len() > 1 {
                        module.paths.push(found);
                    }
                }
                _ => {}
            }
            n += 1;
        }
        self.modules.insert(path, module);
    }

    /// A path as it stands in a module, from the root of the crate; `None`: it leads out of the crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<Path> {
        let mut base = match path.first()?.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" | "super" => module.to_vec(),
            child if self.modules[module].children.contains(child) => {
                return Some([module, path].concat());
            }
            _ => return None,
        };
        let mut rest = path;
        while let Some(first @ ("self" | "super")) = rest.first().map(String::as_str) {
            if first == "super" {
                base.pop();
            }
            rest = &rest[1..];
        }
        Some([&base[..], rest].concat())
    }

    /// The module that defines what a path names, and its name there; `None` for a module itself.
    fn locate(&self, path: &[String], seen: &mut BTreeSet<Path>) -> Option<(Path, Option<String>)> {
        if !seen.insert(path.to_vec()) {
            return None;
        }
        let known = (0..=path.len()).rev().find(|n| self.modules.contains_key(&path[..*n]))?;
        let (at, rest) = path.split_at(known);
        let Some(name) = rest.first() else { return Some((at.to_vec(), None)) };
        let module = &self.modules[at];
        if module.items.contains(name) {
            return Some((at.to_vec(), Some(name.clone())));
        }
        for passed in module.uses.iter().filter(|passed| passed.name == *name) {
            if let Some(target) = self.absolute(at, &passed.path) {
                return self.locate(&[&target[..], &rest[1..]].concat(), seen);
            }
        }
        let globs = module.uses.iter().filter(|passed| passed.name == "*");
        let targets: Vec<_> = globs.filter_map(|glob| self.absolute(at, &glob.path)).collect();
        targets.into_iter().find_map(|target| {
            self.locate(&[&target[..], rest].concat(), seen).filter(|(_, name)| name.is_some())
        })
    }

    /// Which modules use which, and what.
    pub fn edges(&self) -> super::Edges {
        let mut edges = super::Edges::new();
        for (at, module) in &self.modules {
            let mut add = |path: &[String]| {
                let Some(target) = self.absolute(at, path) else { return };
                if let Some((to, Some(name))) = self.locate(&target, &mut BTreeSet::new()) {
                    if to != *at {
                        edges.entry((at.clone(), to)).or_default().insert(name);
                    }
                }
            };
            for found in &module.uses {
                // What is only passed on is a use of those who ask for it here.
                if !found.is_public || module.words.contains(&found.name) {
                    add(&found.path);
                }
            }
            for path in &module.paths {
                add(path);
                let imported = module.uses.iter().find(|found| found.name == path[0]);
                if let Some(found) = imported {
                    add(&[&found.path[..], &path[1..]].concat());
                }
            }
            let globs = module.uses.iter().filter(|found| found.name == "*");
            for target in globs.filter_map(|glob| self.absolute(at, &glob.path)) {
                if self.modules.contains_key(&target) && target != *at {
                    edges.entry((at.clone(), target)).or_default().insert("*".to_owned());
                }
            }
        }
        edges
    }
}

/// The text of the module with its own files in `below`.
fn of_file(below: &File, read: Read<'_>) -> Option<String> {
    let mut file: PathBuf = below.to_owned();
    file.set_extension("rs");
    read(&file).or_else(|| read(&below.join("mod.rs")))
}

/// The single names of a tree of imports.
fn expand(tree: &[String], before: &[String], is_public: bool, uses: &mut Vec<Use>) {
    let mut path = before.to_vec();
    let mut n = 0;
    while n < tree.len() {
        match tree[n].as_str() {
            "::" => {}
            "{" => {
                let end = closing(tree, n);
                let mut start = n + 1;
                let mut depth = 0;
                for at in n + 1..=end {
                    match tree[at].as_str() {
                        "{" => depth += 1,
                        "}" if at < end => depth -= 1,
                        _ => {}
                    }
                    if at == end || (depth == 0 && tree[at] == ",") {
                        expand(&tree[start..at], &path, is_public, uses);
                        start = at + 1;
                    }
                }
                return;
            }
            "*" => return uses.push(Use { path, name: "*".to_owned(), is_public }),
            "as" => {
                let name = tree[n + 1].clone();
                return uses.push(Use { path, name, is_public });
            }
            "self" if !path.is_empty() => {}
            word => path.push(word.to_owned()),
        }
        n += 1;
    }
    if let (Some(name), true) = (path.last().cloned(), path.len() > before.len() || !tree.is_empty()) {
        uses.push(Use { path, name, is_public });
    }
}

/// The place of the bracket that closes the one at `open`.
fn closing(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (n, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return n;
        }
    }
    tokens.len()
}

/// The same without what stands under `#[cfg(test)]`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    const TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut left = Vec::new();
    let mut n = 0;
    while n < tokens.len() {
        if tokens[n..].iter().take(TEST.len()).eq(TEST.iter()) {
            n = end_of_item(tokens, n + TEST.len());
            continue;
        }
        left.push(tokens[n].clone());
        n += 1;
    }
    left
}

/// Behind the item, field or statement that begins at `n`.
fn end_of_item(tokens: &[String], mut n: usize) -> usize {
    while let Some(token) = tokens.get(n) {
        match token.as_str() {
            ";" | "," => return n + 1,
            "{" => return closing(tokens, n) + 1,
            "(" | "[" => n = closing(tokens, n),
            "}" | ")" | "]" => return n,
            _ => {}
        }
        n += 1;
    }
    n
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::` and single characters, without comments, literals and white space.
fn tokens(text: &str) -> Vec<String> {
    let text: Vec<char> = text.chars().collect();
    let at = |n: usize| text.get(n).copied().unwrap_or('\0');
    let (mut found, mut n) = (Vec::new(), 0);
    while n < text.len() {
        let start = n;
        match at(n) {
            '/' if at(n + 1) == '/' => n = (n..text.len()).find(|n| at(*n) == '\n').unwrap_or(text.len()),
            '/' if at(n + 1) == '*' => {
                n = (n + 2..text.len())
                    .find(|n| at(*n) == '*' && at(n + 1) == '/')
                    .map_or(text.len(), |n| n + 2);
            }
            '"' => n = end_of_string(&text, n, 0),
            'r' | 'b' if raw_hashes(&text, n).is_some() => {
                let (quote, hashes) = raw_hashes(&text, n).unwrap_or_default();
                n = end_of_string(&text, quote, hashes);
            }
            '\'' if at(n + 1) == '\\' => {
                n = (n + 3..text.len()).find(|n| at(*n) == '\'').map_or(text.len(), |n| n + 1);
            }
            '\'' if at(n + 2) == '\'' => n += 3,
            // A lifetime.
            '\'' => n += 1,
            c if c.is_alphanumeric() || c == '_' => {
                while at(n).is_alphanumeric() || at(n) == '_' {
                    n += 1;
                }
                found.push(text[start..n].iter().collect());
            }
            ':' if at(n + 1) == ':' => {
                n += 2;
                found.push("::".to_owned());
            }
            c => {
                n += 1;
                if !c.is_whitespace() {
                    found.push(c.to_string());
                }
            }
        }
    }
    found
}

/// The place of the quote and the number of `#` of a raw string that begins at `n`.
fn raw_hashes(text: &[char], n: usize) -> Option<(usize, usize)> {
    let rest = &text[n..];
    let rest = rest.strip_prefix(&['b']).unwrap_or(rest);
    let rest = rest.strip_prefix(&['r'])?;
    let hashes = rest.iter().take_while(|c| **c == '#').count();
    (rest.get(hashes) == Some(&'"')).then(|| (text.len() - rest.len() + hashes, hashes))
}

/// Behind the string whose first quote is at `quote`. Only one without `#` has escapes; raw ones without are
/// taken for that.
fn end_of_string(text: &[char], quote: usize, hashes: usize) -> usize {
    let mut n = quote + 1;
    while n < text.len() {
        match text[n] {
            '\\' if hashes == 0 => n += 1,
            '"' if text[n + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes => {
                return n + 1 + hashes;
            }
            _ => {}
        }
        n += 1;
    }
    n
}
