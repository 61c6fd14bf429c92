//! `systx list`, `status`, `recover` and `prune`: what runs, what is left, and the sweeping.
//!
//! Owns: their words. Guarantees: a file system without an area is not touched. Does not: decide what may be
//! finished or removed (the engine does).

use crate::args::{Area, Json, Number, Prune, Recover, Status};
use crate::domains::{self, Mounted};
use crate::failure::{at, bytes, failed, Failure, Result};
use crate::report::conflict_copy_json;
use crate::session;
use crate::session::bound::Bound;
use crate::session::socket::{self, Found};
use crate::units;
use crate::words::{put, shown};
use serde_json::{json, Value};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;
use systx_engine::domain::reports::Report;
use systx_engine::domain::Domain;
use systx_engine::id::TxId;
use systx_engine::outcome::{ConflictCopy, ConflictCopyKind};
use systx_engine::recovery::Recovered;
use systx_engine::upkeep::Listed;
use systx_os::{Errno, Linux};

/// How long `recover` waits for what others are publishing, in nanoseconds.
const PUBLICATION_NS: u64 = 10_000_000_000;

/// What a command prints on standard output.
pub struct Said {
    /// The text.
    pub text: String,
    /// False if something is not well.
    pub well: bool,
}

/// The result of a command.
pub type Answer = Result<Said>;

/// What is said of several file systems or transactions, for people and for programs.
#[derive(Default)]
struct Page {
    text: String,
    values: Vec<Value>,
}

/// `systx list`.
pub fn list(args: &Json) -> Answer {
    let open = socket::all(&args.area)?;
    let mut found = domains::existing(&Linux::new(), &args.area)?;
    let mut rows = Vec::new();
    for (mounted, domain) in &found.open {
        match domain.transactions() {
            Ok(listed) => rows.extend(listed.into_iter().map(|l| (mounted, l))),
            Err(e) => found.failed.push(Failure::at(&mounted.lower.point, e)),
        }
    }
    let listed: Vec<_> = rows.iter().map(|(_, l)| l.pid).collect();
    let unlisted = open.iter().filter(|open| !is_over(open) && !listed.contains(&open.look.pid));
    if args.json {
        let mut rows: Vec<_> = rows.iter().map(|(mounted, l)| row_json(mounted, l, &open)).collect();
        rows.extend(unlisted.map(|open| told_json(open, "open")));
        rows.extend(open.iter().filter(|open| is_over(open)).map(|open| told_json(open, "over")));
        return Ok(Said {
            text: format!("{}\n", json!({ "transactions": rows, "failed": found.sentences() })),
            well: found.failed.is_empty(),
        });
    }
    let mut out = String::new();
    for (mounted, l) in &rows {
        let (point, command) = (mounted.point(), shown(&l.command));
        let open = kept_open(&open, l);
        let state = stands(open, l);
        let takes = open.filter(|open| is_of_first(open, mounted)).and_then(|open| open.look.lost);
        let takes = takes.map_or_else(String::new, |bytes| format!("  takes {}", session::room(bytes)));
        let name = open.map_or_else(String::new, named);
        out += &format!("{}  {state}  pid {}{name}{takes}  {point}  {command}\n", l.tx, l.pid);
        out += &open.filter(|o| is_of_first(o, mounted)).map_or(String::new(), |o| session::inside(&o.look));
    }
    for one @ Found { look, point, .. } in unlisted {
        let (name, point) = (named(one), shown(point));
        out += &format!("{}  open  pid {}{name}  {point}  mounted read-only\n", look.id, look.pid);
    }
    for Found { look, point, .. } in open.iter().filter(|open| is_over(open)) {
        let point = shown(point);
        out += &format!("{}  over, see `systx status {}`  pid {}  {point}\n", look.id, look.id, look.pid);
    }
    found.complain();
    Ok(Said { text: out, well: found.failed.is_empty() })
}

