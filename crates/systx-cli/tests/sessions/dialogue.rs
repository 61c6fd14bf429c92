//! Every verb, typed at one terminal, in the order of a day's work. The messages of each are fixed elsewhere
//! (docs/messages.md); here: that it does its work there as it does without a terminal, asks where it should,
//! and leaves the terminal as it was.

use super::alone::{place::*, Case};
use super::terminal::Typed;

pub const ALL: &[(&str, Case)] = &[("every_verb_works_at_a_terminal_and_leaves_it_as_it_was", every_verb)];

/// A shell at a terminal, with systx in its path.
struct Day {
    typed: Typed,
    /// The terminal's settings at the start.
    settings: String,
}

impl Day {
    /// Types a line, and waits for its end; what was shown until then.
    fn line(&mut self, line: &str, status: i32) -> String {
        self.typed.types(&format!("{line}\n"));
        self.typed.shows("prompt> ");
        self.ended(status)
    }

    /// The line's status and the terminal's settings; what was shown since the one before.
    fn ended(&mut self, status: i32) -> String {
        self.typed.types("echo sta\"\"te=$? $(stty -g); jobs\n");
        self.typed.shows("state=");
        let told = self.typed.line();
        let shown = std::mem::take(&mut self.typed.before);
        assert_eq!(told, format!("{status} {}", self.settings), "{shown}");
        // Nothing of it is left in the background.
        self.typed.shows("prompt> ");
        assert!(!std::mem::take(&mut self.typed.before).contains("[1]"));
        shown
    }
}

fn every_verb(p: &Place) {
    let Some(mut typed) = Typed::bash(p) else { return };
    let bin = std::path::Path::new(SYSTX).parent().unwrap();
    typed.types(&format!("PATH={}:$PATH XDG_STATE_HOME={}/state; bind 'set enable-bracketed-paste off'; echo sta\"\"te=$(stty -g)\n", bin.display(), p.beside.display()));
    typed.shows("state=");
    let settings = typed.line();
    typed.shows("prompt> ");
    typed.before.clear();
    let mut day = Day { typed, settings };
    let area = format!("--area-name {AREA}");

    assert!(day.line("systx version", 0).contains("systx 0."));
    day.line(&format!("systx doctor {area}"), 0);
    day.line("systx completions bash | grep -c systx", 0);
    day.line(&format!("systx run {area} --undoable --only . -- sh -c 'echo one > a'"), 0);
    assert_eq!(p.read("a"), "one\n");
    let log = day.line(&format!("systx log {area}"), 0);
    assert!(log.contains("undoable"), "{log}");
    // The youngest: other cases have had this place before.
    day.line(
        &format!("n=$(systx log -n 1 --json {area} | grep -o '\"id\":[0-9]*' | head -n 1 | cut -d: -f2)"),
        0,
    );
    day.line(&format!("systx undo {area} --mount {} $n", p.mount.display()), 0);
    assert!(!p.served.join("a").exists());

    day.line(&format!("n=$(systx begin {area} --only .)"), 0);
    day.line(&format!("systx exec {area} $n -- sh -c 'echo two > a; mkdir d'"), 0);
    let diff = day.line(&format!("systx diff {area} $n"), 0);
    assert!(diff.contains("A\t") && diff.contains("/a\r\n") && diff.contains("/d/\r\n"), "{diff}");
    assert!(day.line(&format!("systx list {area}"), 0).contains("open"));
    day.line(&format!("systx status {area} $n"), 0);
    assert!(day.line(&format!("systx check {area} $n"), 0).contains("conflicts with nothing now"));
    day.line(&format!("systx commit {area} $n"), 0);
    assert_eq!(p.read("a"), "two\n");

    day.line(&format!("n=$(systx begin {area} --only .)"), 0);
    day.line(&format!("systx exec {area} $n -- rm a"), 0);
    day.line(&format!("systx abort {area} $n"), 0);
    assert_eq!(p.read("a"), "two\n");

    // The shell asks; first no, then yes.
    for (answer, status, then) in [("n", 1, "two\n"), ("y", 0, "three\n")] {
        day.typed.types(&format!("SHELL=/bin/bash systx shell {area} --only .\n"));
        day.typed.shows("(systx ");
        day.typed.types("echo three > a; exit\n");
        day.typed.shows("ommit");
        day.typed.types(&format!("{answer}\n"));
        day.typed.shows("prompt> ");
        day.ended(status);
        assert_eq!(p.read("a"), then);
    }

    day.line(&format!("systx run {area} --only . -- sh -c 'echo four > a; exit 3'"), 3);
    day.line(&format!("systx run {area} --dry-run -p --only . -- sh -c 'echo five > a'"), 0);
    assert_eq!(p.read("a"), "three\n");
    day.line(&format!("n=$(systx begin {area} --only .)"), 0);
    day.typed.types(&format!(
        "systx on-end {area} $n -- sh -c 'echo $SYSTX_OUTCOME > {}/ended' & until ls {}/ends/$n.* 2>/dev/null; do :; done\n",
        p.beside.display(),
        p.mount.join(AREA).display()
    ));
    day.typed.shows("/ends/");
    day.typed.shows("prompt> ");
    day.typed.types(&format!("systx commit {area} $n; wait; echo wai\"\"ted\n"));
    day.typed.shows("waited");
    day.typed.shows("prompt> ");
    day.typed.before.clear();
    assert_eq!(std::fs::read_to_string(p.beside.join("ended")).unwrap(), "committed\n");
    day.line(&format!("systx recover {area}"), 0);
    day.line(&format!("systx prune --yes {area}"), 0);
    day.line(
        &format!(
            "systx install-hooks --root {0}/root && systx install-hooks --root {0}/root --uninstall",
            p.beside.display()
        ),
        0,
    );
    day.line(
        &format!("systx wrap --dir {0}/wrapped --only . {area} true && {0}/wrapped/true", p.beside.display()),
        0,
    );
    let help = day.line("systx wrap --help | head -n 3; systx run --help | tail -n 2", 0);
    assert!(!help.contains('\u{1b}'), "{help}");
    day.typed.ends();
}
