#!/usr/bin/env bash
# The four parts of the demo. Started by run.sh, in a mount namespace of its own; SYSTX_DEMO is the scratch directory.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scratch=$SYSTX_DEMO
fs=$scratch/fs
control=$scratch/control
export PATH="$scratch/bin:$PATH" TMPDIR=$scratch/control

bold=$([ ! -t 1 ] || printf '\033[1m') plain=$([ ! -t 1 ] || printf '\033[0m')
title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
say() { printf '  %s\n' "$*"; }
ok() { printf '  ok: %s\n' "$*"; }
fail() {
    printf '\ndemo: FAILED: %s\n' "$*" >&2
    local log
    log=$(find "$scratch" -maxdepth 1 -name '*.log' -size +0 -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
    [ -z "$log" ] || { echo "last log, ${log##*/}:" >&2; tail -n 15 "$log" >&2; }
    exit 1
}
check() { # description, command...
    local what=$1
    shift
    "$@" || fail "$what"
    ok "$what"
}
equal() { [ "$1" = "$2" ] || fail "$3: expected $2, got $1"; ok "$3: $1"; }

# Everything that can be seen of a tree: names, types, modes, owners, sizes, times, inode numbers, links, contents,
# extended attributes. Not the access times, which reading changes, and not systx's own area.
fingerprint() {
    (cd "$fs" &&
        find . -path ./.systx -prune -o -printf '%p %y %#m %U:%G %s %T@ %C@ %i %n %l\n' | sort &&
        find . -path ./.systx -prune -o -type f -print0 | sort -z | xargs -0r sha256sum &&
        find . -path ./.systx -prune -o -print0 | sort -z | xargs -0r getfattr -h -d -m - --absolute-names --) | sha256sum | cut -c 1-16
}

# A command in a transaction tells us through this pipe where it is, and waits for us at the other one. Both lie outside
# of the file system that the transaction covers.
mkfifo "$control/tell" "$control/go"
exec 5<>"$control/tell" 6<>"$control/go"
heard() { # word: the next thing heard must be this
    local word
    read -r word <&5
    [ "$word" = "$1" ] || fail "the transaction ended early: $word"
}
export CONTROL=$control FS=$fs
# For use inside: tell a word; wait to be told to go on.
TELL='echo "$1" >"$CONTROL/tell"'
WAIT='read -r _ <"$CONTROL/go"'
# Runs `bash -c SCRIPT` as a transaction in the background; its output goes to LOG, its end is heard as "end:STATUS".
background() { # log, script
    (
        status=0
        systx run --only "$fs" -- bash -ec "$2" >"$scratch/$1" 2>&1 </dev/null || status=$?
        echo "end:$status" >&5
    ) &
}

if mount -o loop "$scratch/disk.img" "$fs" 2>"$scratch/mount.log"; then
    where="a fresh ext4 with a journal"
else
    mount -t tmpfs -o size=1G none "$fs"
    where="tmpfs (no loop device: $(tail -n 1 "$scratch/mount.log"))"
fi
say "$(systx version | head -n 1)"
say "scratch file system FS: $where, seen by this demo only"

for part in build abort conflict kill; do
    # shellcheck source=/dev/null
    . "$here/part-$part.sh"
done

title "All as said."
say "The same for your own commands: systx run -- COMMAND. What is promised: docs/guarantees.md."
