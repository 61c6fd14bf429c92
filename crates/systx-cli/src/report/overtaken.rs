//! Why a committed transaction is not undone, in words and for programs.

use crate::words::{put, shown};
use serde_json::{json, Value};
use systx_engine::domain::records::COMMAND_BYTES_MAX;
use systx_os::linux::local_time;

/// This many obstacles, and later transactions, are named in the text.
const TOLD_MAX: usize = 20;

/// The reason why an undo is refused: the files have changed since.
#[derive(Clone, Debug)]
pub struct Overtaken {
    /// Number of what was to be undone.
    pub id: u64,
    /// The transaction that has undone it already.
    pub undone_by: Option<u64>,
    /// Changes since then.
    pub obstacles: Vec<Obstacle>,
    /// Transactions that have, or may have, changed it, the youngest first.
    pub later: Vec<Later>,
}

/// Something that has changed since.
#[derive(Clone, Debug)]
pub struct Obstacle {
    /// Where, as people know it.
    pub path: Vec<u8>,
    /// How, as a sentence.
    pub what: &'static str,
    /// The transactions that made the change, the youngest first; empty: a program outside of any.
    pub by: Vec<u64>,
    /// True if they have made it for sure: not all changes of a transaction may be known.
    pub sure: bool,
}

/// A transaction that came later.
#[derive(Clone, Debug)]
pub struct Later {
    /// Number of the transaction.
    pub id: u64,
    /// When it committed, in seconds since the epoch.
    pub at: i64,
    /// User who ran it.
    pub uid: u32,
    /// Command line.
    pub command: Vec<u8>,
    /// True if there is an image to undo it with.
    pub undoable: bool,
}

impl Overtaken {
    /// Returns the obstacles and what to do about them.
    pub fn sentence(&self) -> String {
        let id = self.id;
        if let Some(by) = self.undone_by {
            return format!(
                "transaction {id} is undone already, by transaction {by}; nothing was changed now."
            );
        }
        let mut text = format!(
            "transaction {id} is not undone, nothing was changed: what it changed has changed since."
        );
        for one in self.obstacles.iter().take(TOLD_MAX) {
            text += &format!("\n  {}: {}, {}", shown(&one.path), one.what, one.by());
        }
        text += &more(self.obstacles.len());
        if !self.later.is_empty() {
            text += "\nLater transactions:";
        }
        for Later { id, at, uid, command, .. } in self.later.iter().take(TOLD_MAX) {
            let command = shown(&command[..command.len().min(COMMAND_BYTES_MAX)]);
            text += &format!("\n  {id}  {}  uid {uid}  {command}", local_time(*at));
        }
        text += &more(self.later.len());
        text + "\n" + &self.next()
    }

    /// The next step.
    fn next(&self) -> String {
        let numbers = |undoable: bool| -> Vec<_> {
            let those = self.later.iter().filter(|later| later.undoable == undoable);
            those.map(|later| later.id.to_string()).collect()
        };
        let (mut text, lost) = (String::new(), numbers(false));
        if !lost.is_empty() {
            text = format!(
                "What can't be undone (no --undoable, or no longer kept) stands before it: {}. ",
                lost.join(", ")
            );
        } else if !self.later.is_empty() {
            let own = [self.id.to_string()];
            let order: Vec<_> =
                numbers(true).iter().chain(&own).map(|id| format!("systx undo {id}")).collect();
            text = format!("Undo first what came later: {}. ", order.join(" && "));
        }
        if self.obstacles.iter().any(|one| one.by.is_empty()) || !lost.is_empty() {
            text += "What cannot be undone stays as it is now, or is put back by hand.";
        }
        text.trim_end().to_string()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let obstacle = |one: &Obstacle| {
            let mut value = json!({ "what": one.what, "by": one.by, "sure": one.sure });
            put(&mut value, "path", &one.path);
            value
        };
        let later = |one: &Later| {
            let mut value = json!({ "id": one.id, "at": one.at, "uid": one.uid, "undoable": one.undoable });
            put(&mut value, "command", &one.command);
            value
        };
        json!({
            "id": self.id,
            "undone_by": self.undone_by,
            "obstacles": self.obstacles.iter().map(obstacle).collect::<Vec<_>>(),
            "later": self.later.iter().map(later).collect::<Vec<_>>(),
        })
    }
}

fn more(all: usize) -> String {
    match all.checked_sub(TOLD_MAX) {
        None | Some(0) => String::new(),
        Some(rest) => format!("\n  and {rest} more; --json tells all"),
    }
}

impl Obstacle {
    fn by(&self) -> String {
        let numbers: Vec<_> = self.by.iter().take(TOLD_MAX).map(u64::to_string).collect();
        let numbers = numbers.join(", ");
        match (self.by.len(), self.sure) {
            (0, _) => "by a program outside of any transaction".into(),
            (1, true) => format!("by transaction {numbers}"),
            (_, true) => format!("by transactions {numbers}"),
            // The history names some changes of each.
            (_, false) => {
                format!("by a program outside of any transaction, or by one whose changes are not all known: {numbers}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(id: u64, undoable: bool) -> Later {
        Later { id, at: 0, uid: 0, command: b"make\x1b install".to_vec(), undoable }
    }

    fn overtaken(by: Vec<u64>, later: Vec<Later>) -> Overtaken {
        let what = "its contents have changed";
        let obstacles = vec![Obstacle { path: b"/a\n".to_vec(), what, by, sure: true }];
        Overtaken { id: 3, undone_by: None, obstacles, later }
    }

    #[test]
    fn the_order_of_undos_is_told_the_youngest_first() {
        let text = overtaken(vec![7, 5], vec![later(7, true), later(5, true)]).sentence();
        assert!(text.contains("\n  \"/a\\n\": its contents have changed, by transactions 7, 5\n"), "{text}");
        assert!(text.ends_with("systx undo 7 && systx undo 5 && systx undo 3."), "{text}");
        assert!(text.contains(r"make\033 install") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn what_can_not_be_undone_is_not_advised() {
        for one in [overtaken(vec![7], vec![later(7, false)]), overtaken(Vec::new(), Vec::new())] {
            let text = one.sentence();
            assert!(!text.contains("systx undo"), "{text}");
            assert!(text.ends_with("by hand."), "{text}");
        }
    }

    #[test]
    fn programs_are_told_all_and_people_the_first_ones() {
        let mut many = overtaken(vec![7], vec![later(7, true)]);
        many.obstacles = vec![many.obstacles[0].clone(); 25];
        assert_eq!(many.sentence().matches("have changed, by").count(), 20);
        assert!(many.sentence().contains("and 5 more"));
        assert_eq!(many.json()["obstacles"].as_array().map(Vec::len), Some(25));
    }
}
