#!/usr/bin/env bash
# Measures small transactions of the library beside plain calls and SQLite, on an ext4 of its own; prints shortest and
# median time in microseconds, and how many system calls each takes (with strace). Needs root and a loop device.
#   scripts/speed.sh                     2000 rounds of each
#   ROUNDS=200 DIR=/somewhere scripts/speed.sh
set -eu
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/sbin:/sbin"

[ "$(id -u)" = 0 ] || { echo "speed: needs root, for a file system of its own"; exit 1; }
[ -n "${BUILT:-}" ] || "${CARGO:-cargo}" build -q --release -p systx --example speed
program=$(realpath -m "${CARGO_TARGET_DIR:-target}/release/examples/speed")
scratch=$(mktemp -d "${DIR:-${TMPDIR:-/tmp}}/systx-speed.XXXXXX")
trap 'rm -rf --one-file-system "$scratch"' EXIT
truncate -s 1G "$scratch/image.img"
mkfs.ext4 -q "$scratch/image.img"
mkdir "$scratch/mnt"

cat > "$scratch/sqlite.py" <<'PYTHON'
import os, sqlite3, sys, time
path, rounds = sys.argv[1], int(sys.argv[2])
db = sqlite3.connect(path, isolation_level=None)
db.execute("pragma journal_mode=wal")
db.execute("create table t (k integer primary key, v blob)")
db.execute("insert into t values (1, zeroblob(512)), (2, zeroblob(512))")

def show(what, keys):
    times = []
    for n in range(rounds):
        began = time.perf_counter()
        db.execute("begin immediate")
        for key in keys:
            db.execute("update t set v = ? where k = ?", (os.urandom(512), key))
        db.execute("commit")
        times.append((time.perf_counter() - began) * 1e6)
    times.sort()
    print(f"{what:52} {times[0]:9.2f} {times[rounds // 2]:9.2f}")

for sync, name in (("off", "none"), ("full", "durable")):
    db.execute(f"pragma synchronous={sync}")
    show(f"SQLite (WAL): update of one row, {name}", [1])
PYTHON

echo "speed: $(uname -r), $(nproc) CPUs, load $(cut -d' ' -f1-3 /proc/loadavg), $(git describe --always --dirty 2>/dev/null || echo unknown)"
export scratch program rounds="${ROUNDS:-2000}"
unshare --mount --propagation private bash -eu -c '
    mount -o loop "$scratch/image.img" "$scratch/mnt"
    "$program" "$scratch/mnt" "$rounds" | tee "$scratch/times"
    if command -v python3 >/dev/null && python3 -c "import sqlite3" 2>/dev/null; then
        python3 "$scratch/sqlite.py" "$scratch/mnt/db" "$rounds"
    else
        echo "skipped: SQLite: python3 with sqlite3 is missing"
    fi
    if command -v strace >/dev/null; then
        counted() { strace -f -c -o "$scratch/calls" "$program" "$scratch/mnt" "$1" "$2" >/dev/null
            awk "\$NF == \"total\" { print \$4 }" "$scratch/calls"; }
        echo "system calls each:"
        cut -c1-52 "$scratch/times" | sed "s/ *\$//" | while read -r what; do
            few=$(counted 10 "$what") many=$(counted 1010 "$what")
            printf "%-52s %9d\n" "$what" $(((many - few + 500) / 1000))
        done
    else
        echo "skipped: system calls: strace is missing"
    fi
    umount "$scratch/mnt"'
