//! Rust sources as syntax: the functions of a file, and which lines are production code.
//!
//! Production code is what a crate's root reaches through `mod`, without items under `#[cfg(test)]`.

use crate::files;
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A file of production code.
pub struct Source {
    /// Its path from the directory of the workspace.
    pub name: String,
    /// The text.
    pub text: String,
    /// The functions, in order; those in other functions, too.
    pub functions: Vec<Function>,
    /// Lines that have code, without comments and attributes that are documentation.
    pub code: BTreeSet<usize>,
    /// Lines of tests among it, and of files behind them.
    tests: Vec<(usize, usize)>,
    /// Expressions `match` that have an arm for `true` or `false`, by line.
    pub matches_on_bool: Vec<usize>,
}

/// A function, with what is asked about it.
pub struct Function {
    /// The name, without the type that it belongs to.
    pub name: String,
    /// First and last line.
    pub lines: (usize, usize),
    /// Parameters of type `bool`.
    pub bools: Vec<String>,
    /// Identifiers in its body: what it calls is among them.
    pub words: BTreeSet<String>,
}

impl Source {
    /// Parses one file by itself; an error names it.
    pub fn parse(name: &str, text: &str) -> Result<Source, String> {
        Ok(Source::with_modules(name, text)?.0)
    }

    fn with_modules(name: &str, text: &str) -> Result<(Source, Vec<String>), String> {
        let file = syn::parse_file(text)
            .map_err(|e| format!("{name}:{}: it does not parse: {e}", e.span().start().line))?;
        let mut found = Found::default();
        found.visit_file(&file);
        let mut code = BTreeSet::new();
        let tokens: TokenStream = text.parse().map_err(|e| format!("{name}: it does not parse: {e}"))?;
        lines_of(tokens, &mut code);
        code.retain(|line| !found.tests.iter().any(|(first, last)| (first..=last).contains(&line)));
        let source = Source {
            name: name.to_owned(),
            text: text.to_owned(),
            functions: found.functions,
            code,
            tests: found.tests,
            matches_on_bool: found.matches_on_bool,
        };
        Ok((source, found.modules))
    }

    /// Comments beside the code that are no documentation, in lines.
    pub fn comments(&self) -> usize {
        let is_comment = |line: &str| {
            let line = line.trim_start();
            line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!")
        };
        let in_tests = |n: usize| self.tests.iter().any(|(first, last)| (*first..=*last).contains(&n));
        self.text.lines().enumerate().filter(|(n, line)| is_comment(line) && !in_tests(n + 1)).count()
    }
}

/// Reads the production code of a crate from its root file on.
pub fn load(root: &Path, krate: &Path) -> Result<Vec<Source>, String> {
    let src = krate.join("src");
    let mut sources = Vec::new();
    for top in ["lib.rs", "main.rs"].map(|name| src.join(name)) {
        if top.exists() {
            load_module(root, &top, &src, &mut sources)?;
        }
    }
    Ok(sources)
}

/// Reads a file and those of its modules, which stand in `below`.
fn load_module(root: &Path, file: &Path, below: &Path, sources: &mut Vec<Source>) -> Result<(), String> {
    let (source, modules) = Source::with_modules(&files::shown(root, file), &files::read(file)?)?;
    sources.push(source);
    for module in modules {
        let dir: PathBuf = below.join(module);
        let of_its_own = dir.with_extension("rs");
        let file = if of_its_own.exists() { of_its_own } else { dir.join("mod.rs") };
        load_module(root, &file, &dir, sources)?;
    }
    Ok(())
}

/// What a visit of a file collects.
#[derive(Default)]
struct Found {
    functions: Vec<Function>,
    tests: Vec<(usize, usize)>,
    matches_on_bool: Vec<usize>,
    /// Modules in files of their own; a module in a module is `a/b`.
    modules: Vec<String>,
    inside: Vec<String>,
}

impl Found {
    /// Notes an item for tests; returns true if it is one.
    fn is_test(&mut self, attributes: &[syn::Attribute], span: Span) -> bool {
        let is = attributes.iter().any(is_for_tests);
        if is {
            self.tests.push(lines(span));
        }
        is
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block, span: Span) {
        let bools = signature.inputs.iter().filter_map(|input| match input {
            syn::FnArg::Typed(typed) if is_bool(&typed.ty) => Some(pattern(&typed.pat)),
            _ => None,
        });
        let mut words = BTreeSet::new();
        words_of(quote_block(block), &mut words);
        let last = lines(span).1;
        let first = signature.fn_token.span.start().line;
        let bools = bools.collect();
        self.functions.push(Function {
            name: signature.ident.to_string(),
            lines: (first, last),
            bools,
            words,
        });
    }
}

