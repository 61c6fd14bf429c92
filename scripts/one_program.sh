#!/usr/bin/env bash
# Runs a test program as cargo does, and adds what it said to $LOG in one piece. Usage: scripts/one_program.sh PACKAGE-DIRECTORY SOURCE PROGRAM
set -uo pipefail
package=$1 source=$2 program=$3
here=$(cd "$(dirname "$0")" && pwd)
own=$(mktemp)
begin=$SECONDS status=0
# --show-output, because a test that cannot run here passes and prints why.
# Appended to, since the watch writes there, too. Into a file: a process that can't be killed would keep a pipe, and so us, waiting.
(cd "$package" && CARGO_MANIFEST_DIR=$package "$program" --show-output; exit $?) >>"$own" 2>&1 &
running=$!
bash "$here/watch.sh" "$running" "$own" &
watch=$!
trap 'kill "$running" "$watch" 2>/dev/null; rm -f "$own"' EXIT
trap 'exit 130' INT TERM
wait "$running" || status=$?
kill "$watch" 2>/dev/null
{
    flock 9
    {
        echo "     Running ${source#"$package"/} (${program##*/}), ${package##*/}, $((SECONDS - begin)) s"
        cat "$own"
        [ "$status" = 0 ] || echo "error: test failed, status $status"
    } >>"$LOG"
} 9>>"$LOG.lock"
[ "$status" = 0 ]
