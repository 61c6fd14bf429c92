#!/usr/bin/env bash
# Format and lints of code and documents. Usage: scripts/lint.sh [advice]
#
# With `advice`, what another version of the lints than ours has to say is printed and is no failure: each version has
# other lints, and none of them keeps a program from being tested. CI has ours.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
# The version that this project is free of warnings under.
ours=1.95

skipped="" status=0 deny=yes
version=$("$cargo" clippy --version 2>/dev/null | sed -n 's/^clippy 0\.\([0-9]*\.[0-9]*\).*/\1/p') || true
case $version in
"") skipped=" clippy" ;;
"$ours") ;;
*) [ "${1-}" != advice ] || deny="" ;;
esac
if ! "$cargo" fmt --version >/dev/null 2>&1; then
    skipped="$skipped rustfmt"
elif ! "$cargo" fmt --all --check; then
    [ -z "$deny" ] || status=1
fi
if [ -n "$version" ]; then
    if [ -n "$deny" ]; then
        "$cargo" clippy --locked --workspace --all-targets -- -D warnings || status=1
    else
        echo "lint: advice only, since these lints are of Rust $version and ours of $ours"
        "$cargo" clippy --locked --workspace --all-targets || true
    fi
fi
# What users of a crate read, and what contributors do; a link that leads nowhere is a warning.
for items in "" --document-private-items; do
    # shellcheck disable=SC2086  # one word or none
    RUSTDOCFLAGS="${deny:+-D warnings}" "$cargo" doc --quiet --locked --workspace --no-deps $items || status=1
done
"$cargo" xtask lint || status=1
# Advisories need cargo-deny and its database; the rest of deny.toml `cargo xtask deny` has just checked.
if ! "$cargo" deny --version >/dev/null 2>&1; then
    echo "lint: skipped: advisories: cargo-deny is not installed. To have it: cargo install --locked cargo-deny"
elif ! said=$(timeout 60 "$cargo" deny --log-level error fetch db 2>&1); then
    echo "lint: skipped: advisories: their database can't be fetched: $(tail -n 1 <<<"$said")"
    "$cargo" deny --log-level error check bans licenses sources || status=1
else
    "$cargo" deny --log-level error check || status=1
fi
[ -z "$skipped" ] || echo "lint: SKIPPED, not installed:$skipped. To have them: rustup component add$skipped"
exit "$status"
