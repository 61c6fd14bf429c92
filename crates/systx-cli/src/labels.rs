//! Labels of SELinux, of which the view shows none: what is new gets its own where it is staged.

/// Said of each commit where labels decide.
pub const NEW_LABELS: &str = "SELinux: new files have the label of systx's area; run restorecon on them";

/// Returns true if SELinux enforces its policy.
pub fn decide() -> bool {
    std::fs::read("/sys/fs/selinux/enforce").is_ok_and(|value| value.starts_with(b"1"))
}
