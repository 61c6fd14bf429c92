#!/usr/bin/env bash
# Programs of the papers, and of today, until durable: plainly, in a transaction, on an overlay that nobody merges back, and by those
# of try, sandlock and branchfs that are installed.
#   scripts/workloads.sh                 all; writes docs/workloads.md. An hour or so; root, a loop device, the network
#   scripts/workloads.sh lfs git         some groups of scripts/workloads, printed only; OUT=FILE: written there
#   REPEATS=9 ROWS='lfs-create|git-gc'   repeats (default 5); only rows whose whole name matches
# A group sets `rows`, defines `work_ROW` for each, with - as _, and may define `prepare` (once), `ready_ROW` (before each run, not measured),
# `needs` (commands) and `target_ROW`. They run in $T, a tree of its own on a fresh ext4 with its journal; the three ways take turns.
# A row whose name begins with abort- is measured from the last word of its command to the end of systx: what an abort takes.
# One whose name begins with inside- measures itself: it writes microseconds to descriptor 3.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

if [ -z "${WORKLOADS_INSIDE-}" ]; then
    [ "$(id -u)" = 0 ] || { echo "workloads: needs root, for a file system of its own" >&2; exit 1; }
    if [ -z "${SYSTX-}" ]; then
        bash scripts/build.sh
        SYSTX=$(realpath "${CARGO_TARGET_DIR:-target}/release/systx")
    fi
    SCRATCH=$(mktemp -d "${DIR:-${TMPDIR:-/tmp}}/systx-workloads.XXXXXX")
    export SYSTX SCRATCH
    trap 'rm -rf --one-file-system "$SCRATCH"' EXIT
    trap 'exit 130' INT TERM
    status=0
    WORKLOADS_INSIDE=1 unshare --mount --propagation private bash scripts/workloads.sh "$@" || status=$?
    [ "$status" = 0 ] || exit "$status"
    if [ $# = 0 ] && [ -z "${ROWS-}" ]; then
        OUT=${OUT:-docs/workloads.md}
    fi
    if [ -n "${OUT-}" ]; then
        cp "$SCRATCH/table" "$OUT"
    else
        cat "$SCRATCH/table"
    fi
    exit 0
fi

here=$PWD/scripts/workloads
export PROGRAMS=$PWD/scripts/programs FS=$SCRATCH/fs
export T=$FS/tree HOME=$FS/tree/home TMPDIR=$SCRATCH LC_ALL=C TZ=UTC
repeats=${REPEATS:-5}
peers=
for peer in try sandlock branchfs; do
    ! command -v $peer >/dev/null 2>&1 || peers+=" $peer"
done
mkdir "$FS"
truncate -s 12G "$SCRATCH/disk.img"
mkfs.ext4 -q -N 2000000 "$SCRATCH/disk.img"
mount -o loop "$SCRATCH/disk.img" "$FS"

now() { echo "${EPOCHREALTIME/[.,]/}"; } # in microseconds
inside() { # group file, function: it, in the tree, if it is defined
    (cd "$T" && exec bash -euc '. "$1"; [ "$(type -t "$2" || true)" != function ] || "$2"' bash "$1" "$2") >"$SCRATCH/said" 2>&1 </dev/null
}
fail() {
    echo "workloads: $*:" >&2
    tail -n 20 "$SCRATCH/said" >&2
    exit 1
}
fresh() { # group file, row: the tree as this row begins
    rm -rf --one-file-system "$T"
    cp -a "$FS/start" "$T"
    inside "$1" "ready_$2" || fail "$2 could not be made ready"
    sync -f "$FS"
}
# shellcheck disable=SC2016
script='. "$1"; cd "$3"; T=$3 HOME=$3/home; "work_$2"; [ "$2" = "${2#abort_}" ] || { echo "${EPOCHREALTIME/[.,]/}" >&3; exit 1; }'

# Each way prints how long it took, in microseconds.
took() { # row, since when
    sync -f "$FS"
    case $1 in
    inside_*) cat "$SCRATCH/end" ;;
    *) echo $(($(now) - $2)) ;;
    esac
}
plain() { # group file, row
    local from
    from=$(now)
    bash -euc "$script" bash "$1" "$2" "$T" 3>"$SCRATCH/end" >"$SCRATCH/said" 2>&1 </dev/null || return 1
    took "$2" "$from"
}
transaction() {
    local from status=0
    from=$(now)
    "$SYSTX" run --only "$T" -- bash -euc "$script" bash "$1" "$2" "$T" 3>"$SCRATCH/end" >"$SCRATCH/said" 2>&1 </dev/null || status=$?
    case $2 in
    abort_*)
        [ "$status" = 1 ] || return 1
        echo $(($(now) - $(cat "$SCRATCH/end")))
        ;;
    inside_*) [ "$status" = 0 ] && cat "$SCRATCH/end" ;;
    *) [ "$status" = 0 ] && echo $(($(now) - from)) ;; # durable, and so without a sync
    esac
}
overlay() {
    local from status=0
    rm -rf --one-file-system "$FS/upper" "$FS/work" "$FS/merged"
    mkdir "$FS/upper" "$FS/work" "$FS/merged"
    mount -t overlay -o "lowerdir=$T,upperdir=$FS/upper,workdir=$FS/work" none "$FS/merged" || return 1
    from=$(now)
    bash -euc "$script" bash "$1" "$2" "$FS/merged" 3>"$SCRATCH/end" >"$SCRATCH/said" 2>&1 </dev/null || status=$?
    [ "$status" != 0 ] || took "$2" "$from"
    umount "$FS/merged"
    return "$status"
}
# The peers merge what they have made file by file: all of it is durable after the sync, or some, if that is cut off.
with_try() {
    local from
    rm -rf --one-file-system "$FS/sandbox"
    mkdir "$FS/sandbox"
    printf '%s\n' "$script" >"$SCRATCH/script" # it joins the words of a command to a text
    from=$(now)
    TMPDIR=$FS/sandbox try -y bash -eu "$SCRATCH/script" "$1" "$2" "$T" 3>"$SCRATCH/end" >"$SCRATCH/said" 2>&1 </dev/null || return 1
    took "$2" "$from"
}
with_sandlock() {
    local from
    from=$(now)
    sandlock run --workdir "$T" -w "$T" -w /dev -w /tmp -r / --net-allow '*' -- bash -euc "$script" bash "$1" "$2" "$T" \
        3>"$SCRATCH/end" >"$SCRATCH/said" 2>&1 </dev/null || return 1
    took "$2" "$from"
}
with_branchfs() {
    local from status=0 base=$FS/branches
    rm -rf --one-file-system "$base"
    mkdir -p "$base/at" "$base/store"
    branchfs mount --base "$T" --storage "$base/store" "$base/at" >"$SCRATCH/said" 2>&1 </dev/null || return 1
    from=$(now)
    { branchfs create --storage "$base/store" it "$base/at" && bash -euc "$script" bash "$1" "$2" "$base/at" 3>"$SCRATCH/end" &&
        branchfs commit --storage "$base/store" "$base/at"; } >"$SCRATCH/said" 2>&1 </dev/null || status=$?
    [ "$status" != 0 ] || took "$2" "$from"
    branchfs unmount --storage "$base/store" "$base/at" >/dev/null 2>&1 </dev/null || umount -l "$base/at"
    return "$status"
}
names() { (cd "$T" && find . | sort | sha256sum); }
summary() { # of numbers in a file, in µs: minimum and median, in ms
    sort -n "$1" | awk '{ v[NR] = $1 / 1000 } END { m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; printf "%.4g %.4g\n", v[1], m }'
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

row() { # group file, name
    local file=$1 name=$2 id=${2//-/_} way target=– min median plain_min plain_median after='' count=0 repeat found
    local cells=''
    rm -f "$SCRATCH"/*.us
    for repeat in $(seq "$repeats"); do
        for way in plain transaction overlay ${peers// / with_}; do
            case $name:$way:$repeat in
            abort-*:transaction:*) ;;
            abort-* | *:with_*:[2-9]* | *:with_*:1?*) continue ;; # the peers once: some take a hundred times as long
            esac
            fresh "$file" "$id"
            if ! "$way" "$file" "$id" >"$SCRATCH/took"; then
                [[ $way = with_* ]] || fail "$name, $way, failed"
                echo "workloads: $name $way: $(tail -n 1 "$SCRATCH/said")" >&2
                continue
            fi
            cat "$SCRATCH/took" >>"$SCRATCH/$way.us"
            case $way in
            plain) after=$(names) count=$(find "$T" | wc -l) ;;
            with_*)
                found=$(find "$T" | wc -l)
                [ "$found" = "$count" ] || { echo "workloads: $name $way: left $found names for $count" >&2 && rm "$SCRATCH/$way.us"; }
                ;;
            transaction) [ -z "$after" ] || [ "$(names)" = "$after" ] || [ -n "${named_by_chance-}" ] || fail "$name leaves other names than plainly" ;;
            esac
        done
    done
    target=$(bash -c '. "$1"; eval "echo \${target_$2-–}"' bash "$file" "$id")
    if [ ! -e "$SCRATCH/plain.us" ]; then
        read -r min median < <(summary "$SCRATCH/transaction.us")
        echo "| $name | – | – | $min | $median | – | – | – | – | – | – | $target |"
        return
    fi
    read -r plain_min plain_median < <(summary "$SCRATCH/plain.us")
    read -r min median < <(summary "$SCRATCH/transaction.us")
    cells="$plain_min | $plain_median | $min | $median | **$(ratio "$min" "$plain_min")** | $(ratio "$median" "$plain_median")"
    read -r min median < <(summary "$SCRATCH/overlay.us")
    cells+=" | $(ratio "$min" "$plain_min")"
    for way in try sandlock branchfs; do
        min=–
        if [ -s "$SCRATCH/with_$way.us" ]; then
            read -r min median < <(summary "$SCRATCH/with_$way.us")
            min=$(ratio "$min" "$plain_min")
        fi
        cells+=" | $min"
    done
    echo "| $name | $cells | $target |"
}

cat >"$SCRATCH/table" <<END
# Programs, until durable: results

Written by \`scripts/workloads.sh\`; what the rows do is in \`scripts/workloads\`.
Commit $(git describe --always --dirty 2>/dev/null || echo unknown), $(date -u '+%F %R') UTC, kernel $(uname -r), $(nproc) CPUs,
$repeats repeats in turns, load at start $(cut -d' ' -f1-3 /proc/loadavg). Times in ms. Plain: the program, then
\`sync -f\`. The overlay isolates, compares and merges nothing. \`try -y\`, \`sandlock run --workdir\` and \`branchfs\`
where they are installed and leave as many names, once each.

| | plain min | median | systx min | median | ratio min | median | overlay min | try | sandlock | branchfs | target |
|---|---|---|---|---|---|---|---|---|---|---|---|
END
[ $# -gt 0 ] || set -- $(cd "$here" && ls | sed -n 's/[.]sh$//p')
for group in "$@"; do
    file=$here/$group.sh
    needs='' rows='' named_by_chance=''
    # shellcheck source=/dev/null
    . "$file"
    for tool in $needs; do
        command -v "$tool" >/dev/null 2>&1 || { echo "skipped: $group: no $tool" | tee -a "$SCRATCH/skipped"; continue 2; }
    done
    rm -rf --one-file-system "$T" "$FS/start"
    mkdir -p "$T/home"
    if ! inside "$file" prepare; then
        echo "skipped: $group: not to be had here: $(tail -n 1 "$SCRATCH/said")" | tee -a "$SCRATCH/skipped"
        continue
    fi
    mv "$T" "$FS/start"
    for name in $rows; do
        [[ $name =~ ^(${ROWS:-.*})$ ]] || continue
        row "$file" "$name" | tee -a "$SCRATCH/table"
    done
done
[ ! -s "$SCRATCH/skipped" ] || { echo && cat "$SCRATCH/skipped"; } >>"$SCRATCH/table"
umount "$FS"
