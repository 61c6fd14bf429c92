#!/usr/bin/env bash
# Format, lints, all short tests. Usage: scripts/test.sh [lint]. The last line sums up, in the words of cargo test.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"
cargo=${CARGO:-cargo}

if ! command -v "$cargo" >/dev/null 2>&1; then
    echo "test: cargo not found. Install Rust 1.85 or later (https://www.rust-lang.org/tools/install)." >&2
    exit 1
fi

# A compiler for C, which Rust links with, is among them.
bash scripts/deps.sh

skipped=""
if "$cargo" fmt --version >/dev/null 2>&1; then
    "$cargo" fmt --all --check
else
    skipped="$skipped rustfmt"
fi
if "$cargo" clippy --version >/dev/null 2>&1; then
    "$cargo" clippy --locked --workspace --all-targets -- -D warnings
else
    skipped="$skipped clippy"
fi
[ -z "$skipped" ] || echo "test: SKIPPED, not installed:$skipped. To have them: rustup component add$skipped"
[ "${1-}" != lint ] || exit 0

log=$(mktemp)
status=0
# --show-output, because a test that cannot run here passes and prints why; but what passed need not be listed twice.
# Into a file: a process that can't be killed would keep a pipe, and so us, waiting.
"$cargo" test --locked --workspace --no-fail-fast -- --show-output >"$log" 2>&1 &
tests=$!
bash scripts/watch.sh "$tests" "$log" &
watch=$!
trap 'kill "$tests" "$watch" 2>/dev/null || true; rm -f "$log"' EXIT
tail -n +1 -s 0.2 -f --pid="$tests" "$log" |
    sed -u '/^successes:$/,/^\(failures:\|test result:\)/{/^\(failures:\|test result:\)/!d}'
wait "$tests" || status=$?
kill "$watch" 2>/dev/null || true

reasons=$(grep -ahE '^skipped' "$log" | sort | uniq -c || true)
[ -z "$reasons" ] || printf 'Skipped on this machine:\n%s\n' "$reasons"
verdict=ok
if [ "$status" != 0 ]; then
    verdict=FAILED
    # Once more at the end, where it is found: what each program that failed complained of, or that it said nothing.
    awk '
        function cut(line) { return substr(line, 1, 300) }
        /^ +(Running|Doc-tests) / { program = $0; words = last = ""; said = 0; lines = 0 }
        /panicked at/ { lines = 6; if (++said > 3) lines = 0 }
        lines > 0 && !/^stack backtrace:/ { words = words "    " cut($0) "\n"; lines-- }
        /^stack backtrace:/ { lines = 0 }
        /^test .* [.][.][.] / { last = $0 }
        /^test: nothing was said/ { words = words "    hung, and was killed\n" }
        /^error: test failed/ { printf "FAILED:%s\n%s    last: %s\n", program, words, cut(last) }
    ' "$log"
fi
# Suites without the test harness (they must be alone in their process) print no result line: their lines are counted.
awk -v verdict="$verdict" '
    function section() { if (!counted) { passed += lines; failed += bad }; lines = bad = counted = 0 }
    # Of one that ended in its first failure no line says so.
    /^error: test failed/ { if (!counted && !bad) bad = 1 }
    /^ +(Running|Doc-tests) / { section() }
    /^test .* [.][.][.] ok$/ { lines++ }
    /^test .* [.][.][.] FAILED$/ { bad++ }
    /^test result:/ { counted = 1; for (i = 4; i <= NF; i++) { n = $(i - 1) + 0
        if ($i ~ /^passed/) passed += n; if ($i ~ /^failed/) failed += n; if ($i ~ /^ignored/) ignored += n } }
    END { section(); printf "test result: %s. %d passed; %d failed; %d ignored; all crates\n", verdict, passed, failed, ignored }
' "$log"
exit "$status"
