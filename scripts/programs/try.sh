#!/usr/bin/env bash
# Usage: FS=MOUNT SCRATCH=DIR SYSTX=PROGRAM try.sh FILE. One program of this directory, four times from the same start:
# plainly, plainly again, in a transaction that aborts, in one that commits.
#
# FILE sets `needs` (commands), defines `work` and may define `prepare` (both run in the tree, FS/tree) and `check` (asked
# after the commit). `expect` is the status that the program ends with. Patterns: `named`, of paths whose names are random
# (as many in each run); `dated`, of what is as new as the run, even where two runs agree by chance.
#
# What the two plain runs agree on is the program's doing, set times included: the committed run must agree with it. What
# they differ in is chance (a time, a random name) and not compared; where the committed run differs, one more plain run
# after it tells whether the two agreed by chance only. An abort must leave everything as it was, inode numbers and times of
# the last change included.
# Prints one line: `ok`, `FAILED` or `skipped: `, and why. FS is a file system that is seen here only; SCRATCH is not on it.
set -euo pipefail
file=$(realpath "$1")
name=$(basename "$file" .sh)
here=$(dirname "$file")
T=$FS/tree
log=$SCRATCH/$name
mkdir -p "$log"

skip() { echo "skipped: $name: $*"; exit 0; }
fail() {
    echo "FAILED   $name: $*"
    [ ! -s "$log/why" ] || head -n "${LINES_MAX:-25}" "$log/why" | cut -c 1-300 | sed 's/^/    /'
    exit 1
}

# Programs find their own home, caches and temporary files in the tree; tool chains stay where they are.
PYTHON=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null || true)
export RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup} PYTHON T AREA=${AREA:-.systx}
PATH=$(dirname "${PYTHON:-/bin/sh}"):$PATH
export HOME=$T/home TMPDIR=$T/tmp LC_ALL=C TZ=UTC SOURCE_DATE_EPOCH=1700000000 PROGRAMS=$here CARGO_HOME=$T/home/.cargo
unset CARGO_TARGET_DIR CARGO_BUILD_JOBS RUSTFLAGS MAKEFLAGS MAKELEVEL
umask 022

needs="" expect=0 named="" dated=""
# shellcheck source=/dev/null
. "$file"
for tool in $needs; do
    command -v "$tool" >/dev/null 2>&1 || skip "no $tool"
done

# Everything of the tree that a user can tell apart, a line each: path, what, value. Sizes of directories are the file
# system's affair.
picture() (
    cd "$T"
    {
        find . -printf '%P\tkind\t%y %#m %U:%G\n%P\tmtime\t%T@\n'
        find . -printf '%P\tlinks\t%n\n'
        find . -type f -printf '%P\tsize\t%s\n'
        find . -type l -printf '%P\ttarget\t%l\n'
        find . \( -type b -o -type c \) -exec stat --printf '%n\tdevice\t%t:%T\n' {} + | sed 's/^..//'
        find . ! -type d -links +1 -printf '%i\t%P\n' | sort -t '	' -k 2 |
            awk -F '\t' -v OFS='\t' '{ if (!($1 in first)) first[$1] = $2; print $2, "same", first[$1] }'
        find . -type f -print0 | xargs -0r sha256sum | sed -E 's/^\\?([0-9a-f]+)  ..(.*)$/\2\tdata\t\1/'
        find . -print0 | xargs -0r getfattr -h -d -e hex -m - -- 2>/dev/null |
            awk -v OFS='\t' '/^# file: / { path = substr($0, 9); next } NF { print path, "xattr " substr($0, 1, index($0, "=") - 1), $0 }'
    } | sort
)
fingerprint() (
    cd "$T"
    find . -printf '%p %y %#m %U:%G %s %T@ %C@ %i %n %l\n' | sort
    find . -type f -print0 | sort -z | xargs -0r sha256sum
    find . -print0 | sort -z | xargs -0r getfattr -h -d -e hex -m - -- 2>/dev/null
)
restore() { rm -rf --one-file-system "$T" && cp -a "$log/start" "$T" && sync -f "$FS"; }