/// `systx status`.
pub fn status(args: &Status) -> Answer {
    let open = socket::all(&args.json.area)?;
    let wanted = args.id.as_ref().map(|id| socket::number(id, None, &args.json.area)).transpose()?;
    let is_wanted = |one: &Found| wanted.is_some_and(|wanted| wanted.is(one.look.id, one.look.pid));
    let mut found = domains::existing(&Linux::new(), &args.json.area)?;
    let mut page = Page::default();
    for one in open.iter().filter(|one| is_over(one) && is_wanted(one)) {
        let point = shown(&one.point);
        page.text += &format!("transaction {} on {point}: over, pid {}\n", one.look.id, one.look.pid);
        page.text += &session::described(&one.look);
        page.values.push(told_json(one, "over"));
    }
    for (mounted, domain) in &found.open {
        let there = match There::look(mounted, domain) {
            Ok(there) => there,
            Err(e) => {
                found.failed.push(Failure::at(&mounted.lower.point, e));
                continue;
            }
        };
        match wanted {
            Some(wanted) => there.describe_one(wanted, &open, &mut page),
            None => there.describe_all(&mut page),
        }
    }
    found.complain();
    let known = args.id.is_none() || !page.values.is_empty();
    if args.json.json {
        return Ok(Said { text: format!("{}\n", Value::from(page.values)), well: known });
    }
    match wanted {
        Some(Number { id, .. }) if !known => {
            let why = format!("transaction {id} neither runs nor is in flight: it has ended or never was");
            Err(Failure::from(why).hint("`systx list` shows those that run, `systx log` what has committed"))
        }
        _ => Ok(Said { text: page.text, well: found.failed.is_empty() }),
    }
}

/// What is on one file system.
struct There<'a> {
    mounted: &'a Mounted,
    domain: &'a Domain<Linux>,
    listed: Vec<Listed>,
    aside: Vec<Vec<u8>>,
    reports: Vec<Report>,
}

impl<'a> There<'a> {
    fn look(mounted: &'a Mounted, domain: &'a Domain<Linux>) -> Result<There<'a>, Errno> {
        let (listed, aside, reports) = (domain.transactions()?, domain.kept_aside()?, domain.reports()?);
        Ok(There { mounted, domain, listed, aside, reports })
    }

    /// Adds one transaction, and what was reported of it.
    fn describe_one(&self, wanted: Number, open: &[Found], page: &mut Page) {
        let (point, id) = (self.mounted.point(), wanted.id);
        for l in self.listed.iter().filter(|l| wanted.is(l.tx.0, l.pid)) {
            let (kept, command) = (kept_open(open, l), shown(&l.command));
            let state = stands(kept, l);
            page.text += &format!("transaction {id} on {point}: {state}, pid {}, {command}\n", l.pid);
            page.text += &kept.map_or(String::new(), |open| session::described(&open.look));
            page.values.push(row_json(self.mounted, l, open));
        }
        // Of an open one nothing was reported yet, so what has its number is another one.
        let of_it = |report: &&Report| report.tx.0 == id && wanted.pid.is_none();
        let reports: Vec<_> = self.reports.iter().filter(of_it).cloned().collect();
        if !reports.is_empty() {
            let mut value = json!({ "id": id, "displaced": reports_json(&reports) });
            put(&mut value, "mount", &self.mounted.lower.point);
            page.values.push(value);
        }
        page.text += &reports.iter().map(|report| reported(&point, report)).collect::<String>();
    }

    /// Adds how many transactions there are, what is kept, and all reports.
    fn describe_all(&self, page: &mut Page) {
        let point = self.mounted.point();
        let in_flight = self.listed.iter().filter(|l| l.state.is_some()).count();
        let running = self.listed.len() - in_flight;
        page.text +=
            &format!("{point}: {running} running, {in_flight} in flight, {} kept aside\n", self.aside.len());
        let unmade = self.domain.checkpoint_failed().map(|e| e.to_string());
        if let Some(why) = &unmade {
            page.text += &format!("{point}: the last checkpoint failed, so the log grows: {why}\n");
        }
        if let Some(why) = self.domain.log_closed() {
            page.text += &format!("{point}: {why}\n");
        }
        let told: BTreeSet<_> = self.reports.iter().filter_map(|r| r.aside.as_deref()).collect();
        let is_told = |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| told.contains(name));
        for name in self.aside.iter().filter(|name| !is_told(name)) {
            page.text += &format!(
                "{point}: aside/{}: reason unknown (the publisher died before it could record one)\n",
                shown(name)
            );
        }
        let aside: Vec<_> = self.aside.iter().map(|name| String::from_utf8_lossy(name)).collect();
        let mut value = json!({
            "running": running,
            "in_flight": in_flight,
            "checkpoint_failed": unmade,
            "aside": aside,
            "displaced": reports_json(&self.reports),
        });
        put(&mut value, "mount", &self.mounted.lower.point);
        page.values.push(value);
        page.text += &self.reports.iter().map(|report| reported(&point, report)).collect::<String>();
    }
}

