//! Every ending, in words and for programs.

use super::*;
use serde_json::json;
use systx_engine::id::TxId;
use systx_engine::outcome::{
    CommitError, Committed, Conflict, ConflictCopy, ConflictCopyKind, ConflictKind, Party,
};
use systx_os::process::Ended;

fn ours() -> Ours {
    Ours { id: Some(815), pid: 77, command: b"make install".to_vec(), kept: false, sub: false }
}

fn conflict() -> Ending {
    let with = Party::Transaction { id: TxId(812), pid: 4410, command: b"sed -i".to_vec() };
    Ending::Conflict(Conflict { path: b"etc/hosts".to_vec(), what: ConflictKind::ContentsChanged, with })
}

fn overtaken() -> Overtaken {
    Overtaken { id: 1, undone_by: Some(2), obstacles: Vec::new(), later: Vec::new() }
}

#[test]
fn exit_codes_are_those_of_the_contract() {
    let conflict_copies =
        vec![ConflictCopy { path: b"a".to_vec(), aside: None, what: ConflictCopyKind::Replaced }];
    let committed = Committed { steps: 3, conflict_copies, ..Committed::default() };
    assert_eq!(Ending::Committed(Committed::default(), 0).code(), 0);
    assert_eq!(Ending::Committed(Committed::default(), 3).code(), 3);
    assert_eq!(Ending::TooLate("5m".into()).code(), 124);
    assert_eq!(Ending::Outside("curl wanted to".into()).code(), 125);
    assert_eq!(Ending::Committed(committed.clone(), 3).code(), 76);
    assert_eq!(
        Ending::Committed(Committed { pending: Some("disk full".into()), ..committed }, 3).code(),
        125
    );
    assert_eq!(Ending::Aborted(Ended::Exited(7)).code(), 7);
    assert_eq!(Ending::Aborted(Ended::Signaled(9)).code(), 137);
    assert_eq!(conflict().code(), 75);
    assert_eq!(Ending::Overtaken(Box::new(overtaken())).code(), 75);
    assert_eq!(Ending::from(CommitError::InDoubt { error: systx_os::Errno::IO }).code(), 125);
}

#[test]
fn every_ending_says_on_which_side_of_the_commit_point_it_is() {
    let endings = [
        Ending::Committed(Committed::default(), 0),
        Ending::Committed(Committed::default(), 1),
        Ending::Committed(Committed { pending: Some("no space".into()), ..Default::default() }, 0),
        Ending::Mute(Box::new(Ending::Committed(Committed::default(), 0)), "disk full".into()),
        Ending::Declined,
        Ending::Discarded,
        Ending::Expired("1h".into()),
        Ending::DaemonEnded(15),
        Ending::Lost(Box::new(conflict())),
        Ending::Lost(Box::new(Ending::Failed("no room".into()))),
        Ending::DaemonKilled(None),
        Ending::DaemonKilled(Some(true)),
        Ending::DaemonKilled(Some(false)),
        Ending::Left(7),
        Ending::Open(Ended::Exited(0)),
        Ending::TooLate("1.5".into()),
        Ending::Outside("curl wanted to".into()),
        Ending::DryRun(2, 0),
        Ending::Aborted(Ended::Exited(1)),
        Ending::Aborted(Ended::Signaled(15)),
        Ending::NotStarted("x: not found".into(), 127),
        conflict(),
        Ending::Overtaken(Box::new(overtaken())),
        Ending::NotCommitted(CommitError::Refused("an open writer".into())),
        Ending::NotCommitted(CommitError::InDoubt { error: systx_os::Errno::IO }),
        Ending::Failed("no /dev/fuse".into()),
    ];
    for ending in endings {
        let text = ending.sentence(&ours());
        let sides = ["nothing was changed", "committed", "in doubt"];
        assert!(sides.iter().any(|side| text.contains(side)), "{text}");
        assert!(text.ends_with('.'), "{text}");
    }
}

