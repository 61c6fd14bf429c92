#!/usr/bin/env bash
# Ends a test program that hangs, and says where. Usage: scripts/watch.sh PID LOG
#
# When LOG has not grown for SYSTX_SILENCE seconds (600), prints what every process is doing, with kernel stacks, and
# kills what PID has started, which counts as a failure; the next program goes on.
set -uo pipefail
cargo=$1 log=$2 limit=${SYSTX_SILENCE:-600}

descendants() {
    local child
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        echo "$child"
        descendants "$child"
    done
}

tell() {
    local proc pid words state
    for proc in /proc/[0-9]*; do
        pid=${proc#/proc/}
        words=$({ tr '\0' ' ' <"$proc/cmdline" | cut -c1-200; } 2>/dev/null)
        [ -n "$words" ] || continue
        state=$(awk '/^(State|PPid):/ { printf "%s ", $2 }' "$proc/status" 2>/dev/null)
        echo "  $pid $state$(cat "$proc/wchan" 2>/dev/null) $words"
        case " $1 " in *" $pid "*) sed 's/^/      /' "$proc/stack" 2>/dev/null | head -n 16 ;; esac
    done
}

said=-1 since=$SECONDS
while kill -0 "$cargo" 2>/dev/null; do
    size=$(stat -c %s "$log") || exit 0
    if [ "$size" != "$said" ]; then
        said=$size since=$SECONDS
    elif [ $((SECONDS - since)) -ge "$limit" ]; then
        started=$(descendants "$cargo" | tr '\n' ' ')
        {
            echo "test: nothing was said for $limit s; what it started is killed. Processes (pid, state, parent, where):"
            tell "$started"
        } >>"$log"
        # By number, but of our own descendants, listed a moment ago.
        [ -z "$started" ] || kill -KILL $started 2>/dev/null
        since=$SECONDS
    fi
    sleep 2
done