play() { # label, status that is expected, words in front...
    local label=$1 wanted=$2 status=0 from=${EPOCHREALTIME/[.,]/}
    shift 2
    # shellcheck disable=SC2016  # for the inner one
    (cd "$T" && exec "$@" bash -euc '. "$1"; work; exit "$2"' bash "$file" "$wanted") \
        >"$log/$label.out" 2>&1 </dev/null || status=$?
    elapsed=$((${EPOCHREALTIME/[.,]/} - from))
    [ "$status" = "$wanted" ] || { tail -n 25 "$log/$label.out" >"$log/why"; fail "$label: status $status, not $wanted"; }
}

rm -rf --one-file-system "$T" "$log/start"
mkdir -p "$T/home" "$T/tmp"
: >"$log/why"
if [ "$(type -t prepare || true)" = function ]; then
    # shellcheck disable=SC2016
    (cd "$T" && bash -euc '. "$1"; prepare' bash "$file") >"$log/prepare.out" 2>&1 </dev/null ||
        skip "not to be had here: $(tail -n 1 "$log/prepare.out")"
fi
cp -a "$T" "$log/start"

restore; play plain "$expect"; picture >"$log/plain"
restore; play again "$expect"; picture >"$log/again"; plain_us=$elapsed
restore
inside=("$SYSTX" run --area-name "$AREA" --only "$T" --)
fingerprint >"$log/before"
play abort $((expect ? expect : 9)) "${inside[@]}"; abort_us=$elapsed
fingerprint >"$log/after"
diff "$log/before" "$log/after" >"$log/why" || fail "aborted, and left a trace"
ratio() { awk -v a="$1" -v b="$plain_us" 'BEGIN { printf "%.2f", a / b }'; }
if [ "$expect" != 0 ]; then
    echo "ok       $name: ended with $expect, aborted without a trace; time $(ratio "$abort_us")"
    exit 0
fi
play commit 0 "${inside[@]}"; commit_us=$elapsed
picture >"$log/inside"
if [ "$(type -t check || true)" = function ]; then
    # shellcheck disable=SC2016
    (cd "$T" && bash -euc '. "$1"; check' bash "$file") >"$log/why" 2>&1 </dev/null || fail "the committed tree is not in order"
fi

# What the plain runs agree on, and what there is of it in the last picture.
compare() { # pictures of plain runs, and of the committed one
    awk -F '\t' -v named="${named:-^$}" -v dated="${dated:-^$}" '
        { key = $1 FS $2 }
        $1 ~ named && $2 == "kind" { number[FILENAME]++ }
        $1 ~ dated && ($2 == "data" || $2 == "mtime") { next }
        FILENAME == ARGV[1] { plain[key] = $3; times[key] = 1; next }
        FILENAME != ARGV[ARGC - 1] { if (key in plain && plain[key] == $3) times[key]++; else chance[key] = 1; next }
        times[key] == ARGC - 2 { compared++; if (plain[key] != $3) print key ": plainly " plain[key] ", committed " $3; met[key] = 1; next }
        !(key in chance) && !(key in plain) && $1 !~ named { print key ": committed only, " $3 }
        END {
            if (number[ARGV[1]] != number[ARGV[ARGC - 1]])
                print "of random names: plainly " number[ARGV[1]] + 0 ", committed " number[ARGV[ARGC - 1]] + 0
            for (key in plain) {
                if (times[key] < ARGC - 2) chance[key] = 1
                else if (!(key in met)) { split(key, part, FS); if (part[1] !~ named) print key ": missing, plainly " plain[key] }
            }
            for (key in chance) n++
            print compared + 0 " facts equal, " n + 0 " left to chance" >"/dev/stderr" }
    ' "$@" >"$log/why" 2>"$log/count" || { mv "$log/count" "$log/why"; fail "the pictures can't be compared"; }
    [ ! -s "$log/why" ] || return 1
    ! cmp -s "$log/plain.out" "$log/again.out" || { [ $# = 4 ] && ! cmp -s "$log/plain.out" "$log/third.out"; } ||
        diff "$log/plain.out" "$log/commit.out" >"$log/why"
}
if ! compare "$log/plain" "$log/again" "$log/inside"; then
    restore; play third 0; picture >"$log/third"
    compare "$log/plain" "$log/again" "$log/third" "$log/inside" || fail "the committed run differs from the plain ones"
fi
echo "ok       $name: $(cat "$log/count"); time: commit $(ratio "$commit_us"), abort $(ratio "$abort_us") of $((plain_us / 1000)) ms"