/// `systx recover`.
pub fn recover(args: &Recover) -> Answer {
    let begun = SystemTime::now();
    let mut finished = 0;
    decide_by_hand(args)?;
    let found = domains::existing_to_sync(&Linux::new(), &args.json.area)?;
    let mut all_well = found.failed.is_empty();
    let mut out = String::new();
    let mut values = Vec::new();
    for (mounted, domain) in &found.open {
        // Of session daemons that went with the machine, or together with their helpers.
        socket::sweep(&Linux::new(), &domain.area.dir);
        let Finished { recovered, error } = finish(domain);
        let error = error.or(settled(domain).err());
        all_well &= recovered.unfinished.is_empty() && error.is_none();
        finished += recovered.finished;
        out += &describe(mounted, &recovered, error.as_ref()).unwrap_or_else(|| nothing_to_do(mounted, args));
        let awaited = domain.awaited().map_err(at(&mounted.lower.point))?;
        for one in awaited.iter().filter(|_| !args.quiet) {
            out += &format!(
                "{}: transaction {} ({}) is committed, and a file system that takes part has not heard of it: mount it, or `systx recover --forget {}` if it never comes back\n",
                mounted.point(), one.id, shown(one.command.as_bytes()), one.id
            );
        }
        // Publications that another process has finished and could not report.
        let mut earlier = domain.reports().unwrap_or_else(|e| {
            all_well = false;
            out += &format!("{}: reports can't be read: {e}\n", mounted.point());
            Vec::new()
        });
        // A log of boots has it once; `status` says it for as long as it is kept.
        domain.reports_were_told();
        earlier.retain(|report| !(args.quiet && report.told));
        earlier.retain(|report| !recovered.conflict_copies.iter().any(|d| is_of(report, d)));
        out += &earlier.iter().map(|report| reported(&mounted.point(), report)).collect::<String>();
        let mut value = recovered_json(mounted, &recovered, error.as_ref());
        value["reported_earlier"] = reports_json(&earlier);
        value["awaited"] = awaited.iter().map(|one| one.id.0).collect();
        values.push(value);
    }
    if !args.quiet {
        out += &not_looked_at(&args.json.area)?;
    }
    found.complain();
    if args.reload_units && finished > 0 {
        if let Err(why) = units::reload_if_changed(begun) {
            eprintln!("systx: {why}");
        }
    }
    if args.json.json {
        out = format!("{}\n", json!({ "mounts": values, "failed": found.sentences() }));
    }
    Ok(Said { text: out, well: all_well })
}

/// Names areas on file systems that are mounted read-only, where nothing can be finished.
fn not_looked_at(area: &Area) -> Result<String> {
    let name = domains::area_name(area);
    let has_area =
        |point: &Vec<u8>| Path::new(OsStr::from_bytes(point)).join(OsStr::from_bytes(&name)).is_dir();
    let points = domains::read_only()?.into_iter().filter(has_area);
    let say = |point: Vec<u8>| {
        format!(
            "{}: mounted read-only, and so not looked at; mount it writable and recover again\n",
            shown(&point)
        )
    };
    Ok(points.map(say).collect())
}

/// Records a person's decision on a transaction whose other file systems are away; the recovery that follows
/// acts on it.
fn decide_by_hand(args: &Recover) -> Result<()> {
    let Some(id) = args.commit.or(args.abort).or(args.forget) else { return Ok(()) };
    let named = match &args.at {
        Some(at) => Some(at.canonicalize().map_err(|e| Failure::new("--at", e).on(bytes(at)))?),
        None => None,
    };
    let found = domains::existing(&Linux::new(), &args.json.area)?;
    let is_there = |mounted: &Mounted| {
        named.as_ref().is_none_or(|at| at.as_os_str().as_encoded_bytes() == mounted.lower.point)
    };
    let mut meant = Vec::new();
    for (mounted, domain) in found.open.iter().filter(|(mounted, _)| is_there(mounted)) {
        let point = &mounted.lower.point;
        let is_it = match args.forget {
            Some(_) => domain.awaited().map_err(at(point))?.iter().any(|one| one.id.0 == id),
            None => domain.is_in_doubt(TxId(id)).map_err(at(point))?,
        };
        if is_it {
            meant.push((mounted, domain));
        }
    }
    let (mounted, domain) = match meant[..] {
        [one] => one,
        [] if args.forget.is_some() => {
            let why = format!("no file system waits for transaction {id}");
            return Err(Failure::from(why).hint("`systx recover` says which are waited for"));
        }
        [] => {
            let why = format!("transaction {id} is not in doubt");
            return Err(Failure::from(why).hint("`systx recover` says which are"));
        }
        _ => {
            let why = format!("transactions {id} are on several file systems");
            return Err(Failure::from(why).hint("say which by --at"));
        }
    };
    match args.forget {
        Some(_) => domain.silence_decision(TxId(id)).map_err(at(&mounted.lower.point))?,
        None => domain.decide_by_hand(TxId(id), args.commit.is_some()).map_err(at(&mounted.lower.point))?,
    };
    Ok(())
}

