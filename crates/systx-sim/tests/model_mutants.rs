//! No rule without a test that shows that it is needed.

const DECLARED: &str = include_str!("../src/model/mod.rs");
const TESTS: [&str; 10] = [
    include_str!("model_cooperation.rs"),
    include_str!("model_crash.rs"),
    include_str!("model_redo.rs"),
    include_str!("model_shared_staging.rs"),
    include_str!("model_appends.rs"),
    include_str!("model_mark.rs"),
    include_str!("model_participants.rs"),
    include_str!("model_liveness.rs"),
    include_str!("model_outsiders.rs"),
    include_str!("model_alone.rs"),
];

#[test]
fn every_mutant_is_killed_by_a_named_test() {
    let body = DECLARED.split("pub enum Mutant {").nth(1).and_then(|rest| rest.split('}').next());
    let lines = body.expect("the enum is declared in this form").lines().map(str::trim);
    let mutants: Vec<&str> =
        lines.filter(|line| !line.starts_with("//")).filter_map(|l| l.strip_suffix(',')).collect();
    assert!(mutants.len() > 30, "{mutants:?}");
    for mutant in mutants {
        let used = format!("Mutant::{mutant}");
        let named =
            |text: &&str| text.split(&used).skip(1).any(|rest| !rest.starts_with(char::is_alphanumeric));
        assert!(TESTS.iter().any(named), "{mutant} has no test");
    }
}
