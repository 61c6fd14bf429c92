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

# Lints never keep the tests from running; `lint` and CI want them without a word, whatever their version.
lints=0
if [ "${1-}" = lint ]; then
    exec bash scripts/lint.sh
fi
bash scripts/lint.sh ${SYSTX_LINTS:-advice} || lints=1

log=$(mktemp)
status=0
# In a process group of its own, so that whoever stops this script stops the test programs.
set -m
bash scripts/side_by_side.sh "$log" --workspace </dev/null &
tests=$!
set +m
trap 'kill -- "-$tests" 2>/dev/null || true; rm -f "$log" "$log.lock"' EXIT
# What passed need not be listed twice.
tail -n +1 -s 0.2 -f --pid="$tests" "$log" |
    sed -u '/^successes:$/,/^\(failures:\|test result:\)/{/^\(failures:\|test result:\)/!d}'
wait "$tests" || status=$?

reasons=$(grep -ahE '^skipped' "$log" | sort | uniq -c || true)
[ -z "$reasons" ] || printf 'Skipped on this machine:\n%s\n' "$reasons"
slowest=$(sed -nE 's/^ +Running .* \((.*)\), (.*), ([0-9]+) s$/\3 s \2 \1/p' "$log" | sed -E 's/-[0-9a-f]{16}$//' | sort -rn | head -n 5)
[ -z "$slowest" ] || printf 'The slowest programs:\n%s\n' "$(printf '%s\n' "$slowest" | sed 's/^/    /')"
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
if [ "$lints" != 0 ]; then
    echo "FAILED: format or lints, above. make lint"
    verdict=FAILED status=1
fi
# A program that was killed prints no result line: its lines are counted.
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