fn is_of(report: &Report, conflict_copy: &ConflictCopy) -> bool {
    (&report.path, &report.aside, report.what.as_str())
        == (&conflict_copy.path, &conflict_copy.aside, conflict_copy.what.fragment())
}

/// One displaced object for people, of a publication that may be long over.
fn reported(point: &str, report: &Report) -> String {
    let aside =
        report.aside.as_ref().map_or(String::new(), |name| format!("; kept as aside/{name} in the area"));
    format!("{point}: transaction {} displaced: {}: {}{aside}\n", report.tx, shown(&report.path), report.what)
}

fn reports_json(reports: &[Report]) -> Value {
    let one = |r: &Report| {
        let code = ConflictCopyKind::of_fragment(&r.what).map(ConflictCopyKind::code);
        let mut value = json!({ "id": r.tx.0, "aside": r.aside, "what": r.what, "code": code });
        put(&mut value, "path", &r.path);
        value
    };
    reports.iter().map(one).collect()
}

/// Images of those that died before their commit go.
fn settled(domain: &Domain<Linux>) -> Result<usize> {
    domain.settle_images().map_err(at(b""))
}

/// What became of what was left on a file system.
struct Finished {
    recovered: Recovered,
    /// Why the rest was not looked at.
    error: Option<Failure>,
}

/// Finishes what opening the domain has left, so that the tree is whole, and makes a checkpoint, so that the
/// next boot redoes nothing.
fn finish(domain: &Domain<Linux>) -> Finished {
    let mut recovered = domain.recovered_by_opening();
    let rest = domain.finish_dead().map_err(at(b"")).and_then(|more| {
        recovered.merge(more);
        let at_it = domain.wait_for_publications(PUBLICATION_NS).map_err(at(b""))?;
        // An owner that was just dying at the first try, or was waited for and died, counts as dead now.
        let mut more = domain.finish_dead().map_err(at(b""))?;
        more.unfinished.retain(|why| !recovered.unfinished.contains(why));
        recovered.merge(more);
        recovered.unfinished.extend(at_it.into_iter().map(being_published));
        covered(domain)
    });
    Finished { recovered, error: rest.err() }
}

fn being_published((id, left): (TxId, bool)) -> String {
    if left {
        format!("transaction {id} is committed, its publication waits for its own process; see what that one has said")
    } else {
        format!("transaction {id} is being published by another process; run `systx recover` again")
    }
}

/// Makes a checkpoint unless nothing has committed since the last one.
fn covered(domain: &Domain<Linux>) -> Result<()> {
    let Some(goal) = domain.owed().map_err(at(b""))? else { return Ok(()) };
    let made = domain.cover(goal);
    made.map(|_| ()).map_err(|e| {
        Failure::new("the checkpoint failed, so what has committed may be done again at the next boot", e)
    })
}

fn nothing_to_do(mounted: &Mounted, args: &Recover) -> String {
    if args.quiet {
        String::new()
    } else {
        format!("{}: nothing to do\n", mounted.point())
    }
}