#[test]
fn a_conflict_names_the_path_and_both_parties_in_words_and_in_json() {
    assert_eq!(
        conflict().sentence(&ours()),
        "conflict on etc/hosts: contents changed by transaction 812 (pid 4410: sed -i). \
        Transaction 815 (pid 77: make install) is aborted, nothing was changed. Run again, or use --retry."
    );
    let value = conflict().json(&ours());
    let party = |id, pid, command| json!({ "transaction": id, "pid": pid, "command": command });
    assert_eq!(value["conflict"]["with"], party(812, 4410, "sed -i"));
    assert_eq!(value["conflict"]["ours"], party(815, 77, "make install"));
    assert_eq!((value["id"].as_u64(), value["outcome"].as_str()), (Some(815), Some("conflict")));
    assert!(value["conflict"].get("path_hex").is_none());
    assert_eq!(
        (&value["conflict"]["what"], &value["conflict"]["code"]),
        (&json!("contents changed"), &json!("contents-changed"))
    );
}

#[test]
fn who_is_not_known_is_not_blamed() {
    let with = Party::Unknown;
    let ending =
        Ending::Conflict(Conflict { path: b"a".to_vec(), what: ConflictKind::ContentsChanged, with });
    let text = ending.sentence(&ours());
    assert!(text.contains("another transaction or a program outside of any"), "{text}");
    assert_eq!(ending.json(&ours())["conflict"]["with"], "unknown");
}

#[test]
fn a_party_of_an_earlier_boot_has_no_process() {
    let with = Party::Transaction { id: TxId(7), pid: 0, command: Vec::new() };
    let what = ConflictKind::HeldPrepared;
    let ending = Ending::Conflict(Conflict { path: b"a".to_vec(), what, with });
    let text = ending.sentence(&ours());
    assert!(text.starts_with("conflict on a: held (prepared, not decided yet) by transaction 7. "), "{text}");
    assert!(ending.json(&ours())["conflict"]["with"]["pid"].is_null());
}

#[test]
fn of_a_transaction_in_another_one_nothing_is_said_to_be_settled() {
    let inner = Ours { sub: true, ..ours() };
    let committed = |pending: Option<&str>| {
        let done = Committed { pending: pending.map(str::to_string), ..Committed::default() };
        Ending::Committed(Committed { steps: 1, ..done }, 0)
    };
    let doubt = Ending::NotCommitted(CommitError::InDoubt { error: systx_os::Errno::IO });
    for ending in [
        committed(None),
        committed(Some("no room")),
        Ending::Committed(
            Committed {
                conflict_copies: vec![ConflictCopy {
                    path: b"a".to_vec(),
                    aside: None,
                    what: ConflictCopyKind::Replaced,
                }],
                ..Committed::default()
            },
            0,
        ),
        doubt,
        Ending::Aborted(Ended::Exited(3)),
        Ending::Declined,
        Ending::Failed("why".into()),
    ] {
        let (alone, inside) = (ending.sentence(&ours()), ending.sentence(&inner));
        assert_ne!(alone, inside);
        for wrong in ["nothing was changed", "in place", "systx recover", "systx prune"] {
            assert!(!inside.contains(wrong), "{inside}");
        }
        assert_eq!(ending.json(&inner)["sub"], true);
        assert!(ending.json(&ours()).get("sub").is_none());
    }
}

#[test]
fn a_name_keeps_its_bytes_in_json_and_its_lines_in_words() {
    let conflict_copy =
        ConflictCopy { path: b"/a\n\x1b[2J\xff".to_vec(), aside: None, what: ConflictCopyKind::Replaced };
    let value = conflict_copy_json(&conflict_copy);
    assert_eq!(value["path_hex"], "2f610a1b5b324aff");
    assert_eq!(value["code"], "replaced");
    assert!(!value.to_string().contains(|c: char| c.is_control()));
    let ending = Ending::Committed(
        Committed { steps: 1, conflict_copies: vec![conflict_copy], ..Committed::default() },
        0,
    );
    let text = ending.sentence(&ours());
    assert!(text.contains("\n  \"/a\\n\\033[2J\\377\": replaced by another program meanwhile"), "{text}");
}

#[test]
fn a_commit_that_failed_on_a_full_disk_says_what_to_do() {
    let error = systx_os::Errno::NOSPC;
    let ending =
        Ending::NotCommitted(CommitError::Failed { doing: "reserving space", path: Vec::new(), error });
    let text = ending.sentence(&Ours::new(None, &[]));
    assert!(text.starts_with("aborted, nothing was changed: reserving space: No space left"), "{text}");
    assert!(text.ends_with("; make room on that file system."), "{text}");
}
