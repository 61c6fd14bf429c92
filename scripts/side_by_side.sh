#!/usr/bin/env bash
# Builds the test programs and runs them three at a time (most wait for half of their time), the long ones first.
# Usage: scripts/side_by_side.sh LOG [CARGO-TEST-OPTIONS]
#
# Each program has a log of its own and its own watch for a hang (scripts/watch.sh); what it said goes to LOG in one piece
# when it ends. Exit status: 0 if everything was built and nothing failed. SYSTX_JOBS: how many at a time.
set -uo pipefail
export LOG=$1 CARGO=${CARGO:-cargo}
shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

if ! "$CARGO" test --locked --no-run --message-format=json-render-diagnostics "$@" >"$dir/built" 2>"$dir/said"; then
    cat "$dir/said" >>"$LOG"
    echo "error: test failed, it does not build" >>"$LOG"
    exit 1
fi
# By line: the package's directory, the source, the program (crates/xtask/src/programs.rs).
if ! "$CARGO" xtask programs <"$dir/built" >"$dir/order" 2>&1; then
    { cat "$dir/order"; echo "error: test failed, no test programs"; } >>"$LOG"
    exit 1
fi

status=0
xargs -a "$dir/order" -P "${SYSTX_JOBS:-3}" -L 1 bash "$(dirname "$0")/one_program.sh" || status=1
# Examples in documentation are built by rustdoc, one at a time.
case " $* " in *" --tests "*) ;; *) "$CARGO" test --locked --doc "$@" >>"$LOG" 2>&1 || status=1 ;; esac
exit "$status"