/// Describes a recovery; `None`: there was nothing to do.
fn describe(mounted: &Mounted, recovered: &Recovered, error: Option<&Failure>) -> Option<String> {
    let point = mounted.point();
    let mut out = String::new();
    if recovered.is_empty() && error.is_none() {
        return None;
    }
    if recovered.finished + recovered.aborted > 0 {
        out += &format!(
            "{point}: {} committed finished, {} aborted taken back\n",
            recovered.finished, recovered.aborted
        );
    }
    for d in &recovered.conflict_copies {
        let aside =
            d.aside.as_ref().map_or(String::new(), |name| format!("; kept as aside/{name} in the area"));
        out += &format!("{point}: displaced: {}: {}{aside}\n", shown(&d.path), d.what);
    }
    for why in recovered.unfinished.iter().cloned().chain(error.map(Failure::to_string)) {
        out += &format!("{point}: not finished: {why}\n");
    }
    Some(out)
}

fn recovered_json(mounted: &Mounted, recovered: &Recovered, error: Option<&Failure>) -> Value {
    let mut value = json!({
        "finished": recovered.finished,
        "aborted": recovered.aborted,
        "displaced": recovered.conflict_copies.iter().map(conflict_copy_json).collect::<Vec<_>>(),
        "unfinished": recovered.unfinished,
        "error": error.map(Failure::to_string),
    });
    put(&mut value, "mount", &mounted.lower.point);
    value
}

/// `systx prune`.
pub fn prune(args: &Prune) -> Answer {
    let found = domains::existing_to_sync(&Linux::new(), &args.json.area)?;
    let mut out = String::new();
    let mut removed = Vec::new();
    let mut all_well = found.failed.is_empty();
    for (mounted, domain) in &found.open {
        let point = mounted.point();
        let Finished { recovered, error } = finish(domain);
        out += &describe(mounted, &recovered, error.as_ref()).unwrap_or_default();
        all_well &= error.is_none();
        let nobodys = settled(domain).map_err(|e| e.on(&mounted.lower.point))?;
        if nobodys > 0 {
            out += &format!("{point}: removed what was kept to undo {nobodys} that never committed\n");
        }
        let names = domain.kept_aside().map_err(at(&mounted.lower.point))?;
        let reports = domain.reports().map_err(at(&mounted.lower.point))?;
        let mut images = domain.images().map_err(at(&mounted.lower.point))?;
        images.truncate(images.len().saturating_sub(args.keep));
        if names.is_empty() && reports.is_empty() && images.is_empty() {
            if nobodys == 0 {
                out += &format!("{point}: nothing to remove\n");
            }
            continue;
        }
        if !(args.yes || agreed(&point, &names, &reports, &images, &args.json.area)?) {
            continue;
        }
        for id in images {
            domain.remove_image(id).map_err(at(&mounted.lower.point))?;
            out += &format!("{point}: transaction {id} can't be undone any more\n");
            let mut value = json!({ "undo": id.0 });
            put(&mut value, "mount", &mounted.lower.point);
            removed.push(value);
        }
        let mut stays = false;
        for name in names {
            match domain.remove_aside(&name) {
                Ok(()) => {
                    out += &format!("{point}: removed aside/{}\n", shown(&name));
                    let mut value = json!({});
                    put(&mut value, "mount", &mounted.lower.point);
                    put(&mut value, "aside", &name);
                    removed.push(value);
                }
                Err(e) => {
                    out += &format!("{point}: aside/{} stays: {e}\n", shown(&name));
                    stays = true;
                }
            }
        }
        all_well &= !stays;
        // Not while something that they explain stays.
        if !stays {
            for tx in reports.iter().map(|report| report.tx).collect::<BTreeSet<_>>() {
                domain.remove_reports(tx).map_err(at(&mounted.lower.point))?;
                out += &format!("{point}: forgot the report of transaction {tx}\n");
            }
        }
    }
    let lost = lost(args)?;
    out += &lost.text;
    removed.extend(lost.values);
    if out.is_empty() && found.open.is_empty() && found.failed.is_empty() {
        out = "nothing to remove: no file system has an area of systx\n".into();
    }
    found.complain();
    if args.json.json {
        out = format!("{}\n", json!({ "removed": removed, "failed": found.sentences() }));
    }
    Ok(Said { text: out, well: all_well })
}