impl<'a> Visit<'a> for Found {
    fn visit_item(&mut self, item: &'a syn::Item) {
        if !self.is_test(attributes_of(item), item.span()) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'a syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Fn(of) => &of.attrs,
            syn::ImplItem::Const(of) => &of.attrs,
            _ => &Vec::new(),
        };
        if !self.is_test(attributes, item.span()) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        self.inside.push(item.ident.to_string());
        if item.content.is_none() {
            self.modules.push(self.inside.join("/"));
        }
        visit::visit_item_mod(self, item);
        self.inside.pop();
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.function(&item.sig, &item.block, item.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.function(&item.sig, &item.block, item.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block, item.span());
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_match(&mut self, found: &'a syn::ExprMatch) {
        let is_bool =
            |pat: &syn::Pat| matches!(pat, syn::Pat::Lit(syn::PatLit { lit: syn::Lit::Bool(_), .. }));
        if found.arms.iter().any(|arm| is_bool(&arm.pat)) {
            self.matches_on_bool.push(found.match_token.span.start().line);
        }
        visit::visit_expr_match(self, found);
    }
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(of) => &of.attrs,
        syn::Item::Enum(of) => &of.attrs,
        syn::Item::Fn(of) => &of.attrs,
        syn::Item::Impl(of) => &of.attrs,
        syn::Item::Macro(of) => &of.attrs,
        syn::Item::Mod(of) => &of.attrs,
        syn::Item::Static(of) => &of.attrs,
        syn::Item::Struct(of) => &of.attrs,
        syn::Item::Trait(of) => &of.attrs,
        syn::Item::Type(of) => &of.attrs,
        syn::Item::Use(of) => &of.attrs,
        _ => &[],
    }
}

/// Returns true for `#[cfg(test)]` and `#[cfg(all(test, …))]`.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    let Ok(list) = attribute.meta.require_list() else { return false };
    let condition = list.tokens.to_string().replace(' ', "");
    list.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all(test,"))
}

fn is_bool(ty: &syn::Type) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.is_ident("bool"))
}

fn pattern(pat: &syn::Pat) -> String {
    match pat {
        syn::Pat::Ident(of) => of.ident.to_string(),
        _ => "_".to_owned(),
    }
}

fn lines(span: Span) -> (usize, usize) {
    (span.start().line, span.end().line)
}

/// The tokens of a block; syn prints them only with a feature that nothing else here needs.
fn quote_block(block: &syn::Block) -> TokenStream {
    let text = block.span().source_text().unwrap_or_default();
    text.parse().unwrap_or_default()
}

fn words_of(tokens: TokenStream, words: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => drop(words.insert(ident.to_string())),
            TokenTree::Group(group) => words_of(group.stream(), words),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The lines on which tokens stand, but those of documentation.
fn lines_of(tokens: TokenStream, found: &mut BTreeSet<usize>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut n = 0;
    while n < tokens.len() {
        let is_mark =
            |at: usize, mark| matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == mark);
        let list = n + 1 + usize::from(is_mark(n + 1, '!'));
        if is_mark(n, '#') && tokens.get(list).is_some_and(is_documentation) {
            n = list + 1;
            continue;
        }
        match &tokens[n] {
            TokenTree::Group(group) => {
                found.insert(group.span_open().start().line);
                found.insert(group.span_close().end().line);
                lines_of(group.stream(), found);
            }
            other => found.extend(other.span().start().line..=other.span().end().line),
        }
        n += 1;
    }
}

fn is_documentation(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let first: Option<TokenTree> = group.stream().into_iter().next();
    let names = |ident: &Ident| ident == "doc";
    group.delimiter() == Delimiter::Bracket && matches!(first, Some(TokenTree::Ident(ident)) if names(&ident))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
//! A module.

/// Does it.
fn one(is: bool, n: &str) {
    // A reason.
    match is {
        true => two(),
        _ => {}
    }
}

impl S {
    fn two(&self, (a, b): (u8, bool), c: bool) {}
    #[cfg(test)]
    fn three(d: bool) {}
}
#[cfg(test)]
mod tests {
    // Not counted.
    fn four() {}
}
"#;

    #[test]
    fn functions_have_their_lines_parameters_and_words() {
        let source = Source::parse("a.rs", TEXT).unwrap();
        let named = source.functions.iter().map(|f| (f.name.as_str(), f.lines, f.bools.join(" ")));
        let named: Vec<_> = named.collect();
        assert_eq!(named, [("one", (5, 11), "is".to_owned()), ("two", (14, 14), "c".to_owned())]);
        assert!(source.functions[0].words.contains("two"));
        assert!(!source.functions[0].words.contains("three"));
    }

    #[test]
    fn comments_and_tests_are_no_code() {
        let source = Source::parse("a.rs", TEXT).unwrap();
        assert_eq!(source.code, BTreeSet::from([5, 7, 8, 9, 10, 11, 13, 14, 17]));
        assert_eq!(source.comments(), 1);
        assert_eq!(source.matches_on_bool, [7]);
    }

    #[test]
    fn a_match_on_something_with_a_bool_in_it_is_none_on_a_bool() {
        let text =
            "fn f() { match (a, b) { (true, 1) => {} _ => {} } match Some(a) { Some(true) => {} _ => {} } }";
        assert!(Source::parse("a.rs", text).unwrap().matches_on_bool.is_empty());
    }

    #[test]
    fn what_does_not_parse_is_an_error_with_its_line() {
        let error = Source::parse("a.rs", "fn f() {}\nfn {").err().unwrap();
        assert!(error.starts_with("a.rs:2: "), "{error}");
    }
}
