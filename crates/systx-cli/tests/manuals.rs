//! Completions and manual pages are made from the grammar, and shells and man(1) can use them.

use std::collections::BTreeSet;
use std::process::{Command, Output};
use systx_runner::Scratch;

fn systx(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_systx")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn bash_completes_verbs_and_options() {
    let scratch = Scratch::new("completions");
    let script = scratch.join("systx");
    std::fs::write(&script, systx(&["completions", "bash"]).stdout).unwrap();
    let ask = r#". "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _systx systx "${!#}" "${@: -2:1}"; echo "${COMPREPLY[@]}""#;
    let complete = |words: &[&str]| {
        let output = Command::new("bash").args(["-c", ask]).arg(&script).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    };
    assert_eq!(complete(&["systx", "ru"]), "run");
    assert_eq!(complete(&["systx", "run", "--ret"]), "--retry");
    assert_eq!(complete(&["systx", "run", "--durability", "n"]), "none");
}

#[test]
fn every_shell_has_its_script() {
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(systx(&["completions", shell]).stdout).unwrap();
        assert!(script.contains("install-hooks") && script.contains("retry"), "{shell}");
    }
}

/// The shells accept the scripts: that shows only that they are in the shell's language.
#[test]
fn shells_take_their_scripts() {
    let scratch = Scratch::new("scripts");
    for (shell, option) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = scratch.join(shell);
        std::fs::write(&script, systx(&["completions", shell]).stdout).unwrap();
        match Command::new(shell).arg(option).arg(&script).output() {
            Err(e) => println!("skipped: {shell} can't be run: {e}"),
            Ok(output) => {
                let told = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() && told.is_empty(), "{shell}: {told}");
            }
        }
    }
}

#[test]
fn man_shows_every_page_without_a_warning() {
    let scratch = Scratch::new("pages");
    systx(&["manuals", scratch.to_str().unwrap()]);
    for page in std::fs::read_dir(&*scratch).unwrap() {
        let page = page.unwrap().path();
        let mut man = Command::new("man");
        man.args(["--warnings", "-l"]).arg(&page).envs([
            ("MANPAGER", "cat"),
            ("MANWIDTH", "80"),
            ("LC_ALL", "C.UTF-8"),
        ]);
        let shown = match man.output() {
            // A system without pages may have a script in place of man.
            Ok(shown) if shown.stdout.starts_with(b"This system has been minimized") => {
                println!("skipped: man is not here: {}", String::from_utf8_lossy(&shown.stdout));
                return;
            }
            Ok(shown) => shown,
            Err(e) => {
                println!("skipped: man can't be run: {e}");
                return;
            }
        };
        let (text, told) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
        assert!(shown.status.success() && told.is_empty(), "{page:?}: {told}");
        assert!(text.contains("SYNOPSIS") && text.contains("DESCRIPTION"), "{page:?}: {text}");
    }
}

/// Returns what a command prints on standard output.
fn told(args: &[&str]) -> String {
    String::from_utf8(systx(args).stdout).unwrap()
}

/// The verbs that `systx --help` lists.
fn verbs() -> BTreeSet<String> {
    let help = told(&["--help"]);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    let verbs: BTreeSet<_> = verbs.map(str::to_string).collect();
    assert!(verbs.len() > 5, "{help}");
    verbs
}

/// The options that `systx VERB --help` lists, short and long, as in `  -p, --patch  Shows …`.
fn options(verb: &str) -> BTreeSet<String> {
    let help = told(&[verb, "--help"]);
    let words = help.lines().map(str::trim_start).filter(|line| line.starts_with('-')).flat_map(|line| {
        let both = line.split("  ").next().unwrap_or_default();
        both.split([' ', ',', '[', '=']).filter(|word| word.len() > 1 && word.starts_with('-'))
    });
    words.map(str::to_string).collect()
}

#[test]
fn every_verb_has_a_page_with_all_of_its_options() {
    let scratch = Scratch::new("manuals");
    systx(&["manuals", scratch.to_str().unwrap()]);
    let files = std::fs::read_dir(&*scratch).unwrap();
    let files: BTreeSet<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    let pages = verbs().iter().map(|verb| format!("systx-{verb}.1")).chain(["systx.1".to_string()]).collect();
    assert_eq!(files, pages);
    for verb in verbs() {
        let page = std::fs::read_to_string(scratch.join(format!("systx-{verb}.1"))).unwrap();
        // Bold, at the head of its paragraph: `\fB\-p\fR, \fB\-\-patch\fR`.
        let bold: BTreeSet<_> =
            page.split("\\fB").skip(1).filter_map(|text| text.split("\\fR").next()).collect();
        let options = options(&verb);
        assert!(options.contains("--help") && options.contains("-h"), "{verb}: {options:?}");
        for option in options {
            assert!(bold.contains(option.replace('-', "\\-").as_str()), "systx-{verb}.1 lacks {option}");
        }
    }
}

#[test]
fn every_verb_is_completed_and_no_other() {
    let script = told(&["completions", "bash"]);
    let top = script.lines().find_map(|line| line.trim().strip_prefix("opts=\"-h -V")).unwrap();
    let words = top.trim_end_matches('"').split_whitespace().filter(|word| !word.starts_with('-'));
    assert_eq!(words.map(str::to_string).collect::<BTreeSet<_>>(), verbs(), "bash");

    let script = told(&["completions", "zsh"]);
    let list = script.split_once("_systx_commands() {").unwrap().1.split_once("commands=(\n").unwrap().1;
    let words =
        list.lines().map_while(|line| line.strip_prefix('\'')).map(|line| line.split(':').next().unwrap());
    assert_eq!(words.map(str::to_string).collect::<BTreeSet<_>>(), verbs(), "zsh");

    let script = told(&["completions", "fish"]);
    let lines = script.lines().filter(|line| line.contains("__fish_systx_needs_command\""));
    let words = lines.filter_map(|line| line.split_once(" -a \"")?.1.split('"').next());
    assert_eq!(words.map(str::to_string).collect::<BTreeSet<_>>(), verbs(), "fish");
}