/// Says how much room lost transactions take, and discards them if that is wanted: what is said, and what went.
fn lost(args: &Prune) -> Result<Page> {
    let (mut out, mut gone) = (String::new(), Vec::new());
    let (mut count, mut total) = (0, 0);
    for mut found in socket::all(&args.json.area)? {
        let Some(bytes) = found.look.lost else { continue };
        (count, total) = (count + 1, total + bytes);
        let (id, point, takes) = (found.look.id, shown(&found.point), session::room(bytes));
        if !args.lost {
            out += &format!("{point}: transaction {id} is lost, and takes {takes}: `systx diff {id}` shows it, `systx prune --lost` discards it\n");
            continue;
        }
        if !args.yes {
            let question = format!(
                "{point}: transaction {id} is lost, and takes {takes}.\nDiscard what was done in it? [y/N] "
            );
            if !agrees(&question)? {
                continue;
            }
        }
        session::discard(&mut found)?;
        out += &format!("{point}: discarded transaction {id}, which was lost, and took {takes}\n");
        let mut value = json!({ "lost": id, "bytes": bytes });
        put(&mut value, "mount", &found.point);
        gone.push(value);
        (count, total) = (count - 1, total - bytes);
    }
    if count > 0 {
        out += &format!(
            "lost transactions: {count}, which take {}; they may be {}: where it is more, the next one that is begun discards the oldest\n",
            session::room(total),
            Bound::here()
        );
    }
    Ok(Page { text: out, values: gone })
}

const ASKING: &str = "asking at the terminal";

/// Asks on the terminal; anything but yes is no.
fn agrees(question: &str) -> Result<bool> {
    let mut err = std::io::stderr().lock();
    err.write_all(question.as_bytes()).and_then(|()| err.flush()).map_err(failed(ASKING))?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(failed(ASKING))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Asks on the terminal; anything but yes is no.
fn agreed(point: &str, names: &[Vec<u8>], reports: &[Report], images: &[TxId], area: &Area) -> Result<bool> {
    let mut err = std::io::stderr().lock();
    let ask = |err: &mut dyn Write| {
        if !(names.is_empty() && reports.is_empty()) {
            writeln!(
                err,
                "Displaced objects kept on {point} in {}/aside, and reports:",
                shown(&domains::area_name(area))
            )?;
        }
        names.iter().try_for_each(|name| writeln!(err, "  {}", shown(name)))?;
        reports.iter().try_for_each(|report| write!(err, "{}", reported(point, report)))?;
        if !images.is_empty() {
            let ids: Vec<_> = images.iter().map(TxId::to_string).collect();
            writeln!(err, "What these transactions on {point} could be undone with: {}", ids.join(", "))?;
        }
        write!(err, "Remove them for good? [y/N] ")?;
        err.flush()
    };
    ask(&mut err).map_err(failed(ASKING))?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(failed(ASKING))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Nothing is left of it but what is to be said.
fn is_over(open: &Found) -> bool {
    open.look.doomed.is_some() && open.look.lost.is_none()
}

/// How one stands that may have a session daemon.
fn stands(open: Option<&Found>, l: &Listed) -> &'static str {
    match open {
        Some(open) if open.look.lost.is_some() => "lost",
        Some(_) => "open",
        None => domains::state(l),
    }
}

/// The session daemon of a transaction, if it is open.
fn kept_open<'a>(open: &'a [Found], l: &Listed) -> Option<&'a Found> {
    open.iter().find(|open| open.look.pid == l.pid && l.state.is_none() && l.alive)
}

/// The name that its user has given to one, in a line that lists it.
fn named(open: &Found) -> String {
    open.look.name.as_ref().map_or_else(String::new, |name| format!("  named {name}"))
}

/// Returns true if the transaction is listed under this file system, and not under another one of its own.
fn is_of_first(open: &Found, mounted: &Mounted) -> bool {
    open.point == mounted.lower.point
}

/// One that has no row.
fn told_json(open: &Found, state: &str) -> Value {
    let mut value = json!({ "id": open.look.id, "pid": open.look.pid, "state": state, "alive": true });
    value["open"] = session::described_json(&open.look);
    put(&mut value, "mount", &open.point);
    value
}

fn row_json(mounted: &Mounted, l: &Listed, open: &[Found]) -> Value {
    let open = kept_open(open, l);
    let mut value = json!({
        "id": l.tx.0,
        "pid": l.pid,
        "since": l.since.map(|t| t.sec),
        "state": stands(open, l),
        "alive": l.alive,
    });
    if let Some(open) = open {
        value["open"] = session::described_json(&open.look);
    }
    put(&mut value, "mount", &mounted.lower.point);
    put(&mut value, "command", &l.command);
    value
}
