//! `systx completions` and `systx manuals`: what shells and man(1) know of the command line, made from its grammar.

use crate::args::{Cli, Completions, Manuals};
use crate::failure::{at, bytes, Failure};
use crate::status::{Answer, Said};
use clap::{Command, CommandFactory};

/// The script that completes our words in a shell.
pub fn completions(args: &Completions) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut without_hidden_verbs(&Cli::command()), "systx", &mut script);
    String::from_utf8(script)
        .map(|text| Said { text, well: true })
        .map_err(|e| Failure::new("the script", e.to_string()))
}

/// Returns the grammar without the verbs that `--help` does not list: shells would offer them.
fn without_hidden_verbs(grammar: &Command) -> Command {
    let verbs = grammar.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("systx").version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true).subcommands(verbs)
}

/// Writes a page for systx and one for each verb, such as `systx-run.1`, into a directory.
pub fn manuals(args: &Manuals) -> Answer {
    let wrote = std::fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command().flatten_help(false), &args.dir));
    wrote.map(|()| Said { text: String::new(), well: true }).map_err(at(bytes(&args.dir)))
}
